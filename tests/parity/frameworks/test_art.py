"""OpenPipe ART's loss_fn, called as it is. Only its file and what it imports are loaded: the package itself wants a
serving stack."""

import sys
import types
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from common import Theirs, assert_differs, assert_same, example, ours, padded_batches
from hypothesis import given


def load_loss():
    """art.loss without running art/__init__.py."""
    spec = find_spec("art")
    if spec is None or spec.origin is None:
        pytest.skip("art is not installed", allow_module_level=True)
    root = Path(spec.origin).parent
    for name, path in (("art", root), ("art.utils", root / "utils")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    import art.loss

    return art.loss


art_loss = load_loss()


def shifted(tensor, pad):
    """ART shifts its inputs by one: entry t of the loss reads entry t + 1."""
    return torch.cat([torch.full((len(tensor), 1), pad, dtype=tensor.dtype), tensor], 1)


def run(batch, reduction="mean", weights=None, ref=False, sampler=True, **config):
    """Loss, gradient, and the Loss object. One row a sequence, as packed by ART with one sequence a row."""
    t = Theirs(batch)
    width = t.mask.shape[1]
    ids = torch.arange(1, len(t.mask) + 1).unsqueeze(1).expand(-1, width)
    inputs = {
        "logprobs": shifted(t.old, float("nan")),
        "advantages": shifted(t.token_advantage, 0.0),
        "assistant_mask": shifted(t.mask.bool(), False),
        "group_ids": shifted(ids, 0),
        "weights": shifted(torch.ones_like(t.mask) if weights is None else weights, 0.0),
        **({"original_logprobs": shifted(t.sample, 0.0)} if sampler else {}),
    }
    extra = torch.zeros(len(t.mask), 1, dtype=torch.float64)
    new, reference = torch.cat([t.lp, extra], 1), torch.cat([t.ref, extra], 1)
    said = art_loss.loss_fn(inputs, new, reference if ref else None, None, config, reduction)
    return t.gradient(said.policy_loss), said


def art(batch, **config):
    return run(batch, **config)[0]


EPS = 1e-5  # ART divides by the tokens + 1e-6


# ---------------------------------------------------------------------------------------------------------- agreement
CISPO = {"surrogate": "cispo", "epsilon": 1.0, "epsilon_high": 4.0}
LEVELS = {"token": "token", "average": "average", "geometric_average": "geometric-average", "sequence": "sequence"}


@given(batch=padded_batches())
def test_default_loss(batch):
    assert_same(ours(batch, CISPO), art(batch), EPS)


@given(batch=padded_batches())
def test_ppo(batch):
    assert_same(ours(batch, {"surrogate": "clip"}), art(batch, ppo=True), EPS)
    assert_same(
        ours(batch, {"surrogate": "clip", "epsilon": 0.1, "epsilon_high": 0.3}),
        art(batch, ppo=True, epsilon=0.1, epsilon_high=0.3),
        EPS,
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("ppo", [False, True])
@given(batch=padded_batches())
def test_importance_sampling_level(ppo, level, batch):
    options = {"surrogate": "clip"} if ppo else CISPO
    assert_same(
        ours(batch, {**options, "ratio": LEVELS[level]}), art(batch, ppo=ppo, importance_sampling_level=level), EPS
    )


@given(batch=padded_batches())
def test_kl_penalty(batch):
    theirs, said = run(batch, ref=True, kl_penalty_coef=0.3)
    assert_same(ours(batch, {**CISPO, "kl_penalty_coef": 0.3}, ("ref_log_probs",)), theirs, EPS)
    d = (batch.tokens["log_probs"] - batch.tokens["ref_log_probs"])[batch.mask]
    assert said.kl_policy_ref.item() == pytest.approx(d.mean(), abs=1e-5)


@given(batch=padded_batches())
def test_kimi_k2_tau(batch):
    assert_same(ours(batch, {**CISPO, "kimi_k2_tau": 0.3}), art(batch, kimi_k2_tau=0.3), EPS)


@given(batch=padded_batches())
def test_truncated_importance_sampling(batch):
    options = {**CISPO, "mismatch": "token-tis", "tis_cap": 1.2}
    assert_same(ours(batch, options, ("sample_log_probs",)), art(batch, truncated_importance_sampling=1.2), EPS)


@given(batch=padded_batches())
def test_preset_art_by_weights(batch):
    """ART's trainer weighs a token by 1/length of its trajectory, scaled to mean 1: that is preset art's
    aggregation."""
    mask = batch.padded("mask")
    weights = mask / mask.sum(1, keepdim=True)
    weights = weights * mask.sum() / weights.sum()
    our = ours(batch, {"preset": "art", "advantage": "none"})
    assert_same(our, art(batch, weights=weights), EPS)


def negatives(batch):
    """The batch with every advantage below 0."""
    return replace(batch, rewards=-0.1 - np.abs(batch.rewards))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("ppo", [False, True])
@given(batch=padded_batches())
def test_max_negative_weight(ppo, level, batch):
    """Where every advantage is below 0, the two are the same."""
    options = {"surrogate": "clip"} if ppo else CISPO
    bound = {"max_negative_advantage_importance_sampling_weight": 1.1}
    assert_same(
        ours(negatives(batch), {**options, **bound, "ratio": LEVELS[level]}),
        art(negatives(batch), ppo=ppo, importance_sampling_level=level, **bound),
        EPS,
    )


# ---------------------------------------------------------------------------------------- the differences, row by row
def test_token_count_plus_1e_6():
    """One trained token: ART's loss is smaller by 1e-6."""
    batch = example(group_sizes=(2,), longest=1, masked=0.0)
    ratio = ours(batch, CISPO)[0] / art(batch)[0]
    assert ratio == pytest.approx(1 + 1e-6 / 2, abs=1e-9)


def test_kl_average_is_that_of_the_tensor():
    """ART's average KL is over the tensor at hand; a step in two halves has two averages. Here it is that of the
    step."""
    batch = example()
    whole = ours(batch, {**CISPO, "kl_penalty_coef": 0.5, "aggregation": "token-sum"}, ("ref_log_probs",))
    halves = [rows_of(batch, rows) for rows in (range(4), range(4, 8))]
    parts = [run(half, ref=True, kl_penalty_coef=0.5, reduction="sum")[0] for half in halves]
    total = sum(loss for loss, _ in parts)
    assert abs(total - whole[0]) > 1e-3
    by_group = ours(
        batch, {**CISPO, "kl_penalty_coef": 0.5, "aggregation": "token-sum", "kl_scope": "group"}, ("ref_log_probs",)
    )
    assert by_group[0] == pytest.approx(total, rel=1e-5)  # the halves are the two groups


def rows_of(batch, rows):
    """The batch of some of its sequences, as one group."""
    keep = np.concatenate([np.arange(batch.offsets[i], batch.offsets[i + 1]) for i in rows])
    fields = dict(batch.__dict__)
    fields.update(
        lengths=[batch.lengths[i] for i in rows],
        group_sizes=[len(rows)],
        mask=batch.mask[keep],
        rewards=batch.rewards[list(rows)],
        tokens={n: v[keep] for n, v in batch.tokens.items()},
    )
    return type(batch)(**fields)


def test_kl_penalty_per_token_even_for_sequence_ratios():
    """With importance_sampling_level "sequence" ART's penalty stays per token; here it is per sequence, as the unit
    is."""
    batch = example()
    theirs = run(batch, ref=True, kl_penalty_coef=0.5, importance_sampling_level="sequence")[0]
    assert_differs(ours(batch, {**CISPO, "ratio": "sequence", "kl_penalty_coef": 0.5}, ("ref_log_probs",)), theirs)


def test_truncated_importance_sampling_without_original_log_probs():
    """Without the sampler's log-probs ART's truncated_importance_sampling multiplies by min(ρ, C) of the *current*
    ratio: the weight
    counts twice in CISPO. Here it is an error to ask for a mismatch correction without sample_log_probs."""
    batch = example()
    theirs = run(batch, sampler=False, truncated_importance_sampling=1.2)[0]
    t = Theirs(batch)
    ratio = (t.lp - t.old).exp().detach()
    twice = ratio.clamp(0, 5) * ratio.clamp(max=1.2) * t.token_advantage * t.lp
    assert_same(t.gradient(-twice.sum() / t.mask.sum()), theirs, EPS)
    with pytest.raises(ValueError, match="sample_log_probs"):
        ours(batch, {**CISPO, "mismatch": "token-tis"})


def test_max_negative_weight_also_cuts_positives():
    """max_negative_advantage_importance_sampling_weight clamps the ratio for every sign of the advantage; here only
    where it is below 0."""
    batch = example(drift=0.9)
    theirs = art(batch, ppo=True, epsilon=10.0, max_negative_advantage_importance_sampling_weight=1.2)
    t = Theirs(batch)
    ratio = (t.lp - t.old).exp().clamp(max=1.2)
    expected = t.gradient(-(ratio * t.advantage.unsqueeze(1) * t.mask).sum() / t.mask.sum())
    assert_same(expected, theirs, EPS)
    options = {"surrogate": "clip", "epsilon": 10.0, "max_negative_advantage_importance_sampling_weight": 1.2}
    assert_differs(ours(batch, options), theirs)
