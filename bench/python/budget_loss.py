"""rein.rl_budget_loss against the same formula in numpy: 100,000 prompts by 16 responses, f64 and f32, with the
gradient.

The numpy side is that of numpy_peer.py, the peer of `rein bench`; here both are called from Python, and their outputs
are checked equal first. Both have a malloc that keeps its memory: otherwise one measures page faults.

    python bench/python/budget_loss.py
"""

from peer import best, tune

if __name__ == "__main__":
    tune()

import numpy as np
from numpy_peer import BUDGET, budget_batch, budget_loss

import rein

TARGET = 8
SCALARS = (100, 0.1, 0.01)


def row(dtype, gradient):
    arrays = budget_batch(dtype)
    calls = [lambda f=f: f(*arrays, *SCALARS, return_grad=gradient) for f in (rein.rl_budget_loss, budget_loss)]
    (ours, mine), (theirs, expected) = (call() if gradient else (call(), 0) for call in calls)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4 if dtype == np.float32 else 1e-11)
    np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-10)
    own, other = (1e3 * best(call, rounds=15) for call in calls)
    what = f"{np.dtype(dtype).name}, loss{' and gradient' if gradient else ''}"
    return f"{what:28}rein {own:7.2f} ms   numpy {other:7.2f} ms   {other / own:5.1f} x   target {TARGET}"


def main():
    print(
        f"budget-constrained loss, {BUDGET[0]:,} x {BUDGET[1]}, numpy {np.__version__}; ratio: numpy's time over ours"
    )
    for dtype in (np.float64, np.float32):
        for gradient in (False, True):
            print(row(dtype, gradient), flush=True)


if __name__ == "__main__":
    main()
