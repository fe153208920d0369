"""Every choice of every stage, alone and crossed with its neighbours, against torch."""

import itertools

import advantages as adv
import losses
import numpy as np
import pytest
import torch
from agreement import TOLERANCE, assert_agrees, call_rein, distance
from batches import batches, long_batch, make_batch
from hypothesis import assume, given
from torch_step import Step

import rein

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
CLIP = {"surrogate": "clip", "epsilon": 0.2}


def prepared(batch, dtype):
    batch = batch.rounded(dtype)
    return batch, Step(batch)


def clip_of(step, per_sequence):
    return losses.clip(step.d.exp(), step.to_tokens(per_sequence), 0.2)


# ------------------------------------------------------------------------------------------------------------ shaping
SHAPES = {
    "budget": (adv.budget_linear, {"token_budget": 90.0, "budget_penalty_coef": 0.02}),
    "truncate": (adv.budget_truncate, {"token_budget": 90.0, "budget_penalty": 0.7}),
    "overlong": (adv.overlong, {"overlong_max": 150.0, "overlong_cushion": 100.0}),
    "k1.5-length": (adv.length_reward, {"length_weight": 0.4}),
}


@DTYPES
@pytest.mark.parametrize("reward_clip", [None, 0.6])
@pytest.mark.parametrize("shape", SHAPES)
@given(batch=batches())
def test_shape(shape, reward_clip, dtype, batch):
    batch, step = prepared(batch, dtype)
    rule, options = SHAPES[shape]
    shaped = rule(step, step.reward, **options)
    given_options = {"shape": shape, **options, **CLIP}
    if reward_clip:
        shaped = shaped.clamp(-reward_clip, reward_clip)
        given_options["reward_clip"] = reward_clip
    result = call_rein(batch, given_options, dtype, ("response_lengths",))
    assert_agrees(result, step, step.mean_over_tokens(clip_of(step, shaped)), dtype)


# --------------------------------------------------------------------------------------------------------- advantages
ESTIMATORS = {
    "none": lambda step, r: r,
    "group-mean": adv.group_mean,
    "group-std": adv.group_std,
    "batch-std": adv.batch_std,
    "leave-one-out": adv.leave_one_out,
    "opo": adv.opo,
    "remax": adv.remax,
    "max-rl": adv.max_rl,
    "pass-at-k": adv.pass_at_k,
}


def estimator_needs(name):
    return ("response_lengths", "baseline_rewards") if name == "remax" else ("response_lengths",)


def assert_advantages(result, step, expected, dtype):
    """rein's advantages of trained tokens against the oracle's."""
    assert distance(result.advantages[step.where.numpy()], expected.numpy()) <= TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches())
def test_estimator(name, dtype, batch):
    batch, step = prepared(batch, dtype)
    advantage = ESTIMATORS[name](step, step.reward)
    assume(float(advantage.abs().max()) < 1e6)  # max-rl divides by a mean that may be next to 0
    result = call_rein(batch, {"advantage": name, **CLIP}, dtype, estimator_needs(name))
    assert_advantages(result, step, step.to_tokens(advantage), dtype)
    assert_agrees(result, step, step.mean_over_tokens(clip_of(step, advantage)), dtype)


@pytest.mark.parametrize("name", ["group-mean", "group-std", "batch-std", "leave-one-out", "none", "opo", "remax"])
@given(batch=batches())
def test_estimator_with_kl_in_the_reward(name, batch):
    step = Step(batch)
    paid = step.reward - 0.3 * step.sequence_sum((step.lp - step.ref).detach())
    advantage = ESTIMATORS[name](step, paid)
    result = call_rein(
        batch, {"advantage": name, "kl_reward_coef": 0.3, **CLIP}, needs=(*estimator_needs(name), "ref_log_probs")
    )
    assert_agrees(result, step, step.mean_over_tokens(clip_of(step, advantage)))


@pytest.mark.parametrize("k", [2, 3])
@given(batch=batches(smallest_group=3))
def test_pass_at_k(k, batch):
    step = Step(batch)
    result = call_rein(batch, {"advantage": "pass-at-k", "pass_k": k, **CLIP})
    assert_advantages(result, step, step.to_tokens(adv.pass_at_k(step, step.reward, k)), np.float64)


@pytest.mark.parametrize("eps", [0.0, 1e-4, 0.5])
@pytest.mark.parametrize("name", ["group-std", "batch-std"])
@given(batch=batches())
def test_advantage_eps(name, eps, batch):
    step = Step(batch)
    advantage = ESTIMATORS[name](step, step.reward, advantage_eps=eps)
    result = call_rein(batch, {"advantage": name, "advantage_eps": eps, **CLIP})
    assert_advantages(result, step, step.to_tokens(advantage), np.float64)


@pytest.mark.parametrize("weights", [None, [1.0, 0.3, 2.0]])
@given(batch=batches())
def test_gdpo(weights, batch):
    step = Step(batch)
    advantage = adv.gdpo(step, torch.tensor(batch.components), weights or [1.0] * 3)
    extra = {} if weights is None else {"reward_weights": weights}
    result = call_rein(batch, {"advantage": "gdpo", **CLIP}, needs=("reward_components",), **extra)
    assert_agrees(result, step, step.mean_over_tokens(clip_of(step, advantage)))


@DTYPES
@pytest.mark.parametrize("kl_reward_coef", [0.0, 0.2])
@pytest.mark.parametrize(
    "name, options",
    [
        ("gae", {}),
        ("gae", {"gae_gamma": 0.9, "gae_lambda": 0.7}),
        ("reinforce++", {}),
        ("reinforce++", {"advantage_eps": 0.1}),
    ],
)
@given(batch=batches())
def test_token_estimators(name, options, kl_reward_coef, dtype, batch):
    batch, step = prepared(batch, dtype)
    rewards = adv.token_rewards(step, step.reward, (step.lp - step.ref).detach(), kl_reward_coef)
    advantage = (adv.gae if name == "gae" else adv.whitened_returns)(step, rewards, **options)
    needs = ("values",) * (name == "gae") + ("ref_log_probs",) * (kl_reward_coef > 0)
    extra = {"kl_reward_coef": kl_reward_coef} if kl_reward_coef else {}
    result = call_rein(batch, {"advantage": name, **options, **CLIP, **extra}, dtype, needs)
    assert_agrees(result, step, step.mean_over_tokens(losses.clip(step.d.exp(), advantage, 0.2)), dtype)


@pytest.mark.parametrize("balance", [-1.0, -0.3, 0.4, 1.0])
@given(batch=batches())
def test_balance(balance, batch):
    step = Step(batch)
    advantage = adv.balance(adv.group_mean(step, step.reward), balance)
    result = call_rein(batch, {"advantage": "group-mean", "advantage_balance": balance, **CLIP})
    assert_agrees(result, step, step.mean_over_tokens(clip_of(step, advantage)))


# ---------------------------------------------------------------------------------------------- surrogates and ratios
def surrogate_of(name, step, level, advantage):
    """The loss of each token and the options that ask rein for it."""
    log_r = losses.log_ratio(step, level) if level else None
    ratio = log_r.exp() if level else None
    return {
        "reinforce": lambda: (-advantage * step.lp, {}),
        "clip": lambda: (losses.clip(ratio, advantage, 0.15, 0.3), {"epsilon": 0.15, "epsilon_high": 0.3}),
        "dual-clip": lambda: (losses.dual_clip(ratio, advantage, 0.2, None, 1.3), {"epsilon": 0.2, "dual_clip": 1.3}),
        "cispo": lambda: (losses.cispo(ratio, advantage, step.lp, 0.4, 0.2), {"epsilon": 0.4, "epsilon_high": 0.2}),
        "squared": lambda: (losses.squared(log_r, advantage, 0.4), {"tau": 0.4}),
        "dro": lambda: (losses.dro(log_r, advantage, step.lp, 0.6), {"dro_beta": 0.6}),
        "gmpo": lambda: (losses.gmpo(step, advantage, 0.1, 0.2), {"epsilon": 0.1, "epsilon_high": 0.2}),
        "sapo": lambda: (losses.sapo(ratio, advantage, 0.8, 1.4), {"sapo_tau_positive": 0.8, "sapo_tau_negative": 1.4}),
        "vespo": lambda: (losses.vespo(ratio, advantage, step.lp), {}),
        "topr": lambda: (losses.topr(ratio, advantage, step.lp), {}),
        "dppo": lambda: (
            losses.dppo(ratio, advantage, step.lp, step.old, "tv", 0.02, 1.5),
            {"dppo_delta": 0.02, "dppo_ratio_cap": 1.5},
        ),
        "luspo": lambda: (losses.luspo(step, ratio, advantage), {}),
    }[name]()


LEVELS = ["token", "sequence", "sequence-sum", "sequence-token", "average", "geometric-average"]
RATIO_FREE = ("reinforce", "gmpo")
SURROGATES = [
    "reinforce",
    "clip",
    "dual-clip",
    "cispo",
    "squared",
    "dro",
    "gmpo",
    "sapo",
    "vespo",
    "topr",
    "dppo",
    "luspo",
]
PAIRS = [(s, level) for s in SURROGATES for level in ([None] if s in RATIO_FREE else LEVELS)]


@DTYPES
@pytest.mark.parametrize("name, level", PAIRS)
@given(batch=batches())
def test_surrogate_at_ratio_level(name, level, dtype, batch):
    batch, step = prepared(batch, dtype)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss, options = surrogate_of(name, step, level, advantage)
    extra = {"ratio": level} if level else {}
    result = call_rein(batch, {"surrogate": name, "advantage": "group-mean", **options, **extra}, dtype)
    assert_agrees(result, step, step.mean_over_tokens(loss), dtype)


@DTYPES
@pytest.mark.parametrize("name, level", PAIRS)
def test_surrogate_on_long_sequences(name, level, dtype):
    batch = long_batch(dtype)
    step = Step(batch)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss, options = surrogate_of(name, step, level, advantage)
    extra = {"ratio": level} if level else {}
    result = call_rein(batch, {"surrogate": name, "advantage": "group-mean", **options, **extra}, dtype)
    assert_agrees(result, step, step.mean_over_tokens(loss), dtype)


@given(batch=batches())
def test_dppo_by_kl(batch):
    step = Step(batch)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss = losses.dppo(step.d.exp(), advantage, step.lp, step.old, "kl", 0.01)
    result = call_rein(
        batch, {"surrogate": "dppo", "advantage": "group-mean", "dppo_divergence": "kl", "dppo_delta": 0.01}
    )
    assert_agrees(result, step, step.mean_over_tokens(loss))


PUBLISHED = {
    "squared": "sequence-sum",
    "vespo": "sequence-sum",
    "topr": "sequence-sum",
    "luspo": "sequence",
    "clip": "token",
    "cispo": "token",
    "sapo": "token",
    "dro": "token",
    "dppo": "token",
    "dual-clip": "token",
}


@pytest.mark.parametrize("name", PUBLISHED)
@given(batch=batches(masks=(0.3,)))
def test_published_ratio_level(name, batch):
    """Without `ratio`, the level is the paper's."""
    step = Step(batch)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss, options = surrogate_of(name, step, PUBLISHED[name], advantage)
    result = call_rein(batch, {"surrogate": name, "advantage": "group-mean", **options})
    assert_agrees(result, step, step.mean_over_tokens(loss))


# -------------------------------------------------------------------------------------------------------- aggregation
AGGREGATIONS = ["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"]


@DTYPES
@pytest.mark.parametrize(
    "surrogate, level",
    [("clip", "token"), ("clip", "sequence"), ("squared", "sequence-sum"), ("gmpo", None), ("dro", "average")],
)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(batch=batches())
def test_aggregation(aggregation, surrogate, level, dtype, batch):
    batch, step = prepared(batch, dtype)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss, options = surrogate_of(surrogate, step, level, advantage)
    extra = {"max_response_length": 11.0} if aggregation == "dr-grpo" else {}
    expected = losses.aggregate(step, loss, aggregation, **extra)
    level_option = {"ratio": level} if level else {}
    result = call_rein(
        batch,
        {
            "surrogate": surrogate,
            "advantage": "group-mean",
            "aggregation": aggregation,
            **options,
            **extra,
            **level_option,
        },
        dtype,
    )
    assert_agrees(result, step, expected, dtype)


# ----------------------------------------------------------------------------------------------------------------- KL
DIRECTED = [(e, "ref_over_current") for e in ("k1", "k2", "k3", "abs", "is-k1", "is-k3")]
DIRECTED += [("k3", "current_over_ref"), ("is-k3", "current_over_ref")]


@DTYPES
@pytest.mark.parametrize("clamp", [None, 0.2])
@pytest.mark.parametrize("estimator, direction", DIRECTED)
@given(batch=batches())
def test_kl_in_the_loss(estimator, direction, clamp, dtype, batch):
    batch, step = prepared(batch, dtype)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    expected = step.mean_of_sequence_means(
        losses.clip(step.d.exp(), advantage, 0.2) + 0.7 * losses.kl(step, estimator, direction, clamp)
    )
    options = {
        "kl_loss_coef": 0.7,
        "kl_estimator": estimator,
        "advantage": "group-mean",
        "aggregation": "seq-mean-token-mean",
    }
    if estimator.endswith("k3"):
        options["kl_direction"] = direction
    if clamp is not None:
        options["kl_clamp"] = clamp
    assert_agrees(call_rein(batch, {**CLIP, **options}, dtype, ("ref_log_probs",)), step, expected, dtype)


@pytest.mark.parametrize("source", ["current_learner", "sample"])
@pytest.mark.parametrize("scope", ["batch", "group", "sequence"])
@pytest.mark.parametrize(
    "surrogate, level", [("cispo", "token"), ("clip", "sequence"), ("gmpo", None), ("squared", "sequence-sum")]
)
@given(batch=batches())
def test_kl_in_the_advantage(surrogate, level, scope, source, batch):
    step = Step(batch)
    per_sequence = level in ("sequence", "sequence-sum") or surrogate == "gmpo"
    options = {
        "surrogate": surrogate,
        "advantage": "group-std",
        "kl_penalty_coef": 0.4,
        "kl_scope": scope,
        "kl_penalty_source": source,
        **({"ratio": level} if level else {}),
    }
    needs = ("ref_log_probs",) + ("sample_log_probs",) * (source == "sample")
    if per_sequence and scope == "sequence":
        options.update({"tau": 0.4} if surrogate == "squared" else {})
        with pytest.raises(ValueError):
            call_rein(batch, options, needs=needs)
        return
    origin = step.sample if source == "sample" else step.lp
    advantage = adv.kl_penalty(step, step.to_tokens(adv.group_std(step, step.reward)), origin, 0.4, scope, per_sequence)
    loss, more = surrogate_of(surrogate, step, level, advantage)
    assert_agrees(call_rein(batch, {**options, **more}, needs=needs), step, step.mean_over_tokens(loss))


@pytest.mark.parametrize("advantage", ["leave-one-out", "reinforce++"])
@given(batch=batches())
def test_kl_in_the_reward_from_the_sampler(advantage, batch):
    step = Step(batch)
    gap = step.sample - step.ref
    if advantage == "reinforce++":
        value = adv.whitened_returns(step, adv.token_rewards(step, step.reward, gap, 0.1))
    else:
        value = step.to_tokens(adv.leave_one_out(step, step.reward - 0.1 * step.sequence_sum(gap)))
    result = call_rein(
        batch,
        {"advantage": advantage, "kl_reward_coef": 0.1, "kl_penalty_source": "sample", **CLIP},
        needs=("ref_log_probs", "sample_log_probs"),
    )
    assert_agrees(result, step, step.mean_over_tokens(losses.clip(step.d.exp(), value, 0.2)))


@given(batch=batches())
def test_all_three_places_at_once(batch):
    step = Step(batch)
    paid = step.reward - 0.1 * step.sequence_sum((step.lp - step.ref).detach())
    advantage = adv.kl_penalty(step, step.to_tokens(adv.group_mean(step, paid)), step.lp, 0.2)
    expected = step.mean_over_tokens(losses.clip(step.d.exp(), advantage, 0.2) + 0.3 * losses.kl(step, "k2"))
    result = call_rein(
        batch,
        {
            "advantage": "group-mean",
            "kl_reward_coef": 0.1,
            "kl_penalty_coef": 0.2,
            "kl_loss_coef": 0.3,
            "kl_estimator": "k2",
            **CLIP,
        },
        needs=("ref_log_probs",),
    )
    assert_agrees(result, step, expected)


# --------------------------------------------------------------------------------------- mismatch, masks, adjustments
MISMATCHES = [
    ("token-tis", {}),
    ("token-tis", {"tis_cap": 1.1}),
    ("token-mask", {}),
    ("token-mask", {"mismatch_low": 0.8, "mismatch_high": 1.2}),
    ("sequence-tis", {"tis_cap": 1.2}),
    ("sequence-mask", {}),
    ("sequence-mask", {"mismatch_low": 0.7, "mismatch_high": 1.5}),
]


@DTYPES
@pytest.mark.parametrize("surrogate, level", [("clip", "token"), ("clip", "sequence"), ("gmpo", None)])
@pytest.mark.parametrize("kind, options", MISMATCHES)
@given(batch=batches())
def test_mismatch(kind, options, surrogate, level, dtype, batch):
    batch, step = prepared(batch, dtype)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss, more = surrogate_of(surrogate, step, level, advantage)
    named = {"tis_cap": "tis_cap", "mismatch_low": "low", "mismatch_high": "high"}
    weight = losses.mismatch_weight(step, kind, **{named[k]: v for k, v in options.items()})
    expected = step.mean_over_tokens(weight * loss + 0.2 * losses.kl(step, "k3"))  # the KL is not corrected
    result = call_rein(
        batch,
        {
            "surrogate": surrogate,
            "advantage": "group-mean",
            "mismatch": kind,
            "kl_loss_coef": 0.2,
            "kl_estimator": "k3",
            **options,
            **more,
            **({"ratio": level} if level else {}),
        },
        dtype,
        ("ref_log_probs", "sample_log_probs"),
    )
    assert_agrees(result, step, expected, dtype)


@pytest.mark.parametrize("delta", [0.01, 0.2])
@pytest.mark.parametrize("mismatch", ["none", "token-tis"])
@given(batch=batches())
def test_off_policy_mask(mismatch, delta, batch):
    step = Step(batch)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    weight = losses.off_policy_keep(step, advantage, delta)
    if mismatch != "none":
        weight = weight * losses.mismatch_weight(step, mismatch)
    expected = step.mean_of_sequence_means(
        weight * losses.clip(step.d.exp(), advantage, 0.2) + 0.1 * losses.kl(step, "is-k3")
    )
    result = call_rein(
        batch,
        {
            "advantage": "group-mean",
            "off_policy_mask_delta": delta,
            "mismatch": mismatch,
            "kl_loss_coef": 0.1,
            "kl_estimator": "is-k3",
            "aggregation": "seq-mean-token-mean",
            **CLIP,
        },
        needs=("ref_log_probs", "sample_log_probs"),
    )
    assert_agrees(result, step, expected)


@pytest.mark.parametrize("surrogate", ["clip", "cispo", "reinforce"])
@given(batch=batches())
def test_kimi_k2_tau(surrogate, batch):
    """ART's adjustment: A − τ·stop(d)."""
    step = Step(batch)
    advantage = step.to_tokens(adv.group_std(step, step.reward)) - 0.3 * step.d.detach()
    loss, options = surrogate_of(surrogate, step, None if surrogate == "reinforce" else "token", advantage)
    result = call_rein(batch, {"surrogate": surrogate, "advantage": "group-std", "kimi_k2_tau": 0.3, **options})
    assert_agrees(result, step, step.mean_over_tokens(loss))


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@given(batch=batches())
def test_top_entropy(share, batch):
    step = Step(batch)
    assume(len(step.lp) > 0)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    keep = losses.top_entropy_keep(step, share)
    result = call_rein(batch, {"advantage": "group-mean", "top_entropy": share, **CLIP}, needs=("entropies",))
    assert_agrees(result, step, step.mean_over_tokens(keep * losses.clip(step.d.exp(), advantage, 0.2)))


@DTYPES
@pytest.mark.parametrize("target", [None, 0.9])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@given(batch=batches())
def test_entropy_bonus(aggregation, target, dtype, batch):
    batch, step = prepared(batch, dtype)
    assume(len(step.lp) > 0)
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    coef = 0.05 if target is None or step.entropies.mean() <= target else 0.0
    expected = losses.aggregate(step, losses.clip(step.d.exp(), advantage, 0.2) - coef * step.entropy, aggregation)
    extra = {"entropy_target": target} if target else {}
    result = call_rein(
        batch,
        {"advantage": "group-mean", "entropy_coef": 0.05, "aggregation": aggregation, **CLIP, **extra},
        dtype,
        ("entropies",),
    )
    assert_agrees(result, step, expected, dtype)


# --------------------------------------------------------------------------------------- pairwise: the pipeline whole
PIPELINES = list(
    itertools.product(
        ["group-std", "leave-one-out", "opo"],
        ["clip", "dro", "sapo", "gmpo"],
        ["token-tis", "sequence-mask"],
        ["k3", "is-k1"],
        ["token-mean", "dr-grpo"],
    )
)


@pytest.mark.parametrize("estimator, surrogate, mismatch, kl, aggregation", PIPELINES[::5])
@given(batch=batches(masks=(0.3,)))
def test_pipeline(estimator, surrogate, mismatch, kl, aggregation, batch):
    step = Step(batch)
    shaped = adv.budget_linear(step, step.reward, 90.0, 0.01)
    advantage = step.to_tokens(adv.balance(ESTIMATORS[estimator](step, shaped), 0.25))
    loss, options = surrogate_of(surrogate, step, "token", advantage)
    weighted = losses.mismatch_weight(step, mismatch) * loss + 0.05 * losses.kl(step, kl) - 0.01 * step.entropy
    extra = {"max_response_length": 9.0} if aggregation == "dr-grpo" else {}
    expected = losses.aggregate(step, weighted, aggregation, **extra)
    result = call_rein(
        batch,
        {
            "shape": "budget",
            "token_budget": 90.0,
            "budget_penalty_coef": 0.01,
            "advantage": estimator,
            "advantage_balance": 0.25,
            "surrogate": surrogate,
            "mismatch": mismatch,
            "kl_loss_coef": 0.05,
            "kl_estimator": kl,
            "entropy_coef": 0.01,
            "aggregation": aggregation,
            **options,
            **extra,
        },
        needs=("response_lengths", "ref_log_probs", "sample_log_probs", "entropies"),
    )
    assert_agrees(result, step, expected)


def test_whitening_in_float32_does_not_cancel():
    """Returns that differ little against their size: 100 minus a small KL. Rounding them to float32 before the mean
    is taken away
    would leave nothing of the KL."""
    batch = make_batch(seed=1, group_sizes=[1], longest=12, masked=0.0, drift=0.5, rewards="normal", least=12).rounded(
        np.float32
    )
    batch.rewards[:] = 100.0
    step = Step(batch)
    rewards = adv.token_rewards(step, step.reward, (step.lp - step.ref).detach(), 0.001)
    expected = step.mean_of_sequence_means(losses.clip(step.d.exp(), adv.whitened_returns(step, rewards), 0.2))
    assert_agrees(call_rein(batch, "reinforce++", np.float32, ("ref_log_probs",)), step, expected, np.float32)


@DTYPES
@pytest.mark.parametrize("kl_penalty_coef", [0.0, 0.3])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize(
    "name, level", [("clip", "token"), ("cispo", "token"), ("clip", "sequence"), ("dro", "average")]
)
@given(batch=batches())
def test_given_advantages(name, level, per_token, kl_penalty_coef, dtype, batch):
    """Advantages from elsewhere, one a sequence or one a token: shape and estimator do not run, the adjustments do."""
    batch, step = prepared(batch, dtype)
    given_advantages = batch.tokens["values"] if per_token else batch.rewards
    advantage = step.values if per_token else step.to_tokens(step.reward)
    options, arrays = {"surrogate": name, "ratio": level}, {}
    if kl_penalty_coef:
        advantage = adv.kl_penalty(step, advantage, step.lp, kl_penalty_coef, per_sequence=level == "sequence")
        options["kl_penalty_coef"] = kl_penalty_coef
        arrays["ref_log_probs"] = batch.tokens["ref_log_probs"]
    loss, more = surrogate_of(name, step, level, advantage)
    result = rein.policy_loss(
        {**options, **more},
        batch.tokens["log_probs"],
        batch.tokens["old_log_probs"],
        advantages=given_advantages,
        mask=batch.mask,
        sequence_lengths=batch.lengths,
        group_sizes=batch.group_sizes,
        **arrays,
    )
    assert_agrees(result, step, step.mean_over_tokens(loss), dtype)
