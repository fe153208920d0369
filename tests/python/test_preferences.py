"""Losses over preferences, of reward models and of critics, in Python and in PyTorch: gradients, types, errors."""

import numpy as np
import pytest

import rein

GENERATOR = np.random.default_rng(29)
LOSSES = {
    "dpo": {},
    "cdpo": {"label_smoothing": 0.2},
    "robust": {"label_smoothing": 0.1},
    "hinge": {},
    "ipo_mean": {},
    "ipo_sum": {},
    "simpo": {"simpo_gamma": 0.7},
    "cpo": {"cpo_alpha": 0.5},
    "orpo": {},
}
REFERENCE = ("dpo", "cdpo", "robust", "hinge", "ipo_mean", "ipo_sum")
LENGTHS = ("ipo_mean", "simpo", "cpo", "orpo")


def arguments(loss, n=6):
    given = dict(LOSSES[loss])
    if loss in REFERENCE:
        given.update({f"ref_{side}_log_probs": GENERATOR.uniform(-20, -1, n) for side in ("chosen", "rejected")})
    if loss in LENGTHS:
        given.update({f"{side}_lengths": GENERATOR.integers(1, 12, n) for side in ("chosen", "rejected")})
    return GENERATOR.uniform(-20, -1, n), GENERATOR.uniform(-20, -1, n), given


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients(loss):
    torch = pytest.importorskip("torch")
    import rein.torch

    chosen, rejected, given = arguments(loss)
    value, (by_chosen, by_rejected), metrics = rein.preference_loss(
        loss, chosen, rejected, **given, return_grad=True, return_metrics=True
    )
    assert value == rein.preference_loss(loss, chosen, rejected, **given)
    assert set(metrics) >= {"rewards/chosen", "rewards/accuracies", "logps/rejected"}
    leaves = [torch.tensor(x, requires_grad=True) for x in (chosen, rejected)]
    got = rein.torch.preference_loss(loss, *leaves, **given)
    (2 * got).backward()
    assert got.item() == value
    np.testing.assert_array_equal(leaves[0].grad.numpy(), 2 * by_chosen)
    np.testing.assert_array_equal(leaves[1].grad.numpy(), 2 * by_rejected)
    assert torch.autograd.gradcheck(
        lambda a, b: rein.torch.preference_loss(loss, a, b, **given), [x.detach().requires_grad_() for x in leaves]
    )


def test_kto():
    torch = pytest.importorskip("torch")
    import rein.torch

    given = {"ref_log_probs": [-1.0, -3, -2], "labels": [1, 0, 1], "kl": 0.3, "desirable_weight": 1.2}
    s = torch.tensor([-2.0, -1, -4], dtype=torch.float64, requires_grad=True)
    value, gradient = rein.preference_loss("kto", log_probs=s, **given, return_grad=True)
    loss, metrics = rein.torch.preference_loss("kto", log_probs=s, **given, return_metrics=True)
    loss.backward()
    assert loss.item() == value and "rewards/accuracies" not in metrics
    np.testing.assert_array_equal(s.grad.numpy(), gradient)
    assert torch.autograd.gradcheck(lambda x: rein.torch.preference_loss("kto", log_probs=x, **given), s)


def test_rewards_and_values():
    torch = pytest.importorskip("torch")
    import rein.torch

    w, r, m = (torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda a, b: rein.torch.reward_loss(a, b, m.detach(), 0.05), (w, r))
    value, (by_w, _), accuracy = rein.reward_loss(w, r, return_grad=True, return_accuracy=True)
    expected = -torch.nn.functional.logsigmoid(w - r).mean()
    assert value == pytest.approx(expected.item(), rel=1e-14)
    np.testing.assert_allclose(by_w, torch.autograd.grad(expected, w)[0].numpy(), rtol=1e-13)
    assert accuracy == (w > r).double().mean().item()
    old, target = torch.randn(7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    mask = torch.tensor([1, 1, 0, 1, 1, 1, 0])
    clipped = torch.maximum((w - target) ** 2, (w.clamp(old - 0.2, old + 0.2) - target) ** 2)
    expected = (clipped * mask).sum() / mask.sum() / 2
    got = rein.torch.value_loss(w, old, target, mask, 0.2)
    assert got.item() == pytest.approx(expected.item(), rel=1e-14)
    np.testing.assert_allclose(
        torch.autograd.grad(got, w)[0].numpy(), torch.autograd.grad(expected, w)[0].numpy(), rtol=1e-13, atol=1e-16
    )
    assert rein.value_loss(w, old, target, value_clip=None) == pytest.approx(((w - target) ** 2).mean().item() / 2)


def test_float32():
    chosen, rejected, given = arguments("simpo")
    value, (by_chosen, _) = rein.preference_loss(
        "simpo", chosen.astype(np.float32), rejected.astype(np.float32), **given, return_grad=True
    )
    assert isinstance(value, float) and by_chosen.dtype == np.float32
    single = [np.asarray(x, np.float32) for x in ([0.5, 2], [0.5, 1], [1, 1])]
    value, gradient = rein.value_loss(*single, return_grad=True)
    assert value == 0.3125 and gradient.dtype == np.float32 and gradient.tolist() == [-0.25, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rein.preference_loss("ppo", [-1], [-1]), r"^loss is 'ppo': one of dpo\|cdpo"),
        (lambda: rein.preference_loss("dpo"), "^chosen_log_probs is missing"),
        (lambda: rein.preference_loss("dpo", [-1], [-1]), "^ref_chosen_log_probs is missing: loss dpo needs it"),
        (lambda: rein.preference_loss("cpo", [-1], [-1]), "^chosen_lengths is missing"),
        (lambda: rein.preference_loss("dpo", [], []), "^chosen_log_probs is empty"),
        (lambda: rein.preference_loss("dpo", [-1], [-1, -2]), r"^rejected_log_probs has shape \[2\]"),
        (lambda: rein.preference_loss("dpo", [-1], [-1], [-1], [-1], simpo_gamma=1), "^simpo_gamma has no effect"),
        (lambda: rein.preference_loss("simpo", [-1], [-1], [-1]), "^ref_chosen_log_probs has no effect"),
        (lambda: rein.preference_loss("dpo", [-1], [-1], [-1], [-1], labels=[1]), "^labels has no effect"),
        (lambda: rein.preference_loss("kto", [-1]), "^chosen_log_probs has no effect with loss 'kto'"),
        (lambda: rein.preference_loss("kto", log_probs=[-1], ref_log_probs=[-1], labels=[1]), "^kl is missing"),
        (
            lambda: rein.preference_loss("kto", log_probs=[-1], ref_log_probs=[-1], labels=[2], kl=0),
            r"^labels\[0\] is 2",
        ),
        (lambda: rein.preference_loss("dpo", [np.nan], [-1], [-1], [-1]), r"^chosen_log_probs\[0\] is not a finite"),
        (lambda: rein.preference_loss("robust", [-1], [-1], [-1], [-1]), "^label_smoothing is missing"),
        (lambda: rein.reward_loss([1], None), "^rejected_rewards is missing"),
        (lambda: rein.reward_loss([1], [1], center_rewards_coefficient=-1), "^center_rewards_coefficient is -1"),
        (lambda: rein.reward_loss([1], [1], [np.inf]), r"^margins\[0\] is not a finite"),
        (lambda: rein.value_loss([1], [1], [1], [2]), r"^mask\[0\] is 2"),
        (lambda: rein.value_loss([[1.0, 2]], [[1, 2]], [[1, np.nan]]), r"^returns\[0\]\[1\] is not a finite"),
        (lambda: rein.value_loss([1], [1], [1], value_clip=-1), "^value_clip is -1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
