"""Every preset against torch autograd on the published formula: loss and gradient, float64 and float32."""

import numpy as np
import pytest
from agreement import assert_agrees, call_rein
from batches import batches, long_batch
from hypothesis import given
from presets import PRESETS
from torch_step import Step

import rein

CASES = [(name, index) for name, (_, _, tried) in PRESETS.items() for index in range(len(tried))]


def test_every_preset_has_an_oracle():
    assert sorted([*PRESETS, "online-dpo"]) == sorted(rein.presets())  # its loss is over pairs


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("name, index", CASES)
@given(batch=batches())
def test_preset(name, index, dtype, batch):
    oracle, needs, tried = PRESETS[name]
    batch = batch.rounded(dtype)
    step = Step(batch)
    result = call_rein(batch, name, dtype, needs, **tried[index])
    assert_agrees(result, step, oracle(step, **tried[index]), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("name, index", CASES)
def test_preset_on_long_sequences(name, index, dtype):
    """Long enough for every block and lane of the vectorised code."""
    oracle, needs, tried = PRESETS[name]
    batch = long_batch(dtype)
    step = Step(batch)
    assert_agrees(call_rein(batch, name, dtype, needs, **tried[index]), step, oracle(step, **tried[index]), dtype)
