"""rein.torch inside autograd: the gradient that reaches a model's logits, against the oracle in plain torch;
micro-batches; types."""

import numpy as np
import pytest
import torch
from agreement import distance
from batches import batches
from hypothesis import given
from presets import PRESETS
from torch_step import Step

rein_torch = pytest.importorskip("rein.torch")

VOCABULARY = 5


def model(batch, dtype=torch.float64):
    """Logits of a made-up model and the tokens it chose: log-probs, entropies are functions of the logits."""
    generator = torch.Generator().manual_seed(len(batch.mask))
    logits = torch.randn(len(batch.mask), VOCABULARY, generator=generator, dtype=dtype, requires_grad=True)
    chosen = torch.randint(0, VOCABULARY, (len(batch.mask), 1), generator=generator)
    logs = torch.log_softmax(logits, -1)
    return logits, logs.gather(-1, chosen).squeeze(-1), -(logs.exp() * logs).sum(-1)


def arguments(batch, needs, dtype=torch.float64):
    arrays = {
        n: torch.tensor(batch.tokens[n], dtype=dtype)
        for n in ("ref_log_probs", "sample_log_probs", "values")
        if n in needs
    }
    more = {"response_lengths": torch.tensor(batch.response_lengths), "correct": torch.tensor(batch.correct)}
    arrays.update({name: value for name, value in more.items() if name in needs})
    return dict(
        mask=torch.tensor(batch.mask),
        sequence_lengths=batch.lengths,
        group_sizes=batch.group_sizes,
        rewards=batch.rewards,
        **arrays,
    )


@pytest.mark.parametrize("name", PRESETS)
@given(batch=batches(masks=(0.3,)))
def test_gradient_reaches_the_logits(name, batch):
    oracle, needs, tried = PRESETS[name]
    logits, lp, _ = model(batch)
    batch.tokens["log_probs"] = lp.detach().numpy().copy()
    step = Step(batch)
    expected = torch.autograd.grad(
        lp, logits, torch.tensor(step.gradients(oracle(step, **tried[-1]))[0]), retain_graph=True
    )[0]
    loss = rein_torch.policy_loss(
        lp, torch.tensor(batch.tokens["old_log_probs"]), preset=name, **arguments(batch, needs), **tried[-1]
    )
    (2 * loss).backward()
    assert distance(logits.grad.numpy() / 2, expected.numpy()) <= 1e-10


@given(batch=batches(masks=(0.3,)))
def test_entropy_bonus_reaches_the_logits(batch):
    logits, lp, entropy = model(batch)
    old = lp.detach() + 0.1
    shared = dict(preset="bnpo", **arguments(batch, ()))
    with_bonus = rein_torch.policy_loss(lp, old, entropies=entropy, entropy_coef=0.1, **shared)
    plain = rein_torch.policy_loss(lp, old, **shared)
    ours = torch.autograd.grad(with_bonus - plain, logits, retain_graph=True)[0]
    mask = torch.tensor(batch.mask)
    theirs = torch.autograd.grad(-0.1 * entropy[mask].sum() / max(1, int(mask.sum())), logits)[0]
    assert distance(ours.numpy(), theirs.numpy()) <= 1e-9


@pytest.mark.parametrize("name", ["grpo", "rloo", "gspo", "k2", "dapo", "art"])
@given(batch=batches(masks=(0.3,)))
def test_micro_batches_add_up(name, batch):
    """The losses of a Step's parts sum to the loss of the whole, and so do the gradients, bit for bit."""
    _, needs, tried = PRESETS[name]
    old, lp = (torch.tensor(batch.tokens[n]) for n in ("old_log_probs", "log_probs"))
    shared = {**arguments(batch, needs), **tried[-1]}
    whole_lp = lp.clone().requires_grad_(True)
    whole = rein_torch.policy_loss(whole_lp, old, preset=name, **shared)
    whole.backward()
    early = (
        {"log_probs": lp} if name == "rloo" or shared.get("kl_penalty_coef") else {}
    )  # what the whole step must know first
    step = rein_torch.Step(name, old, **shared, **early)
    parts_lp, total, rows = lp.clone().requires_grad_(True), 0.0, len(batch.lengths)
    for first in range(0, rows, 2):
        last = min(rows, first + 2)
        part = step.loss(parts_lp[batch.offsets[first] : batch.offsets[last]], first, last)
        part.backward()
        total += part.item()
    assert total == pytest.approx(whole.item(), rel=1e-12, abs=1e-12)
    assert (parts_lp.grad == whole_lp.grad).all()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@given(batch=batches(masks=(0.3,)))
def test_types(dtype, tolerance, batch):
    """Half types are computed in float32 from their rounded values; the gradient comes back in their type."""
    rounded = {n: torch.tensor(v).to(dtype).to(torch.float64).numpy() for n, v in batch.tokens.items()}
    batch.tokens.update(rounded)
    step = Step(batch)
    expected = step.gradients(PRESETS["grpo"][0](step))[0]
    lp = torch.tensor(rounded["log_probs"], dtype=dtype, requires_grad=True)
    old, ref = (torch.tensor(rounded[n], dtype=dtype) for n in ("old_log_probs", "ref_log_probs"))
    loss = rein_torch.policy_loss(lp, old, preset="grpo", **{**arguments(batch, ()), "ref_log_probs": ref})
    loss.backward()
    assert lp.grad.dtype == dtype
    assert distance(lp.grad.to(torch.float64).numpy(), expected) <= tolerance


def test_on_policy_by_default():
    lp = torch.tensor([-0.5, -1.0, -2.0], dtype=torch.float64, requires_grad=True)
    rein_torch.policy_loss(lp, preset="bnpo", rewards=np.array([1.0, 0.0, 0.5]), sequence_lengths=[1, 1, 1]).backward()
    assert np.allclose(lp.grad.numpy(), np.array([-0.5, 0.5, 0]) / (0.5 + 1e-6) / 3)
