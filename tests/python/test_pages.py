"""The Python blocks of docs/ run, and print what they show. What a block leaves to its reader (arrays, a model, a
tracker) is given here.

README.md's block is in test_examples.py. A block with the note "not run" names what runs it instead."""

import ast
import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rein

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/cli"))
from documentation import pages, read  # noqa: E402
from serving import make_model  # noqa: E402

BLOCKS = [
    block
    for page in pages()
    for block in read(page)[0]
    if block.language == "python" and "not run" not in block.notes and page != "README.md"
]
PROGRAMS = {"docs/rewards.md", "docs/tasks.md"}  # they read lines and answer them


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with small models by the names that the pages use."""
    make_model(tmp_path)
    for name in ("SmolLM2-135M-Instruct", "Qwen2.5-0.5B-Instruct"):
        (tmp_path / name).symlink_to(tmp_path / "chatty")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given():
    """64 sequences of 5 tokens in groups of 8, and a policy whose log-probs are numbers."""
    random = np.random.default_rng(1)
    old = -random.random((64, 5))
    log_probs = old + 0.1 * random.random((64, 5))
    gradients = []
    return {
        "rein": rein,
        "np": np,
        "log_probs": log_probs,
        "old_log_probs": old,
        "ref": old - 0.1,
        "mask": np.ones((64, 5), bool),
        "rewards": random.random(64),
        "forward": lambda first, last: log_probs[first:last],
        "backward": gradients.append,
        "gradients": gradients,
        "prompts": ["Q:3 + 4 =", "Q:1 + 2 ="],
        "reward": lambda sample: float(len(sample.text)),
        "logged": [],
    }


def shortened(text):
    """The same with fewer steps and tokens; `...` stands for what the reader adds."""
    text = text.replace(", ...]", ', {"prompt": "What is 1 + 1?", "answer": "2"}]').replace("range(100)", "range(2)")
    text = re.sub(r"max_tokens=\d+", "max_tokens=12", text)
    text = text.replace("run.step < 20", "run.step < 2")
    return text.replace("steps=20", "steps=2, prompts=1, samples=2, eval_prompts=1, held_out=0.5")


def run(block, names):
    exec(compile(shortened(block.text), block.place, "exec"), names)
    return names


def block_with(text):
    (found,) = (block for block in BLOCKS if text in block.text)
    return found


def test_every_block_has_a_test():
    here = Path(__file__).read_text()
    tested = [text for _, text in re.findall(r"""block_with\((["'])(.*?)\1\)""", here)]
    assert sorted(sum(text in block.text for text in tested) for block in BLOCKS) == [1] * len(BLOCKS)


def test_the_four_operations():
    """Each expression is followed by its value in a comment."""
    block = block_with("rein.gpo_objective(")
    lines, names, checked = block.text.split("\n"), given(), 0
    for node in ast.parse(block.text).body:
        if not isinstance(node, ast.Expr):
            exec(ast.unparse(node), names)
            continue
        value = eval(ast.unparse(node), names)
        shown = re.match(r"# (.*?): ", lines[node.end_lineno])[1]
        digits = len(shown.partition(".")[2])
        said = repr(round(value, digits) if isinstance(value, float) else value)
        wanted = re.sub(r"np\.float64\((.*?)\)", r"\1", said)
        assert wanted == shown
        checked += 1
    assert checked == 4


def test_the_policy_loss():
    names = run(block_with("result.grad_log_probs"), given())
    assert names["result"].grad_log_probs.shape == (64, 5)


def test_a_step_in_parts():
    names = run(block_with("rein.Step("), given())
    whole = rein.policy_loss(
        "grpo", *(names[n] for n in ("log_probs", "old_log_probs")), ref_log_probs=names["ref"], mask=names["mask"],
        rewards=names["rewards"], group_sizes=8,
    )  # fmt: skip
    assert np.array_equal(np.concatenate(names["gradients"]), whole.grad_log_probs)
    assert names["result"].loss == whole.loss


def test_a_run(place):
    names = run(block_with('rein.run("runs/brief"'), given())
    assert names["run"].step == 2 and names["policy"].sample(["Q:1"], samples=1, max_tokens=3)


def test_trackers(place):
    """Each line names what the tracker's function takes."""
    logged = []
    names = {**given(), "SETTINGS": {}}
    note = lambda metrics, step: logged.append((step, metrics["reward"]))  # noqa: E731
    names["wandb"] = names["trackio"] = SimpleNamespace(log=note)
    names["mlflow"] = SimpleNamespace(log_metrics=note)
    block = block_with("mlflow.log_metrics")
    settings = 'model="chatty", task="sums", preset="rloo", steps=1, prompts=2, samples=2, max_tokens=8, eval_prompts=0'
    for i, line in enumerate(block.text.strip().split("\n")):
        exec(line.replace("...", f'"tracked{i}", {settings}'), names)
    assert [step for step, _ in logged] == [1, 1, 1]


def test_a_loop_of_ones_own(place, capsys):
    run(block_with("reference = policy.copy()"), given())
    assert len(capsys.readouterr().out.split("\n")) == 3 and (place / "adapter/adapter_config.json").exists()


def test_torch():
    torch = pytest.importorskip("torch")
    names = {n: torch.tensor(v) if isinstance(v, np.ndarray) else v for n, v in given().items()}
    names["log_probs"].requires_grad_(True)
    run(block_with("loss = rein.torch.policy_loss("), names)
    assert names["log_probs"].grad.shape == (64, 5)


def test_preferences():
    pytest.importorskip("torch")
    names = run(block_with("rein.torch.preference_loss("), given())
    assert names["chosen"].grad.abs().sum() > 0 and names["rejected"].grad.abs().sum() > 0


def test_a_reward_program(tmp_path):
    program = tmp_path / "judge.py"
    program.write_text(block_with('request["answer"] in request["response"]').text)
    requests = [{"id": i, "response": text, "answer": "4"} for i, text in enumerate(["It is 4.", "It is 5."])]
    done = subprocess.run(
        [sys.executable, program], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": 0, "reward": 1.0},
        {"id": 1, "reward": 0.0},
    ]


def test_a_task_program(tmp_path):
    """And the exchange that the page shows below it."""
    block = block_with("# capitals.py")
    page = (ROOT / block.page).read_text()
    exchange = re.findall(r"^    ([<>]) (\{.*\})$", page[page.index("# capitals.py") :], re.MULTILINE)
    asked = [text for kind, text in exchange if kind == ">"]
    program = tmp_path / "capitals.py"
    program.write_text(block.text)
    done = subprocess.run(
        [sys.executable, program], input="".join(line + "\n" for line in asked), capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [text for kind, text in exchange if kind == "<"] and len(asked) == 3


def test_a_rollout_of_the_reader(place):
    names = run(block_with("async def episodes("), given())
    policy = rein.Policy("chatty")
    groups = asyncio.run(names["episodes"](policy))
    assert [len(group) for group in groups] == [8, 8] and policy.forward_backward(groups, "reinforce").max_gap == 0


def test_an_agent(place, capsys):
    run(block_with("await rein.rollout(run, play, [1, 2, 3]"), given())
    assert len(capsys.readouterr().out.splitlines()) == 3
