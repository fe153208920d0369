"""rein.torch: gradients through autograd, types, accumulation, errors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rein  # noqa: E402
import rein.torch  # noqa: E402
from rein.torch import Step, gpo_objective, kl_penalized_advantages, policy_loss, rl_budget_loss  # noqa: E402


def batch(dtype=torch.float64, shape=(4, 6)):
    generator = torch.Generator().manual_seed(5)
    old = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3 - 1
    log_probs = old + 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
    ref = old + 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.arange(shape[1]) < torch.tensor([[6], [4], [5], [3]])
    tensors = {"old_log_probs": old.to(dtype), "ref_log_probs": ref.to(dtype)}
    rest = {**tensors, "mask": mask, "rewards": torch.tensor([1.0, 0.0, 0.5, 0.7]), "group_sizes": 2}
    return log_probs.to(dtype).requires_grad_(), rest


@pytest.mark.parametrize("preset", ["grpo", "gspo", "gmpo", "sapo", "bnpo", "deepseek-v3.2"])
def test_gradcheck(preset):
    log_probs, rest = batch()
    options = {"kl_loss_coef": 0.1} if preset == "deepseek-v3.2" else {}
    options.update({"epsilon": 0.5} if preset in ("gspo", "grpo", "bnpo", "deepseek-v3.2") else {})
    entropies = torch.full_like(log_probs, 0.5).requires_grad_()

    def loss(log_probs, entropies):
        return policy_loss(log_probs, preset=preset, entropies=entropies, entropy_coef=0.1, **rest, **options)

    assert torch.autograd.gradcheck(loss, (log_probs, entropies), eps=1e-6, atol=1e-7)


def test_same_as_numpy_and_through_a_graph():
    log_probs, rest = batch()
    arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in rest.items()}
    expected = rein.policy_loss("grpo", log_probs.detach().numpy(), **arrays)
    loss, metrics = policy_loss(log_probs, **rest, return_metrics=True)
    assert loss.item() == expected.loss and metrics == expected.metrics
    assert loss.shape == () and loss.dtype == torch.float64
    (3 * loss).backward()
    np.testing.assert_allclose(log_probs.grad.numpy(), 3 * expected.grad_log_probs, rtol=1e-15)
    base = log_probs.detach().clone().requires_grad_()
    policy_loss(base * 1.0, **rest).backward()
    np.testing.assert_array_equal(base.grad.numpy(), expected.grad_log_probs)


def test_on_policy_without_old_log_probs():
    log_probs, rest = batch()
    rest["old_log_probs"] = log_probs.detach()
    expected = policy_loss(log_probs, **rest)
    rest["old_log_probs"] = None
    loss, metrics = policy_loss(log_probs, **rest, return_metrics=True)
    assert loss.item() == expected.item() and metrics["ratio_max"] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype):
    log_probs, rest = batch(dtype)
    loss = policy_loss(log_probs, **rest)
    loss.backward()
    assert log_probs.grad.dtype == dtype and loss.dtype == torch.float32
    wide = log_probs.detach().float().requires_grad_()
    same = {n: v.float() if isinstance(v, torch.Tensor) and v.dtype == dtype else v for n, v in rest.items()}
    expected = policy_loss(wide, **same)
    expected.backward()
    assert loss.item() == expected.item()
    assert torch.equal(log_probs.grad, wide.grad.to(dtype))


def test_the_gradient_is_handed_over_not_shared():
    log_probs, rest = batch()
    loss = policy_loss(log_probs, **rest)
    loss.backward(retain_graph=True)
    first = log_probs.grad.clone()
    log_probs.grad.mul_(100)
    loss.backward()
    assert torch.allclose(log_probs.grad, 100 * first + first)
    log_probs.grad = None
    policy_loss(log_probs, **rest).backward()
    kept = log_probs.grad
    log_probs.grad = None
    policy_loss(log_probs * 1.1, **rest).backward()
    assert torch.equal(kept, first)


def test_a_leaf_keeps_the_gradient_without_a_copy(monkeypatch):
    made, empty = [], np.empty

    def spy(shape, dtype):
        made.append(empty(shape, dtype))
        return made[-1]

    log_probs, rest = batch()
    policy_loss(log_probs, **rest)
    monkeypatch.setattr(rein.torch.np, "empty", spy)
    loss = policy_loss(log_probs, **rest)
    monkeypatch.undo()
    loss.backward()
    assert log_probs.grad.data_ptr() == made[0].ctypes.data


def test_no_gradient_where_none_is_wanted(monkeypatch):
    log_probs, rest = batch()
    expected = policy_loss(log_probs, **rest).item()
    asked = []
    run = rein.torch._policy.run_step
    monkeypatch.setattr(
        rein.torch._policy, "run_step", lambda i, outputs, t, *_: asked.append(outputs) or run(i, outputs, t)
    )
    with torch.no_grad():
        loss = policy_loss(log_probs, **rest)
    assert loss.item() == expected and not loss.requires_grad and asked == [(None, None, None)]
    assert not policy_loss(log_probs.detach(), **rest).requires_grad
    entropies = torch.full_like(log_probs, 0.5).requires_grad_()
    loss = policy_loss(log_probs.detach(), **rest, entropies=entropies, entropy_coef=0.1)
    loss.backward()
    assert asked[-1][0] is None and (entropies.grad[rest["mask"]] < 0).all() and log_probs.grad is None


def test_double_backward_is_refused():
    log_probs, rest = batch()
    plain = torch.autograd.grad(policy_loss(log_probs, **rest), log_probs)[0]
    for scale in (1.0, log_probs.sum()):
        (gradient,) = torch.autograd.grad(policy_loss(log_probs, **rest) * scale, log_probs, create_graph=True)
        with pytest.raises(RuntimeError, match="first derivatives only"):
            (gradient**2).sum().backward()
    (gradient,) = torch.autograd.grad(policy_loss(log_probs, **rest), log_probs, create_graph=True)
    assert torch.equal(gradient, plain)


@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 4], [0, 1, 2, 3, 4]])
def test_accumulation_is_the_whole_step(cuts):
    log_probs, rest = batch()
    whole = policy_loss(log_probs, **rest)
    whole.backward()
    expected = log_probs.grad.clone()
    log_probs.grad = None
    step, total = Step("grpo", **rest), 0.0
    for first, last in zip(cuts, cuts[1:]):
        loss = step.loss(log_probs[first:last], first, last)
        loss.backward()
        total += loss.item()
    assert torch.equal(log_probs.grad, expected)
    assert total == pytest.approx(whole.item(), rel=1e-12) and step.finish().loss == whole.item()


def test_accumulation_with_entropies_bf16_and_no_grad():
    log_probs, rest = batch(torch.bfloat16)
    entropies = torch.full_like(log_probs, 0.5).requires_grad_()
    step = Step("grpo", **rest, entropy_coef=0.1)
    step.loss(log_probs[:2], 0, 2, entropies[:2]).backward()
    with torch.no_grad():
        assert not step.loss(log_probs[2:], 2, 4, entropies[2:]).requires_grad
    assert log_probs.grad.dtype == torch.bfloat16 and (entropies.grad[2:] == 0).all()
    assert step.finish().metrics["trained_tokens"] == 18


def test_errors():
    log_probs, rest = batch()
    with pytest.raises(ValueError, match=r"^log_probs\[1\]\[2\] is NaN"):
        policy_loss(torch.where(torch.arange(24).reshape(4, 6) == 8, torch.nan, log_probs), **rest)
    with pytest.raises(TypeError, match="log_probs is list: a floating-point tensor is needed"):
        policy_loss([[1.0]], rewards=[1])
    with pytest.raises(TypeError, match="floating-point"):
        policy_loss(torch.ones(2, 2, dtype=torch.int64), rewards=[1, 2])
    with pytest.raises(ValueError, match="log_probs is empty"):
        policy_loss(torch.empty(0, 3), rewards=[])
    with pytest.raises(ValueError, match="did you mean"):
        policy_loss(log_probs, **rest, epsilom=3)


def test_the_other_operations():
    ratios = torch.tensor([1.1, 0.9, 1.05], dtype=torch.float64, requires_grad=True)
    current = torch.tensor([0.4, 0.6, 0.5], dtype=torch.float64, requires_grad=True)
    rest = (torch.tensor([2, -1.5, 0.5], dtype=torch.float64), [0.5, 0.5, 0.4])
    for direction in ("current_over_ref", "ref_over_current"):
        assert torch.autograd.gradcheck(
            lambda r, p, d=direction: gpo_objective(r, rest[0], p, rest[1], 0.2, 0.3, kl_direction=d), (ratios, current)
        )
    assert not gpo_objective(ratios.detach(), *rest[:1], current.detach(), rest[1], 0.2, 0.3).requires_grad
    log_probs = torch.tensor([[-1, -1.5], [-2, -0.5]], dtype=torch.float64, requires_grad=True)
    lengths, old = torch.tensor([[150, 80], [20, 300]]), log_probs.detach() + 0.1
    assert torch.autograd.gradcheck(
        lambda lp: rl_budget_loss([[1, 0.5], [0, 2]], lp, old, lengths, 100, 0.1, 0.01), (log_probs,)
    )
    narrow = log_probs.detach().float().requires_grad_()
    rl_budget_loss([[1, 0.5], [0, 2]], narrow, narrow.detach() - 1, lengths, 100, 0.1, 0.01).backward()
    assert narrow.grad.dtype == torch.float32
    advantages = torch.tensor([[1, 1], [2, 2]], dtype=torch.bfloat16)
    mask = torch.tensor([[True, True], [True, False]])
    adjusted, kl = kl_penalized_advantages(advantages, log_probs, log_probs - 0.5, mask, 0.1, kl_scope="sequence")
    assert adjusted.dtype == torch.bfloat16 and kl == pytest.approx(0.5) and torch.equal(adjusted, advantages)


def test_tensors_in_the_numpy_functions():
    log_probs, rest = batch()
    assert rein.policy_loss("grpo", log_probs, **rest).loss == policy_loss(log_probs, **rest).item()
    narrow = rein.policy_loss("dapo", torch.full((2, 2), -1.0), torch.full((2, 2), -1.5), rewards=torch.tensor([1, 0]))
    assert narrow.grad_log_probs.dtype == np.float32
    half = rein.policy_loss(
        "dapo", torch.full((2, 2), -1.0, dtype=torch.bfloat16), np.full((2, 2), -1.5), rewards=[1, 0]
    )
    assert half.grad_log_probs.dtype == np.float64


# ------------------------------------------------------------------------------------------------------- torch.compile

COMPILED = {"fullgraph": True, "backend": "aot_eager"}  # traced and differentiated, without a compiler for the rest


def compile_case(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    shape = (8, 5)
    current = -torch.rand(shape, generator=generator, dtype=dtype)
    near = [current + 0.1 * torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2)]
    mask = torch.rand(shape, generator=generator) > 0.2
    mask[:, 0] = True
    return current, near[0], near[1], mask, torch.rand(8, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("preset", ["grpo", {"preset": "dapo", "epsilon": 0.1}])
def test_compiled_losses_have_the_same_bits(preset, dtype):
    current, old, ref, mask, rewards = compile_case(dtype)
    uses_ref = {"ref_log_probs": ref} if preset == "grpo" else {}

    def loss_of(log_probs, entropies):
        given = {"mask": mask, "rewards": rewards, "group_sizes": 4, "entropy_coef": 0.01, **uses_ref}
        loss = rein.torch.policy_loss(log_probs * 1, old, preset=preset, entropies=entropies * 2, **given)
        return loss * 3

    found = []
    for function in (loss_of, torch.compile(loss_of, **COMPILED)):
        inputs = [current.clone().requires_grad_(), current.neg().requires_grad_()]
        loss = function(*inputs)
        loss.backward()
        found.append((loss.detach(), inputs[0].grad, inputs[1].grad))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_compiled_metrics_and_no_grad():
    current, old, _, mask, rewards = compile_case()

    def both(log_probs):
        return rein.torch.policy_loss(log_probs, old, preset="dapo", mask=mask, rewards=rewards, return_metrics=True)

    loss, metrics = torch.compile(both, backend="aot_eager")(current)
    expected, wanted = both(current)
    assert torch.equal(loss, expected) and metrics == pytest.approx(wanted, nan_ok=True)
    with torch.no_grad():
        assert torch.equal(torch.compile(both, backend="aot_eager")(current)[0], expected)


def test_the_operator_is_what_torch_expects():
    current, old, _, mask, rewards = compile_case()
    arguments = (current.requires_grad_(), None, [old, mask, rewards], "old_log_probs,mask,rewards", "preset='dapo'", 0)
    torch.library.opcheck(rein.torch._policy_loss_operator, arguments)


def test_options_of_a_compiled_loss():
    """A rein.Options cannot be part of a graph: the call is made outside of it."""
    current, old, _, _, rewards = compile_case()
    options = rein.Options("dapo")

    def loss_of(log_probs):
        return rein.torch.policy_loss(log_probs, old, preset=options, rewards=rewards)

    assert torch.equal(torch.compile(loss_of, backend="aot_eager")(current), loss_of(current))


def test_exact_kl_has_a_gradient():
    log_probs = torch.tensor([[-0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    kl = torch.tensor([[0.5, 0.25]], dtype=torch.float64, requires_grad=True)
    given = dict(preset="grpo", rewards=[1.0], kl_estimator="exact", kl_loss_coef=0.2)
    loss = rein.torch.policy_loss(log_probs, exact_kl=kl, **given)
    loss.backward()
    assert loss.item() == pytest.approx(0.2 * 0.375)
    torch.testing.assert_close(kl.grad, torch.full((1, 2), 0.1, dtype=torch.float64))
    assert rein.torch.policy_loss(log_probs, exact_kl=kl.detach(), **given).item() == loss.item()
    compiled = torch.compile(lambda x, k: rein.torch.policy_loss(x, exact_kl=k, **given), backend="eager")
    again = kl.detach().clone().requires_grad_()
    compiled(log_probs, again).backward()
    torch.testing.assert_close(again.grad, kl.grad)
    with pytest.raises(ValueError, match="which a Step does not give"):
        rein.torch.Step("grpo", log_probs.detach(), rewards=[1.0], exact_kl=kl, kl_estimator="exact")
