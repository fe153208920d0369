"""The committed goldens of the C tests are what their generator makes."""

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[2] / "model" / "fixtures" / "engine" / "generate.py"


def test_goldens_are_up_to_date():
    # A program of its own: torch chooses its instruction set only once.
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
