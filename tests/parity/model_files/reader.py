"""reader.py - the C readers, compiled once, as functions."""

import json
import subprocess
from pathlib import Path

from c_program import compiled


class Refused(Exception):
    """The message of a reader that refused."""


def program():
    return compiled(Path(__file__).parent / "read_files.c")


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
