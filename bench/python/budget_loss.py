"""rein.rl_budget_loss against the same formula in numpy: 100,000 prompts by 16 responses, f64 and f32, with the
gradient.

The numpy side is the formula written plainly, vectorised, with its gradient from what it has already computed. Outputs
are checked equal first. Both have a malloc that keeps its memory: otherwise one measures page faults.

    python bench/python/budget_loss.py
"""

import os
import sys
import time

TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
if any(os.environ.get(name) != value for name, value in TUNED.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})

import numpy as np  # noqa: E402

import rein  # noqa: E402

SHAPE, TARGET = (100_000, 16), 8
SCALARS = (100, 0.1, 0.01)


def in_numpy(rewards, log_probs, old, lengths, budget, tau, penalty, return_grad=False):
    over = np.maximum(0, lengths - budget).astype(rewards.dtype)
    adjusted = rewards - penalty * over
    gap = adjusted - adjusted.mean(axis=1, keepdims=True) - tau * (log_probs - old)
    loss = float((gap * gap).mean())
    return (loss, (-2 * tau / gap.size) * gap) if return_grad else loss


def batch(dtype):
    generator = np.random.default_rng(0)
    rewards, log_probs, noise = (generator.normal(0, 1, SHAPE).astype(dtype) for _ in range(3))
    return rewards, log_probs, log_probs + noise / 10, generator.integers(0, 200, SHAPE)


def milliseconds(call, rounds=15):
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def row(dtype, gradient):
    arrays = batch(dtype)
    calls = [lambda f=f: f(*arrays, *SCALARS, return_grad=gradient) for f in (rein.rl_budget_loss, in_numpy)]
    (ours, mine), (theirs, expected) = (call() if gradient else (call(), 0) for call in calls)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4 if dtype == np.float32 else 1e-11)
    np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-10)
    own, other = (milliseconds(call) for call in calls)
    what = f"{np.dtype(dtype).name}, loss{' and gradient' if gradient else ''}"
    return f"{what:28}rein {own:7.2f} ms   numpy {other:7.2f} ms   {other / own:5.1f} x   target {TARGET}"


def main():
    print(f"budget-constrained loss, {SHAPE[0]:,} x {SHAPE[1]}, numpy {np.__version__}; ratio: numpy's time over ours")
    for dtype in (np.float64, np.float32):
        for gradient in (False, True):
            print(row(dtype, gradient), flush=True)


if __name__ == "__main__":
    main()
