"""Tinker cookbook's KL penalty, group advantages and KL metrics, called as they are with a sampling client that
only looks up."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from agreement import distance
from common import example, padded_batches
from hypothesis import given

import rein

tinker = pytest.importorskip("tinker")
metrics = pytest.importorskip("tinker_cookbook.rl.metrics")
processing = pytest.importorskip("tinker_cookbook.rl.data_processing")


def data_of(batch):
    """One tinker.Datum a sequence. Tokens are numbered through the batch, so that the client can tell which was
    asked for."""
    out = []
    for row, (first, last) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:])):
        numbers = list(range(first, last))
        floats = {
            "logprobs": np.nan_to_num(batch.tokens["sample_log_probs"][first:last]),
            "advantages": np.full(last - first, batch.rewards[row]) * batch.mask[first:last],
            "mask": batch.mask[first:last].astype(float),
        }
        inputs = {
            name: tinker.TensorData.from_torch(torch.tensor(values, dtype=torch.float32))
            for name, values in floats.items()
        }
        inputs["target_tokens"] = tinker.TensorData.from_torch(torch.tensor(numbers))
        out.append(
            tinker.Datum(model_input=tinker.ModelInput.from_ints([10**6 + row, *numbers[:-1]]), loss_fn_inputs=inputs)
        )
    return out


class Reference:
    """Answers with the reference log-probs of the tokens it is asked for, as the service would: none for the first."""

    def __init__(self, batch):
        self.ref = np.nan_to_num(batch.tokens["ref_log_probs"])

    async def compute_logprobs_async(self, model_input):
        return [0.0] + [float(self.ref[token]) for token in model_input.to_ints()[1:]]


def tinker_penalty(batch, coef, discount=0.0):
    data = data_of(batch)
    said = asyncio.run(metrics.incorporate_kl_penalty(data, Reference(batch), coef, discount))
    return np.concatenate([d.loss_fn_inputs["advantages"].to_torch().numpy() for d in data]), said["kl_policy_base"]


def ours(batch, coef, **options):
    advantage = np.repeat(batch.rewards, batch.lengths) * batch.mask
    return rein.kl_penalized_advantages(
        advantage, batch.tokens["sample_log_probs"], batch.tokens["ref_log_probs"], batch.mask, coef, **options
    )


@given(batch=padded_batches())
def test_kl_penalty(batch):
    theirs, average = tinker_penalty(batch, 0.3)
    our, kl = ours(batch, 0.3)
    assert distance(our, theirs) < 1e-5  # float32 there
    assert kl == pytest.approx(average, abs=1e-5)


@given(batch=padded_batches())
def test_kl_penalty_inside_the_policy_loss(batch):
    theirs, _ = tinker_penalty(batch, 0.3)
    lp = batch.tokens["log_probs"]
    result = rein.policy_loss(
        {"surrogate": "clip", "kl_penalty_coef": 0.3, "kl_penalty_source": "sample"},
        lp,
        lp,
        mask=batch.mask,
        sequence_lengths=batch.lengths,
        rewards=batch.rewards,
        ref_log_probs=batch.tokens["ref_log_probs"],
        sample_log_probs=batch.tokens["sample_log_probs"],
        return_advantages=True,
    )
    assert distance(result.advantages[batch.mask], theirs[batch.mask]) < 1e-5


@given(batch=padded_batches())
def test_group_centred_advantages(batch):
    ends = np.cumsum([0, *batch.group_sizes])
    groups = [
        SimpleNamespace(get_total_rewards=lambda a=a, b=b: batch.rewards[a:b].tolist()) for a, b in zip(ends, ends[1:])
    ]
    theirs = torch.cat(processing.compute_advantages(groups)).numpy()
    our = rein.advantages("group-mean", batch.rewards, group_sizes=batch.group_sizes)
    assert distance(our, theirs) < 1e-5


@given(batch=padded_batches())
def test_kl_metrics(batch):
    """kl_sample_train_v1 is rein's kl_old_k1 when the sampler's log-probs are called old."""
    lp = batch.tokens["log_probs"]
    training = [
        torch.tensor(np.nan_to_num(lp[a:b]), dtype=torch.float32) for a, b in zip(batch.offsets, batch.offsets[1:])
    ]
    theirs = metrics.compute_kl_sample_train(data_of(batch), training)
    result = rein.policy_loss(
        {"surrogate": "clip"},
        lp,
        batch.tokens["sample_log_probs"],
        mask=batch.mask,
        sequence_lengths=batch.lengths,
        rewards=batch.rewards,
    )
    assert result.metrics["kl_old_k1"] == pytest.approx(theirs["optim/kl_sample_train_v1"], abs=1e-5)


# ---------------------------------------------------------------------------------------- the differences, row by row
def test_discount():
    """kl_discount_factor > 0 turns the centred penalty into discounted future sums, over all tokens: the adjustment
    no longer sums
    to 0, and masked tokens are changed too. There is no such option here."""
    batch = example()
    advantage = np.repeat(batch.rewards, batch.lengths) * batch.mask
    plain, discounted = tinker_penalty(batch, 0.3)[0] - advantage, tinker_penalty(batch, 0.3, 0.9)[0] - advantage
    assert abs(plain.sum()) < 1e-4 and abs(discounted.sum()) > 1e-2
    assert np.abs(discounted[~batch.mask]).max() > 1e-3
    for first, last in zip(batch.offsets, batch.offsets[1:]):
        powers = 0.9 ** np.arange(last - first)
        expected = [(powers[: last - t] * plain[t:last]).sum() for t in range(first, last)]
        assert np.allclose(discounted[first:last], expected, atol=1e-5)


def test_equal_rewards_leave_a_residue():
    """r − mean in float32: equal rewards may leave ±6e-8, which trains (nothing divides by it). Here it is exactly
    0."""
    residue = 0.0
    for count in range(3, 17):
        group = SimpleNamespace(get_total_rewards=lambda n=count: [0.7] * n)
        residue = max(residue, processing.compute_advantages([group])[0].abs().max().item())
        assert not rein.advantages("group-mean", [0.7] * count).any()
    assert 0 < residue < 1e-6
