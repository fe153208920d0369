"""Liger's chunked GRPO loss: plain torch, no GPU. The per-token function first, then the whole fused layer."""

import numpy as np
import pytest
import torch
from agreement import distance
from common import Theirs, assert_differs, assert_same, example, ours, padded_batches
from hypothesis import given

grpo_loss = pytest.importorskip("liger_kernel.chunked_loss.grpo_loss")
Function = grpo_loss.LigerFusedLinearGRPOFunction


def liger_loss(batch, loss_type, **fields):
    t = Theirs(batch)
    fields = {"beta": 0.0, **fields}
    loss, _ = Function.ppo_loss_fn(
        t.lp,
        t.mask,
        t.advantage,
        t.mask,
        ref_per_token_logps=t.ref,
        old_per_token_logps=t.old,
        loss_type=loss_type,
        max_completion_length=11,
        **fields,
    )
    return t.gradient(loss)


SEQUENCE = {"importance_sampling_level": "sequence", "epsilon_low": 0.1, "epsilon_high": 0.1}
LOSSES = {
    "grpo": ("grpo", {"surrogate": "clip", "aggregation": "seq-mean-token-mean"}, {}),
    "bnpo": ("bnpo", {"surrogate": "clip"}, {}),
    "dapo": ("dapo", {"surrogate": "clip", "epsilon_high": 0.28}, {"epsilon_high": 0.28}),
    "dr_grpo": ("dr_grpo", {"surrogate": "clip", "aggregation": "dr-grpo", "max_response_length": 11}, {}),
    "gspo": (
        "grpo",
        {"surrogate": "clip", "ratio": "sequence", "epsilon": 0.1, "aggregation": "seq-mean-token-mean"},
        SEQUENCE,
    ),
    "cispo": ("cispo", {"surrogate": "cispo", "epsilon": 1.0, "epsilon_high": 0.5}, {"epsilon_high": 1.5}),
    "sapo": ("sapo", {"surrogate": "sapo", "aggregation": "seq-mean-token-mean"}, {}),
    "vespo": ("vespo", {"surrogate": "vespo"}, {}),
    "luspo": ("luspo", {"surrogate": "luspo", "epsilon": 0.1, "aggregation": "seq-mean-token-mean"}, SEQUENCE),
}


@pytest.mark.parametrize("name", LOSSES)
@given(batch=padded_batches())
def test_loss(name, batch):
    loss_type, options, fields = LOSSES[name]
    assert_same(ours(batch, options), liger_loss(batch, loss_type, **fields))


@pytest.mark.parametrize("corrected, estimator", [(False, "k3"), (True, "is-k3")])
@given(batch=padded_batches())
def test_kl(corrected, estimator, batch):
    options = {"surrogate": "clip", "kl_loss_coef": 0.3, "kl_estimator": estimator}
    assert_same(
        ours(batch, options, ("ref_log_probs",)), liger_loss(batch, "bnpo", beta=0.3, use_bias_correction_kl=corrected)
    )


@given(batch=padded_batches())
def test_importance_sampling_ratio(batch):
    weights = (batch.padded("old_log_probs") - batch.padded("sample_log_probs")).exp().clamp(max=1.3)
    options = {"surrogate": "clip", "mismatch": "token-tis", "tis_cap": 1.3}
    assert_same(ours(batch, options, ("sample_log_probs",)), liger_loss(batch, "bnpo", vllm_is_ratio=weights))


@pytest.mark.parametrize("loss_type, aggregation", [("grpo", "seq-mean-token-mean"), ("bnpo", "token-mean")])
def test_fused_layer(loss_type, aggregation):
    """From hidden states and the head's weights: rein's d loss/d lp, sent through log-softmax, is Liger's gradient."""
    batch = example(longest=5)
    t = Theirs(batch)
    rows, width = t.mask.shape
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    head = torch.randn(9, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    chosen = torch.randint(0, 9, (rows, width), generator=generator)
    layer = grpo_loss.LigerFusedLinearGRPOLoss(beta=0.1, compiled=False, use_ref_model=True, loss_type=loss_type)
    loss, _ = layer(hidden, head, chosen, t.mask, t.advantage, ref_per_token_logps=t.ref, old_per_token_logps=t.old)
    theirs = torch.autograd.grad(loss, (hidden, head))
    lp = torch.log_softmax(hidden @ head.T, -1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    batch.tokens["log_probs"] = batch.packed(lp.detach())
    options = {"surrogate": "clip", "aggregation": aggregation, "kl_loss_coef": 0.1, "kl_estimator": "k3"}
    our_loss, gradient = ours(batch, options, ("ref_log_probs",))
    our_gradients = torch.autograd.grad(lp, (hidden, head), grad_outputs=torch.tensor(gradient))
    tolerance = 1e-6  # Liger's log-softmax is float32 inside
    assert our_loss == pytest.approx(loss.item(), rel=tolerance)
    for our, their in zip(our_gradients, theirs):
        assert distance(our.numpy(), their.numpy()) < tolerance


# ---------------------------------------------------------------------------------------- the differences, row by row
def test_sequences_without_tokens_count():
    """As TRL: the mean is over all rows."""
    batch = example()
    first, last = batch.offsets[:2]
    batch.mask[first:last] = False
    rows = len(batch.lengths)
    loss, gradient = ours(batch, {"surrogate": "clip", "aggregation": "seq-mean-token-mean"})
    assert_same((loss * (rows - 1) / rows, gradient * (rows - 1) / rows), liger_loss(batch, "grpo"))


def test_luspo_at_token_level_leaks_padding():
    """With token ratios (its default level) Liger's luspo does not apply the mask: masked and padded tokens get a
    gradient."""
    batch = example(drift=0.05)
    theirs = liger_loss(batch, "luspo")
    outside = batch.padded("mask").numpy() == 0
    assert np.abs(theirs[1][outside]).max() > 1e-3
    our = ours(batch, {"surrogate": "luspo", "ratio": "token", "epsilon": 0.2, "aggregation": "seq-mean-token-mean"})
    assert not our[1][outside].any()
    assert_differs(our, theirs)


def test_cispo_bound():
    """As TRL: epsilon_high is the bound itself."""
    batch = example()
    assert_same(
        ours(batch, {"surrogate": "cispo", "epsilon": 1.0, "epsilon_high": 4.0}),
        liger_loss(batch, "cispo", epsilon_high=5.0),
    )
