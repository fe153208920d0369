#!/usr/bin/env python3
"""seeds.py unpack TARGET DIRECTORY: writes the seeds of a fuzz target as files, one per seed.
seeds.py add TARGET FILE...: adds files as seeds, or replaces the seeds of the same names.

The seeds of a target are the text file tests/fuzz/TARGET.seeds, sorted by name. A line "seed NAME" begins a seed; its bytes follow on
lines that begin with a tab, as in a Python bytes literal, and with a line break after each \\n.
"""
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fuzz"
SHORT = {ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
LONG = {text[1]: bytes([byte]) for byte, text in SHORT.items()}


def escaped(data):
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data) or [b""]
    return "".join("\t" + "".join(SHORT.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in line) + "\n" for line in lines)


def unescaped(text):
    pieces = re.split(r"\\(x[0-9a-f]{2}|.)", text)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = piece.encode("ascii")
        else:
            pieces[i] = bytes.fromhex(piece[1:]) if piece[0] == "x" else LONG[piece]
    return b"".join(pieces)


def read(target):
    path, seeds = FOLDER / f"{target}.seeds", {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if line.startswith("seed "):
            name = line[5:]
            seeds[name] = ""
        elif line.startswith("\t") and seeds:
            seeds[name] += line[1:]
        else:
            sys.exit(f"{path}: line {number} is neither \"seed NAME\" nor a line that begins with a tab")
    return {name: unescaped(text) for name, text in seeds.items()}


def unpack(target, directory):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in read(target).items():
        (directory / name).write_bytes(data)


def add(target, *files):
    seeds = read(target)
    seeds.update((Path(file).name, Path(file).read_bytes()) for file in files)
    text = "".join(f"seed {name}\n{escaped(seeds[name])}" for name in sorted(seeds))
    (FOLDER / f"{target}.seeds").write_text(text)


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("unpack", "add") or (sys.argv[1] == "unpack" and len(sys.argv) > 4):
        sys.exit(__doc__)
    {"unpack": unpack, "add": add}[sys.argv[1]](*sys.argv[2:])
