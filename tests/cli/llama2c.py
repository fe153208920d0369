"""llama2c.py MODEL OUT [separate] [old]: a Llama model in f32 as llama2.c has it, OUT/model.bin and OUT/tokenizer.bin.

What examples/stories/convert.py undoes, written from llama2.c's own reader (run.c). `separate` writes a head that is not tied (a
copy of the embedding), `old` spells bytes in tokenizer.bin as llama2.c did before it had <0x0A>. Nothing but the standard library
is needed.
"""

import json
import math
import pathlib
import struct
import sys


def tensors(path):
    """{name: (shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    assert all(t["dtype"] == "F32" for t in header.values())
    return {name: (t["shape"], data[start + t["data_offsets"][0] : start + t["data_offsets"][1]]) for name, t in header.items()}


def interleave(shape, data, heads):
    """Row i of a head's first half, then row i of its second half, for all i."""
    rows, row = shape[0], 4 * shape[1]
    half = rows // heads // 2
    order = [head * 2 * half + i + part * half for head in range(heads) for i in range(half) for part in (0, 1)]
    return b"".join(data[i * row : (i + 1) * row] for i in order)


def checkpoint(model, separate):
    config = json.loads((model / "config.json").read_text())
    weights = tensors(model / "model.safetensors")
    layers, heads, kv_heads = (config[k] for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"))
    head, positions = config["head_dim"], config["max_position_embeddings"]
    vocabulary = config["vocab_size"] * (-1 if separate else 1)
    out = [struct.pack("<7i", config["hidden_size"], config["intermediate_size"], layers, heads, kv_heads, vocabulary, positions)]
    out.append(weights["model.embed_tokens.weight"][1])
    for part in ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"):
        for layer in range(layers):
            shape, data = weights[f"model.layers.{layer}.{part}.weight"]
            out.append(interleave(shape, data, heads if "q_proj" in part else kv_heads) if part[10:] in ("q_proj", "k_proj") else data)
    out.append(weights["model.norm.weight"][1])
    for function in (math.cos, math.sin):
        angles = [position / config["rope_theta"] ** (2 * i / head) for position in range(positions) for i in range(head // 2)]
        out.append(struct.pack(f"<{len(angles)}f", *map(function, angles)))
    return b"".join(out + [weights["model.embed_tokens.weight"][1]] * separate)


def tokenizer(model, old):
    """SentencePiece's score of a piece of BPE is the number of its merge, negated."""
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    out = []
    for text, token in sorted(vocabulary.items(), key=lambda entry: entry[1]):
        if 1 <= token <= 2:
            text = f"\n{text}\n"
        elif 3 <= token < 259 and old:
            text = chr(token - 3)
        piece = text.replace("▁", " ").encode()
        out.append(struct.pack("<fi", min(0, 259 - token), len(piece)) + piece)
    return struct.pack("<i", max(map(len, out)) - 8) + b"".join(out)


def main(model, out, *how):
    model, out = pathlib.Path(model), pathlib.Path(out)
    out.mkdir()
    (out / "model.bin").write_bytes(checkpoint(model, "separate" in how))
    (out / "tokenizer.bin").write_bytes(tokenizer(model, "old" in how))


if __name__ == "__main__":
    main(*sys.argv[1:])
