"""llama.cpp loads what `rein export` writes, and gives rein's log-probabilities: random models of every family in every
type, an adapter beside its model, and SmolLM2 with an adapter merged into each type.

Only in `make parity-all`: llama.cpp is compiled there (requirements/llama.txt). With f32 weights it computes in f32.
With others it also rounds activations, to f16, to bf16, or to blocks of 8 bits, and rein does not: BOUNDS has how far
that moves the log-probabilities of these models, as a root of the mean square."""

import engine
import gguf_models
import oracle
import pytest
import real_models
import torch
from transformers import AutoConfig, AutoModelForCausalLM

llama = pytest.importorskip("llama", reason="SKIPPED LOUDLY: llama-cpp-python is not installed")

# Measured on the random models: 2.9e-6, 1.3e-3, 1e-2, 3.6e-2, 3.9e-2. Gemma's GELU is a table of f16 there.
BOUNDS = dict(f32=1e-5, f16=3e-3, bf16=2e-2, q8_0=8e-2, q4_0=8e-2)
GELU = 2e-3
LOUD = dict(granite=2.5)  # its logits are divided by 0.4, and so are their errors
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MODULES = dict(phi3=oracle.FUSED_MODULES, qwen3_moe=ATTENTION)


def bound(family, kind):
    return BOUNDS[kind] * LOUD.get(family, 1) + (GELU if family.startswith("gemma") else 0)


def distance(a, b, family=""):
    """With experts the median: where two are nearly equal, rounding chooses another one, and that token is far off."""
    off = (a.double() - b.double()).abs()
    return off.median().item() if family.endswith("moe") else off.pow(2).mean().sqrt().item()


@pytest.fixture(scope="module", params=gguf_models.FAMILIES)
def tiny(request, tmp_path_factory):
    """Family, folder, ids."""
    family, folder = request.param, tmp_path_factory.mktemp("model")
    model = oracle.make(gguf_models.config_of(family), seed=len(family))
    model.save_pretrained(folder)
    modules = MODULES.get(family, oracle.MODULES)
    oracle.save_adapter(folder / "adapter", oracle.unfused(model), 4, 8, seed=7, modules=modules)
    return family, folder, oracle.random_tokens([150], [-1], model.config.vocab_size, seed=3)


@pytest.mark.parametrize("kind", BOUNDS)
def test_models(tiny, kind):
    family, folder, tokens = tiny
    path = gguf_models.export(folder, folder / f"{kind}.gguf", "--type", kind)
    off = distance(llama.log_probs(path, tokens.segments[0]), engine.evaluate(path, tokens).log_probs, family)
    print(f"{family}, {kind}: {off:.1e}")
    assert off <= bound(family, kind)


def test_adapters(tiny):
    family, folder, tokens = tiny
    path = gguf_models.export(folder, folder / "plain.gguf", "--type", "f32")
    adapter = gguf_models.export(folder, folder / "adapter.gguf", "--adapter", folder / "adapter", "--adapter-only")
    with_adapter = llama.log_probs(path, tokens.segments[0], adapter)
    ours = engine.evaluate(path, tokens, adapter=str(folder / "adapter")).log_probs
    assert distance(with_adapter, engine.evaluate(path, tokens).log_probs) > 0.1
    assert distance(with_adapter, ours) <= bound(family, "f32")


# ---- SmolLM2
@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The published file, a folder with an adapter, ids of a text."""
    if not real_models.installed():
        pytest.skip("SKIPPED LOUDLY: the package with SmolLM2 is not installed")
    folder = tmp_path_factory.mktemp("smollm2")
    path = real_models.gguf("smollm2", folder)
    plain = gguf_models.export(path, folder / "plain")  # for its config.json
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(plain))
    oracle.save_adapter(folder / "adapter", model, 4, 8, seed=7, size=0.2)
    return path, folder, oracle.random_tokens([128], [-1], 5000, seed=1)


# The rounding of activations, and for Q4_1, Q8_0 and Q4_0 that of llama.cpp to blocks of 8 bits.
REAL = dict(f16=1e-2, bf16=5e-2, q8_0=3e-1, q4_0=3e-1)


@pytest.mark.parametrize("kind", REAL)
def test_merged_smollm2(smollm2, kind):
    source, folder, tokens = smollm2
    path = gguf_models.export(source, folder / f"{kind}.gguf", "--adapter", folder / "adapter", "--type", kind)
    off = distance(llama.log_probs(path, tokens.segments[0]), engine.evaluate(path, tokens).log_probs)
    moved = distance(engine.evaluate(path, tokens).log_probs, engine.evaluate(source, tokens).log_probs)
    print(f"SmolLM2, {kind}: {off:.1e}; the adapter moves it by {moved:.1e}")
    assert off <= REAL[kind] and moved > 2 * off


def test_adapter_of_smollm2(smollm2):
    source, folder, tokens = smollm2
    adapter = gguf_models.export(source, folder / "adapter.gguf", "--adapter", folder / "adapter", "--adapter-only")
    ours = engine.evaluate(source, tokens, adapter=str(folder / "adapter")).log_probs
    off = distance(llama.log_probs(source, tokens.segments[0], adapter), ours)
    print(f"SmolLM2 with an adapter: {off:.1e}")
    assert off <= REAL["q8_0"]
