"""c_trainer.py - the C trainer as a function: run_trainer.c, compiled once against the library."""

import functools
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ["-ljansson", "-lpcre2-8", "-lutf8proc", "-lyaml", "-lm", "-pthread"]


class Refused(Exception):
    """The message of a call that was refused."""


@functools.cache
def program():
    to = Path(tempfile.mkdtemp(prefix="rein-trainer-")) / "run_trainer"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "build/librein.a"], cwd=ROOT, env=alone, check=True)
    source = str(Path(__file__).parent / "run_trainer.c")
    flags = ["-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/include", "-o", str(to)]
    subprocess.run([*compiler, *flags, source, str(ROOT / "build" / "librein.a"), *LIBRARIES], check=True)
    return str(to)


def train(model, adapter, to, groups, settings):
    """One step on each file of groups: [(loss, norm, kl)], and the factors by PEFT's names."""
    to.mkdir()
    pairs = [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [program(), model, adapter, to, ",".join(map(str, groups)), *pairs], capture_output=True, text=True
    )
    if done.returncode == 2:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    steps = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    return steps, load_file(to / "adapter_model.safetensors")
