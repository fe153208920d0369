"""One optimizer step in the form of the library: a rein_batch, and the arrays it points to."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from . import _library as c
from ._arrays import (
    FLOAT32,
    FLOAT64,
    Array,
    ArrayLike,
    GroupSizes,
    address,
    even_offsets,
    group_offsets_of,
    is_float32,
    marks,
    offsets_of,
    real,
    reals_like,
    show,
    whole,
)
from ._options import ESTIMATED, PER_SEQUENCE, PER_TOKEN, Options, Preset, cached_options

TOKEN_ARRAYS = (
    "log_probs",
    "old_log_probs",
    "ref_log_probs",
    "sample_log_probs",
    "entropies",
    "exact_kl",
    "teacher_log_probs",
    "teacher_divergence",
    "values",
    "advantages",
)

# The user's names for arguments of the library.
USER_NAMES = {"group_offsets": "group_sizes"}


def type_of(value: ArrayLike) -> np.dtype[Any]:
    """float32 for float32 input, float64 for everything else."""
    return FLOAT32 if is_float32(value) else FLOAT64


def scalar_or_none(value: Any) -> float | None:
    """A budget that all sequences share, as a number; None if there is one per sequence."""
    if value is None or type(value) in (int, float):
        return value  # type: ignore[no-any-return]
    return float(value) if np.ndim(value) == 0 else None


class Inputs:
    """A rein_batch over the user's arrays. Arrays of the right type in C order are not copied."""

    __slots__ = (
        "batch",
        "dtype",
        "group_offsets",
        "keep",
        "n_sequences",
        "offsets",
        "options",
        "reference",
        "shape",
        "source",
    )

    options: Options

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], sequence_lengths: ArrayLike) -> None:
        self.shape, self.dtype = shape, dtype
        self.batch = batch = c.Batch()
        self.reference = ctypes.byref(batch)
        self.keep: list[Any] = []
        self.source = ESTIMATED
        self.group_offsets: Array | None = None
        if len(shape) == 2:
            if sequence_lengths is not None:
                raise ValueError("sequence_lengths has no effect with [B, T] arrays: mask marks the tokens that train")
            self.n_sequences = shape[0]
            self.offsets, batch.sequence_offsets = even_offsets(shape[0], shape[1])
        elif len(shape) != 1:
            raise ValueError(f"log_probs has shape {show(shape)}: [B, T], or [tokens] with sequence_lengths, is needed")
        elif sequence_lengths is None:
            self.n_sequences = 1
            self.offsets, batch.sequence_offsets = even_offsets(1, shape[0])
        else:
            self.offsets, batch.sequence_offsets = offsets_of(sequence_lengths, "sequence_lengths", shape[0], "tokens")
            self.n_sequences = self.offsets.size - 1
        batch.n_sequences = self.n_sequences
        batch.dtype = c.F32 if dtype is FLOAT32 else c.F64

    def tokens(self, name: str, value: ArrayLike) -> Array:
        """Sets an array with one number per token. The test repeats `real` without its calls, because most arrays pass
        it and calls are slow for small batches."""
        if (
            type(value) is np.ndarray
            and value.dtype is self.dtype
            and value.flags.c_contiguous
            and value.shape == self.shape
        ):
            array = value
        else:
            array = reals_like(value, name, self.dtype, self.shape, "the batch")
        setattr(self.batch, name, address(array))
        self.keep.append(array)
        return array

    def mask(self, value: ArrayLike) -> None:
        array = marks(value, "mask")
        if array.shape != self.shape:
            raise ValueError(f"mask has shape {show(array.shape)}, the batch has {show(self.shape)}: they must agree")
        self.batch.mask = address(array)
        self.keep.append(array)

    def groups(self, group_sizes: GroupSizes) -> None:
        offsets, where = group_offsets_of(group_sizes, self.n_sequences)
        self.batch.group_offsets = where
        self.batch.n_groups = offsets.size - 1
        self.group_offsets = offsets

    def sequences(self, field: str, name: str, array: Array) -> None:
        """Sets an array with one number per sequence."""
        if array.shape != (self.n_sequences,):
            raise ValueError(f"{name} has shape {show(array.shape)}, but there are {self.n_sequences} sequences")
        setattr(self.batch, field, address(array))
        self.keep.append(array)

    def advantages(self, value: ArrayLike, rewarded: bool) -> None:
        """Sets advantages, one per token or per sequence; the latter replace the rewards, if none are given."""
        array = real(value, "advantages", type_of(value))
        if array.shape == self.shape:
            self.tokens("advantages", array)
            self.source = PER_TOKEN
        elif array.shape != (self.n_sequences,):
            raise ValueError(
                f"advantages has shape {show(array.shape)}: one per sequence, [{self.n_sequences}], "
                f"or one per token, {show(self.shape)}, is needed"
            )
        elif rewarded:
            lengths: Any = np.diff(self.offsets.astype(np.intp))
            self.tokens("advantages", np.repeat(array.astype(self.dtype), lengths).reshape(self.shape))
            self.source = PER_TOKEN
        else:
            self.sequences("rewards", "advantages", real(array, "advantages", FLOAT64))
            self.source = PER_SEQUENCE

    def components(self, value: ArrayLike, weights: ArrayLike) -> None:
        """Sets several rewards per sequence, and the weight of each."""
        if value is None:
            raise ValueError("reward_weights has no effect without reward_components")
        array = real(value, "reward_components", FLOAT64)
        if array.ndim != 2 or array.shape[0] != self.n_sequences:
            raise ValueError(
                f"reward_components has shape {show(array.shape)}: [{self.n_sequences}, components] is needed"
            )
        self.batch.n_components = array.shape[1]
        self.batch.reward_components = address(array)
        self.keep.append(array)
        if weights is not None:
            array = reals_like(weights, "reward_weights", FLOAT64, array.shape[1:], "a row of reward_components")
            self.batch.reward_weights = address(array)
            self.keep.append(array)

    def baselines(self, value: ArrayLike) -> None:
        """Sets baselines: one per sequence, or one per group, which all its sequences share."""
        array = real(value, "baseline_rewards", FLOAT64)
        offsets = even_offsets(1, self.n_sequences)[0] if self.group_offsets is None else self.group_offsets
        sizes: Any = np.diff(offsets.astype(np.intp))
        if array.shape == sizes.shape and array.shape != (self.n_sequences,):
            array = np.repeat(array, sizes)
        self.sequences("baseline_rewards", "baseline_rewards", array)

    def layouts(self) -> dict[str, tuple[str, Any]]:
        """The layouts of the arrays, to show positions in messages as the user counts them."""
        names: dict[str, tuple[str, Any]] = dict.fromkeys(TOKEN_ARRAYS, ("shape", self.shape))
        if self.batch.n_components:
            names["reward_components"] = ("shape", (self.n_sequences, self.batch.n_components))
        return names

    def fail(self, status: int, error: c.Error) -> None:
        if self.source == PER_SEQUENCE:
            layouts = {**self.layouts(), "advantages": ("shape", (self.n_sequences,))}
            c.raise_error(status, error, layouts, {**USER_NAMES, "rewards": "advantages"})
        c.raise_error(status, error, self.layouts(), USER_NAMES)


def make_inputs(
    preset: Preset,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    tokens: tuple[tuple[str, ArrayLike], ...],
    options: dict[str, Any],
    *,
    rewards: ArrayLike = None,
    advantages: ArrayLike = None,
    mask: ArrayLike = None,
    sequence_lengths: ArrayLike = None,
    group_sizes: GroupSizes = None,
    reward_components: ArrayLike = None,
    reward_weights: ArrayLike = None,
    baseline_rewards: ArrayLike = None,
    response_lengths: ArrayLike = None,
    correct: ArrayLike = None,
    token_budget: ArrayLike = None,
) -> Inputs:
    """A batch of this shape with its options. `tokens` are arrays with one number per token."""
    inputs = Inputs(shape, dtype, sequence_lengths)
    for name, value in tokens:
        if value is not None:
            inputs.tokens(name, value)
    if mask is not None:
        inputs.mask(mask)
    if group_sizes is not None:
        inputs.groups(group_sizes)
    if rewards is not None:
        inputs.sequences("rewards", "rewards", real(rewards, "rewards", FLOAT64))
    if reward_components is not None or reward_weights is not None:
        inputs.components(reward_components, reward_weights)
    if baseline_rewards is not None:
        inputs.baselines(baseline_rewards)
    if response_lengths is not None:
        inputs.sequences("response_lengths", "response_lengths", whole(response_lengths, "response_lengths"))
    if correct is not None:
        inputs.sequences("correct", "correct", marks(correct, "correct"))
    budget = scalar_or_none(token_budget)
    if token_budget is not None and budget is None:
        inputs.sequences("token_budgets", "token_budget", whole(token_budget, "token_budget"))
    if advantages is not None:
        inputs.advantages(advantages, rewards is not None or reward_components is not None)
    inputs.options = cached_options(preset, options, budget, inputs.source)
    return inputs


@lru_cache(maxsize=64)
def exec_of(threads: int) -> tuple[c.Exec, Any]:
    """An Exec with this number of threads, and its reference for calls."""
    where = c.Exec(threads, 0)
    return where, ctypes.byref(where)
