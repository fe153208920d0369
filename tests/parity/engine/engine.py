"""engine.py - the C engine as functions: evaluate.c and sample.c, compiled once against the library."""

import functools
import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ["-ljansson", "-lpcre2-8", "-lutf8proc", "-lm", "-pthread"]


class Refused(Exception):
    """The message of a call that was refused."""


@functools.cache
def made(target):
    """The path of what `make` makes."""
    alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", target], cwd=ROOT, env=alone, capture_output=True, check=True)
    return ROOT / target


@functools.cache
def program(name):
    to = Path(tempfile.mkdtemp(prefix="rein-engine-")) / name
    compiler = shlex.split(os.environ.get("CC", "cc"))
    library = str(made("build/librein.a"))
    source = str(Path(__file__).parent / f"{name}.c")
    flags = ["-std=c11", "-O1", f"-I{ROOT}/include", "-o", str(to)]
    subprocess.run([*compiler, *flags, source, library, *LIBRARIES], check=True)
    return str(to)


@dataclass
class Result:
    log_probs: torch.Tensor
    entropies: torch.Tensor
    logits: torch.Tensor  # [wanted, vocabulary], or None
    gradient: dict  # by name, or None
    values: dict  # after training, or None
    losses: list


def evaluate(model, tokens, temperature=1.0, vocabulary=None, **more):
    """more: adapter, train, dlog_probs, dentropies, recompute, optimizer, as evaluate.c has them.

    With the size of the vocabulary, also logits."""
    request = dict(model=str(model), segments=tokens.segments, parents=tokens.parents, temperature=temperature)
    request |= {k: v.tolist() if torch.is_tensor(v) else v for k, v in more.items() if v is not None}
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        asked.write_text(json.dumps(request | dict(to=folder, logits=vocabulary is not None)))
        done = subprocess.run([program("evaluate"), str(asked)], capture_output=True, text=True)
        if done.returncode == 2:
            raise Refused(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        files = {p.name: torch.from_numpy(numpy.fromfile(p, "<f4")) for p in Path(folder).iterdir() if not p.suffix}
    files |= {name: split(files.get(name), said["parameters"]) for name in ("gradient", "values")}
    if vocabulary is not None:
        files["logits"] = files["logits"].view(-1, vocabulary)
    return Result(**(dict.fromkeys(Result.__dataclass_fields__) | files | dict(losses=said["losses"])))


def sample(model, prompts, **more):
    """{(request, sample): (ids, log_probs)}. more: adapter, temperature, samples, max_tokens, greedy … of sample.c."""
    request = dict(model=str(model), prompts=prompts, temperature=1.0, samples=1) | more
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        asked.write_text(json.dumps({k: v for k, v in request.items() if v is not None}))
        done = subprocess.run([program("sample"), str(asked)], capture_output=True, text=True)
    if done.returncode == 2:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found = {}
    for token in map(json.loads, done.stdout.splitlines()):
        ids, bits = found.setdefault((token["request"], token["sample"]), ([], []))
        ids.append(token["id"])
        bits.append(token["bits"])
    return {k: (ids, torch.from_numpy(numpy.array(bits, "<u4").view("<f4"))) for k, (ids, bits) in found.items()}


def split(numbers, parameters):
    """By name, each with its two dimensions; a vector is one row."""
    if numbers is None:
        return None
    sizes = [rows * columns for _, rows, columns in parameters]
    return {name: x.view(rows, columns) for (name, rows, columns), x in zip(parameters, numbers.split(sizes))}
