"""stepper.py - the C optimizer, compiled once against the library, as functions."""

import subprocess
from pathlib import Path

import numpy
from c_program import compiled


class Refused(Exception):
    """The message of a call that was refused."""


def program():
    return compiled(Path(__file__).parent / "run_optimizer.c")


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
