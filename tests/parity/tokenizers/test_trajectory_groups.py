"""The conversations of tests/train/fixtures/groups, and their token ids, are what today's packages make of them."""

import subprocess
import sys

import pytest

pytest.importorskip("jinja2", reason="SKIPPED LOUDLY: the Python package jinja2 is not installed")
pytest.importorskip("pyarrow", reason="SKIPPED LOUDLY: the Python package pyarrow is not installed")

from published import HOME, ROOT, fetch

GENERATOR = ROOT / "tests" / "train" / "fixtures" / "groups" / "generate.py"


def test_fixture_is_what_the_generator_makes():
    for name in ("qwen2_5", "qwen3", "llama3_2"):
        fetch(name)
    done = subprocess.run([sys.executable, GENERATOR, "--check", HOME], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
