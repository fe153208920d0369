"""Models saved by C: transformers loads them, and they are what PEFT's merge makes, or better rounded."""

import json

import adapter_files
import models
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(folder):
    model, said = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    return model.eval()


def agree(ours, theirs):
    """Equal to a rounding of f32, of sums in another order; 16 bits differ where that rounding crosses a middle."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        if tensor.dtype == torch.float32:
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-6, atol=1e-6)
        else:
            one = 2.0**-7 if tensor.dtype == torch.bfloat16 else 2.0**-10
            torch.testing.assert_close(tensor.float(), theirs[name].float(), rtol=one, atol=1e-6)
            assert (tensor != theirs[name]).float().mean() < 0.005, name


@pytest.mark.parametrize(
    "family, dtype, tied",
    [
        ("llama", "float32", False),
        ("mistral", "float32", False),
        ("qwen2", "float32", True),
        ("qwen3", "float32", False),
        ("llama", "bfloat16", True),
        ("qwen2", "bfloat16", False),
        ("qwen3", "bfloat16", True),
        ("llama", "float16", False),
        ("mistral", "float16", True),
        ("mistral, window", "float32", False),
        ("gemma2", "float32", True),
        ("gemma2", "bfloat16", False),
        ("gemma3", "float32", True),
        ("gemma3", "float16", False),
        ("phi3", "float32", False),
        ("phi3", "bfloat16", True),
        ("olmo2", "float32", False),
        ("olmo2", "bfloat16", True),
        ("olmo3", "float32", True),
        ("smollm3", "float32", True),
        ("smollm3", "bfloat16", False),
        ("granite", "float32", False),
        ("granite", "float16", True),
    ],
)
def test_merge(tmp_path, family, dtype, tied):
    dtype = TYPES[dtype]
    wrapped = models.around(models.make(tmp_path / "base", family, dtype, tied), tmp_path / "adapter")
    before = models.logits(wrapped)
    adapter_files.run("merge", tmp_path / "base", tmp_path / "adapter", tmp_path / "to", 0)
    ours, theirs = load(tmp_path / "to"), wrapped.merge_and_unload()
    assert ours.config.dtype == dtype and ours.config.tie_word_embeddings == tied
    agree(ours, theirs)
    if dtype == torch.float32:
        torch.testing.assert_close(models.logits(ours), models.logits(theirs), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(models.logits(ours), before, rtol=1e-4, atol=1e-4)


def test_16_bits_are_rounded_once(tmp_path):
    """To the nearest of the exact sum, which PEFT, rounding to f32 in between, need not give."""
    base = models.make(tmp_path / "base", "qwen2", torch.bfloat16)
    models.around(base, tmp_path / "adapter")
    before = {k: v.double() for k, v in load(tmp_path / "base").state_dict().items()}
    factors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    adapter_files.run("merge", tmp_path / "base", tmp_path / "adapter", tmp_path / "to", 0)
    for name, tensor in load(tmp_path / "to").state_dict().items():
        a = factors.get(f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight")
        exact = before[name]
        if a is not None:
            b = factors[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
            exact = exact + 2.5 * (b.double() @ a.double())
        _, exponent = torch.frexp(exact)
        error = (tensor.double() - exact).abs() / torch.ldexp(torch.ones_like(exact), exponent - 8)
        assert error.max() <= 0.5, name


@pytest.mark.parametrize("dtype", TYPES)
def test_head_of_a_tied_model(tmp_path, dtype):
    """The head gets a weight of its own. PEFT would merge it into the embedding as well: the reference is untied."""
    options = dict(target_modules=["lm_head", "q_proj"], use_rslora=True)
    wrapped = models.around(
        models.make(tmp_path / "base", "qwen3", TYPES[dtype], tied=True), tmp_path / "adapter", **options
    )
    before = models.logits(wrapped)
    adapter_files.run("merge", tmp_path / "base", tmp_path / "adapter", tmp_path / "to", 0)
    ours = load(tmp_path / "to")
    assert ours.config.tie_word_embeddings is False
    untied = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=TYPES[dtype], tie_word_embeddings=False)
    untied.lm_head.weight = torch.nn.Parameter(untied.model.embed_tokens.weight.detach().clone())
    agree(ours, models.around(untied, **options).merge_and_unload())
    if dtype == "float32":
        torch.testing.assert_close(models.logits(ours), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("largest", [1, 9000, 30000])
def test_shards(tmp_path, largest):
    wrapped = models.around(models.make(tmp_path / "base", "qwen2"), tmp_path / "adapter")
    adapter_files.run("merge", tmp_path / "base", tmp_path / "adapter", tmp_path / "to", largest)
    assert (tmp_path / "to" / "model.safetensors.index.json").exists()
    agree(load(tmp_path / "to"), wrapped.merge_and_unload())


def test_index_is_that_of_transformers(tmp_path):
    model = models.make(tmp_path / "base", "llama")
    model.save_pretrained(tmp_path / "theirs", max_shard_size=12000)
    adapter_files.run("merge", tmp_path / "base", "-", tmp_path / "ours", 12000)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    assert sorted(p.name for p in ours.glob("*.json*")) == sorted(p.name for p in theirs.glob("*.json*"))
    name = "model.safetensors.index.json"
    a, b = json.loads((theirs / name).read_text()), json.loads((ours / name).read_text())
    assert a["metadata"] == b["metadata"] and a["weight_map"].keys() == b["weight_map"].keys()


@pytest.mark.parametrize("family", models.FAMILIES | models.EXPERTS)
def test_saved_as_it_was(tmp_path, family):
    """Weights that did not train, in the family's own layout: to transformers the same model, config and all."""
    models.make(tmp_path / "base", family)
    adapter_files.run("merge", tmp_path / "base", "-", tmp_path / "to", 0)
    before, after = load_file(tmp_path / "base" / "model.safetensors"), load_file(tmp_path / "to" / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert load(tmp_path / "to").config.to_diff_dict() == load(tmp_path / "base").config.to_diff_dict()
    assert torch.equal(models.logits(load(tmp_path / "to")), models.logits(load(tmp_path / "base")))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "phi3", "olmo2", "granite", *models.EXPERTS])
def test_trained_weights_are_f32(tmp_path, family, tied):
    base = models.make(tmp_path / "base", family, torch.bfloat16, tied)
    adapter_files.run("train", tmp_path / "base", tmp_path / "to")
    ours = load(tmp_path / "to")
    assert ours.config.dtype == torch.float32
    wide = base.float().state_dict()
    assert all(torch.equal(tensor, wide[name]) for name, tensor in ours.state_dict().items())


def test_as_it_was(tmp_path):
    """Without an adapter the weights are the file that transformers wrote, and the tokenizer loads from the copy."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    models.make(tmp_path / "base", "qwen3", torch.bfloat16)
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path / "base")
    adapter_files.run("merge", tmp_path / "base", "-", tmp_path / "to", 0)
    for path in (tmp_path / "base").iterdir():
        if path.name != "config.json":
            assert (tmp_path / "to" / path.name).read_bytes() == path.read_bytes(), path.name
    assert AutoTokenizer.from_pretrained(tmp_path / "to").encode("b") == [1]
    with pytest.raises(adapter_files.Refused, match="already holds a model"):
        adapter_files.run("merge", tmp_path / "base", "-", tmp_path / "to", 0)
