"""stories_files.py CONVERT.PY: what the converter of examples/stories says of wrong files, and how it rounds. Each case changes a small
right model (all weights 1, two positions, 260 tokens of which the last is "e"). One line for each: 'ok TITLE' or 'FAIL TITLE: WHY'."""

import fractions
import importlib.util
import math
import os
import random
import re
import struct
import sys

spec = importlib.util.spec_from_file_location("convert", sys.argv[1])
convert = importlib.util.module_from_spec(spec)
spec.loader.exec_module(convert)

WRONG = [  # title, what is said, and the change of header, values (all floats of the file) and pieces, [(bytes, score)]
    ("cut", r"model.bin has 4728 bytes: its header \(dim 4, hidden 6, layers 1, .*tied to the embedding\) asks for 4732", "values.pop()"),
    ("too long", "model.bin has 4736 bytes: .* asks for 4732", "values.append(0)"),
    ("no head", r"model.bin has 4732 bytes: .*of its own\) asks for 8892", "header[5] = -260"),
    ("no layers", "model.bin is no checkpoint of llama2.c: its header says that layers is 0", "header[2] = 0"),
    ("heads", "model.bin is no checkpoint of llama2.c: its header says dim 4, heads 3, kv_heads 1, .*", "header[3] = 3"),
    ("odd heads", "model.bin is no checkpoint of llama2.c: its header says dim 4, heads 4, .*", "header[3] = 4"),
    ("kv heads", "model.bin is no checkpoint of llama2.c: .* kv_heads 3, .*", "header[4] = 3"),
    ("a later version", "model.bin is a checkpoint of llama2.c's version 1 or later: export it as version 0", "header[0] = 0x616B3432"),
    ("angles", "model.bin: cos of position 1, frequency 0, is -0.416147: .* it is 0.540302", "values[-3] = math.cos(2)"),
    ("angles of no number", "model.bin: sin of position 1, .* is nan: .*", "values[-1] = math.nan"),
    ("NaN", "model.bin: model.layers.0.input_layernorm.weight has a value that is not a finite number", "values[1040] = math.nan"),
    ("infinite", "model.bin: model.embed_tokens.weight has a value that is not a finite number", "values[7] = -math.inf"),
    ("too large", "model.bin: model.norm.weight has a value that bf16 cannot hold", "values[-5] = 3.4e38"),
    ("a token too few", "tokenizer.bin has 259 tokens, the model 260: it belongs to another model", "pieces.pop()"),
    ("a token too many", "tokenizer.bin has more than 260 tokens, the model 260: .*", "pieces.append((b'f', -2))"),
    ("no pieces", "the model has 259 tokens: .*", "header[5] = 259; del values[:4]"),
    ("twice", "tokenizer.bin: tokens 68 and 259 are both '<0x41>'", "pieces[259] = b'<0x41>', -1"),
    ("no byte", "tokenizer.bin: token 13 is b'x': <0x0A> is needed, as in Llama-2's vocabulary", "pieces[13] = b'x', 0"),
    ("another byte", "tokenizer.bin: token 13 is b'<0x0B>': <0x0A> is needed, .*", "pieces[13] = b'<0x0B>', 0"),
    ("no begin token", "tokenizer.bin: token 1 is b'<bos>': <s> is needed, .*", "pieces[1] = b'<bos>', 0"),
    ("not UTF-8", "tokenizer.bin: token 259, .* is not UTF-8", "pieces[259] = b'\\xff', -1"),
    ("no score", "tokenizer.bin is no tokenizer of llama2.c: token 259 has 1 bytes, score nan", "pieces[259] = b'e', math.nan"),
    ("a long piece", "tokenizer.bin is no tokenizer of llama2.c: token 5 has 1000000 bytes, .*", "lengths[5] = 1000000"),
    ("a negative length", "tokenizer.bin is no tokenizer of llama2.c: token 5 has -1 bytes, .*", "lengths[5] = -1"),
]


def write(change):
    header, pieces, lengths = [4, 6, 1, 2, 1, 260, 2], [(b"<unk>", 0), (b"\n<s>\n", 0), (b"\n</s>\n", 0)], {}
    pieces += [(b"<0x%02X>" % i, 0) for i in range(256)] + [(b"e", -1)]
    values = [1.0] * (260 * 4 + 4 + 16 + 8 + 8 + 16 + 4 + 24 * 3 + 4) + [1, math.cos(1), 0, math.sin(1)]
    exec(change, {"math": math}, locals())
    with open("model.bin", "wb") as file:
        file.write(struct.pack("<7i", *header) + struct.pack(f"<{len(values)}f", *values))
    with open("tokenizer.bin", "wb") as file:
        file.write(struct.pack("<i", 8))
        for i, (piece, score) in enumerate(pieces):
            file.write(struct.pack("<fi", score, lengths.get(i, len(piece))) + piece)


def said(out, dtype="bf16"):
    try:
        convert.convert("model.bin", "tokenizer.bin", out, dtype)
    except convert.Wrong as error:
        return str(error)
    return ""


def check(title, wanted, got):
    print(f"ok {title}" if re.fullmatch(wanted, got) else f"FAIL {title}: {got or 'nothing was said'}")


def exact(bits):
    """The number of float32 bits; what would be infinite is 2^128."""
    if bits & 0x7FFFFFFF == 0x7F800000:
        return fractions.Fraction(2) ** 128 * (-1 if bits >> 31 else 1)
    return fractions.Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def check_rounding():
    """Against the definition, on bits that are chosen (ties, the least, the greatest) and on others."""
    random.seed(1)
    chosen = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0, 0x80000000, 1, 0x8000, 0x18000, 0x7F7F7FFF, 0xFF7F7FFF]
    bits = chosen + [random.randrange(0x7F7F0000) | random.getrandbits(1) << 31 for _ in range(3000)]
    wrong = []
    for b, (half,) in zip(bits, struct.iter_unpack("<H", convert.bfloat16(struct.pack(f"<{len(bits)}I", *bits), "", ""))):
        below = b & 0xFFFF0000
        to_low, to_high = abs(exact(b) - exact(below)), abs(exact(below + 0x10000) - exact(b))
        up = to_high < to_low or to_high == to_low and below >> 16 & 1
        wrong += [hex(b)] * (half != (below >> 16) + up)
    check("bfloat16", "", " ".join(wrong))


def main():
    for title, wanted, change in WRONG:
        write(change)
        check(title, wanted, said("none"))
        check(f"{title}: nothing is written", "", " ".join(os.listdir("none")) if os.path.exists("none") else "")
    write("")
    size = os.path.getsize("tokenizer.bin")
    for cut, wanted in (1, ".*token 259 has 1 bytes.*"), (5, ".*ends inside of token 259"), (9, ".*has 259 tokens.*"):
        os.truncate("tokenizer.bin", size - cut)
        check(f"a tokenizer without its last {cut} bytes", wanted, said("none"))
    for title, content, wanted in ("nothing", b"", "model.bin is empty"), ("JSON", b"{}\n", "model.bin has 3 bytes: .*"):
        with open("model.bin", "wb") as file:
            file.write(content)
        check(f"{title} for a model", wanted, said("none"))
    os.replace("tokenizer.bin", "model.bin")
    check("a tokenizer for a model", "model.bin is no checkpoint of llama2.c: .*", said("none"))
    write("")
    check("what was changed", "", said("tiny", "f32"))
    write("header[5] = -260; values += [2.0] * 1040")
    check("a head of its own", "", said("separate"))
    check_rounding()


main()
