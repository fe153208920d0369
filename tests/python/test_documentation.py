"""Every example in a docstring works."""

import doctest
import importlib

import pytest

import rein


@pytest.mark.parametrize("name", ["_options", "_operations", "_policy", "torch"])
def test_docstrings(name):
    if name == "torch":
        pytest.importorskip("torch")
    module = importlib.import_module(f"rein.{name}")
    failed, attempted = doctest.testmod(module)
    assert attempted > 0 and failed == 0


def test_everything_public_has_an_example():
    for name in rein.__all__:
        documented = getattr(rein, name)
        if callable(documented) and name not in ("Explanation", "KlBias", "PolicyLoss"):
            assert ">>>" in documented.__doc__, name
