"""stepper.py - the C optimizer, compiled once, as functions."""

import functools
import os
import platform
import shlex
import subprocess
import tempfile
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ["src/base/base.c", "src/base/exec.c", "src/base/pool.c", "src/train/adamw.c", "src/train/schedule.c"]
X86 = platform.machine() in ("x86_64", "AMD64")


class Refused(Exception):
    """The message of a call that was refused."""


@functools.cache
def program():
    to = Path(tempfile.mkdtemp(prefix="rein-optimizer-"))
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-pthread", "-D_POSIX_C_SOURCE=200809L"]
    flags += ["-Wno-psabi", f"-I{ROOT}/src", f"-I{ROOT}/include"] + ["-DREIN_HAVE_AVX2"] * X86
    passes = []
    for lanes, extra in {"ref": [], "avx2": ["-mavx2", "-mfma"]}.items():
        if lanes == "ref" or X86:
            passes.append(str(to / f"{lanes}.o"))
            names = ["-DREAL_F32", f"-DREIN_SUFFIX={lanes}_f32"]
            source = str(ROOT / "src/train/adamw_pass.c")
            subprocess.run([*compiler, *flags, *names, *extra, "-c", "-o", passes[-1], source], check=True)
    sources = [str(ROOT / source) for source in SOURCES] + [str(Path(__file__).parent / "run_optimizer.c")]
    subprocess.run([*compiler, *flags, "-o", str(to / "run_optimizer"), *sources, *passes, "-lm"], check=True)
    return str(to / "run_optimizer")


def run(*arguments, given=b""):
    done = subprocess.run([program(), *map(str, arguments)], input=given, capture_output=True)
    if done.returncode == 2:
        raise Refused(done.stderr.decode().strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


def adamw(options, shapes, values, rates, gradients):
    """For each step: norm, values, first and second moments.

    options: beta1, beta2, epsilon, weight_decay, max_gradient_norm. shapes: (rows, columns, decay) of each parameter;
    their numbers stand one after another in values and in each row of gradients.
    """
    steps = b"".join(numpy.float64(r).tobytes() + g.tobytes() for r, g in zip(rates, gradients))
    texts = [f"{rows}x{columns}x{int(decay)}" for rows, columns, decay in shapes]
    n = len(values)
    kind = numpy.dtype([("norm", "f8"), ("value", "f4", n), ("first", "f4", n), ("second", "f4", n)])
    return numpy.frombuffer(run("adamw", *map(repr, options), *texts, given=values.tobytes() + steps), dtype=kind)


def rates(shape, rate, warmup, total, final_share, steps):
    said = run("rates", shape, repr(rate), warmup, total, repr(final_share), steps)
    return [float.fromhex(line) for line in said.decode().split()]
