"""Configurations made by transformers, as version 5 and as version 4 spells them, against what the C reader sees."""

import copy
import json

import pytest
import reader
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128
)
TYPES = {None: "", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}

SETTINGS = {
    "llama": (LlamaConfig, {}),
    "llama3": (
        LlamaConfig,
        dict(rope_parameters=dict(rope_theta=5e5, **LLAMA3), max_position_embeddings=1024, eos_token_id=[2, 3, 4]),
    ),
    "llama3, no original": (
        LlamaConfig,
        dict(rope_parameters=dict(rope_theta=5e5, **{k: v for k, v in LLAMA3.items() if "orig" not in k})),
    ),
    "linear": (LlamaConfig, dict(rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=1e4))),
    "biases": (LlamaConfig, dict(attention_bias=True, mlp_bias=True, head_dim=20, rms_norm_eps=1e-5)),
    "one head for all": (LlamaConfig, dict(num_key_value_heads=1, tie_word_embeddings=True, dtype=torch.bfloat16)),
    "as many heads": (LlamaConfig, dict(num_key_value_heads=None, bos_token_id=None, eos_token_id=None)),
    "mistral": (MistralConfig, dict(sliding_window=None, head_dim=16, dtype=torch.float16)),
    "mistral, window of the context": (MistralConfig, dict(sliding_window=4096, max_position_embeddings=4096)),
    "qwen2": (Qwen2Config, dict(tie_word_embeddings=True, dtype=torch.float32)),
    "qwen2, window of no layer": (Qwen2Config, dict(use_sliding_window=True, sliding_window=16, max_window_layers=2)),
    "qwen3": (Qwen3Config, dict(eos_token_id=7, bos_token_id=5)),
    "qwen3, narrow heads, bias": (Qwen3Config, dict(head_dim=6, attention_bias=True)),
}


def make(name):
    kind, more = SETTINGS[name]
    return kind(**{**SIZES, **copy.deepcopy(more)}, architectures=[kind.__name__.replace("Config", "ForCausalLM")])


def expected(c):
    rope = c.rope_parameters
    scaled = rope["rope_type"] != "default"
    llama3 = rope["rope_type"] == "llama3"
    eos = c.eos_token_id
    bias = getattr(c, "attention_bias", False) if c.model_type in ("llama", "qwen3") else False
    return dict(
        family=c.model_type,
        vocab_size=c.vocab_size,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        layers=c.num_hidden_layers,
        heads=c.num_attention_heads,
        kv_heads=c.num_key_value_heads,
        head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        positions=c.max_position_embeddings,
        eps=c.rms_norm_eps,
        rope=rope["rope_type"],
        theta=rope["rope_theta"],
        factor=rope["factor"] if scaled else 1,
        low=rope["low_freq_factor"] if llama3 else 0,
        high=rope["high_freq_factor"] if llama3 else 0,
        original=rope["original_max_position_embeddings"] if llama3 else 0,
        tied=int(c.tie_word_embeddings),
        qkv_bias=int(bias or c.model_type == "qwen2"),
        o_bias=int(bias),
        mlp_bias=int(getattr(c, "mlp_bias", False)),
        qk_norm=int(c.model_type == "qwen3"),
        bos=-1 if c.bos_token_id is None else c.bos_token_id,
        dtype=TYPES[c.dtype],
        eos=[] if eos is None else eos if isinstance(eos, list) else [eos],
    )


def old_spelling(config, key):
    """rope_theta outside, the rest in rope_scaling (null if there is none); torch_dtype; no layer_types."""
    old = json.loads(config.to_json_string(use_diff=False))
    rope = old.pop("rope_parameters")
    old["rope_theta"] = rope.pop("rope_theta")
    rope[key] = rope.pop("rope_type")
    old["rope_scaling"] = None if rope[key] == "default" else rope
    old["torch_dtype"] = old.pop("dtype", None)
    if old.get("layer_types"):
        old.pop("layer_types")
    return old


@pytest.mark.parametrize("name", SETTINGS)
def test_as_version_5_saves(tmp_path, name):
    config = make(name)
    config.save_pretrained(tmp_path)
    assert reader.config(tmp_path) == expected(config)


@pytest.mark.parametrize("key", ["rope_type", "type"])
@pytest.mark.parametrize("name", SETTINGS)
def test_as_version_4_saved(tmp_path, name, key):
    config = make(name)
    (tmp_path / "config.json").write_text(json.dumps(old_spelling(config, key)))
    assert reader.config(tmp_path) == expected(AutoConfig.from_pretrained(tmp_path)) == expected(config)


@pytest.mark.parametrize(
    "drop",
    [
        "rms_norm_eps",
        "max_position_embeddings",
        "tie_word_embeddings",
        "rope_parameters",
        "head_dim",
        "bos_token_id",
        "eos_token_id",
        "hidden_act",
        "attention_bias",
        "mlp_bias",
        "num_key_value_heads",
    ],
)
@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
def test_defaults_are_transformers(tmp_path, kind, drop):
    """A field that is absent has the value that transformers gives it."""
    sizes = SIZES | dict(num_attention_heads=32, hidden_size=256, num_key_value_heads=8)
    config = json.loads(kind(**sizes, **(dict(sliding_window=None) if kind is MistralConfig else {})).to_json_string())
    config.pop(drop, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert reader.config(tmp_path) == expected(AutoConfig.from_pretrained(tmp_path))


@pytest.mark.parametrize("name", SETTINGS)
def test_tensors_of_the_model(tmp_path, name):
    """Names and shapes are those of the model that transformers builds."""
    config = make(name)
    config.num_hidden_layers = 2
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    assert reader.run("check", tmp_path) == []


@pytest.mark.parametrize("name", SETTINGS)
def test_rewritten_config_loads(tmp_path, name):
    config = make(name)
    config.save_pretrained(tmp_path)
    to = tmp_path / "to"
    to.mkdir()
    reader.run("rewrite", tmp_path, to, "BF16", "0")
    before, after = AutoConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(to)
    assert after.dtype == torch.bfloat16 and after.tie_word_embeddings is False
    before.dtype, before.tie_word_embeddings = after.dtype, after.tie_word_embeddings
    assert {k: v for k, v in before.to_dict().items() if k != "_name_or_path"} == {
        k: v for k, v in after.to_dict().items() if k != "_name_or_path"
    }


@pytest.mark.parametrize(
    "kind, more, said",
    [
        (LlamaConfig, dict(layer_types=["sliding_attention"] * 2), "sliding_attention"),
        (LlamaConfig, dict(hidden_act="gelu"), "hidden_act"),
        (LlamaConfig, dict(rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)), "dynamic"),
    ],
)
def test_refused_by_name(tmp_path, kind, more, said):
    kind(**SIZES, **more).save_pretrained(tmp_path)
    with pytest.raises(reader.Refused, match=said):
        reader.config(tmp_path)
