"""The policy loss of a whole step or of a step in micro-batches, and its first two stages as functions."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _library as c
from ._arrays import FLOAT32, FLOAT64, Array, ArrayLike, GroupSizes, address, not_empty, real, reals_like, show
from ._batch import Inputs, exec_of, make_inputs, type_of
from ._options import PER_SEQUENCE, Preset


class PolicyLoss:
    """The result of a policy loss. Gradients and advantages have the shape and type of log_probs; they are None unless
    requested."""

    __slots__ = (
        "_metrics",
        "_raw",
        "_rewarded",
        "advantages",
        "grad_entropies",
        "grad_exact_kl",
        "grad_log_probs",
        "grad_teacher_divergence",
        "loss",
    )

    loss: float
    grad_log_probs: Array | None
    grad_entropies: Array | None
    grad_exact_kl: Array | None
    grad_teacher_divergence: Array | None
    advantages: Array | None

    def __init__(
        self,
        raw: c.Loss,
        rewarded: bool,
        grad_log_probs: Array | None = None,
        grad_entropies: Array | None = None,
        advantages: Array | None = None,
        grad_exact_kl: Array | None = None,
        grad_teacher_divergence: Array | None = None,
    ) -> None:
        self.loss = raw.loss
        self.grad_log_probs = grad_log_probs
        self.grad_entropies = grad_entropies
        self.grad_exact_kl = grad_exact_kl
        self.grad_teacher_divergence = grad_teacher_divergence
        self.advantages = advantages
        self._raw = raw
        self._rewarded = rewarded
        self._metrics: dict[str, float] | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics by name: those of `rein_metrics`, which docs/aggregation.md defines."""
        if self._metrics is None:  # computed when first read: most calls of a tight loop do not
            self._metrics = dict(zip(c.METRICS, self._raw.metrics))
            if not self._rewarded:
                self._metrics["reward"] = self._metrics["reward_std"] = 0.0
        return self._metrics

    @property
    def nothing_to_train(self) -> bool:
        """True if no token trains: then the loss and every gradient are 0."""
        return bool(self._raw.nothing_to_train)

    def __repr__(self) -> str:
        return f"PolicyLoss(loss={self.loss:.6g}, trained_tokens={self.metrics['trained_tokens']:.0f})"


class _Workspace:
    """Memory for one step at a time, and the error and step that its calls fill in."""

    __slots__ = ("address", "error", "error_reference", "memory", "size", "step", "step_reference")

    def __init__(self) -> None:
        self.error, self.step = c.Error(), ctypes.c_void_p()
        self.error_reference, self.step_reference = ctypes.byref(self.error), ctypes.byref(self.step)
        self.resize(1 << 16)

    def resize(self, size: int) -> None:
        self.memory, self.size = np.empty(size, np.uint8), size
        self.address = address(self.memory)


# Workspaces that are not in use. A call removes one, so threads and signal handlers never share one.
_free: list[_Workspace] = []
_KEEP_BYTES = 64 << 20


def _begin(inputs: Inputs, where: Any, work: _Workspace) -> None:
    """Calls rein_step_begin, with a larger workspace if this one is too small."""
    batch, options = inputs.reference, inputs.options.address
    while True:
        status = c.step_begin(work.step_reference, work.address, work.size, batch, options, where, work.error_reference)
        if not status:
            return
        needed = c.step_size(batch, options, where)
        if status != c.ENOMEM or needed <= work.size:
            inputs.fail(status, work.error)
        work.resize(needed)


def run_step(
    inputs: Inputs,
    outputs: tuple[Array | None, Array | None, Array | None],
    threads: int,
    grad_exact_kl: Array | None = None,
    grad_teacher_divergence: Array | None = None,
) -> c.Loss:
    """The loss of a whole step, in one pass that also writes the outputs: gradients of log-probs and entropies,
    advantages; and the gradients of the divergences over the whole vocabulary."""
    loss = c.Loss()
    addresses = [array if array is None else address(array) for array in outputs]
    where = exec_of(threads)[1] if threads else None
    try:
        work = _free.pop()
    except IndexError:
        work = _Workspace()
    try:
        _begin(inputs, where, work)
        status = c.step_loss(work.step, 0, inputs.n_sequences, None, None, *addresses, work.error_reference)
        divergences = ((c.step_exact_kl_gradient, grad_exact_kl), (c.step_teacher_gradient, grad_teacher_divergence))
        for gradient_of, array in divergences:
            if not status and array is not None:
                status = gradient_of(address(array), work.step, 0, inputs.n_sequences, work.error_reference)
        if not status:
            status = c.step_finish(ctypes.byref(loss), work.step, work.error_reference)
        if status:
            inputs.fail(status, work.error)
    finally:
        if work.size <= _KEEP_BYTES:
            _free.append(work)
    return loss


def policy_loss(
    preset: Preset,
    log_probs: ArrayLike,
    old_log_probs: ArrayLike | None = None,
    *,
    rewards: ArrayLike | None = None,
    advantages: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    sequence_lengths: ArrayLike | None = None,
    group_sizes: GroupSizes = None,
    ref_log_probs: ArrayLike | None = None,
    sample_log_probs: ArrayLike | None = None,
    entropies: ArrayLike | None = None,
    exact_kl: ArrayLike | None = None,
    teacher_log_probs: ArrayLike | None = None,
    teacher_divergence: ArrayLike | None = None,
    values: ArrayLike | None = None,
    reward_components: ArrayLike | None = None,
    reward_weights: ArrayLike | None = None,
    baseline_rewards: ArrayLike | None = None,
    response_lengths: ArrayLike | None = None,
    correct: ArrayLike | None = None,
    token_budget: ArrayLike | None = None,
    return_grad: bool = True,
    return_advantages: bool = False,
    threads: int = 0,
    **options: Any,
) -> PolicyLoss:
    """The policy loss of one optimizer step, with its gradient, for any preset or composition of options.

    `preset`: a name from `presets()`, a dict of options, an `Options`, or None; further keywords are options that
    override it.

    Token arrays (`log_probs`, `old_log_probs`, `ref_log_probs`, `sample_log_probs`, `entropies`, `exact_kl`,
    `teacher_log_probs`, `teacher_divergence`, `values`, `mask`) are padded, [B, T], or packed, [tokens] with
    `sequence_lengths` [B]. `mask` is 1 where a token trains, None: all tokens train; entries where it is 0 are ignored
    and may be NaN. `group_sizes`: the number of sequences per prompt, one number or one per prompt; default: all
    sequences are one group.

    `rewards` [B], or `reward_components` [B, n] with `reward_weights` [n], or `advantages`, [B] or one per token,
    which are used unchanged. For compositions that need them: `baseline_rewards` [B] or one per group,
    `response_lengths` [B] (default: the number of trained tokens), `correct` [B], `token_budget` (a number or [B]).

    If log_probs is float32, the computation is in float32, otherwise in float64. `threads` 0: all cores; the number of
    threads does not change any bit of the result.

    >>> result = policy_loss("dapo", [[-0.5, -1.0], [-2.0, -0.7]], [[-0.6, -1.0], [-1.8, -0.7]], rewards=[1, 0],
    ...                      overlong_max=8, overlong_cushion=2)
    >>> round(result.loss, 4), result.grad_log_probs.round(4).tolist()
    (-0.0506, [[-0.1954, -0.1768], [0.1447, 0.1768]])
    """
    current = real(log_probs, "log_probs", type_of(log_probs))
    not_empty(current, "log_probs")
    inputs = make_inputs(
        preset,
        current.shape,
        current.dtype,
        (
            ("log_probs", current),
            ("old_log_probs", old_log_probs),
            ("ref_log_probs", ref_log_probs),
            ("sample_log_probs", sample_log_probs),
            ("entropies", entropies),
            ("exact_kl", exact_kl),
            ("teacher_log_probs", teacher_log_probs),
            ("teacher_divergence", teacher_divergence),
            ("values", values),
        ),
        options,
        rewards=rewards,
        advantages=advantages,
        mask=mask,
        sequence_lengths=sequence_lengths,
        group_sizes=group_sizes,
        reward_components=reward_components,
        reward_weights=reward_weights,
        baseline_rewards=baseline_rewards,
        response_lengths=response_lengths,
        correct=correct,
        token_budget=token_budget,
    )
    shape, dtype = current.shape, current.dtype
    outputs = (
        np.empty(shape, dtype) if return_grad else None,
        np.empty(shape, dtype) if return_grad and entropies is not None else None,
        np.empty(shape, dtype) if return_advantages else None,
    )
    of_exact_kl = np.empty(shape, dtype) if return_grad and exact_kl is not None else None
    of_teacher = np.empty(shape, dtype) if return_grad and teacher_divergence is not None else None
    loss = run_step(inputs, outputs, threads, of_exact_kl, of_teacher)
    return PolicyLoss(loss, inputs.source != PER_SEQUENCE, *outputs, of_exact_kl, of_teacher)


class Step:
    """A prepared optimizer step: baselines, stds, KL averages and normalisers are computed over all its sequences.

    The keywords are those of `policy_loss`, for the whole step. Micro-batches are then added in order; every split
    gives the same bits. `log_probs` and `entropies` of the whole step are needed here only for KL in the reward or the
    advantage, entropy_target, top_entropy and a sampled teacher; `exact_kl` and the teacher's arrays where an option
    reads them. `dtype`: by default the type of the first token array.

    >>> step = Step("grpo", [[-0.6, -1.0], [-1.8, -0.7]], rewards=[1, 0], kl_loss_coef=0)
    >>> gradients = [step.loss([[-0.5, -1.0]], 0, 1), step.loss([[-2.0, -0.7]], 1, 2)]
    >>> round(step.finish().loss, 4)
    -0.0506
    """

    def __init__(
        self,
        preset: Preset,
        old_log_probs: ArrayLike | None = None,
        *,
        log_probs: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
        advantages: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        sequence_lengths: ArrayLike | None = None,
        group_sizes: GroupSizes = None,
        ref_log_probs: ArrayLike | None = None,
        sample_log_probs: ArrayLike | None = None,
        entropies: ArrayLike | None = None,
        exact_kl: ArrayLike | None = None,
        teacher_log_probs: ArrayLike | None = None,
        teacher_divergence: ArrayLike | None = None,
        values: ArrayLike | None = None,
        reward_components: ArrayLike | None = None,
        reward_weights: ArrayLike | None = None,
        baseline_rewards: ArrayLike | None = None,
        response_lengths: ArrayLike | None = None,
        correct: ArrayLike | None = None,
        token_budget: ArrayLike | None = None,
        threads: int = 0,
        dtype: Any | None = None,
        **options: Any,
    ) -> None:
        tokens = (
            ("old_log_probs", old_log_probs),
            ("log_probs", log_probs),
            ("ref_log_probs", ref_log_probs),
            ("sample_log_probs", sample_log_probs),
            ("entropies", entropies),
            ("exact_kl", exact_kl),
            ("teacher_log_probs", teacher_log_probs),
            ("teacher_divergence", teacher_divergence),
            ("values", values),
        )
        shape, own = _shape_and_type(tokens, mask, sequence_lengths)
        if dtype is not None:
            own = FLOAT32 if np.dtype(dtype) == FLOAT32 else FLOAT64
        self._inputs = make_inputs(
            preset,
            shape,
            own,
            tokens,
            options,
            rewards=rewards,
            advantages=advantages,
            mask=mask,
            sequence_lengths=sequence_lengths,
            group_sizes=group_sizes,
            reward_components=reward_components,
            reward_weights=reward_weights,
            baseline_rewards=baseline_rewards,
            response_lengths=response_lengths,
            correct=correct,
            token_budget=token_budget,
        )
        self._work = _Workspace()
        _begin(self._inputs, exec_of(threads)[1], self._work)

    @property
    def n_sequences(self) -> int:
        """The number of sequences of the whole step."""
        return self._inputs.n_sequences

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its token arrays."""
        return self._inputs.dtype

    def loss(
        self, log_probs: ArrayLike, first: int, last: int, entropies: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """Adds sequences [first, last). `log_probs` and `entropies` are those of the micro-batch: [last − first, T], or
        [its tokens].

        Returns d loss/d log_probs in their shape; with entropies (gradient of log_probs, gradient of entropies).
        """
        gradient, of_entropies = self.add(log_probs, first, last, entropies)
        assert gradient is not None
        return gradient if of_entropies is None else (gradient, of_entropies)

    def add(
        self, log_probs: ArrayLike, first: int, last: int, entropies: ArrayLike | None = None, gradients: bool = True
    ) -> tuple[Array | None, Array | None]:
        """Like `loss`, but gradients are optional."""
        inputs = self._inputs
        shape, start = self._micro_batch(first, last)
        current = reals_like(log_probs, "log_probs", inputs.dtype, shape, f"sequences {first} to {last}")
        others = None
        if entropies is not None:
            others = reals_like(entropies, "entropies", inputs.dtype, shape, f"sequences {first} to {last}")
        gradient = np.empty_like(current) if gradients else None
        of_entropies = np.empty_like(current) if gradients and others is not None else None
        # The library counts tokens from the first of the step, so it gets the address that this token would have.
        skipped = start * inputs.dtype.itemsize
        arrays = (current, others, gradient, of_entropies)
        addresses = [None if array is None else address(array) - skipped for array in arrays]
        status = c.step_loss(self._work.step, first, last, *addresses, None, self._work.error_reference)
        if status:
            inputs.fail(status, self._work.error)
        return gradient, of_entropies

    def _micro_batch(self, first: int, last: int) -> tuple[tuple[int, ...], int]:
        """The shape that a micro-batch must have, and the number of tokens before it."""
        inputs = self._inputs
        if not 0 <= first < last <= inputs.n_sequences:
            raise ValueError(f"sequences {first} to {last}: the step has sequences 0 to {inputs.n_sequences}")
        start, end = int(inputs.offsets[first]), int(inputs.offsets[last])
        return ((last - first, inputs.shape[1]) if len(inputs.shape) == 2 else (end - start,)), start

    def exact_kl_gradient(self) -> Array:
        """d loss/d exact_kl of the whole step, in the shape of its token arrays: it depends on no log-prob."""
        return self._divergence_gradient(c.step_exact_kl_gradient)

    def teacher_gradient(self) -> Array:
        """The same of teacher_divergence."""
        return self._divergence_gradient(c.step_teacher_gradient)

    def _divergence_gradient(self, gradient_of: Any) -> Array:
        gradient = np.empty(self._inputs.shape, self._inputs.dtype)
        work, to = self._work, address(gradient)
        status = gradient_of(to, work.step, 0, self._inputs.n_sequences, work.error_reference)
        if status:
            self._inputs.fail(status, work.error)
        return gradient

    def finish(self) -> PolicyLoss:
        """The loss and metrics of the sequences added so far."""
        loss = c.Loss()
        status = c.step_finish(ctypes.byref(loss), self._work.step, self._work.error_reference)
        if status:
            self._inputs.fail(status, self._work.error)
        return PolicyLoss(loss, self._inputs.source != PER_SEQUENCE)


def _shape_and_type(
    tokens: tuple[tuple[str, ArrayLike], ...], mask: ArrayLike, sequence_lengths: ArrayLike
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of a step, from its first token array; without one, the shape of mask or sequence_lengths."""
    for name, value in tokens:
        if value is not None:
            array = real(value, name, type_of(value))
            not_empty(array, name)
            return array.shape, array.dtype
    if mask is not None:
        return tuple(np.shape(mask)), FLOAT64
    if sequence_lengths is not None:
        return (int(np.sum(np.asarray(sequence_lengths))),), FLOAT64
    raise ValueError("the step's shape is unknown: give old_log_probs, mask or sequence_lengths")


# ---------------------------------------------------------------------------------------------- the first stages


def advantages(
    estimator: str,
    rewards: ArrayLike | None = None,
    *,
    group_sizes: GroupSizes = None,
    mask: ArrayLike | None = None,
    sequence_lengths: ArrayLike | None = None,
    values: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    ref_log_probs: ArrayLike | None = None,
    sample_log_probs: ArrayLike | None = None,
    reward_components: ArrayLike | None = None,
    reward_weights: ArrayLike | None = None,
    baseline_rewards: ArrayLike | None = None,
    response_lengths: ArrayLike | None = None,
    correct: ArrayLike | None = None,
    token_budget: ArrayLike | None = None,
    **options: Any,
) -> Array:
    """Advantages by one estimator: "group-mean", "group-std", "leave-one-out", … (docs/advantages.md lists all).

    `rewards` [n] and `group_sizes` as in `policy_loss`; result [n], one per sequence. Some estimators need more:
    `response_lengths` (opo), `baseline_rewards` (remax), `reward_components` (gdpo), `values` (gae). With token arrays
    (gae; reinforce++ with `mask`, `sequence_lengths` or log-probs) the result has one advantage per token, in
    their shape, 0 where masked. Its type is that of `rewards`.

    >>> advantages("group-mean", [1, 0, 0.5, 0.25], group_sizes=2).tolist()
    [0.5, -0.5, 0.125, -0.125]
    """
    tokens = (
        ("values", values),
        ("log_probs", log_probs),
        ("ref_log_probs", ref_log_probs),
        ("sample_log_probs", sample_log_probs),
    )
    wanted = reward_components if rewards is None else rewards
    if wanted is None:
        raise ValueError("rewards is missing")
    per_token = any(value is not None for _, value in tokens) or mask is not None or sequence_lengths is not None
    if per_token and estimator not in ("gae", "reinforce++"):
        raise ValueError(f"token arrays have no effect with estimator {estimator!r}: gae and reinforce++ use them")
    if response_lengths is None and (estimator == "opo" or options.get("shape", "none") != "none"):
        raise ValueError(f"response_lengths is missing: {'advantage opo' if estimator == 'opo' else 'shape'} needs it")
    shape: tuple[int, ...]
    if per_token:
        shape, dtype = _shape_and_type(tokens, mask, sequence_lengths)
    else:  # each sequence is one token
        shape, dtype = (real(wanted, "rewards", FLOAT64).shape[0], 1), FLOAT64
    inputs = make_inputs(
        {"advantage": estimator},
        shape,
        dtype,
        tokens,
        options,
        rewards=rewards,
        mask=mask,
        sequence_lengths=sequence_lengths,
        group_sizes=group_sizes,
        reward_components=reward_components,
        reward_weights=reward_weights,
        baseline_rewards=baseline_rewards,
        response_lengths=response_lengths,
        correct=correct,
        token_budget=token_budget,
    )
    result = np.empty(shape, FLOAT64)
    _first_stage(c.advantages, result, inputs)
    result = result if per_token else result[:, 0]
    return result.astype(type_of(wanted), copy=False)


def _first_stage(function: Any, result: Array, inputs: Inputs) -> None:
    error = c.Error()
    status = function(address(result), inputs.reference, inputs.options.address, ctypes.byref(error))
    if status:
        inputs.fail(status, error)


def shape_rewards(
    shape: str,
    rewards: ArrayLike,
    response_lengths: ArrayLike,
    *,
    group_sizes: GroupSizes = None,
    correct: ArrayLike | None = None,
    token_budget: ArrayLike | None = None,
    **options: Any,
) -> Array:
    """Rewards shaped by length: "budget", "truncate", "overlong", "k1.5-length" or "none", with the options of that
    shape.

    `rewards`, `response_lengths` [n]; `correct` [n] for k1.5-length, in its groups; `token_budget` a number or [n].
    Result [n].

    >>> shape_rewards("budget", [1, 1], [150, 80], token_budget=100, budget_penalty_coef=0.01).tolist()
    [0.5, 1.0]
    """
    array = real(rewards, "rewards", FLOAT64)
    not_empty(array, "rewards")
    if array.ndim != 1:
        raise ValueError(f"rewards has shape {show(array.shape)}: one per sequence is needed")
    inputs = make_inputs(
        {"shape": shape},
        (array.shape[0], 1),
        FLOAT64,
        (),
        options,
        rewards=array,
        group_sizes=group_sizes,
        response_lengths=response_lengths,
        correct=correct,
        token_budget=token_budget,
    )
    result = np.empty(array.shape, FLOAT64)
    _first_stage(c.shape_rewards, result, inputs)
    return result.astype(type_of(rewards), copy=False)
