"""parrot.py DIR: a model that says one thing, so that a test knows what it will say.

Its layers add nothing, its embedding is the identity, and its head gives the token that follows in SAYS a logit of 8 and all others 0.
After a newline it says "Hi_😀,you.", the end of a turn, "Z", and the end; then a newline again. Tokens are single bytes, byte-level, and
the special tokens of ChatML. Nothing but the standard library is needed.
"""

import array
import json
import math
import pathlib
import sys

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|end|>", "<|begin|>"]
SAYS = ["\n", *"Hi_", "😀", *",you.", "<|im_end|>", "Z", "<|end|>", "\n"]
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def alphabet():
    """GPT-2's: printable bytes are themselves, the others follow from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokenizer():
    vocabulary = {character: byte for byte, character in enumerate(alphabet())}
    added = [{"id": 256 + i, "content": content, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, content in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [259], "tokens": ["<|begin|>"]}}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": begin, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}}


def ids(piece):
    return [256 + SPECIAL.index(piece)] if piece in SPECIAL else list(piece.encode())


def tensors():
    n = 256 + len(SPECIAL)
    spoken = [token for piece in SAYS for token in ids(piece)]
    embedding, head = array.array("f", bytes(4 * n * n)), array.array("f", bytes(4 * n * n))
    for i in range(n):
        embedding[i * n + i] = 1
    for before, after in zip(spoken, spoken[1:]):
        head[after * n + before] = 8 / math.sqrt(n)  # the last norm makes a 1 to √n
    zeros = lambda rows: ([rows, n], array.array("f", bytes(4 * rows * n)))
    ones = ([n], array.array("f", [1] * n))
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": ([n, n], embedding), "lm_head.weight": ([n, n], head), "model.norm.weight": ones,
            layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
            **{layer + f"self_attn.{name}_proj.weight": zeros(2) for name in "qkv"},
            layer + "self_attn.o_proj.weight": ([n, 2], zeros(2)[1]),
            layer + "mlp.gate_proj.weight": zeros(2), layer + "mlp.up_proj.weight": zeros(2), layer + "mlp.down_proj.weight": ([n, 2], zeros(2)[1])}


def main(directory):
    directory.mkdir(parents=True)
    n = 256 + len(SPECIAL)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": n, "hidden_size": n, "intermediate_size": 2,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2, "hidden_act": "silu", "rms_norm_eps": 1e-12,
              "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
              "bos_token_id": 259, "eos_token_id": 258, "torch_dtype": "float32"}
    header, data = {}, b""
    for name, (shape, values) in tensors().items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|begin|>", "eos_token": "<|end|>"}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


main(pathlib.Path(sys.argv[1]))
