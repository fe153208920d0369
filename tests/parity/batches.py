"""batches.py - random ragged batches, as rein takes them and as torch oracles take them.

Hypothesis draws the shape and a seed, numpy draws the numbers: fast, and still a small shape when something fails.
Masked tokens hold NaN wherever rein promises not to read them.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st

TOKEN_ARRAYS = ("log_probs", "old_log_probs", "ref_log_probs", "sample_log_probs", "entropies", "values")


@dataclass
class Batch:
    """One optimizer step. Token arrays are packed; `lengths` are tokens, `group_sizes` sequences."""

    lengths: list
    group_sizes: list
    mask: np.ndarray
    rewards: np.ndarray
    components: np.ndarray
    baselines: np.ndarray
    response_lengths: np.ndarray
    correct: np.ndarray
    tokens: dict = field(default_factory=dict)

    def __repr__(self):  # what a failing example prints
        return f"Batch(lengths={self.lengths}, group_sizes={self.group_sizes}, mask={self.mask.astype(int).tolist()})"

    def __getattr__(self, name):
        try:
            return self.__dict__["tokens"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def offsets(self):
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(int)

    def rounded(self, dtype):
        """The same batch with token arrays of type `dtype`: what a float32 call sees."""
        tokens = {name: values.astype(dtype) for name, values in self.tokens.items()}
        return Batch(**{**self.__dict__, "tokens": tokens})

    def padded(self, name, fill=0.0):
        """A token array (or "mask") as [sequences, longest], `fill` beyond a sequence's end and where the value is
        NaN."""
        source = self.mask if name == "mask" else np.nan_to_num(self.tokens[name], nan=fill)
        out = np.full((len(self.lengths), max([1, *self.lengths])), fill, dtype=np.float64)
        for row, (first, last) in enumerate(zip(self.offsets[:-1], self.offsets[1:])):
            out[row, : last - first] = source[first:last]
        return torch.tensor(out)

    def packed(self, padded):
        """The inverse of padded: [sequences, longest] back to one entry a token."""
        rows = [padded[row, :length] for row, length in enumerate(self.lengths)]
        return np.concatenate([np.asarray(r) for r in rows]) if rows else np.zeros(0)

    @property
    def group_of(self):
        return np.repeat(np.arange(len(self.group_sizes)), self.group_sizes)


def make_batch(seed, group_sizes, longest, masked, drift, rewards, least=1):
    """Group g has group_sizes[g] responses of least..longest tokens; a share `masked` of tokens does not train."""
    rng = np.random.default_rng(seed)
    n = sum(group_sizes)
    lengths = rng.integers(least, longest + 1, n).tolist()
    total = sum(lengths)
    mask = rng.random(total) >= masked
    lp = -rng.gamma(1.0, 1.0, total) - 1e-3  # log-probabilities: below 0, mostly near it
    near = {
        name: np.minimum(lp + drift * rng.standard_normal(total), -1e-4)
        for name in ("old_log_probs", "ref_log_probs", "sample_log_probs")
    }
    tokens = {"log_probs": lp, **near, "entropies": rng.gamma(2.0, 0.5, total), "values": rng.standard_normal(total)}
    for values in tokens.values():
        values[~mask] = np.nan
    return Batch(
        lengths=lengths,
        group_sizes=list(group_sizes),
        mask=mask,
        rewards=draw_rewards(rng, n, rewards),
        components=rng.standard_normal((n, 3)),
        baselines=rng.standard_normal(n),
        response_lengths=rng.integers(1, 200, n),
        correct=rng.random(n) < 0.5,
        tokens=tokens,
    )


def draw_rewards(rng, n, kind):
    if kind == "binary":  # many groups of equal rewards
        return rng.integers(0, 2, n).astype(float)
    if kind == "tenths":  # equal rewards whose float mean is not the reward
        return rng.integers(0, 3, n) * 0.1
    return rng.standard_normal(n)


@st.composite
def batches(draw, smallest_group=1, masks=(0.0, 0.3, 0.9), least=1, drift=(0.05, 0.5)):
    return make_batch(
        seed=draw(st.integers(0, 2**32 - 1)),
        group_sizes=draw(st.lists(st.integers(smallest_group, 5), min_size=1, max_size=4)),
        longest=draw(st.sampled_from([1, 3, 12])),
        masked=draw(st.sampled_from(masks)),
        drift=draw(st.sampled_from(drift)),
        rewards=draw(st.sampled_from(["normal", "binary", "tenths"])),
        least=least,
    )


def long_batch(dtype, drift=0.02):
    """12 sequences of up to 700 tokens, a third of them masked. Small drifts: a ratio of whole sequences must not
    overflow."""
    return make_batch(seed=11, group_sizes=[4, 3, 5], longest=700, masked=0.3, drift=drift, rewards="normal").rounded(
        dtype
    )
