"""The objectives for PyTorch: losses that autograd can differentiate, computed by librein on the CPU.

Loss and gradient are computed together in the forward pass; the backward pass only scales the gradient. bf16 and f16
are computed in f32, and the gradient has the type of the input. Tensors on another device are copied to the CPU, and
their gradients are copied back.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from . import _operations, _policy, _preferences
from ._arrays import FLOAT32, FLOAT64, Array, ArrayLike, GroupSizes
from ._batch import make_inputs
from ._library import METRICS
from ._options import PER_SEQUENCE, Preset

__all__ = [
    "Step",
    "gpo_objective",
    "kl_penalized_advantages",
    "policy_loss",
    "preference_loss",
    "reward_loss",
    "rl_budget_loss",
    "value_loss",
]


class _NoSecond(torch.autograd.Function):
    """Returns its input; an attempt to differentiate it is an error."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, anchor: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError("rein has first derivatives only: the gradient of a loss cannot be differentiated again")


class _Known(torch.autograd.Function):
    """A number whose gradients are already known."""

    @staticmethod
    def forward(ctx: Any, value: float, dtype: torch.dtype, gradients: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        # Saved as tensors, not as attributes: autograd then releases them when it is done, so that a leaf can keep one
        # as its .grad without a copy.
        ctx.save_for_backward(*gradients)
        ctx.types = [(tensor.dtype, tensor.device) for tensor in inputs]
        return torch.scalar_tensor(value, dtype=dtype, device=inputs[0].device)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        scale = grad_output.item()
        found = []
        for gradient, (dtype, device) in zip(ctx.saved_tensors, ctx.types):
            found.append((gradient if scale == 1 else gradient * scale).to(device, dtype))
        if torch.is_grad_enabled():  # create_graph: second derivatives may follow
            anchor = torch.zeros((), requires_grad=True)
            found = [_NoSecond.apply(gradient, anchor) for gradient in found]  # type: ignore[no-untyped-call]
        return (None, None, None, *found)


def _working_type(*values: Any) -> torch.dtype:
    """float64 if a tensor is float64, otherwise float32."""
    return torch.float64 if any(getattr(v, "dtype", None) == torch.float64 for v in values) else torch.float32


_SHARED = (torch.float32, torch.float64)


def _array(value: Any, dtype: torch.dtype | None = None) -> Any:
    """A tensor as an array, without a copy if possible; other values unchanged. `dtype` is for floating point only."""
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad:
        value = value.detach()
    if value.is_floating_point() and value.dtype is not dtype and (dtype or value.dtype not in _SHARED):
        value = value.to(dtype or torch.float32)
    return (value if value.is_cpu else value.cpu()).numpy()


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()


def _known(value: float, dtype: torch.dtype, pairs: Sequence[tuple[Any, Array | None]]) -> Tensor:
    """The value as a tensor, with the gradients of the inputs that need one. The first input is a tensor."""
    wanted = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None]
    if not wanted:
        return torch.scalar_tensor(value, dtype=dtype, device=pairs[0][0].device)
    tensors, gradients = zip(*wanted)
    result: Tensor = _Known.apply(value, dtype, [torch.from_numpy(g) for g in gradients], *tensors)  # type: ignore[no-untyped-call]
    return result


def _need_tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} is {type(value).__name__}: a floating-point tensor is needed")


# ------------------------------------------------------------------------------------------------------- torch.compile

# torch.compile cannot look into a call of the library: there it is one operator, whose arguments are tensors and texts.


def _options_text(preset: Any, options: dict[str, Any]) -> str:
    """The preset and options as lines that ast.literal_eval reads: NAME=VALUE."""
    given = dict(preset) if isinstance(preset, dict) else {"preset": preset}
    return "\n".join(f"{name}={value!r}" for name, value in [*given.items(), *options.items()])


def _options_of(text: str) -> dict[str, Any]:
    pairs = (line.split("=", 1) for line in text.split("\n") if line)
    return {name: ast.literal_eval(value) for name, value in pairs}


@torch.library.custom_op("rein::policy_loss", mutates_args=())
def _policy_loss_operator(
    log_probs: Tensor,
    entropies: Optional[Tensor],  # noqa: UP045 (torch reads it, on Python 3.9 too)
    arrays: list[Tensor],
    names: str,
    options: str,
    threads: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, d loss/d log_probs, d loss/d entropies, metrics. Unused gradients are empty."""
    listed: Any = dict(zip(names.split(","), arrays))
    for name in ("group_sizes", "token_budget"):
        if name in listed and listed[name].ndim == 0:
            listed[name] = listed[name].item()
    dtype = _working_type(log_probs)
    leaves = [value.detach().to(dtype).requires_grad_() for value in (log_probs, entropies) if value is not None]
    with torch.enable_grad():
        listed["entropies"] = leaves[1] if entropies is not None else None
        loss, metrics = policy_loss(
            leaves[0], preset=_options_of(options), threads=threads, return_metrics=True, **listed
        )
        found = torch.autograd.grad(loss, leaves, materialize_grads=True)
    of_entropies = found[1] if entropies is not None else loss.new_empty(0)
    return loss.detach(), found[0], of_entropies, torch.tensor(list(metrics.values()), dtype=torch.float64)


@_policy_loss_operator.register_fake
def _(
    log_probs: Tensor,
    entropies: Tensor | None,
    arrays: list[Tensor],
    names: str,
    options: str,
    threads: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    loss = log_probs.new_empty((), dtype=_working_type(log_probs))
    of_entropies = loss.new_empty(0) if entropies is None else loss.new_empty(entropies.shape)
    return loss, loss.new_empty(log_probs.shape), of_entropies, torch.empty(len(METRICS), dtype=torch.float64)


def _keep_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1], output[2])
    ctx.types = [None if value is None else value.dtype for value in inputs[:2]]
    ctx.n_arrays = len(inputs[2])


def _scale_gradients(ctx: Any, of_loss: Tensor, *_: Tensor) -> Any:
    found = [None if to is None else (known * of_loss).to(to) for known, to in zip(ctx.saved_tensors, ctx.types)]
    return (*found, [None] * ctx.n_arrays, None, None, None)


_policy_loss_operator.register_autograd(_scale_gradients, setup_context=_keep_gradients)


def _compiled_policy_loss(
    log_probs: Tensor,
    entropies: Tensor | None,
    arrays: dict[str, Any],
    preset: Any,
    options: dict[str, Any],
    threads: int,
    return_metrics: bool,
) -> Any:
    # A rein.Options has no text; the operator has no gradient of a divergence over the whole vocabulary.
    divergence = arrays["exact_kl"] is not None or arrays["teacher_divergence"] is not None
    if not (preset is None or isinstance(preset, (str, dict))) or divergence:
        outside: Any = torch.compiler.disable(policy_loss)  # type: ignore[no-untyped-call]
        rest = {"threads": threads, "return_metrics": return_metrics, **options}
        return outside(log_probs, preset=preset, entropies=entropies, **arrays, **rest)
    given = {name: torch.as_tensor(value).detach() for name, value in arrays.items() if value is not None}
    text = _options_text(preset, options)
    names = ",".join(given)
    loss, _, _, metrics = _policy_loss_operator(log_probs, entropies, list(given.values()), names, text, threads)
    return (loss, dict(zip(METRICS, metrics.tolist()))) if return_metrics else loss


# ----------------------------------------------------------------------------------------------------------- functions


def policy_loss(
    log_probs: Tensor,
    old_log_probs: ArrayLike | None = None,
    *,
    preset: Preset = "grpo",
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
    return_metrics: bool = False,
    threads: int = 0,
    **options: Any,
) -> Any:
    """The policy loss as a scalar tensor, differentiable in `log_probs`, `entropies`, `exact_kl` and
    `teacher_divergence`; with `return_metrics` the pair (loss, metrics).

    `log_probs` [B, T] with `mask` [B, T], or [tokens] with `sequence_lengths` [B]; everything else as in
    `rein.policy_loss`, as tensors or as arrays. `old_log_probs` None means on-policy: log_probs.detach(). Under
    torch.no_grad no gradient is computed.

    >>> log_probs = torch.tensor([[-0.5, -1.0], [-2.0, -0.7]], requires_grad=True)
    >>> loss = policy_loss(log_probs, preset="dapo", rewards=[1, 0])
    >>> loss.backward()
    >>> log_probs.grad
    tensor([[-0.1768, -0.1768],
            [ 0.1768,  0.1768]])
    """
    _need_tensor(log_probs, "log_probs")
    if torch.compiler.is_compiling():
        arrays = {
            "old_log_probs": old_log_probs,
            "rewards": rewards,
            "advantages": advantages,
            "mask": mask,
            "sequence_lengths": sequence_lengths,
            "group_sizes": group_sizes,
            "ref_log_probs": ref_log_probs,
            "sample_log_probs": sample_log_probs,
            "exact_kl": exact_kl,
            "teacher_log_probs": teacher_log_probs,
            "teacher_divergence": teacher_divergence,
            "values": values,
            "reward_components": reward_components,
            "reward_weights": reward_weights,
            "baseline_rewards": baseline_rewards,
            "response_lengths": response_lengths,
            "correct": correct,
            "token_budget": token_budget,
        }
        return _compiled_policy_loss(log_probs, entropies, arrays, preset, options, threads, return_metrics)
    dtype = torch.float64 if log_probs.dtype == torch.float64 else torch.float32
    current = _array(log_probs, dtype)
    if current.size == 0:
        raise ValueError(f"log_probs is empty (its shape is {list(current.shape)}): at least one entry is needed")
    tokens = (
        ("log_probs", current),
        ("old_log_probs", current if old_log_probs is None else _array(old_log_probs, dtype)),
        ("ref_log_probs", _array(ref_log_probs, dtype)),
        ("sample_log_probs", _array(sample_log_probs, dtype)),
        ("entropies", _array(entropies, dtype)),
        ("exact_kl", _array(exact_kl, dtype)),
        ("teacher_log_probs", _array(teacher_log_probs, dtype)),
        ("teacher_divergence", _array(teacher_divergence, dtype)),
        ("values", _array(values, dtype)),
    )
    inputs = make_inputs(
        preset,
        current.shape,
        FLOAT64 if dtype == torch.float64 else FLOAT32,
        tokens,
        options,
        rewards=_array(rewards),
        advantages=_array(advantages),
        mask=_array(mask),
        sequence_lengths=_array(sequence_lengths),
        group_sizes=_array(group_sizes),
        reward_components=_array(reward_components),
        reward_weights=_array(reward_weights),
        baseline_rewards=_array(baseline_rewards),
        response_lengths=_array(response_lengths),
        correct=_array(correct),
        token_budget=_array(token_budget),
    )
    gradient = np.empty(inputs.shape, inputs.dtype) if _wants_gradient(log_probs) else None
    of_entropies = np.empty(inputs.shape, inputs.dtype) if _wants_gradient(entropies) else None
    of_exact_kl = np.empty(inputs.shape, inputs.dtype) if _wants_gradient(exact_kl) else None
    of_teacher = np.empty(inputs.shape, inputs.dtype) if _wants_gradient(teacher_divergence) else None
    raw = _policy.run_step(inputs, (gradient, of_entropies, None), threads, of_exact_kl, of_teacher)
    known = (
        (log_probs, gradient),
        (entropies, of_entropies),
        (exact_kl, of_exact_kl),
        (teacher_divergence, of_teacher),
    )
    loss = _known(raw.loss, dtype, known)
    if not return_metrics:
        return loss
    return loss, _policy.PolicyLoss(raw, inputs.source != PER_SEQUENCE).metrics


class Step:
    """`rein.Step` for gradient accumulation: losses and gradients of the micro-batches add up to those of the step.

    The arguments are those of `rein.Step`, as tensors or arrays of the whole step.

    >>> step = Step("dapo", torch.tensor([[-0.6, -1.0], [-1.8, -0.7]]), rewards=[1, 0])
    >>> log_probs = torch.tensor([[-0.5, -1.0], [-2.0, -0.7]], requires_grad=True)
    >>> for i in range(2):
    ...     step.loss(log_probs[i : i + 1], i, i + 1).backward()
    >>> round(step.finish().loss, 4)
    -0.0506
    """

    def __init__(self, preset: Preset, old_log_probs: ArrayLike | None = None, **arguments: Any) -> None:
        for name in ("exact_kl", "teacher_divergence"):
            if _wants_gradient(arguments.get(name)):
                raise ValueError(f"{name} requires a gradient, which a Step does not give: rein.torch.policy_loss does")
        arrays = {name: _array(value) for name, value in arguments.items()}
        self._step = _policy.Step(preset, _array(old_log_probs), **arrays)
        self._dtype = torch.float32 if self._step.dtype == FLOAT32 else torch.float64
        self._so_far = 0.0

    def loss(self, log_probs: Tensor, first: int, last: int, entropies: Tensor | None = None) -> Tensor:
        """The part of the step's loss that sequences [first, last) add. Micro-batches are added in order; `log_probs`
        [last − first, T] or packed."""
        _need_tensor(log_probs, "log_probs")
        wanted = _wants_gradient(log_probs) or _wants_gradient(entropies)
        gradient, of_entropies = self._step.add(
            _array(log_probs, self._dtype), first, last, _array(entropies, self._dtype), gradients=wanted
        )
        total = self._step.finish().loss
        added, self._so_far = total - self._so_far, total
        pairs = (
            (log_probs, gradient if _wants_gradient(log_probs) else None),
            (entropies, of_entropies if _wants_gradient(entropies) else None),
        )
        return _known(added, self._dtype, pairs)

    def finish(self) -> _policy.PolicyLoss:
        """The loss (a float) and metrics of the sequences added so far."""
        return self._step.finish()


def gpo_objective(
    ratios: Tensor,
    advantages: ArrayLike,
    pi_current: ArrayLike,
    pi_ref: ArrayLike,
    epsilon: float,
    beta: float,
    *,
    kl_direction: str = "current_over_ref",
) -> Tensor:
    """`rein.gpo_objective` as a scalar tensor to be maximised, differentiable in `ratios` and `pi_current` (of the same
    shape).

    >>> ratios = torch.tensor([1.1, 0.9, 1.0], dtype=torch.float64, requires_grad=True)
    >>> gpo_objective(ratios, [2, -1.5, 0.5], [0.4, 0.6, 0.5], [0.5, 0.5, 0.5], 0.2, 0.05).item()
    0.4493105249111488
    """
    _need_tensor(ratios, "ratios")
    dtype = _working_type(ratios, advantages, pi_current, pi_ref)
    rho, a, current, ref = (_numbers(value, dtype) for value in (ratios, advantages, pi_current, pi_ref))
    wanted = _wants_gradient(ratios) or _wants_gradient(pi_current)
    operation: Any = _operations.gpo_objective
    found = operation(rho, a, current, ref, epsilon, beta, kl_direction=kl_direction, return_grad=wanted)
    value, (of_ratios, of_current) = found if wanted else (found, (None, None))
    pairs = (
        (ratios, of_ratios if _wants_gradient(ratios) else None),
        (pi_current, of_current if _wants_gradient(pi_current) else None),
    )
    return _known(value, dtype, pairs)


def _numbers(value: Any, dtype: torch.dtype) -> Any:
    """Floating-point numbers of the working type."""
    array = _array(value, dtype)
    return array if array is None else np.asarray(array, FLOAT32 if dtype == torch.float32 else FLOAT64)


def rl_budget_loss(
    rewards: ArrayLike,
    log_probs: Tensor,
    old_log_probs: ArrayLike,
    response_lengths: ArrayLike,
    token_budget: ArrayLike,
    kl_coef: float,
    budget_penalty_coef: float,
) -> Tensor:
    """`rein.rl_budget_loss` as a scalar tensor, differentiable in `log_probs` [batch, K].

    >>> log_probs = torch.tensor([[-1, -1.5]], dtype=torch.float64, requires_grad=True)
    >>> loss = rl_budget_loss([[1, 0.5]], log_probs, [[-1.2, -1.3]], [[150, 80]], 100, 0.1, 0.01)
    >>> round(loss.item(), 12)
    0.0004
    """
    _need_tensor(log_probs, "log_probs")
    dtype = _working_type(log_probs)
    operation: Any = _operations.rl_budget_loss
    wanted = _wants_gradient(log_probs)
    found = operation(
        *(_numbers(value, dtype) for value in (rewards, log_probs, old_log_probs)),
        _array(response_lengths),
        _array(token_budget),
        kl_coef,
        budget_penalty_coef,
        return_grad=wanted,
    )
    value, gradient = found if wanted else (found, None)
    return _known(value, dtype, ((log_probs, gradient),))


def kl_penalized_advantages(
    advantages: Tensor,
    log_probs: ArrayLike,
    ref_log_probs: ArrayLike,
    mask: ArrayLike,
    kl_penalty_coef: float,
    *,
    kl_scope: str = "batch",
    sequence_lengths: ArrayLike | None = None,
    group_sizes: GroupSizes = None,
) -> tuple[Tensor, float]:
    """`rein.kl_penalized_advantages` with tensors: (advantages in their shape and type, kl_policy_ref). Nothing is
    differentiated.

    >>> kl_penalized_advantages(torch.tensor([1.0, 1.0]), [-0.5, -1], [-1, -1], [1, 1], 0.1)
    (tensor([0.9750, 1.0250]), 0.25)
    """
    _need_tensor(advantages, "advantages")
    dtype = _working_type(advantages)
    adjusted, mean = _operations.kl_penalized_advantages(
        _numbers(advantages, dtype),
        _numbers(log_probs, dtype),
        _numbers(ref_log_probs, dtype),
        _array(mask),
        kl_penalty_coef,
        kl_scope=kl_scope,
        sequence_lengths=_array(sequence_lengths),
        group_sizes=_array(group_sizes),
    )
    return torch.from_numpy(adjusted).to(advantages.device, advantages.dtype), mean


def preference_loss(
    loss: str,
    chosen_log_probs: Tensor | None = None,
    rejected_log_probs: Tensor | None = None,
    ref_chosen_log_probs: ArrayLike | None = None,
    ref_rejected_log_probs: ArrayLike | None = None,
    *,
    log_probs: Tensor | None = None,
    return_metrics: bool = False,
    **arguments: Any,
) -> Any:
    """`rein.preference_loss` as a scalar tensor, differentiable in `chosen_log_probs` and `rejected_log_probs`, for
    "kto" in `log_probs`; with `return_metrics` the pair (loss, metrics). The other arguments are those of
    `rein.preference_loss`, as tensors or arrays.

    >>> chosen = torch.tensor([-10.0, -12.0], requires_grad=True)
    >>> preference_loss("dpo", chosen, torch.tensor([-11.0, -9.0]), [-12, -12], [-10, -10]).backward()
    >>> chosen.grad
    tensor([-0.0213, -0.0262])
    """
    leaves = [log_probs] if loss == "kto" else [chosen_log_probs, rejected_log_probs]
    for leaf, name in zip(leaves, ("log_probs",) if loss == "kto" else ("chosen_log_probs", "rejected_log_probs")):
        _need_tensor(leaf, name)
    dtype = _working_type(*leaves)
    numbers = (chosen_log_probs, rejected_log_probs, ref_chosen_log_probs, ref_rejected_log_probs)
    operation: Any = _preferences.preference_loss
    value, found, metrics = operation(
        loss,
        *(_numbers(value, torch.float64) for value in numbers),
        log_probs=_numbers(log_probs, torch.float64),
        **{name: _array(value) for name, value in arguments.items()},
        return_grad=True,
        return_metrics=True,
    )
    gradients = [found] if loss == "kto" else list(found)
    pairs = [(leaf, g if _wants_gradient(leaf) else None) for leaf, g in zip(leaves, gradients)]
    result = _known(value, dtype, pairs)
    return (result, metrics) if return_metrics else result


def reward_loss(
    chosen_rewards: Tensor,
    rejected_rewards: Tensor,
    margins: ArrayLike | None = None,
    center_rewards_coefficient: float = 0.0,
) -> Tensor:
    """`rein.reward_loss` as a scalar tensor, differentiable in both rewards.

    >>> chosen = torch.tensor([1.5, 0.2], requires_grad=True)
    >>> reward_loss(chosen, torch.tensor([0.5, 0.4])).backward()
    >>> chosen.grad
    tensor([-0.1345, -0.2749])
    """
    leaves = (chosen_rewards, rejected_rewards)
    for leaf, name in zip(leaves, ("chosen_rewards", "rejected_rewards")):
        _need_tensor(leaf, name)
    operation: Any = _preferences.reward_loss
    value, gradients = operation(
        *(_numbers(leaf, torch.float64) for leaf in leaves),
        _numbers(margins, torch.float64),
        center_rewards_coefficient,
        return_grad=True,
    )
    pairs = [(leaf, g if _wants_gradient(leaf) else None) for leaf, g in zip(leaves, gradients)]
    return _known(value, _working_type(*leaves), pairs)


def value_loss(
    values: Tensor,
    old_values: ArrayLike,
    returns: ArrayLike,
    mask: ArrayLike | None = None,
    value_clip: float | None = 0.5,
) -> Tensor:
    """`rein.value_loss` as a scalar tensor, differentiable in `values`.

    >>> values = torch.tensor([0.5, 2.0], requires_grad=True)
    >>> value_loss(values, [0.5, 1.0], [1.0, 1.0]).backward()
    >>> values.grad
    tensor([-0.2500,  0.5000])
    """
    _need_tensor(values, "values")
    dtype = _working_type(values)
    operation: Any = _preferences.value_loss
    value, gradient = operation(
        *(_numbers(x, dtype) for x in (values, old_values, returns)), _array(mask), value_clip, return_grad=True
    )
    return _known(value, dtype, ((values, gradient if _wants_gradient(values) else None),))
