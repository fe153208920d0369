"""The four named operations, and the controllers."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, Optional, overload

import numpy as np

from . import _library as c
from ._arrays import (
    FLOAT32,
    FLOAT64,
    Array,
    ArrayLike,
    GroupSizes,
    address,
    as_array,
    even_offsets,
    group_offsets_of,
    is_float32,
    marks,
    not_empty,
    offsets_of,
    real,
    reals_like,
    show,
    whole,
)


def _type_of(*values: ArrayLike) -> tuple[int, np.dtype[Any]]:
    """float32 if every array is float32, otherwise float64: the index of the function, and numpy's type."""
    for value in values:
        if value is not None and not is_float32(value):
            return c.F64, FLOAT64
    return c.F32, FLOAT32


# --------------------------------------------------------------------------------------------- budget-constrained loss


class _Rows:
    """[batch][K] arrays: rectangular, or with rows of any length."""

    def __init__(self, first: ArrayLike, name: str, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.lengths = _ragged_lengths(first)
        if self.lengths is None:
            self.array = real(first, name, dtype)
            not_empty(self.array, name)
            if self.array.ndim != 2:
                raise ValueError(f"{name} has shape {show(self.array.shape)}: [batch, K] is needed")
            self.n_rows = self.array.shape[0]
            self.offsets, self.address = even_offsets(*self.array.shape)
            self.layout: tuple[str, Any] = ("shape", self.array.shape)
        else:
            self.n_rows = len(self.lengths)
            self._check_rows()
            self.offsets, self.address = offsets_of(self.lengths, name, sum(self.lengths), "entries")
            self.array = self.flat(first, name, dtype)
            self.layout = ("offsets", self.offsets.tolist())

    def _check_rows(self) -> None:
        assert self.lengths is not None
        if 0 in self.lengths:
            raise ValueError(f"{self.name}[{self.lengths.index(0)}] is empty: a prompt has at least one response")

    def numbers(self, value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
        if self.lengths is None:
            return reals_like(value, name, dtype, self.array.shape, self.name)
        return self.flat(value, name, dtype)

    def counts(self, value: ArrayLike, name: str) -> Array:
        if self.lengths is not None:
            return whole(self.flat(value, name, None), name)
        array = whole(value, name)
        if array.shape != self.array.shape:
            raise ValueError(
                f"{name} has shape {show(array.shape)}, {self.name} has {show(self.array.shape)}: they must agree"
            )
        return array

    def flat(self, value: ArrayLike, name: str, dtype: np.dtype[Any] | None) -> Array:
        """Ragged rows as one flat array."""
        lengths = _ragged_lengths(value) or _even_lengths(value, name)
        assert self.lengths is not None
        if len(lengths) != self.n_rows:
            raise ValueError(f"{name} has {len(lengths)} rows, {self.name} has {self.n_rows}: they must agree")
        for row, (own, expected) in enumerate(zip(lengths, self.lengths)):
            if own != expected:
                raise ValueError(f"{name}[{row}] has {own} entries, {self.name}[{row}] has {expected}: they must agree")
        rows = [as_array(row, f"{name}[{i}]") for i, row in enumerate(value)]
        return np.concatenate(rows) if dtype is None else real(np.concatenate(rows), name, dtype)

    def split(self, flat: Array) -> Array | list[Array]:
        """An output in the shape of the input: an array, or a list of rows."""
        return flat if self.lengths is None else np.split(flat, self.offsets[1:-1].astype(np.intp))


def _ragged_lengths(value: ArrayLike) -> list[int] | None:
    """The lengths of the rows of a list whose rows differ in length, None for everything else."""
    if not isinstance(value, (list, tuple)):
        return None
    try:
        lengths = [len(row) for row in value]
    except TypeError:
        return None
    return lengths if len(set(lengths)) > 1 else None


def _even_lengths(value: ArrayLike, name: str) -> list[int]:
    array = as_array(value, name)
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {show(array.shape)}: [batch, K] is needed")
    return [array.shape[1]] * array.shape[0]


@overload
def rl_budget_loss(
    rewards: ArrayLike,
    log_probs: ArrayLike,
    old_log_probs: ArrayLike,
    response_lengths: ArrayLike,
    token_budget: ArrayLike,
    kl_coef: float,
    budget_penalty_coef: float,
    *,
    return_grad: Literal[False] = False,
) -> float: ...


@overload
def rl_budget_loss(
    rewards: ArrayLike,
    log_probs: ArrayLike,
    old_log_probs: ArrayLike,
    response_lengths: ArrayLike,
    token_budget: ArrayLike,
    kl_coef: float,
    budget_penalty_coef: float,
    *,
    return_grad: Literal[True],
) -> tuple[float, Array | list[Array]]: ...


def rl_budget_loss(
    rewards: ArrayLike,
    log_probs: ArrayLike,
    old_log_probs: ArrayLike,
    response_lengths: ArrayLike,
    token_budget: ArrayLike,
    kl_coef: float,
    budget_penalty_coef: float,
    *,
    return_grad: bool = False,
) -> float | tuple[float, Array | list[Array]]:
    """Budget-constrained loss (Kimi K2): mean (A − τ·(lp − old))², A = r − λ·max(0, L − B) minus its prompt's mean.

    `rewards`, `log_probs`, `old_log_probs` [batch, K], log-probs of whole responses; `response_lengths` [batch, K],
    whole numbers; `token_budget` B, a number or [batch, K]; `kl_coef` τ; `budget_penalty_coef` λ. Lists of lists may be
    ragged, with rows of length 1 or more. With `return_grad` also dloss/dlog_probs, in the shape of log_probs (ragged:
    a list of rows).

    >>> round(rl_budget_loss([[1, 0.5]], [[-1, -1.5]], [[-1.2, -1.3]], [[150, 80]], 100, 0.1, 0.01), 12)
    0.0004
    """
    index, dtype = _type_of(rewards, log_probs, old_log_probs)
    rows = _Rows(rewards, "rewards", dtype)
    current = rows.numbers(log_probs, "log_probs", dtype)
    old = rows.numbers(old_log_probs, "old_log_probs", dtype)
    lengths = rows.counts(response_lengths, "response_lengths")
    budget, budgets = _budget(token_budget, kl_coef, budget_penalty_coef, rows)
    gradient = np.empty(rows.array.shape, dtype) if return_grad else None
    loss, error = ctypes.c_double(), c.Error()
    status = c.budget_loss[index](
        ctypes.byref(loss),
        None,
        None,
        None,
        None if gradient is None else address(gradient),
        address(rows.array),
        address(current),
        address(old),
        address(lengths),
        rows.address,
        rows.n_rows,
        ctypes.byref(budget),
        None,
        ctypes.byref(error),
    )
    if status:
        names = ("rewards", "log_probs", "old_log_probs", "response_lengths", "token_budget")
        c.raise_error(status, error, dict.fromkeys(names, rows.layout))
    del budgets  # alive until here, because the struct holds its address
    return loss.value if gradient is None else (loss.value, rows.split(gradient))


def _budget(token_budget: ArrayLike, kl_coef: float, coef: float, rows: _Rows) -> tuple[c.Budget, Array | None]:
    kl, penalty = number(kl_coef, "kl_coef"), number(coef, "budget_penalty_coef")
    if np.ndim(token_budget if rows.lengths is None else 0) == 0 and not isinstance(token_budget, (list, tuple)):
        return c.Budget(number(token_budget, "token_budget"), None, kl, penalty, 0.0, 0), None
    budgets = rows.counts(token_budget, "token_budget")
    return c.Budget(0.0, address(budgets), kl, penalty, 0.0, 0), budgets


def number(value: Any, name: str) -> float:
    """A scalar argument as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}: a number is needed") from None


# ---------------------------------------------------------------------------------------------- group policy objective

_DIRECTIONS = {"current_over_ref": 1, "ref_over_current": 2}


def choice(value: Any, name: str, choices: dict[str, int]) -> int:
    """The number of a named choice."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}: one of {'|'.join(choices)} is needed")
    return choices[value]


@overload
def gpo_objective(
    ratios: ArrayLike,
    advantages: ArrayLike,
    pi_current: ArrayLike,
    pi_ref: ArrayLike,
    epsilon: float,
    beta: float,
    *,
    kl_direction: str = "current_over_ref",
    return_grad: Literal[False] = False,
) -> float: ...


@overload
def gpo_objective(
    ratios: ArrayLike,
    advantages: ArrayLike,
    pi_current: ArrayLike,
    pi_ref: ArrayLike,
    epsilon: float,
    beta: float,
    *,
    kl_direction: str = "current_over_ref",
    return_grad: Literal[True],
) -> tuple[float, tuple[Array, Array]]: ...


def gpo_objective(
    ratios: ArrayLike,
    advantages: ArrayLike,
    pi_current: ArrayLike,
    pi_ref: ArrayLike,
    epsilon: float,
    beta: float,
    *,
    kl_direction: str = "current_over_ref",
    return_grad: bool = False,
) -> float | tuple[float, tuple[Array, Array]]:
    """Group policy objective, to be maximised: mean min(ρA, clip(ρ, 1−ε, 1+ε)A) − β·mean ρ(q − log q − 1).

    `ratios` ρ ≥ 0, `advantages` A, `pi_current` π > 0, `pi_ref` > 0: arrays of the same shape. q = π/π_ref, or with
    `kl_direction` "ref_over_current" π_ref/π. With `return_grad`: (objective, (grad_ratios, grad_pi_current)).

    >>> round(gpo_objective([1.1, 0.9, 1], [2, -1.5, 0.5], [0.4, 0.6, 0.5], [0.5, 0.5, 0.5], 0.2, 0.05), 10)
    0.4493105249
    """
    index, dtype = _type_of(ratios, advantages, pi_current, pi_ref)
    rho = real(ratios, "ratios", dtype)
    not_empty(rho, "ratios")
    others = [
        reals_like(value, name, dtype, rho.shape, "ratios")
        for value, name in ((advantages, "advantages"), (pi_current, "pi_current"), (pi_ref, "pi_ref"))
    ]
    gradients = (np.empty_like(rho), np.empty_like(rho)) if return_grad else None
    value, error = c.Gpo(), c.Error()
    status = c.gpo_objective[index](
        ctypes.byref(value),
        address(gradients[0]) if gradients else None,
        address(gradients[1]) if gradients else None,
        address(rho),
        *map(address, others),
        rho.size,
        number(epsilon, "epsilon"),
        number(beta, "beta"),
        choice(kl_direction, "kl_direction", _DIRECTIONS),
        None,
        ctypes.byref(error),
    )
    if status:
        names = ("ratios", "advantages", "pi_current", "pi_ref")
        c.raise_error(status, error, dict.fromkeys(names, ("shape", rho.shape)))
    objective: float = value.objective
    return (objective, gradients) if gradients else objective


# -------------------------------------------------------------------------------------------------- RLHF weight update


def rlhf_weight_update(
    weights: ArrayLike,
    rewards: ArrayLike,
    policy_log_probs: ArrayLike,
    ref_log_probs: ArrayLike,
    log_prob_grads: ArrayLike,
    beta: float,
    lr: float,
) -> Array:
    """One weight update: w + lr·mean_i (R_i − β·(lp_i − ref_i))·G_i. Returns new weights [P] and leaves
    the old ones unchanged.

    `weights` [P]; `rewards`, `policy_log_probs`, `ref_log_probs` [N]; `log_prob_grads` G [N, P].

    >>> rlhf_weight_update([1, 1], [1, 1], [-1.5, -1.5], [-1.5, -1.5], [[0.5, -0.5], [0.5, -0.5]], 1, 0.1)
    array([1.05, 0.95])
    """
    index, dtype = _type_of(weights, rewards, policy_log_probs, ref_log_probs, log_prob_grads)
    w = real(weights, "weights", dtype)
    r = real(rewards, "rewards", dtype)
    for array, name in ((w, "weights"), (r, "rewards")):
        not_empty(array, name)
        if array.ndim != 1:
            raise ValueError(f"{name} has shape {show(array.shape)}: one axis is needed")
    policy = reals_like(policy_log_probs, "policy_log_probs", dtype, r.shape, "rewards")
    ref = reals_like(ref_log_probs, "ref_log_probs", dtype, r.shape, "rewards")
    grads = real(log_prob_grads, "log_prob_grads", dtype)
    if grads.shape != (r.size, w.size):
        raise ValueError(
            f"log_prob_grads has shape {show(grads.shape)}: [{r.size}, {w.size}] is needed, rewards by weights"
        )
    updated, error = np.empty_like(w), c.Error()
    arrays = (updated, w, r, policy, ref, grads)
    scalars = (number(beta, "beta"), number(lr, "lr"))
    status = c.rlhf_update[index](*map(address, arrays), r.size, w.size, *scalars, None, ctypes.byref(error))
    if status:
        c.raise_error(status, error, {"log_prob_grads": ("shape", grads.shape)})
    return updated


# --------------------------------------------------------------------------------------------- KL-penalised advantages

_SCOPES = {"batch": 0, "group": 1, "sequence": 2}


def kl_penalized_advantages(
    advantages: ArrayLike,
    log_probs: ArrayLike,
    ref_log_probs: ArrayLike,
    mask: ArrayLike,
    kl_penalty_coef: float,
    *,
    kl_scope: str = "batch",
    sequence_lengths: ArrayLike | None = None,
    group_sizes: GroupSizes = None,
) -> tuple[Array, float]:
    """KL-penalised advantages (ART #562): A + c·(mean d − d) on trained tokens, d = lp − ref. Others keep A.

    `advantages`, `log_probs`, `ref_log_probs`, `mask` [tokens], or all [B, T]: then rows are sequences. `mask` 1
    trains, None: all tokens train; entries where it is 0 are ignored. `kl_scope`: the tokens that the mean is over,
    "batch", "group" (with `group_sizes`) or "sequence" (both with `sequence_lengths`, if the arrays are [tokens]).
    `ref_log_probs` may be None when c is 0. Returns (advantages in their shape, kl_policy_ref): the latter is the mean
    of d over all trained tokens.

    >>> kl_penalized_advantages([1, 1], [-0.5, -1], [-1, -1], [1, 1], 0.1)
    (array([0.975, 1.025]), 0.25)
    """
    index, dtype = _type_of(advantages, log_probs, ref_log_probs)
    start = real(advantages, "advantages", dtype)
    not_empty(start, "advantages")
    scope = choice(kl_scope, "kl_scope", _SCOPES)
    sequences, groups = _scope_offsets(start.shape, scope, kl_scope, sequence_lengths, group_sizes)
    tokens = [
        None if value is None else reals_like(value, name, dtype, start.shape, "advantages")
        for value, name in ((log_probs, "log_probs"), (ref_log_probs, "ref_log_probs"))
    ]
    marked = None if mask is None else marks(mask, "mask")
    if marked is not None and marked.shape != start.shape:
        raise ValueError(f"mask has shape {show(marked.shape)}, advantages has {show(start.shape)}: they must agree")
    adjusted, mean, error = np.empty_like(start), ctypes.c_double(), c.Error()
    status = c.kl_advantage[index](
        address(adjusted),
        ctypes.byref(mean),
        address(start),
        *(None if array is None else address(array) for array in (*tokens, marked)),
        start.size,
        number(kl_penalty_coef, "kl_penalty_coef"),
        scope,
        sequences[1] if sequences else None,
        sequences[0].size - 1 if sequences else 0,
        groups[1] if groups else None,
        groups[0].size - 1 if groups else 0,
        ctypes.byref(error),
    )
    if status:
        names = ("advantages", "log_probs", "ref_log_probs")
        c.raise_error(status, error, dict.fromkeys(names, ("shape", start.shape)))
    return adjusted, mean.value


Offsets = Optional[tuple[Array, int]]


def _scope_offsets(
    shape: tuple[int, ...], scope: int, name: str, sequence_lengths: ArrayLike, group_sizes: GroupSizes
) -> tuple[Offsets, Offsets]:
    """The offsets that a scope needs. Sizes that the scope does not use are errors."""
    if len(shape) not in (1, 2):
        raise ValueError(f"advantages has shape {show(shape)}: [tokens] or [B, T] is needed")
    padded = len(shape) == 2
    if sequence_lengths is not None and (scope == 0 or padded):
        raise ValueError(
            f"sequence_lengths has no effect here: kl_scope is {name!r} and the arrays have shape {show(shape)}"
        )
    if group_sizes is not None and scope != 1:
        raise ValueError(f"group_sizes has no effect with kl_scope {name!r}: scope 'group' uses it")
    if scope == 0:
        return None, None
    if padded:
        sequences = even_offsets(*shape)
    elif sequence_lengths is None:
        raise ValueError(f"sequence_lengths is missing: kl_scope {name!r} needs the tokens of each sequence")
    else:
        sequences = offsets_of(sequence_lengths, "sequence_lengths", shape[0], "tokens")
    if scope == 2:
        return sequences, None
    if group_sizes is None:
        raise ValueError("group_sizes is missing: kl_scope 'group' needs the sequences of each group")
    return sequences, group_offsets_of(group_sizes, sequences[0].size - 1)


# --------------------------------------------------------------------------------------------------------- controllers


def budget_control(multiplier: float, lengths: ArrayLike, target_length: float, step_size: float) -> float:
    """Dual ascent on a mean length: max(0, multiplier + step_size·(mean lengths − target_length)). `lengths` [n], whole
    numbers.

    >>> round(budget_control(0.01, [150, 80, 220], 100, 1e-4), 12)
    0.015
    """
    counts, error = whole(lengths, "lengths"), c.Error()
    value = ctypes.c_double(number(multiplier, "multiplier"))
    not_empty(counts, "lengths")
    steps = (number(target_length, "target_length"), number(step_size, "step_size"))
    status = c.budget_control(ctypes.byref(value), address(counts), counts.size, *steps, ctypes.byref(error))
    if status:
        c.raise_error(status, error, {"lengths": ("shape", counts.shape)}, {"response_lengths": "lengths"})
    return value.value


def entropy_control(coef: float, mean_entropy: float, entropy_target: float, step_size: float) -> float:
    """Adaptive entropy coefficient (Skywork-OR1): it rises by step_size while the entropy is at most its target, and
    falls by step_size otherwise, but never below 0.

    >>> entropy_control(0.0, 0.1, 0.2, 0.005)
    0.005
    """
    value, error = ctypes.c_double(number(coef, "coef")), c.Error()
    rest = (
        number(mean_entropy, "mean_entropy"),
        number(entropy_target, "entropy_target"),
        number(step_size, "step_size"),
    )
    status = c.entropy_control(ctypes.byref(value), *rest, ctypes.byref(error))
    if status:
        c.raise_error(status, error)
    return value.value
