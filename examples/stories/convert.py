"""Converts a model of llama2.c to the format of Hugging Face, which rein, transformers and PEFT load.

python3 convert.py CHECKPOINT.bin TOKENIZER.bin OUT [--dtype f32|bf16]

CHECKPOINT.bin is llama2.c's version 0: seven int32, then float32 arrays. TOKENIZER.bin is its export of a SentencePiece
BPE model. OUT becomes a directory with config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
generation_config.json. Only the standard library is needed; all checks come before the first file of OUT is written.
"""

import argparse
import json
import math
import mmap
import os
import struct
import sys
from collections import namedtuple

UNKNOWN, BEGIN, END = 0, 1, 2  # the ids in every model of llama2.c
FIRST_BYTE, FIRST_PIECE = 3, 259  # 256 byte tokens are between the special tokens and the pieces
SPECIAL = ["<unk>", "<s>", "</s>"]
THETA = 10000.0  # the only value in llama2.c
CHUNK = 1 << 20  # bytes that are processed together
BLANK = "▁"  # a space in SentencePiece

Shape = namedtuple("Shape", "dim hidden layers heads kv_heads vocabulary positions tied")


class Wrong(Exception):
    """A file that is not valid."""


# ---- the checkpoint
def read_shape(data, name):
    """The header, checked."""
    if len(data) < 28:
        raise Wrong(f"{name} has {len(data)} bytes: a checkpoint of llama2.c begins with 28 bytes of header")
    if data[:4] == struct.pack("<I", 0x616B3432):
        raise Wrong(f"{name} is a checkpoint of llama2.c's version 1 or later: export it as version 0")
    *sizes, vocabulary, positions = struct.unpack("<7i", data[:28])
    shape = Shape(*sizes, abs(vocabulary), positions, tied=vocabulary > 0)
    for field, value in zip(shape._fields[:7], shape):
        if not 0 < value < 1 << 24:
            raise Wrong(f"{name} is no checkpoint of llama2.c: its header says that {field} is {value}")
    if shape.dim % (2 * shape.heads) or shape.heads % shape.kv_heads:
        raise Wrong(
            f"{name} is no checkpoint of llama2.c: its header says dim {shape.dim}, heads {shape.heads}, "
            f"kv_heads {shape.kv_heads}, and each must be a multiple of the next (dim an even one)"
        )
    return shape


def arrays(shape):
    """The arrays in the order of the file: name (with {} for the layer), rows, columns."""
    s, head = shape, shape.dim // shape.heads
    layer = "model.layers.{}."
    yield "model.embed_tokens", s.vocabulary, s.dim
    yield layer + "input_layernorm", 1, s.dim
    yield layer + "self_attn.q_proj", s.dim, s.dim
    yield layer + "self_attn.k_proj", s.kv_heads * head, s.dim
    yield layer + "self_attn.v_proj", s.kv_heads * head, s.dim
    yield layer + "self_attn.o_proj", s.dim, s.dim
    yield layer + "post_attention_layernorm", 1, s.dim
    yield layer + "mlp.gate_proj", s.hidden, s.dim
    yield layer + "mlp.down_proj", s.dim, s.hidden
    yield layer + "mlp.up_proj", s.hidden, s.dim
    yield "model.norm", 1, s.dim
    yield "cos", s.positions, head // 2
    yield "sin", s.positions, head // 2
    if not s.tied:
        yield "lm_head", s.vocabulary, s.dim


def place(shape, size, name):
    """{tensor: (offset, rows, columns)} of all tensors in the file."""
    places, at = {}, 28
    for array, rows, columns in arrays(shape):
        for layer in range(shape.layers if "{}" in array else 1):
            places[array.format(layer) + ".weight"] = at, rows, columns
            at += 4 * rows * columns
    if size != at:
        described = ", ".join(f"{field} {value}" for field, value in zip(shape._fields[:7], shape))
        head = "tied to the embedding" if shape.tied else "of its own"
        raise Wrong(f"{name} has {size} bytes: its header ({described}, the head {head}) asks for {at}")
    return places


def check_rope(data, shape, places, name):
    """Checks that the model was trained with the rotary angles that config.json describes."""
    half = shape.dim // shape.heads // 2
    for array, function in ("cos", math.cos), ("sin", math.sin):
        at, rows, columns = places.pop(f"{array}.weight")
        values = struct.unpack_from(f"<{rows * columns}f", data, at)
        for position in range(rows):
            for i in range(half):
                angle = position * THETA ** (-i / half)
                if not abs(values[position * half + i] - function(angle)) < 1e-3:
                    raise Wrong(
                        f"{name}: {array} of position {position}, frequency {i}, is {values[position * half + i]:.6g}: "
                        f"with the base {THETA:.0f}, the only one known here, it is {function(angle):.6g}"
                    )


# ---- weights. Many floats are processed together as one long integer, with one float in each 32 bits.
def lanes(bits, count):
    return int.from_bytes(struct.pack("<I", bits) * count, "little")


def check_finite(bits, count, problem):
    exponents = bits & lanes(0x7F800000, count)
    if exponents + lanes(0x00800000, count) & lanes(0x80000000, count):  # all ones carry over
        raise Wrong(problem)


def bfloat16(chunk, name, tensor):
    """Rounds to nearest, ties to even. A finite float never carries out of its 32 bits."""
    count = len(chunk) // 4
    bits = int.from_bytes(chunk, "little")
    bits += (bits >> 16 & lanes(1, count)) + lanes(0x7FFF, count)
    check_finite(bits, count, f"{name}: {tensor} has a value that bf16 cannot hold")
    rounded, halves = bits.to_bytes(len(chunk), "little"), bytearray(2 * count)
    halves[0::2], halves[1::2] = rounded[2::4], rounded[3::4]
    return halves


def rotate_half(data, rows, columns, heads):
    """Rows 0, 2, 4 … of each head, then 1, 3, 5 …: llama2.c rotates adjacent pairs, Hugging Face halves of heads."""
    size, row = rows // heads, 4 * columns
    order = [head * size + i for head in range(heads) for i in (*range(0, size, 2), *range(1, size, 2))]
    return b"".join(data[i * row : (i + 1) * row] for i in order)


def tensor_bytes(data, shape, name, tensor, where):
    at, rows, columns = where
    values = data[at : at + 4 * rows * columns]
    if tensor.endswith(("q_proj.weight", "k_proj.weight")):
        values = rotate_half(values, rows, columns, shape.heads if "q_proj" in tensor else shape.kv_heads)
    for begin in range(0, len(values), CHUNK):
        chunk = values[begin : begin + CHUNK]
        problem = f"{name}: {tensor} has a value that is not a finite number"
        check_finite(int.from_bytes(chunk, "little"), len(chunk) // 4, problem)
        yield chunk


def write_weights(file, data, shape, name, places, dtype):
    width, header, at = {"f32": 4, "bf16": 2}[dtype], {"__metadata__": {"format": "pt"}}, 0
    for tensor, (_, rows, columns) in places.items():
        dimensions = [columns] if tensor.endswith("norm.weight") else [rows, columns]
        size = width * rows * columns
        header[tensor] = {"dtype": dtype.upper(), "shape": dimensions, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for tensor, where in places.items():
        for chunk in tensor_bytes(data, shape, name, tensor, where):
            file.write(bfloat16(chunk, name, tensor) if dtype == "bf16" else chunk)


# ---- the tokenizer
def read_pieces(path, count):
    """[(bytes, score)], one per token."""
    with open(path, "rb") as file:
        data = file.read()
    pieces, at = [], 4  # the file starts with the length of the longest piece
    while at < len(data) and len(pieces) < count:
        if at + 8 > len(data):
            raise Wrong(f"{path} ends inside of token {len(pieces)}")
        score, length = struct.unpack_from("<fi", data, at)
        if not 0 <= length <= len(data) - at - 8 or not math.isfinite(score):
            raise Wrong(f"{path} is no tokenizer of llama2.c: token {len(pieces)} has {length} bytes, score {score}")
        pieces.append((data[at + 8 : at + 8 + length], score))
        at += 8 + length
    if len(pieces) < count or at < len(data):
        more = f"{len(pieces)} tokens" if len(pieces) < count else f"more than {count} tokens"
        raise Wrong(f"{path} has {more}, the model {count}: it belongs to another model")
    return pieces


def spell(path, token, piece):
    """A piece as in tokenizer.json. In TOKENIZER.bin a space is a space, and in old files a byte token is the byte."""
    try:
        text = piece.decode()
    except UnicodeDecodeError as error:
        raise Wrong(f"{path}: token {token}, {piece!r}, is not UTF-8") from error
    if token >= FIRST_PIECE:
        return text.replace(" ", BLANK)
    byte = token - FIRST_BYTE
    wanted = SPECIAL[token] if token < FIRST_BYTE else f"<0x{byte:02X}>"
    if text.strip("\n") != wanted and (byte < 0 or text != chr(byte)):
        raise Wrong(f"{path}: token {token} is {piece!r}: {wanted} is needed, as in Llama-2's vocabulary")
    return wanted


def read_vocabulary(path, count):
    """{token: id} in the order of ids, and {token: score} of the pieces, the results of merges."""
    if count <= FIRST_PIECE:
        raise Wrong(f"the model has {count} tokens: three special ones, 256 bytes and some pieces are needed")
    vocabulary, scores = {}, {}
    for token, (piece, score) in enumerate(read_pieces(path, count)):
        text = spell(path, token, piece)
        if text in vocabulary:
            raise Wrong(f"{path}: tokens {vocabulary[text]} and {token} are both {text!r}")
        vocabulary[text] = token
        if token >= FIRST_PIECE:
            scores[text] = score
    return vocabulary, scores


def merges(vocabulary, scores):
    """All pairs of pieces that make a piece, as transformers' converter of SentencePiece models orders them: the piece
    with the greater score first; of one piece's pairs the one with the longer left part."""
    pairs = []
    for text, score in scores.items():
        cuts = [(text[:i], text[i:]) for i in range(1, len(text))]
        whole = [(left, right) for left, right in cuts if left in scores and right in scores]
        pairs += [(score, pair) for pair in sorted(whole, key=lambda p: (vocabulary[p[0]], vocabulary[p[1]]))]
    pairs.sort(key=lambda p: (p[0], len(p[1][0]), len(p[1][1])), reverse=True)
    return [f"{left} {right}" for _, (left, right) in pairs]


def tokenizer(vocabulary, scores):
    """Llama-2's tokenizer.json."""
    begin = {"SpecialToken": {"id": SPECIAL[BEGIN], "type_id": 0}}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
    unblank = {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": content, **plain} for token, content in enumerate(SPECIAL)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK}, blank]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                begin,
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": SPECIAL[BEGIN], "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {SPECIAL[BEGIN]: {"id": SPECIAL[BEGIN], "ids": [BEGIN], "tokens": [SPECIAL[BEGIN]]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                unblank,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": SPECIAL[UNKNOWN],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges(vocabulary, scores),
        },
    }


# ---- the directory
# In the training data stories followed each other, each after a begin token and without an end token. So the model
# ends a story with the begin token of the next one.
ENDS_WITH = BEGIN


def config(shape, dtype):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.dim,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.dim // shape.heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": THETA,
        "rope_scaling": None,
        "max_position_embeddings": shape.positions,
        "tie_word_embeddings": shape.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": BEGIN,
        "eos_token_id": ENDS_WITH,
        "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[dtype],
    }


def tokenizer_config(shape):
    """As in tokenizer.json: LlamaTokenizer would encode a text that starts with a space differently."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BEGIN],
        "eos_token": SPECIAL[ENDS_WITH],
        "unk_token": SPECIAL[UNKNOWN],
        "model_max_length": shape.positions,
        "clean_up_tokenization_spaces": False,
    }


def write_whole(path, write):
    """The file appears when it is complete."""
    new = path + ".new"
    try:
        with open(new, "wb") as file:
            write(file)
        os.replace(new, path)
    except BaseException:
        if os.path.exists(new):
            os.remove(new)
        raise


def write_json(path, value):
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def convert(checkpoint, tokens, out, dtype):
    with open(checkpoint, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise Wrong(f"{checkpoint} is empty")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    shape = read_shape(data, checkpoint)
    places = place(shape, len(data), checkpoint)
    check_rope(data, shape, places, checkpoint)
    vocabulary, scores = read_vocabulary(tokens, shape.vocabulary)
    os.makedirs(out, exist_ok=True)
    write = lambda file: write_weights(file, data, shape, checkpoint, places, dtype)  # noqa: E731
    write_whole(os.path.join(out, "model.safetensors"), write)
    ids = {"bos_token_id": BEGIN, "eos_token_id": ENDS_WITH}
    write_json(os.path.join(out, "tokenizer.json"), tokenizer(vocabulary, scores))
    write_json(os.path.join(out, "tokenizer_config.json"), tokenizer_config(shape))
    write_json(os.path.join(out, "generation_config.json"), ids)
    write_json(os.path.join(out, "config.json"), config(shape, dtype))  # last: it makes the directory a model


def main():
    parser = argparse.ArgumentParser(description="A model of llama2.c in the layout of Hugging Face.")
    parser.add_argument("checkpoint", metavar="CHECKPOINT.bin", help="llama2.c's version 0")
    parser.add_argument("tokenizer", metavar="TOKENIZER.bin", help="llama2.c's tokenizer of the same model")
    parser.add_argument("out", metavar="OUT", help="the directory to write")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="of the weights (default: f32)")
    args = parser.parse_args()
    try:
        convert(args.checkpoint, args.tokenizer, args.out, args.dtype)
    except (Wrong, OSError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, Wrong) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
