"""Which arrays are copied; errors of the library and of memory; the path of the library."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rein
from rein import _arrays, _library, _policy

TOKENS = ("log_probs", "old_log_probs", "ref_log_probs", "mask")


def seen_by_the_library(monkeypatch):
    """Every rein_batch that a step starts with."""
    seen, begin = [], _library.step_begin

    def spy(*arguments):
        seen.append(arguments[3]._obj)
        return begin(*arguments)

    monkeypatch.setattr(_library, "step_begin", spy)
    return seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_right_arrays_are_not_copied(monkeypatch, dtype, locked, packed):
    seen = seen_by_the_library(monkeypatch)
    arrays = {name: np.full((4, 8), -1, dtype) for name in TOKENS[:3]}
    arrays["mask"] = np.ones((4, 8), bool)
    if packed:
        arrays = {name: array.reshape(-1) for name, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = not locked
    rewards, lengths = np.arange(4.0), np.arange(4)
    more = {"sequence_lengths": [8] * 4} if packed else {}
    rein.policy_loss("grpo", **arrays, rewards=rewards, response_lengths=lengths, **more)
    for name, array in arrays.items():
        assert getattr(seen[-1], name) == array.ctypes.data
    assert seen[-1].rewards == rewards.ctypes.data and seen[-1].response_lengths == lengths.ctypes.data
    assert seen[-1].dtype == (dtype == np.float32)


def test_other_arrays_are_copied(monkeypatch):
    seen = seen_by_the_library(monkeypatch)
    array = np.full((4, 8), -1.0)
    for other in (np.asfortranarray(array), array[:, ::-1], array.astype(np.float16), array.tolist()):
        rein.policy_loss("dapo", other, array, rewards=[1, 2, 3, 4])
        assert seen[-1].log_probs != getattr(getattr(other, "ctypes", None), "data", 0)
        assert seen[-1].old_log_probs == array.ctypes.data


def test_subclasses_and_memoryviews():
    array = np.full((2, 3), -1.0)
    expected = rein.policy_loss("dapo", array, array, rewards=[1, 0]).loss
    for other in (array.view(np.ma.MaskedArray), memoryview(array), tuple(map(tuple, array))):
        assert rein.policy_loss("dapo", other, array, rewards=[1, 0]).loss == expected


def test_whole_numbers_of_every_type():
    for dtype in (np.int8, np.uint16, np.int32, np.uint64, np.float32, object):
        assert _arrays.whole(np.array([1, 2, 3], dtype), "x").tolist() == [1, 2, 3]
    for value, match in (
        ([1, 2.5], r"x\[1\] is 2.5: a whole number"),
        ([np.inf], r"x\[0\] is inf"),
        ([1e300], r"x\[0\] is 1e\+300"),
        (np.array([2**63], np.uint64), r"x\[0\] is 9223372036854775808: it is too large"),
        ([True], "x has type bool"),
        (["1"], "x has type"),
    ):
        with pytest.raises(ValueError, match=match):
            _arrays.whole(value, "x")


def test_lack_of_memory_is_a_memory_error():
    error = _library.Error(code=_library.ENOMEM, message=b"no memory for a workspace of 5 bytes")
    with pytest.raises(MemoryError, match="no memory for a workspace"):
        _library.raise_error(_library.ENOMEM, error)
    with pytest.raises(ValueError, match="the loss is not finite"):
        _library.raise_error(_library.ERANGE, _library.Error(code=_library.ERANGE, message=b"the loss is not finite"))


def test_workspaces_are_reused_and_bounded():
    array = np.full((4, 8), -1.0)
    rein.policy_loss("dapo", array, array, rewards=[1, 2, 3, 4])
    free = list(_policy._free)
    rein.policy_loss("dapo", array, array, rewards=[1, 2, 3, 4])
    assert _policy._free == free
    with pytest.raises(ValueError):
        rein.policy_loss("dapo", array * np.nan, array, rewards=[1, 2, 3, 4])
    assert _policy._free == free


def test_struct_layout_agrees_with_the_header():
    header = Path(__file__).parents[2] / "include" / "rein"
    if not header.exists():
        pytest.skip("the package is tested without the project")
    text = (header / "objective.h").read_text()
    body = text[text.index("typedef struct rein_batch {") : text.index("} rein_batch;")]
    found = [name for name, _ in _library.Batch._fields_]
    places = [body.index(f"{name};") if f"{name};" in body else body.index(f"{name},") for name in found]
    assert places == sorted(places) and body.count(";") - body.count("NULL;") >= len(found) - 2
    metrics = text[text.index("typedef struct rein_metrics {") : text.index("} rein_metrics;")]
    code = "".join(line.split("/*")[0] for line in metrics.splitlines()[1:])
    assert tuple(
        name.strip() for part in code.split(";") for name in part.replace("double", "").split(",") if name.strip()
    ) == (_library.METRICS)
    base = (header / "base.h").read_text()
    numbers = [base.split(f"REIN_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH")]
    assert rein.__version__ == ".".join(numbers)


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_missing_library_says_what_to_do():
    status, said = run("import rein", REIN_LIBRARY="/nowhere/librein.so")
    assert status != 0 and "rein: cannot load /nowhere/librein.so" in said and "REIN_LIBRARY" in said


def test_torch_is_only_imported_when_asked_for():
    status, said = run("import sys, rein; assert 'torch' not in sys.modules")
    assert status == 0, said
