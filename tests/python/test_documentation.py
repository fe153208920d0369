"""Every example in a docstring works."""

import doctest
import importlib
from pathlib import Path

import pytest

import rein


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_options",
        "_operations",
        "_policy",
        "_groups",
        "_model",
        "_rollout",
        "_run",
        "_session",
        "_tokenizer",
        "_train",
        "torch",
    ],
)
def test_docstrings(name, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])  # the models that they open are fixtures of the tests
    if name == "torch":
        pytest.importorskip("torch")
    module = importlib.import_module(f"rein.{name}".rstrip("."))
    failed, attempted = doctest.testmod(module)
    assert attempted > 0 and failed == 0


# Results and exceptions: what makes them has the example.
NO_EXAMPLE = {"Explanation", "KlBias", "Pass", "PolicyLoss", "Sample"}
NO_EXAMPLE |= {"ChatCompletion", "Client", "Episode", "EpisodeOver", "Rollout"}
NO_EXAMPLE |= {"Evaluation", "HtmlReport", "Run", "StepReport"}
NO_EXAMPLE |= {"ArgumentError", "FileError", "OutOfMemoryError", "ResultError"}


def test_everything_public_has_an_example():
    for name in rein.__all__:
        documented = getattr(rein, name)
        if callable(documented) and name not in NO_EXAMPLE:
            assert ">>>" in documented.__doc__, name
