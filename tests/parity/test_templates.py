"""Chat templates: the cases of tests/model/test_template.c are what jinja2 renders."""

import pathlib
import subprocess
import sys


def test_cases_are_what_jinja2_renders():
    generator = pathlib.Path(__file__).parents[1] / "model" / "fixtures" / "templates" / "generate.py"
    subprocess.run([sys.executable, str(generator), "--check"], check=True)
