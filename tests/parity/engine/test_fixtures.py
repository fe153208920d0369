"""The committed goldens of the C tests are what their generator makes."""

import importlib.util
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[2] / "model" / "fixtures" / "engine" / "generate.py"


def test_goldens_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate_engine", GENERATOR)
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.make(checking=True) == []
