"""Reward models between rein and transformers with PEFT: scores of what either wrote, and steps of training beside
torch.

The texts are those of models/sums, whose tokenizer has one token a character. rein's scores are those of the judge
model:DIR, from the trajectories of a run, and those of rein reward, from its history."""

import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from oracle_models import reward_model
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[3]
SUMS = ROOT / "models" / "sums"
CLOSE = dict(rtol=2e-5, atol=2e-5)
FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3"]
PAIRS = [
    dict(prompt=f"{a}+{b}=", chosen=f"{a + b}", rejected=f"{a + b + 1}{'!' * b}", margin=a / 2)
    for a, b in [(1, 2), (13, 4), (5, 0), (7, 11)]
]


def rein(*arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = [str(ROOT / "build" / "rein"), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session", autouse=True)
def program():
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "build/rein"], cwd=ROOT, env=environment, check=True, capture_output=True)


def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(SUMS)


def write_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SUMS / name, folder / name)


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def score(model, text, ids=None):
    ids = tokenizer()(text)["input_ids"] if ids is None else ids
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0, 0].item()


def judged(folder, judge, *more):
    """What rein's policy wrote to some prompts, and what the judge gave: [(prompt, completion, reward)]."""
    prompts = ["1+2=", "13+4=", "say 7:", "99+1="]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(dict(prompt=p)) + "\n" for p in prompts))
    (folder / "judge.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    r = json.loads(line)\n"
        "    print(json.dumps([r['prompt'], r['response']]), file=open('seen.jsonl', 'a'), flush=True)\n"
        "    print(json.dumps(dict(id=r['id'], reward=0)), flush=True)\n"
    )
    run = [
        "run",
        "policy",
        "--model",
        SUMS,
        "--task",
        "prompts.jsonl",
        "--held-out",
        0,
        "--eval-prompts",
        0,
        "--preset",
    ]
    run += ["grpo", "--steps", 1, "--prompts", 4, "--samples", 5, "--max-tokens", 24, "--temperature", 1.5, "--seed", 4]
    rein(*run, "--reward", f"model:{judge}", "--reward", "python3 judge.py", *more, cwd=folder)
    given = [t["reward"] for g in lines(folder / "policy/trajectories/train/0001.jsonl") for t in g["trajectories"]]
    seen = lines(folder / "seen.jsonl")
    assert len(given) == len(seen) == 20 and len(set(given)) > 8
    return [(*pair, reward) for pair, reward in zip(seen, given)]


# ---- written by transformers and PEFT, judged here
@pytest.mark.parametrize("family", FAMILIES)
def test_their_model(tmp_path, family):
    model = reward_model(family, seed=3)
    model.save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path / "theirs")
    for prompt, text, reward in judged(tmp_path, "theirs"):
        assert math.isclose(reward, score(model, prompt + text), rel_tol=2e-5, abs_tol=2e-5)


def test_their_model_pads_with_a_token_that_texts_end_with(tmp_path):
    """transformers scores the last token that is no padding; rein does what the files say."""
    model = reward_model("llama", seed=3, pad="7")
    model.save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path / "theirs")
    cases = judged(tmp_path, "theirs")
    assert any((prompt + text).endswith("7") for prompt, text, _ in cases)
    for prompt, text, reward in cases:
        assert math.isclose(reward, score(model, prompt + text), rel_tol=2e-5, abs_tol=2e-5)


def wrap(base, **settings):
    torch.manual_seed(5)
    modules = ["q_proj", "v_proj", "down_proj"]
    config = LoraConfig(task_type="SEQ_CLS", r=3, lora_alpha=5, target_modules=modules, **settings)
    wrapped = get_peft_model(base, config)
    with torch.no_grad():
        for name, p in wrapped.named_parameters():
            if "lora_" in name or "score.modules_to_save" in name:
                p.normal_(0, 0.2)
    return wrapped.eval()


@pytest.mark.parametrize("saved", [None, ["score"]])
def test_their_adapter(tmp_path, saved):
    base = reward_model("llama", seed=3)
    base.save_pretrained(tmp_path / "base")
    write_tokenizer(tmp_path / "base")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=1)
    wrapped = wrap(loaded, modules_to_save=saved)
    wrapped.save_pretrained(tmp_path / "theirs")
    for prompt, text, reward in judged(tmp_path, "theirs"):
        assert math.isclose(reward, score(wrapped, prompt + text), rel_tol=2e-5, abs_tol=2e-5)


# ---- trained here, scored there
def train(folder, *more):
    (folder / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PAIRS))
    common = ["--model", SUMS, "--data", "pairs.jsonl", "--keep-last", 0, "--seed", 3]
    rein("reward", "ours", *common, *more, cwd=folder)
    return folder / "ours" / "checkpoints"


def ours(checkpoint, full):
    if full:
        return AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    base = AutoModelForSequenceClassification.from_pretrained(SUMS, num_labels=1, pad_token_id=96)
    return PeftModel.from_pretrained(base, checkpoint).eval()


@pytest.mark.parametrize("full", [False, True])
def test_our_model(tmp_path, full):
    rate = ["--learning-rate", 1e-3] + (["--full"] if full else [])
    checkpoints = train(tmp_path, *rate, "--batch-size", 2, "--num-train-epochs", 4)
    model = ours(checkpoints / "0008", full)
    if full:
        assert model.config.num_labels == 1 and model.config.pad_token_id not in (None, model.config.eos_token_id)
        assert type(model).__name__ == "LlamaForSequenceClassification"
    for prompt, text, reward in judged(tmp_path, "ours"):  # texts end with the end token, as in training
        assert math.isclose(reward, score(model, prompt + text + "<end>"), rel_tol=2e-5, abs_tol=2e-5)


def test_our_model_in_a_padded_batch(tmp_path):
    checkpoints = train(tmp_path, "--full", "--learning-rate", 1e-3, "--max-steps", 2)
    model = ours(checkpoints / "0002", True)
    texts = [[int(i) for i in tokenizer()(t)["input_ids"]] for t in ("1+2=3<end>", "13+4=17<end>", "2<end>")]
    longest = max(map(len, texts))
    batch = torch.tensor([t + [model.config.pad_token_id] * (longest - len(t)) for t in texts])
    mask = torch.tensor([[1] * len(t) + [0] * (longest - len(t)) for t in texts])
    with torch.no_grad():
        scores = model(input_ids=batch, attention_mask=mask).logits[:, 0]
    alone = torch.tensor([score(model, None, t) for t in texts])
    torch.testing.assert_close(scores, alone, **CLOSE)


# ---- steps of training beside torch
def torch_steps(model, steps, rate, center):
    """Bradley-Terry on all pairs, autograd and torch's AdamW: the losses."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.99), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(steps):
        total = 0
        for pair in PAIRS:
            ids = [tokenizer()(pair["prompt"] + pair[side] + "<end>")["input_ids"] for side in ("chosen", "rejected")]
            better, worse = (model(input_ids=torch.tensor([x])).logits[0, 0] for x in ids)
            loss = -torch.nn.functional.logsigmoid(better - worse - pair["margin"]) + center * (better + worse) ** 2
            total = total + loss / len(PAIRS)
        optimizer.zero_grad()
        total.backward()
        losses.append(total.item())
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return losses


@pytest.mark.parametrize("full", [False, True])
def test_steps(tmp_path, full):
    rate = 1e-4
    more = ["--learning-rate", rate, "--batch-size", 4, "--num-train-epochs", 3] + (["--full"] if full else [])
    checkpoints = train(tmp_path, *more, "--center-rewards-coefficient", 0.05)
    model, end = ours(checkpoints / "0000", full), ours(checkpoints / "0003", full)
    if not full:
        for name, p in model.named_parameters():
            p.requires_grad = "lora_" in name or "score.modules_to_save" in name
    # PEFT keeps a module that it replaces: a score head of the language model, which was made at random
    before = {k: p.detach().clone() for k, p in model.named_parameters() if p.requires_grad}
    losses = torch_steps(model, 3, rate, 0.05)
    history = [row["loss"] for row in lines(tmp_path / "ours" / "history.jsonl")]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(history), rtol=2e-5, atol=2e-5)
    wanted, found = dict(model.named_parameters()), dict(end.named_parameters())
    gone = math.sqrt(sum((wanted[k] - before[k]).norm().item() ** 2 for k in before))
    apart = math.sqrt(sum((wanted[k] - found[k]).norm().item() ** 2 for k in before))
    assert gone > 1e-3 and apart < 2e-3 * gone, (gone, apart)
