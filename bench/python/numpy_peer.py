"""numpy as a peer of `rein bench`:

    python bench/python/numpy_peer.py ROW

The formulas are written plainly, vectorised, with gradients from what is already computed.
"""

from __future__ import annotations

from functools import partial

from peer import answer, best, row_of, tune

if __name__ == "__main__":
    tune()

import numpy as np

POLICY_TOKENS, POLICY_LENGTH = 16 << 20, 1021
BUDGET = (100_000, 16)
UPDATE = (64, 4 << 20)
GIGA = 1e9

# ---------------------------------------------------------------------------------------------------------- policy loss


def policy_loss(gradient, log_probs, old, ref, advantages, mask, epsilon=0.2, beta=0.04):
    """GRPO with k3: the mean over sequences of the means over their tokens; also its gradient."""
    ratio = np.exp(log_probs - old)
    surrogate = ratio * advantages[:, None]
    clipped = np.clip(ratio, 1 - epsilon, 1 + epsilon) * advantages[:, None]
    to_ref = ref - log_probs
    quotient = np.exp(to_ref)
    per_token = beta * (quotient - to_ref - 1) - np.minimum(surrogate, clipped)
    np.multiply(quotient, -beta, out=quotient)
    np.add(quotient, beta, out=quotient)
    np.subtract(quotient, np.where(surrogate <= clipped, surrogate, 0), out=gradient)
    if mask is None:
        gradient /= gradient.shape[1]
        return per_token.mean(1).sum()
    counts = np.maximum(mask.sum(1), 1).astype(log_probs.dtype)
    gradient *= mask / counts[:, None]
    return ((per_token * mask).sum(1) / counts).sum()


def policy_rate(dtype, masked):
    """GB/s of the bytes that must move: the three inputs, the gradient, and the mask at a byte a token."""
    n = POLICY_TOKENS // POLICY_LENGTH // 8 * 8
    generator = np.random.default_rng(0)

    def normal(scale):
        return generator.standard_normal((n, POLICY_LENGTH), np.float32).astype(dtype) * dtype(scale)

    old = normal(0.5) - dtype(1.5)
    log_probs, ref, gradient = old + normal(0.02), old + normal(0.05), np.zeros_like(old)
    groups = (generator.random((n // 8, 8)) < 0.4).astype(dtype)
    mask = generator.random((n, POLICY_LENGTH), np.float32) < 0.9 if masked else None

    def in_batches_of(count):
        spread = groups.std(1, ddof=1, keepdims=True) + dtype(1e-6)
        advantages = ((groups - groups.mean(1, keepdims=True)) / spread / dtype(n)).ravel()
        loss = 0.0
        for i in range(0, n, count):
            s = slice(i, i + count)
            some = None if mask is None else mask[s]
            loss += policy_loss(gradient[s], log_probs[s], old[s], ref[s], advantages[s], some, beta=0.04 / n)
        return loss

    # All at once, and some sequences at a time, whose temporaries stay in the caches.
    seconds = min(best(partial(in_batches_of, count), rounds=5, warm=1) for count in (n, 64))
    return log_probs.size * (4 * log_probs.itemsize + masked) / seconds / GIGA


# ---------------------------------------------------------------------------------------------------------- budget loss


def budget_loss(rewards, log_probs, old, lengths, budget, tau, penalty, return_grad=False):
    over = np.maximum(0, lengths - budget).astype(rewards.dtype)
    adjusted = rewards - penalty * over
    gap = adjusted - adjusted.mean(axis=1, keepdims=True) - tau * (log_probs - old)
    loss = float((gap * gap).mean())
    return (loss, (-2 * tau / gap.size) * gap) if return_grad else loss


def budget_batch(dtype):
    generator = np.random.default_rng(0)
    rewards, log_probs, noise = (generator.normal(0, 1, BUDGET).astype(dtype) for _ in range(3))
    return rewards, log_probs, log_probs + noise / 10, generator.integers(0, 200, BUDGET)


def budget_rate(dtype, gradient):
    arrays = budget_batch(dtype)
    seconds = best(lambda: budget_loss(*arrays, 100, 0.1, 0.01, return_grad=gradient), rounds=30)
    size = arrays[0].itemsize
    return arrays[0].size * (3 * size + 8 + (size if gradient else 0)) / seconds / GIGA


# --------------------------------------------------------------------------------------------------------------- update


def update_rate(dtype):
    n, p = UPDATE
    generator = np.random.default_rng(0)
    gradients, weights = generator.random((n, p), dtype), np.zeros(p, dtype)
    rewards, log_probs, ref = (generator.random(n, dtype) for _ in range(3))

    def work(beta=0.1, lr=1e-3):
        return weights + ((lr / n) * (rewards - beta * (log_probs - ref))).astype(dtype) @ gradients

    return gradients.nbytes / best(work) / GIGA


def main():
    f32, f64 = np.float32, np.float64
    rows = {
        "policy-loss f32": partial(policy_rate, f32, False),
        "policy-loss f32 mask": partial(policy_rate, f32, True),
        "policy-loss f64 mask": partial(policy_rate, f64, True),
    }
    for name, dtype in (("f32", f32), ("f64", f64)):
        rows[f"rlhf-update {name}"] = partial(update_rate, dtype)
        rows[f"budget-loss {name}"] = partial(budget_rate, dtype, False)
        rows[f"budget-loss {name} gradient"] = partial(budget_rate, dtype, True)
    answer(row_of(), rows)


if __name__ == "__main__":
    main()
