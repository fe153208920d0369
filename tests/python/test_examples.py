"""The examples run, and the lines of the README print what it shows."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def output_of(path):
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_tour():
    assert "0.005525" in output_of(ROOT / "examples/python/numpy_tour.py")


def test_a_small_model_learns():
    pytest.importorskip("torch")
    before, after = re.search(
        r"entirely right: ([\d.]+)% before, ([\d.]+)% after", output_of(ROOT / "examples/python/drop_in_torch.py")
    ).groups()
    assert float(before) < 10 and float(after) > 85


def test_a_custom_loop_learns():
    rewards = re.findall(r"reward ([\d.]+)", output_of(ROOT / "examples/python/custom_loop.py"))
    assert float(rewards[0]) < 0.5 and float(rewards[-1]) > 0.8


def test_an_agent_resumes(tmp_path):
    program = str(ROOT / "examples/environments/guess_function.py")

    def steps(n):
        command = [sys.executable, program, str(ROOT / "models/sums"), str(tmp_path / "run"), str(n)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return re.findall(r"step +(\d+)   reward [\d.]+   found [\d.]+", done.stdout)

    assert (steps(2), steps(3)) == (["1", "2"], ["3"])


def test_the_readme():
    pytest.importorskip("torch")
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    said = re.search(r"# (-?[\d.]+ \[\[.*\]\])", block)[1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    assert printed.getvalue().startswith(said + "\n")
