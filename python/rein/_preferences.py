"""Losses over preferences, of reward models and of critics."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _library as c
from ._arrays import FLOAT32, FLOAT64, Array, ArrayLike, address, is_float32, marks, not_empty, real, reals_like, whole
from ._operations import choice, number

_LOSSES = {row.contents.name.decode(): i for i, row in enumerate(c.each(c.preference_at))}
_CONSTANTS = ("beta", "label_smoothing", "simpo_gamma", "cpo_alpha", "desirable_weight", "undesirable_weight")
_METRICS = (
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "logps/chosen",
    "logps/rejected",
)


class _Columns:
    """Arrays of one shape, in double precision; gradients are float32 if the first array is."""

    def __init__(self, value: ArrayLike, name: str) -> None:
        if value is None:
            raise ValueError(f"{name} is missing")
        self.first = real(value, name, FLOAT64)
        not_empty(self.first, name)
        self.name, self.shape = name, self.first.shape
        self.dtype = FLOAT32 if is_float32(value) else FLOAT64

    def numbers(self, value: ArrayLike, name: str) -> Array | None:
        return None if value is None else reals_like(value, name, FLOAT64, self.shape, self.name)

    def lengths(self, value: ArrayLike, name: str) -> Array | None:
        return None if value is None else self._same(whole(value, name), name)

    def marks(self, value: ArrayLike, name: str) -> Array | None:
        return None if value is None else self._same(marks(value, name), name)

    def _same(self, array: Array, name: str) -> Array:
        if array.shape != self.shape:
            raise ValueError(
                f"{name} has shape {list(array.shape)}, {self.name} has {list(self.shape)}: they must agree"
            )
        return array

    def gradient(self, wanted: bool) -> Array | None:
        return np.empty(self.shape, FLOAT64) if wanted else None

    def fail(self, status: int, error: c.Error, *names: str) -> None:
        if status:
            c.raise_error(status, error, dict.fromkeys((self.name, *names), ("shape", self.shape)))


def _at(array: Array | None) -> int | None:
    return None if array is None else address(array)


def _refuse(loss: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} has no effect with loss {loss!r}")


def _result(loss: float, gradients: Any, metrics: c.PreferenceMetrics, return_grad: bool, return_metrics: bool) -> Any:
    values = {name: getattr(metrics, name.replace("/", "_")) for name in _METRICS}
    named = {name: value for name, value in values.items() if not np.isnan(value)}
    extra = ([gradients] if return_grad else []) + ([named] if return_metrics else [])
    return (loss, *extra) if extra else loss


def _options(loss: str, constants: dict[str, float | None]) -> tuple[c.PreferenceOptions, Any]:
    place = choice(loss, "loss", _LOSSES)
    info = c.preference_at(place).contents
    options = c.preference_published(info.loss)
    for name, value in constants.items():
        if value is not None:
            setattr(options, name, number(value, name))
    error = c.Error()
    status = c.preference_check(ctypes.byref(options), ctypes.byref(error))
    if status:
        c.raise_error(status, error)
    return options, info


def preference_loss(
    loss: str,
    chosen_log_probs: ArrayLike | None = None,
    rejected_log_probs: ArrayLike | None = None,
    ref_chosen_log_probs: ArrayLike | None = None,
    ref_rejected_log_probs: ArrayLike | None = None,
    *,
    chosen_lengths: ArrayLike | None = None,
    rejected_lengths: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    ref_log_probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    kl: float | None = None,
    beta: float | None = None,
    label_smoothing: float | None = None,
    simpo_gamma: float | None = None,
    cpo_alpha: float | None = None,
    desirable_weight: float | None = None,
    undesirable_weight: float | None = None,
    return_grad: bool = False,
    return_metrics: bool = False,
) -> Any:
    """A loss over preferences: "dpo", "cdpo", "robust", "hinge", "ipo_mean", "ipo_sum", "simpo", "cpo", "orpo", "kto".

    `chosen_log_probs`, `rejected_log_probs` [pairs] are sums over the tokens of a completion, its end token included;
    the reference's log-probs and the lengths (in tokens) are needed where the loss has them. "kto" takes `log_probs`,
    `ref_log_probs`, `labels` (1: desirable) [n] and `kl` instead, the mean of log-prob − reference over mismatched
    pairs. Constants that are None have their published value; one that the loss does not have is an error. Returns the
    loss; with `return_grad` also (d/dchosen_log_probs, d/drejected_log_probs), for "kto" d/dlog_probs; with
    `return_metrics` also the metrics, named as TRL's.

    >>> round(preference_loss("dpo", [-10, -12], [-11, -9], [-12, -12], [-10, -10]), 6)
    0.649376
    """
    given = (beta, label_smoothing, simpo_gamma, cpo_alpha, desirable_weight, undesirable_weight)
    options, info = _options(loss, dict(zip(_CONSTANTS, given)))
    metrics, value, error = c.PreferenceMetrics(), ctypes.c_double(), c.Error()
    after = (ctypes.byref(options), ctypes.byref(error))
    if loss == "kto":
        _refuse(
            loss,
            chosen_log_probs=chosen_log_probs,
            rejected_log_probs=rejected_log_probs,
            ref_chosen_log_probs=ref_chosen_log_probs,
            ref_rejected_log_probs=ref_rejected_log_probs,
            chosen_lengths=chosen_lengths,
            rejected_lengths=rejected_lengths,
        )
        columns = _Columns(log_probs, "log_probs")
        ref, desirable = columns.numbers(ref_log_probs, "ref_log_probs"), columns.marks(labels, "labels")
        if kl is None:
            raise ValueError("kl is missing: loss kto needs it")
        gradient = columns.gradient(return_grad)
        where: Any = (ctypes.byref(value), _at(gradient), ctypes.byref(metrics))
        arrays = (_at(columns.first), _at(ref), _at(desirable), columns.first.size, number(kl, "kl"))
        columns.fail(c.kto_loss(*where, *arrays, *after), error, "ref_log_probs")
        found: Any = None if gradient is None else gradient.astype(columns.dtype, copy=False)
        return _result(value.value, found, metrics, return_grad, return_metrics)
    _refuse(loss, log_probs=log_probs, ref_log_probs=ref_log_probs, labels=labels, kl=kl)
    if not info.uses_lengths:
        _refuse(loss, chosen_lengths=chosen_lengths, rejected_lengths=rejected_lengths)
    if not info.uses_reference:
        _refuse(loss, ref_chosen_log_probs=ref_chosen_log_probs, ref_rejected_log_probs=ref_rejected_log_probs)
    columns = _Columns(chosen_log_probs, "chosen_log_probs")
    names = ("rejected_log_probs", "ref_chosen_log_probs", "ref_rejected_log_probs")
    rest = [
        columns.numbers(x, name)
        for x, name in zip((rejected_log_probs, ref_chosen_log_probs, ref_rejected_log_probs), names)
    ]
    counts = (
        columns.lengths(chosen_lengths, "chosen_lengths"),
        columns.lengths(rejected_lengths, "rejected_lengths"),
    )
    pairs = c.Pairs(columns.first.size, address(columns.first), *map(_at, rest), *map(_at, counts))
    gradients = (columns.gradient(return_grad), columns.gradient(return_grad))
    where = (ctypes.byref(value), *map(_at, gradients), ctypes.byref(metrics), ctypes.byref(pairs))
    columns.fail(c.preference_loss(*where, *after), error, *names, "chosen_lengths", "rejected_lengths")
    found = tuple(x if x is None else x.astype(columns.dtype, copy=False) for x in gradients)
    return _result(value.value, found, metrics, return_grad, return_metrics)


def reward_loss(
    chosen_rewards: ArrayLike,
    rejected_rewards: ArrayLike,
    margins: ArrayLike | None = None,
    center_rewards_coefficient: float = 0.0,
    *,
    return_grad: bool = False,
    return_accuracy: bool = False,
) -> Any:
    """Bradley–Terry loss of a reward model: mean −log σ(r_w − r_l − m) + c·(r_w + r_l)².

    `chosen_rewards`, `rejected_rewards`, `margins` (None: 0) [pairs]; c is `center_rewards_coefficient`. Returns the
    loss; with `return_grad` also (d/dchosen_rewards, d/drejected_rewards); with `return_accuracy` also the share of
    pairs with r_w > r_l.

    >>> round(reward_loss([1.5, 0.2], [0.5, 0.4]), 6)
    0.5557
    """
    columns = _Columns(chosen_rewards, "chosen_rewards")
    if rejected_rewards is None:
        raise ValueError("rejected_rewards is missing")
    rejected, margin = columns.numbers(rejected_rewards, "rejected_rewards"), columns.numbers(margins, "margins")
    gradients = (columns.gradient(return_grad), columns.gradient(return_grad))
    value, accuracy, error = ctypes.c_double(), ctypes.c_double(), c.Error()
    status = c.reward_loss(
        ctypes.byref(value),
        *map(_at, gradients),
        ctypes.byref(accuracy),
        address(columns.first),
        _at(rejected),
        _at(margin),
        columns.first.size,
        number(center_rewards_coefficient, "center_rewards_coefficient"),
        ctypes.byref(error),
    )
    columns.fail(status, error, "rejected_rewards", "margins")
    found = tuple(x if x is None else x.astype(columns.dtype, copy=False) for x in gradients)
    extra = ([found] if return_grad else []) + ([accuracy.value] if return_accuracy else [])
    return (value.value, *extra) if extra else value.value


def value_loss(
    values: ArrayLike,
    old_values: ArrayLike,
    returns: ArrayLike,
    mask: ArrayLike | None = None,
    value_clip: float | None = 0.5,
    *,
    return_grad: bool = False,
) -> Any:
    """Loss of a critic: ½·mean max((V − G)², (clip(V, V_old ± value_clip) − G)²) over trained tokens.

    `values`, `old_values`, `returns` G and `mask` (1 trains; None: all) have the same shape. `value_clip` None: no
    clipping. Returns the loss; with `return_grad` also d/dvalues, 0 where masked.

    >>> value_loss([0.5, 2.0], [0.5, 1.0], [1.0, 1.0])
    0.3125
    """
    single = is_float32(values) and is_float32(old_values) and is_float32(returns)
    dtype = FLOAT32 if single else FLOAT64
    first = real(values, "values", dtype)
    not_empty(first, "values")
    old = reals_like(old_values, "old_values", dtype, first.shape, "values")
    target = reals_like(returns, "returns", dtype, first.shape, "values")
    trains = None if mask is None else marks(mask, "mask")
    if trains is not None and trains.shape != first.shape:
        raise ValueError(f"mask has shape {list(trains.shape)}, values has {list(first.shape)}: they must agree")
    gradient = np.empty(first.shape, dtype) if return_grad else None
    clip = np.inf if value_clip is None else number(value_clip, "value_clip")
    value, error = ctypes.c_double(), c.Error()
    status = c.value_loss[c.F32 if single else c.F64](
        ctypes.byref(value),
        None,
        _at(gradient),
        *map(_at, (first, old, target, trains)),
        first.size,
        clip,
        None,
        ctypes.byref(error),
    )
    if status:
        c.raise_error(status, error, dict.fromkeys(("values", "old_values", "returns"), ("shape", first.shape)))
    return value.value if gradient is None else (value.value, gradient)
