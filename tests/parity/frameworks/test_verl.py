"""verl's core_algos, called as they are. Agreement first; then one test for each row of docs/parity.md."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import distance
from common import Theirs, assert_differs, assert_same, example, ours, padded_batches
from hypothesis import given

import rein

core = pytest.importorskip("verl.trainer.ppo.core_algos")
functional = pytest.importorskip("verl.utils.torch_functional")
correction = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
config_module = pytest.importorskip("verl.workers.config")

SHIPPED = Path(__file__).resolve().parents[3] / "models/sums"
AGGREGATIONS = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "seq-mean-token-mean": "seq-mean-token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "dr-grpo": "seq-mean-token-sum-norm",
}
EPS = 1e-7  # verl adds 1e-8 to token counts: its sequence means are off by up to that


def actor(**fields):
    policy = fields.pop("policy_loss", {})
    config = config_module.ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **fields)
    for name, value in policy.items():
        object.__setattr__(config.policy_loss, name, value)
    return config


def verl_loss(batch, name, aggregation="token-mean", weights=None, **fields):
    t = Theirs(batch)
    loss, _ = core.get_policy_loss_fn(name)(
        t.old, t.lp, t.token_advantage, t.mask, aggregation, actor(**fields), weights
    )
    return t.gradient(loss)


# ---------------------------------------------------------------------------------------------------------- agreement
LOSSES = {
    "vanilla": (
        {"surrogate": "dual-clip", "epsilon": 0.2, "epsilon_high": 0.28, "dual_clip": 3.0},
        {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
    ),
    "cispo": (
        {"surrogate": "cispo", "epsilon": 0.3, "epsilon_high": 0.4},
        {"clip_ratio_low": 0.3, "clip_ratio_high": 0.4},
    ),
    "gpg": ({"surrogate": "reinforce"}, {}),
    "dro": ({"surrogate": "dro", "dro_beta": 0.3}, {"policy_loss": {"dro_beta": 0.3}}),
    "gspo": (
        {"surrogate": "clip", "ratio": "sequence", "epsilon": 0.1, "epsilon_high": 0.2},
        {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2},
    ),
    "dppo_tv": (
        {"surrogate": "dppo", "dppo_delta": 0.05, "dppo_ratio_cap": 3.0},
        {"clip_ratio": 0.05, "clip_ratio_low": 0.05, "clip_ratio_high": 0.05},
    ),
    "dppo_kl": (
        {"surrogate": "dppo", "dppo_divergence": "kl", "dppo_delta": 0.02, "dppo_ratio_cap": 3.0},
        {"clip_ratio": 0.02, "clip_ratio_low": 0.02, "clip_ratio_high": 0.02},
    ),
}


@pytest.mark.parametrize("aggregation", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"])
@pytest.mark.parametrize("name", LOSSES)
@given(batch=padded_batches())
def test_policy_loss(name, aggregation, batch):
    options, fields = LOSSES[name]
    our = ours(batch, {**options, "aggregation": aggregation})
    assert_same(
        our, verl_loss(batch, name, aggregation, **fields), EPS if aggregation == "seq-mean-token-mean" else 1e-10
    )


@given(batch=padded_batches())
def test_sapo_and_gmpo(batch):
    options = {"surrogate": "sapo", "aggregation": "seq-mean-token-mean"}
    assert_same(ours(batch, options), verl_loss(batch, "sapo", "seq-mean-token-mean"), EPS)
    options = {"surrogate": "gmpo", "epsilon": 0.4, "aggregation": "seq-mean-token-mean"}
    assert_same(
        ours(batch, options), verl_loss(batch, "geo_mean", clip_ratio=0.4, clip_ratio_low=0.4, clip_ratio_high=0.4), EPS
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(batch=padded_batches())
def test_agg_loss(aggregation, batch):
    t = Theirs(batch)
    extra = {"loss_scale_factor": 11} if aggregation == "dr-grpo" else {}
    loss = core.agg_loss(-t.lp * t.token_advantage, t.mask, AGGREGATIONS[aggregation], **extra)
    options = {"surrogate": "reinforce", "aggregation": aggregation}
    if extra:
        options["max_response_length"] = 11
    assert_same(ours(batch, options), t.gradient(loss), EPS if aggregation == "seq-mean-token-mean" else 1e-10)


@pytest.mark.parametrize("name, estimator", [("kl", "k1"), ("abs", "abs"), ("mse", "k2"), ("low_var_kl", "k3")])
@given(batch=padded_batches())
def test_kl_penalty(name, estimator, batch):
    """With zero advantages all that is left of a loss is its KL."""
    batch.rewards[:] = 0
    t = Theirs(batch)
    loss = core.agg_loss(core.kl_penalty(t.lp, t.ref, name), t.mask, "token-mean")
    our = ours(batch, {"surrogate": "reinforce", "kl_loss_coef": 1.0, "kl_estimator": estimator}, ("ref_log_probs",))
    assert_same(our, t.gradient(loss))


def kept(t, low, high):
    weight = (t.old - t.sample).exp()
    return bool(((weight >= low) & (weight <= high) & t.mask.bool()).any())


@pytest.mark.parametrize(
    "mismatch, kind, threshold, options",
    [
        ("token-tis", "token", 1.3, {"tis_cap": 1.3}),
        ("sequence-tis", "sequence", 1.3, {"tis_cap": 1.3}),
        ("token-mask", "token", "0.7_1.4", {"mismatch_low": 0.7, "mismatch_high": 1.4}),
    ],
)
@given(batch=padded_batches())
def test_rollout_correction(mismatch, kind, threshold, options, batch):
    t = Theirs(batch)
    if mismatch == "token-mask" and not kept(t, 0.7, 1.4):
        return  # verl raises: test_icepop_that_drops_everything
    weights, _ = correction.compute_rollout_correction_weights(t.old - t.sample, t.mask, kind, threshold)
    our = ours(
        batch,
        {"surrogate": "dual-clip", "epsilon": 0.2, "dual_clip": 3.0, "mismatch": mismatch, **options},
        ("sample_log_probs",),
    )
    assert_same(our, verl_loss(batch, "vanilla", weights=weights))


def outcome(batch):
    """Token-level rewards as verl has them: the reward on the last trained token; and the group of each row."""
    mask = batch.padded("mask")
    rewards = torch.zeros_like(mask)
    for row in range(len(mask)):
        rewards[row, int(mask[row].nonzero()[-1])] = batch.rewards[row]
    return rewards, mask, batch.group_of


def our_advantages(batch, name, needs=(), **options):
    """rein's advantages of trained tokens."""
    rows = {n: batch.padded(n).numpy() for n in needs}
    extra = {"baseline_rewards": batch.baselines} if name == "remax" else {}
    mask = batch.padded("mask").numpy().astype(bool)
    lp = batch.padded("log_probs").numpy()
    result = rein.policy_loss(
        {"advantage": name, "surrogate": "clip", **options},
        lp,
        lp,
        mask=mask,
        rewards=batch.rewards,
        group_sizes=batch.group_sizes,
        return_advantages=True,
        **rows,
        **extra,
    )
    return result.advantages[mask]


def trained(values, batch):
    return values.numpy()[batch.padded("mask").numpy().astype(bool)]


@given(batch=padded_batches())
def test_group_estimators(batch):
    rewards, mask, index = outcome(batch)
    grpo, _ = core.compute_grpo_outcome_advantage(rewards, mask, index)
    assert distance(our_advantages(batch, "group-std"), trained(grpo, batch)) < 1e-10
    dr_grpo, _ = core.compute_grpo_outcome_advantage(rewards, mask, index, norm_adv_by_std_in_grpo=False)
    assert distance(our_advantages(batch, "group-mean"), trained(dr_grpo, batch)) < 1e-10
    for rloo in (core.compute_rloo_outcome_advantage, core.compute_rloo_vectorized_outcome_advantage):
        assert distance(our_advantages(batch, "leave-one-out"), trained(rloo(rewards, mask, index)[0], batch)) < 1e-10
    opo, _ = core.compute_opo_outcome_advantage(rewards, mask, index)
    assert distance(our_advantages(batch, "opo"), trained(opo, batch)) < 1e-10
    best, _ = core.compute_grpo_passk_outcome_advantage(rewards, mask, index, config={"norm_adv_by_std_in_grpo": False})
    assert distance(our_advantages(batch, "pass-at-k"), trained(best, batch)) < 1e-10
    remax, _ = core.compute_remax_outcome_advantage(rewards, torch.tensor(batch.baselines), mask)
    assert distance(our_advantages(batch, "remax"), trained(remax, batch)) < 1e-10


class Discount:
    gamma = 1.0


@given(batch=padded_batches())
def test_reinforce_plus_plus(batch):
    """Also across masked gaps: since 0.9 verl carries the return over them, as rein does."""
    rewards, mask, _ = outcome(batch)
    if mask.sum() < 3:
        return
    theirs, _ = core.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=Discount())
    assert distance(our_advantages(batch, "reinforce++"), trained(theirs, batch)) < 1e-6


# ---------------------------------------------------------------------------------------- the differences, row by row
def test_vanilla_is_dual_clip():
    """verl's PPO loss always has the third bound, c = 3: where A < 0 and ρ > 3 there is no gradient."""
    batch = example(drift=0.05)
    batch.tokens["log_probs"][0] = batch.tokens["old_log_probs"][0] + math.log(4.0)
    batch.rewards[0] = -1.0
    theirs = verl_loss(batch, "vanilla")
    plain = ours(batch, {"surrogate": "clip", "epsilon": 0.2})
    assert_differs(plain, theirs)
    assert theirs[1][0, 0] == 0 and plain[1][0, 0] == pytest.approx(4.0 / batch.mask.sum())
    assert_same(ours(batch, {"surrogate": "dual-clip", "epsilon": 0.2, "dual_clip": 3.0}), theirs)


def test_log_ratio_is_clamped():
    """Beyond |d| = 20 verl's ratio is a constant: no gradient. rein has none of these clamps."""
    batch = example(drift=0.05)
    batch.tokens["old_log_probs"][0] = -0.5
    batch.tokens["log_probs"][0] = -21.5
    batch.rewards[0] = 1.0
    assert verl_loss(batch, "vanilla")[1][0, 0] == 0
    assert ours(batch, {"surrogate": "clip"})[1][0, 0] == pytest.approx(-math.exp(-21.0) / batch.mask.sum())


def test_k3_is_clamped():
    """verl's k3 is cut at 10, so a token with ref − lp > 2.61 has no KL gradient at all: the tokens that drifted
    most."""
    batch = example(drift=0.05)
    batch.rewards[:] = 0
    batch.tokens["ref_log_probs"][0], batch.tokens["log_probs"][0] = -0.5, -3.5
    t = Theirs(batch)
    theirs = t.gradient(core.agg_loss(core.kl_penalty(t.lp, t.ref, "low_var_kl"), t.mask, "token-mean"))
    our = ours(batch, {"surrogate": "reinforce", "kl_loss_coef": 1.0, "kl_estimator": "k3"}, ("ref_log_probs",))
    assert theirs[1][0, 0] == 0
    assert our[1][0, 0] == pytest.approx((1 - math.exp(3.0)) / batch.mask.sum())


def test_k3_plus_has_the_gradient_of_k2():
    """ "k3+" is k3 in value and k2 in gradient, which is the exact one on-policy: rein's kl_estimator k2."""
    batch = example(drift=0.3)
    batch.rewards[:] = 0
    t = Theirs(batch)
    loss, gradient = t.gradient(core.agg_loss(core.kl_penalty(t.lp, t.ref, "k3+"), t.mask, "token-mean"))
    by_k2 = ours(batch, {"surrogate": "reinforce", "kl_loss_coef": 1.0, "kl_estimator": "k2"}, ("ref_log_probs",))
    by_k3 = ours(batch, {"surrogate": "reinforce", "kl_loss_coef": 1.0, "kl_estimator": "k3"}, ("ref_log_probs",))
    assert_same((by_k3[0], by_k2[1]), (loss, gradient))


def test_gspo_above_e10_has_no_gradient():
    """verl clamps the sequence's log-ratio at 10."""
    batch = example(masked=0.0, group_sizes=(2,), longest=2)
    batch.tokens["log_probs"][:] = -0.1
    batch.tokens["old_log_probs"][:] = -11.1
    batch.rewards[:] = -1e-3
    assert not verl_loss(batch, "gspo", "token-mean")[1].any()
    our = ours(batch, {"surrogate": "clip", "ratio": "sequence", "epsilon": 0.2})
    assert our[1][0, 0] == pytest.approx(1e-3 * math.exp(11.0) / batch.mask.sum())


def test_sapo_ignores_the_aggregation():
    """loss_agg_mode is not used: always seq-mean-token-mean."""
    batch = example()
    assert_same(
        ours(batch, {"surrogate": "sapo", "aggregation": "seq-mean-token-mean"}),
        verl_loss(batch, "sapo", "token-mean"),
        EPS,
    )
    assert_differs(
        ours(batch, {"surrogate": "sapo", "aggregation": "token-mean"}), verl_loss(batch, "sapo", "token-mean")
    )


def test_geo_mean_counts_empty_sequences():
    """GMPO's mean is over all rows of the micro-batch, also those in which nothing trains; here they are not
    counted."""
    batch = example()
    first, last = batch.offsets[:2]
    batch.mask[first:last] = False
    our = ours(batch, {"surrogate": "gmpo", "epsilon": 0.4, "aggregation": "seq-mean-token-mean"})
    theirs = verl_loss(batch, "geo_mean", clip_ratio=0.4, clip_ratio_low=0.4, clip_ratio_high=0.4)
    rows = len(batch.lengths)
    assert_same((our[0] * (rows - 1) / rows, our[1] * (rows - 1) / rows), theirs, EPS)


def test_default_means_are_of_the_micro_batch():
    """agg_loss without batch_num_tokens divides by the tokens of what it was given: the mean of two halves is not
    the mean."""
    batch = example(seed=3, longest=12)
    t = Theirs(batch)
    losses = -t.lp * t.token_advantage
    halves = [core.agg_loss(losses[at], t.mask[at], "token-mean") for at in (slice(0, 2), slice(2, None))]
    whole = ours(batch, {"surrogate": "reinforce", "aggregation": "token-mean"})
    assert_differs(whole, t.gradient(sum(halves) / 2))
    t = Theirs(batch)
    losses = -t.lp * t.token_advantage
    tokens = int(t.mask.sum())
    halves = [
        core.agg_loss(losses[at], t.mask[at], "token-mean", batch_num_tokens=tokens)
        for at in (slice(0, 2), slice(2, None))
    ]
    assert_same(whole, t.gradient(sum(halves)))


def test_sequence_means_add_1e_8():
    """seq-mean-token-mean divides by n + 1e-8: one token of loss 1 gives 1 − 1e-8."""
    value = core.agg_loss(
        torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), "seq-mean-token-mean"
    )
    assert value.item() == pytest.approx(1 - 1e-8, abs=1e-12)


def test_dr_grpo_divides_by_the_padded_width():
    """seq-mean-token-sum-norm without loss_scale_factor divides by the width of the tensor at hand, which changes
    by batch."""
    batch = example()
    t = Theirs(batch)
    width = t.mask.shape[1]
    theirs = t.gradient(core.agg_loss(-t.lp * t.token_advantage, t.mask, "seq-mean-token-sum-norm"))
    assert_same(ours(batch, {"surrogate": "reinforce", "aggregation": "dr-grpo", "max_response_length": width}), theirs)


def test_gae_is_whitened():
    """verl's GAE advantages are always whitened over the batch's tokens; preset ppo's are not."""
    batch = example()
    rewards, mask, _ = outcome(batch)
    theirs, _ = core.compute_gae_advantage_return(rewards, batch.padded("values"), mask, 1.0, 0.95)
    our = our_advantages(batch, "gae", ("values",))
    whitened = (our - our.mean()) / math.sqrt(our.var(ddof=1) + 1e-8)
    assert distance(whitened, trained(theirs, batch)) < 1e-7
    assert distance(our, trained(theirs, batch)) > 1e-2


@given(batch=padded_batches())
def test_value_loss(batch):
    mask, old = batch.padded("mask"), batch.padded("values")
    returns = old + batch.padded("log_probs") + 0.7
    predicted = (old + 0.8 * batch.padded("old_log_probs") + 0.4).requires_grad_(True)
    loss, clipped = core.compute_value_loss(predicted, returns, old, mask, 0.5)
    arrays = (x.detach().numpy() for x in (predicted, old, returns))
    our, gradient = rein.value_loss(*arrays, mask.numpy().astype(bool), 0.5, return_grad=True)
    assert our == pytest.approx(loss.item(), rel=1e-12)
    assert distance(gradient, torch.autograd.grad(loss, predicted)[0].numpy()) < 1e-12


@pytest.fixture(scope="module")
def critic_run(tmp_path_factory):
    """Two steps of PPO with a critic on the shipped model: the history, and the second step's trajectories."""
    run = tmp_path_factory.mktemp("critic") / "run"
    settings = {"prompts": 4, "samples": 4, "steps": 2, "max_tokens": 40, "eval_prompts": 0, "seed": 3}
    rein.run(run, model=str(SHIPPED), task="sums", preset="ppo", critic="same", critic_learning_rate=0.01, **settings)
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    groups = [json.loads(line) for line in (run / "trajectories/train/0002.jsonl").read_text().splitlines()]
    return history[1], [t for g in groups for t in g["trajectories"]]


def test_critic(critic_run):
    """verl's GAE, whitening and value loss on the values of a run's critic give the run's advantages and metrics."""
    measured, trajectories = critic_run
    shape = len(trajectories), max(len(t["response_ids"]) for t in trajectories)
    rewards, values, mask, ours_ = (torch.zeros(shape, dtype=torch.float64) for _ in range(4))
    for i, t in enumerate(trajectories):
        n = len(t["response_ids"])
        values[i, :n] = torch.tensor(t["values"], dtype=torch.float64)
        ours_[i, :n] = torch.tensor(t["advantages"], dtype=torch.float64)
        mask[i, :n] = 1
        rewards[i, n - 1] = t["reward"]
    assert values.abs().max() > 1e-3
    advantages, returns = core.compute_gae_advantage_return(rewards, values, mask, 1.0, 0.95)
    assert distance(ours_[mask.bool()].numpy(), advantages[mask.bool()].numpy()) < 1e-6
    loss, clipped = core.compute_value_loss(values, returns, values, mask, 0.5)
    assert measured["critic/loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert measured["critic/clip_fraction"] == clipped.item() == 0
    every, left = returns[mask.bool()], (returns - values)[mask.bool()]
    assert measured["critic/explained_variance"] == pytest.approx((1 - left.var() / every.var()).item(), abs=1e-6)


def test_group_of_one():
    """Alone in its group, a response keeps its reward as advantage in GRPO, RLOO and OPO (verl: mean 0, std 1); 0
    here."""
    rewards, mask, index = torch.tensor([[0.7]]), torch.ones(1, 1), np.array([0])
    assert core.compute_grpo_outcome_advantage(rewards.clone(), mask, index)[0].item() == pytest.approx(0.7, rel=1e-5)
    assert core.compute_rloo_outcome_advantage(rewards.clone(), mask, index)[0].item() == pytest.approx(0.7)
    assert core.compute_opo_outcome_advantage(rewards.clone(), mask, index)[0].item() == pytest.approx(0.7)
    assert core.compute_rloo_vectorized_outcome_advantage(rewards, mask, index)[0].item() == 0
    for name in ("group-std", "leave-one-out", "opo"):
        result = rein.policy_loss(
            {"advantage": name, "surrogate": "clip"}, [[-1.0]], [[-1.0]], rewards=[0.7], return_advantages=True
        )
        assert result.advantages[0, 0] == 0


def test_equal_rewards_in_float32():
    """Twelve rewards of 0.7 in float32: the residue of the mean, divided by a std of its own size + 1e-6, is an
    advantage
    of 0.1. Which counts and rewards do it depends on the order of the sum; here it is always exactly 0."""
    worst = 0.0
    for count in range(3, 17):
        for reward in (0.1, 0.3, 0.7, 0.9):
            rewards = torch.full((count, 1), reward, dtype=torch.float32)
            theirs, _ = core.compute_grpo_outcome_advantage(rewards, torch.ones(count, 1), np.zeros(count, int))
            worst = max(worst, theirs.abs().max().item())
            lp = np.full((count, 1), -1, np.float32)
            our = rein.policy_loss(
                {"advantage": "group-std", "surrogate": "clip"},
                lp,
                lp,
                rewards=np.full(count, reward, np.float32),
                return_advantages=True,
            )
            assert not our.advantages.any()
    assert 0.01 < worst < 1.0


def test_vectorized_grpo_is_float32():
    """grpo_vectorized computes in float32 whatever it is given."""
    batch = example()
    rewards, mask, index = outcome(batch)
    theirs, _ = core.compute_grpo_vectorized_outcome_advantage(rewards, mask, index)
    error = distance(trained(theirs, batch), our_advantages(batch, "group-std"))
    assert 1e-10 < error < 1e-5


def test_gdpo_whitens_over_tokens():
    """verl whitens the sum over trained tokens, eps in the variance; rein (and the authors' TRL code) over
    responses."""
    batch = example()
    rewards, mask, index = outcome(batch)
    theirs = trained(core.compute_gdpo_outcome_advantage(rewards, mask, index)[0], batch)
    one = our_advantages(batch, "group-std")
    assert distance((one - one.mean()) / math.sqrt(one.var(ddof=1) + 1e-8), theirs) < 1e-7
    lp, trains = batch.padded("log_probs").numpy(), mask.numpy().astype(bool)
    our = rein.policy_loss(
        {"advantage": "gdpo", "surrogate": "clip"},
        lp,
        lp,
        mask=trains,
        group_sizes=batch.group_sizes,
        reward_components=batch.rewards[:, None],
        return_advantages=True,
    ).advantages[trains]
    assert distance(our, theirs) > 1e-3


def test_pass_at_k_divides_by_the_std():
    """grpo_passk divides best − second best by std + 1e-6 unless norm_adv_by_std_in_grpo is False."""
    batch = example()
    rewards, mask, index = outcome(batch)
    theirs = trained(core.compute_grpo_passk_outcome_advantage(rewards, mask, index, config={})[0], batch)
    std = np.array([batch.rewards[batch.group_of == g].std(ddof=1) for g in batch.group_of])
    by_token = trained(torch.tensor(std)[:, None] * mask, batch)
    assert distance(our_advantages(batch, "pass-at-k") / (by_token + 1e-6), theirs) < 1e-10


def test_icepop_that_drops_everything():
    """When no token is inside the range, verl divides by zero in a metric; here the surrogate is 0."""
    batch = example()
    batch.tokens["sample_log_probs"][:] = batch.tokens["old_log_probs"] - 5.0
    t = Theirs(batch)
    with pytest.raises(ZeroDivisionError):
        correction.compute_rollout_correction_weights(t.old - t.sample, t.mask, "token", "0.7_1.4")
    options = {"surrogate": "clip", "mismatch": "token-mask", "mismatch_low": 0.7, "mismatch_high": 1.4}
    loss, gradient = ours(batch, options, ("sample_log_probs",))
    assert loss == 0 and not gradient.any()


def test_gpg_scales_by_the_share_of_nonzero_rewards():
    """GPG multiplies r − mean by N / (number of rewards that are not 0)."""
    batch = example()
    batch.rewards[:3] = 0
    rewards, mask, index = outcome(batch)
    theirs = trained(core.compute_gpg_outcome_advantage(rewards, mask, index)[0], batch)
    scale = len(batch.rewards) / np.count_nonzero(batch.rewards)
    assert distance(our_advantages(batch, "group-mean") * scale, theirs) < 1e-6
