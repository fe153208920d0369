"""gguf_files.py MODEL FILE: models/sums in GGUF, as llama.cpp's converter would write it.

Only for a model like it: Llama in float32 with a byte-level tokenizer without merges."""

import json
import struct
import sys
from pathlib import Path

U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key, kind, value):
    if kind == STRING:
        return text(key) + struct.pack("<I", kind) + text(value)
    return text(key) + struct.pack("<I" + {U32: "I", F32: "f"}[kind], kind, value)


def strings(key, values):
    return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def numbers(key, values):
    return text(key) + struct.pack(f"<IIQ{len(values)}i", ARRAY, I32, len(values), *values)


def metadata(config, tokenizer):
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["id"] for token in tokenizer["added_tokens"]}
    return [
        pair("general.architecture", STRING, "llama"),
        pair("llama.block_count", U32, config["num_hidden_layers"]),
        pair("llama.context_length", U32, config["max_position_embeddings"]),
        pair("llama.embedding_length", U32, config["hidden_size"]),
        pair("llama.feed_forward_length", U32, config["intermediate_size"]),
        pair("llama.attention.head_count", U32, config["num_attention_heads"]),
        pair("llama.attention.head_count_kv", U32, config["num_key_value_heads"]),
        pair("llama.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
        pair("llama.rope.freq_base", F32, config["rope_theta"]),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        strings("tokenizer.ggml.tokens", tokens),
        numbers("tokenizer.ggml.token_type", [3 if i in special else 1 for i in range(len(tokens))]),
        strings("tokenizer.ggml.merges", []),
        pair("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"]),
    ]


def rows_in_pairs(data, rows, heads):
    """The rows of q or k: 0, n/2, 1, n/2 + 1, … of each head."""
    size, each = len(data) // rows, rows // heads
    order = [h * each + i + half * each // 2 for h in range(heads) for i in range(each // 2) for half in range(2)]
    return b"".join(data[r * size : (r + 1) * size] for r in order)


def tensors(path, heads):
    """(name, shape, bytes)"""
    raw = path.read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    for name, about in json.loads(raw[8:begin]).items():
        if name == "__metadata__":
            continue
        data = raw[begin + about["data_offsets"][0] : begin + about["data_offsets"][1]]
        if "q_proj" in name or "k_proj" in name:
            data = rows_in_pairs(data, about["shape"][0], heads)
        stem, layer = name.removesuffix(".weight"), ""
        if stem.startswith("model.layers."):
            _, _, number, stem = stem.split(".", 3)
            layer = f"blk.{number}."
        yield f"{layer}{NAMES[stem]}.weight", about["shape"], data


def main(model, file):
    config = json.loads((model / "config.json").read_text())
    pairs = metadata(config, json.loads((model / "tokenizer.json").read_text()))
    head, data = [], b""
    for name, shape, content in tensors(model / "model.safetensors", config["num_attention_heads"]):
        head.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data)))
        data += content + bytes(-len(content) % 32)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(head), len(pairs)) + b"".join(pairs + head)
    file.write_bytes(start + bytes(-len(start) % 32) + data)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
