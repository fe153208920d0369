"""KL-penalised advantages against numpy, for every kind of array; the other three operations are in
tests/python/test_operations.py."""

import numpy as np
import pytest
from agreement import TOLERANCE, distance
from hypothesis import given
from hypothesis import strategies as st

import rein


def kl_advantages(advantage, lp, ref, mask, coef, scope_of):
    out, d = advantage.copy(), np.where(mask, lp - ref, 0)
    for scope in np.unique(scope_of):
        inside = mask & (scope_of == scope)
        if inside.any():
            out[inside] += coef * (d[inside].mean() - d[inside])
    return out, d[mask].mean() if mask.any() else 0.0


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def strided(x):
    """The same numbers, not contiguous: every second entry of a larger array."""
    out = np.zeros([2 * n for n in x.shape], x.dtype)
    view = out[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


KINDS = {
    "array": lambda x: x,
    "list": lambda x: x.tolist(),
    "fortran": np.asfortranarray,
    "strided": strided,
    "read-only": read_only,
    "reversed": lambda x: x[::-1].copy()[::-1],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}
ALL_KINDS = pytest.mark.parametrize("kind", KINDS)
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
SEEDS = st.integers(0, 2**32 - 1)


def numbers(seed, shape, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("scope", ["batch", "group", "sequence"])
@ALL_KINDS
@DTYPES
@given(seed=SEEDS)
def test_kl_advantages(kind, dtype, scope, seed):
    rng, wrap = np.random.default_rng(seed), KINDS[kind]
    lengths, sizes = rng.integers(1, 5, 5), [2, 3]
    n = int(lengths.sum())
    advantage, lp, ref = (numbers(seed + i, (n,), dtype) for i in range(3))
    mask = rng.random(n) < 0.7
    sequence = np.repeat(np.arange(5), lengths)
    scope_of = {"batch": sequence * 0, "group": np.repeat([0, 1], sizes)[sequence], "sequence": sequence}[scope]
    shape = {"sequence_lengths": lengths, "group_sizes": sizes}
    extra = {"batch": {}, "sequence": {"sequence_lengths": lengths}, "group": shape}[scope]
    adjusted, kl = rein.kl_penalized_advantages(
        wrap(advantage), wrap(lp), wrap(ref), wrap(mask), 0.4, kl_scope=scope, **extra
    )
    wide = [x.astype(np.float64) for x in (advantage, lp, ref)]
    expected, expected_kl = kl_advantages(*wide, mask, 0.4, scope_of)
    assert distance(adjusted, expected) <= TOLERANCE[dtype]
    assert kl == pytest.approx(expected_kl, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
