"""adapter_files.py - adapter_files.c, compiled once against the library, as a function."""

import functools
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ["-ljansson", "-lpcre2-8", "-lutf8proc", "-lm", "-pthread"]


class Refused(Exception):
    """The message of a call that was refused."""


@functools.cache
def program():
    to = Path(tempfile.mkdtemp(prefix="rein-adapters-")) / "adapter_files"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "build/librein.a"], cwd=ROOT, env=alone, check=True)
    flags = ["-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/src", f"-I{ROOT}/include", "-o", str(to)]
    source = str(Path(__file__).with_suffix(".c"))
    subprocess.run([*compiler, *flags, source, str(ROOT / "build" / "librein.a"), *LIBRARIES], check=True)
    return str(to)


def run(*arguments):
    done = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode == 2:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
