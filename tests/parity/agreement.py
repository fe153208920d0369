"""agreement.py - calls rein on a batch and compares it with a torch oracle."""

import numpy as np

import rein

TOLERANCE = {np.float64: 1e-10, np.float32: 1e-5}
OPTIONAL = ("ref_log_probs", "sample_log_probs", "entropies", "values")


def call_rein(batch, preset, dtype=np.float64, needs=(), **options):
    """rein's result on a batch. `needs` names the optional arrays the composition reads; the others are withheld."""
    arrays = {name: batch.tokens[name].astype(dtype) for name in OPTIONAL if name in needs}
    extra = {
        "reward_components": batch.components,
        "baseline_rewards": batch.baselines,
        "response_lengths": batch.response_lengths,
        "correct": batch.correct,
    }
    arrays.update({name: value for name, value in extra.items() if name in needs})
    if "reward_components" not in needs:
        arrays["rewards"] = batch.rewards
    return rein.policy_loss(
        preset,
        batch.tokens["log_probs"].astype(dtype),
        batch.tokens["old_log_probs"].astype(dtype),
        mask=batch.mask,
        sequence_lengths=batch.lengths,
        group_sizes=batch.group_sizes,
        return_advantages=True,
        **arrays,
        **options,
    )


def distance(ours, theirs):
    """|ours − theirs| over |theirs|, both as vectors: a gradient is as wrong as its error against its norm."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert np.isfinite(ours).all(), "not finite"
    return np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-3)


def assert_agrees(result, step, loss, dtype=np.float64):
    """Loss and gradients of `result` against the oracle's loss. A loss may cancel to nearly 0 where its terms do
    not: its error is
    measured against the gradient's norm too."""
    grad_lp, grad_entropy = step.gradients(loss)
    tolerance, expected = TOLERANCE[dtype], loss.item()
    size = max(abs(expected), np.linalg.norm(grad_lp), 1e-3)
    assert abs(result.loss - expected) <= tolerance * size, (result.loss, expected)
    assert distance(result.grad_log_probs, grad_lp) <= tolerance
    assert result.grad_log_probs.dtype == dtype
    if result.grad_entropies is not None:
        assert distance(result.grad_entropies, grad_entropy) <= tolerance
