"""c_program.py - small C programs of the comparisons, compiled once against the library."""

import functools
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ["-ljansson", "-lpcre2-8", "-lutf8proc", "-lyaml", "-lm", "-pthread"]


@functools.cache
def compiled(source):
    """The path of the program that `source` becomes. It may include the library's private headers."""
    to = Path(tempfile.mkdtemp(prefix="rein-parity-")) / Path(source).stem
    compiler = shlex.split(os.environ.get("CC", "cc"))
    alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "build/librein.a"], cwd=ROOT, env=alone, check=True)
    flags = ["-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/src", f"-I{ROOT}/include", "-o", str(to)]
    subprocess.run([*compiler, *flags, str(source), str(ROOT / "build" / "librein.a"), *LIBRARIES], check=True)
    return str(to)
