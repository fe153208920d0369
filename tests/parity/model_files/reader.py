"""reader.py - the C readers, compiled once, as functions."""

import functools
import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [
    "src/base/base.c",
    "src/base/directory.c",
    "src/base/file.c",
    "src/base/json_file.c",
    "src/model/safetensors.c",
    "src/model/safetensors_index.c",
    "src/model/safetensors_write.c",
    "src/model/tokenizer_text.c",
    "src/model/unicode.c",
    "src/model/config.c",
    "src/model/config_weights.c",
]


class Refused(Exception):
    """The message of a reader that refused."""


@functools.cache
def program():
    to = Path(tempfile.mkdtemp(prefix="rein-model-files-")) / "read_files"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/src", f"-I{ROOT}/include"]
    sources = [str(ROOT / source) for source in SOURCES] + [str(Path(__file__).parent / "read_files.c")]
    subprocess.run([*compiler, *flags, "-o", str(to), *sources, "-ljansson", "-lutf8proc", "-lm"], check=True)
    return str(to)


def run(*arguments):
    done = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode == 2:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def tensors(path):
    return {t["name"]: t for t in map(json.loads, run("tensors", path))}


def config(directory):
    return json.loads(run("config", directory)[0])
