"""common.py - what every framework comparison shares: a batch with given advantages, rein's loss and gradient on
it, theirs by autograd."""

import numpy as np
import torch
from agreement import distance
from batches import make_batch
from hypothesis import strategies as st

import rein

OPTIONAL = ("ref_log_probs", "sample_log_probs", "entropies")


@st.composite
def padded_batches(draw, masks=(0.0, 0.3), groups=(2, 4)):
    """Batches in which every sequence trains: rows with nothing to train have a test of their own."""
    batch = make_batch(
        seed=draw(st.integers(0, 2**32 - 1)),
        group_sizes=[draw(st.sampled_from(groups))] * draw(st.integers(1, 3)),
        longest=draw(st.sampled_from([1, 4, 10])),
        masked=draw(st.sampled_from(masks)),
        drift=draw(st.sampled_from([0.05, 0.5])),
        rewards="normal",
    )
    for first in batch.offsets[:-1]:  # the first token always trains, so its numbers must be numbers
        if not batch.mask[first]:
            batch.mask[first] = True
            for at, name in enumerate(batch.tokens):
                batch.tokens[name][first] = 0.9 if name == "entropies" else -0.5 - 0.1 * at
    return batch


def example(seed=7, masked=0.3, drift=0.5, group_sizes=(4, 4), longest=8):
    """One fixed batch for the rows of the table of differences."""
    batch = make_batch(seed, list(group_sizes), longest, 0.0, drift, "normal")
    rng = np.random.default_rng(seed + 1)
    hole = rng.random(len(batch.mask)) < masked
    hole[batch.offsets[:-1]] = False
    batch.mask[hole] = False
    return batch


def ours(batch, options, needs=(), **arrays):
    """rein's loss and gradient, [sequences, longest], with batch.rewards as the advantages of the sequences."""
    rows = {name: batch.padded(name).numpy() for name in needs}
    result = rein.policy_loss(
        options,
        batch.padded("log_probs").numpy(),
        batch.padded("old_log_probs").numpy(),
        mask=batch.padded("mask").numpy().astype(bool),
        group_sizes=batch.group_sizes,
        rewards=batch.rewards,
        **rows,
        **arrays,
    )
    return result.loss, result.grad_log_probs


class Theirs:
    """The tensors a framework takes: padded, float64, log_probs a leaf."""

    def __init__(self, batch):
        self.mask = batch.padded("mask")
        self.lp = batch.padded("log_probs").requires_grad_(True)
        self.old, self.ref, self.sample = (
            batch.padded(n) for n in ("old_log_probs", "ref_log_probs", "sample_log_probs")
        )
        self.entropy = batch.padded("entropies")
        self.advantage = torch.tensor(batch.rewards)

    @property
    def token_advantage(self):
        return self.advantage.unsqueeze(1) * self.mask

    def gradient(self, loss):
        """The loss as a number, and d loss/d lp with 0 at masked tokens."""
        grad = torch.autograd.grad(loss, self.lp, allow_unused=True)[0]
        return loss.item(), (torch.zeros_like(self.lp) if grad is None else grad).numpy()


def assert_same(our, their, tolerance=1e-10):
    """(loss, gradient) pairs."""
    size = max(abs(their[0]), np.linalg.norm(their[1]), 1e-3)
    assert abs(our[0] - their[0]) <= tolerance * size, (our[0], their[0])
    assert distance(our[1], their[1]) <= tolerance


def assert_differs(our, their, at_least=1e-3):
    """Not equal, and visibly so: a row of the table that no longer holds must fail."""
    assert distance(our[1], their[1]) > at_least or abs(our[0] - their[0]) > at_least * max(abs(their[0]), 1e-3)
