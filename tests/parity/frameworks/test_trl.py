"""TRL's GRPOTrainer._compute_loss, called as it is on a trainer that was never initialised.

The trainer's model is replaced by given per-token log-probs; nothing of the loss is. Its advantages are computed in
the middle of
generation and cannot be called alone: their constants are checked where they can be read.
"""

import inspect
import math
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from agreement import distance
from common import Theirs, assert_differs, assert_same, example, ours, padded_batches
from hypothesis import given

grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer")

ACCELERATOR = SimpleNamespace(
    num_processes=1,
    process_index=0,
    sync_gradients=True,
    gather=lambda x: x,
    gather_for_metrics=lambda x: x,
    reduce=lambda x, reduction="sum": x,
    pad_across_processes=lambda x, dim=0, pad_index=0: x,
)


def trainer(t, loss_type, **fields):
    """A GRPOTrainer whose forward pass returns the given log-probs and entropies. Defaults are TRL's."""
    it = grpo_trainer.GRPOTrainer.__new__(grpo_trainer.GRPOTrainer)
    names = (
        "delta",
        "use_bias_correction_kl",
        "steps_per_generation",
        "sapo_temperature_pos",
        "sapo_temperature_neg",
        "vespo_k_pos",
        "vespo_lambda_pos",
        "vespo_k_neg",
        "vespo_lambda_neg",
    )
    args = dict(zip(names, (None, False, 1, 1.0, 1.05, 2.0, 3.0, 3.0, 2.0)))
    args.update({name: fields.pop(name) for name in names if name in fields})
    values = {
        "loss_type": loss_type,
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "importance_sampling_level": "token",
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
        "aux_loss_enabled": False,
        "max_completion_length": 11,
        "current_gradient_accumulation_steps": 1,
        "use_adaptive_entropy": False,
        "entropy_coef": 0.0,
        "_entropy_bonus_enabled": False,
        "accelerator": ACCELERATOR,
        "args": SimpleNamespace(**args),
        "model": SimpleNamespace(training=True),
        "_metrics": {"train": defaultdict(list)},
        "_get_per_token_logps_and_entropies": lambda *_, **__: (t.lp, t.entropy, None),
    }
    for name, value in {**values, **fields}.items():
        object.__setattr__(it, name, value)
    return it


def trl_loss(batch, loss_type, weights=None, rows=slice(None), tokens=None, **fields):
    """Loss and gradient of TRL; `rows` is the micro-batch, `tokens` the step's token count as the trainer passes it."""
    t = Theirs(batch)
    part = SimpleNamespace(lp=t.lp[rows], entropy=t.entropy[rows])
    mask = t.mask[rows]
    inputs = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask), 1),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "advantages": t.advantage[rows],
        "old_per_token_logps": t.old[rows],
        "ref_per_token_logps": t.ref[rows],
        "num_items_in_batch": torch.tensor(float(tokens or t.mask.sum())),
    }
    if weights is not None:
        inputs["importance_sampling_ratio"] = weights[rows]
        fields["use_vllm"] = True
    if fields.get("off_policy_mask_threshold") is not None:
        inputs["sampling_per_token_logps"] = t.sample[rows]
    return t.gradient(trainer(part, loss_type, **fields)._compute_loss(None, inputs))


# ---------------------------------------------------------------------------------------------------------- agreement
SEQUENCE = {"importance_sampling_level": "sequence"}
LOSSES = {
    "grpo": ("grpo", {"surrogate": "clip", "aggregation": "seq-mean-token-mean"}, {}),
    "grpo, asymmetric": (
        "grpo",
        {"surrogate": "clip", "epsilon": 0.1, "epsilon_high": 0.3, "aggregation": "seq-mean-token-mean"},
        {"epsilon_low": 0.1, "epsilon_high": 0.3},
    ),
    "bnpo": ("bnpo", {"surrogate": "clip"}, {}),
    "dapo": ("dapo", {"surrogate": "clip", "epsilon_high": 0.28}, {"epsilon_high": 0.28}),
    "dr_grpo": ("dr_grpo", {"surrogate": "clip", "aggregation": "dr-grpo", "max_response_length": 11}, {}),
    "gspo": (
        "grpo",
        {"surrogate": "clip", "ratio": "sequence", "epsilon": 0.1, "aggregation": "seq-mean-token-mean"},
        {**SEQUENCE, "epsilon_low": 0.1, "epsilon_high": 0.1},
    ),
    "cispo": ("cispo", {"surrogate": "cispo", "epsilon": 1.0, "epsilon_high": 0.5}, {"epsilon_high": 1.5}),
    "sapo": ("sapo", {"surrogate": "sapo", "aggregation": "seq-mean-token-mean"}, {}),
    "vespo": ("vespo", {"surrogate": "vespo"}, {}),
    "luspo": (
        "luspo",
        {"surrogate": "clip", "ratio": "sequence", "epsilon": 0.1, "aggregation": "seq-mean-token-sum"},
        {**SEQUENCE, "epsilon_low": 0.1, "epsilon_high": 0.1},
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@given(batch=padded_batches())
def test_loss(name, batch):
    loss_type, options, fields = LOSSES[name]
    tolerance = 1e-6 if name == "sapo" else 1e-10  # TRL's temperatures are float32: 1.05 is 1.0499999523
    assert_same(ours(batch, options), trl_loss(batch, loss_type, **fields), tolerance)


@given(batch=padded_batches())
def test_luspo_is_the_surrogate_luspo(batch):
    options = {"surrogate": "luspo", "epsilon": 0.1, "aggregation": "seq-mean-token-mean"}
    assert_same(ours(batch, options), trl_loss(batch, "luspo", **SEQUENCE, epsilon_low=0.1, epsilon_high=0.1))


@pytest.mark.parametrize("corrected, estimator", [(False, "k3"), (True, "is-k3")])
@given(batch=padded_batches())
def test_kl(corrected, estimator, batch):
    options = {
        "surrogate": "clip",
        "aggregation": "seq-mean-token-mean",
        "kl_loss_coef": 0.3,
        "kl_estimator": estimator,
    }
    assert_same(
        ours(batch, options, ("ref_log_probs",)), trl_loss(batch, "grpo", beta=0.3, use_bias_correction_kl=corrected)
    )


@given(batch=padded_batches())
def test_off_policy_mask(batch):
    options = {"surrogate": "clip", "aggregation": "seq-mean-token-mean", "off_policy_mask_delta": 0.1}
    assert_same(ours(batch, options, ("sample_log_probs",)), trl_loss(batch, "grpo", off_policy_mask_threshold=0.1))


@given(batch=padded_batches())
def test_truncated_importance_sampling(batch):
    weights = (batch.padded("old_log_probs") - batch.padded("sample_log_probs")).exp().clamp(max=1.3)
    options = {"surrogate": "clip", "mismatch": "token-tis", "tis_cap": 1.3}
    assert_same(ours(batch, options, ("sample_log_probs",)), trl_loss(batch, "dapo", weights=weights))


@given(batch=padded_batches())
def test_top_entropy(batch):
    batch.tokens["entropies"] = (
        batch.tokens["entropies"].astype(np.float32).astype(np.float64)
    )  # TRL's quantile is float32
    if batch.mask.sum() < 5:
        return
    options = {"surrogate": "clip", "top_entropy": 0.5}
    assert_same(ours(batch, options, ("entropies",)), trl_loss(batch, "dapo", top_entropy_quantile=0.5))


@given(batch=padded_batches())
def test_micro_batches_with_the_steps_token_count(batch):
    """dapo and cispo divide by the step's tokens: halves add up to the whole, as here."""
    halves = [trl_loss(batch, "dapo", rows=rows) for rows in (slice(0, 1), slice(1, None))]
    assert_same(ours(batch, {"surrogate": "clip"}), tuple(sum(x) for x in zip(*halves)))


# ---------------------------------------------------------------------------------------- the differences, row by row
@pytest.mark.parametrize("loss_type, aggregation", [("bnpo", "token-mean"), ("grpo", "seq-mean-token-mean")])
def test_means_of_micro_batches(loss_type, aggregation):
    """bnpo averages the token means of micro-batches, grpo the sequence means: equal halves of rows agree for grpo
    only."""
    batch = example(seed=5, longest=12)
    parts = [
        trl_loss(batch, loss_type, rows=rows, current_gradient_accumulation_steps=2)
        for rows in (slice(0, 4), slice(4, 8))
    ]
    total = tuple(sum(x) for x in zip(*parts))
    our = ours(batch, {"surrogate": "clip", "aggregation": aggregation})
    assert_same(our, total) if loss_type == "grpo" else assert_differs(our, total)
    tokens = [batch.padded("mask")[rows].sum().item() for rows in (slice(0, 4), slice(4, 8))]
    if loss_type == "bnpo":  # each half's tokens count as if both halves had as many
        scale = np.repeat([sum(tokens) / (2 * n) for n in tokens], 4)[:, None]
        assert distance(our[1] * scale, total[1]) < 1e-10


@pytest.mark.parametrize("loss_type, aggregation", [("grpo", "seq-mean-token-mean"), ("dr_grpo", "dr-grpo")])
def test_sequences_without_tokens_count(loss_type, aggregation):
    """TRL divides by all rows, also those in which nothing trains (truncated completions, say); here they are not
    counted."""
    batch = example()
    first, last = batch.offsets[:2]
    batch.mask[first:last] = False
    extra = {"max_response_length": 11} if loss_type == "dr_grpo" else {}
    loss, gradient = ours(batch, {"surrogate": "clip", "aggregation": aggregation, **extra})
    rows = len(batch.lengths)
    assert_same((loss * (rows - 1) / rows, gradient * (rows - 1) / rows), trl_loss(batch, loss_type))


def test_cispo_bound():
    """TRL's epsilon_high is the bound itself, 1 + ε_h here, and there is no lower one."""
    batch = example()
    assert_same(
        ours(batch, {"surrogate": "cispo", "epsilon": 1.0, "epsilon_high": 4.0}),
        trl_loss(batch, "cispo", epsilon_high=5.0),
    )


def test_delta_is_not_dual_clip():
    """TRL's two-sided clip takes min(ρ, δ)A: for A < 0 it is dual clip with c = δ, and it acts for every sign of A."""
    batch = example(drift=0.9)
    theirs = trl_loss(batch, "dapo", delta=1.5)
    assert_same(ours(batch, {"surrogate": "dual-clip", "dual_clip": 1.5}), theirs)
    tight = trl_loss(batch, "dapo", delta=1.1)  # inside the clip range it also cuts A > 0
    assert_differs(ours(batch, {"surrogate": "dual-clip", "dual_clip": 1.1}), tight)


def test_sequence_ratio_weighs_the_corrected_kl():
    """With sequence ratios, use_bias_correction_kl multiplies k3 by the sequence's ratio, not by the token's; that
    KL is biased."""
    batch = example()
    batch.rewards[:] = 0
    theirs = trl_loss(batch, "grpo", beta=1.0, use_bias_correction_kl=True, **SEQUENCE)
    options = {"surrogate": "clip", "ratio": "sequence", "aggregation": "seq-mean-token-mean", "kl_loss_coef": 1.0}
    assert_differs(ours(batch, {**options, "kl_estimator": "is-k3"}, ("ref_log_probs",)), theirs)
    t = Theirs(batch)
    mean = ((t.lp - t.old) * t.mask).sum(1, keepdim=True) / t.mask.sum(1, keepdim=True)
    k3 = torch.expm1(t.ref - t.lp) - (t.ref - t.lp)
    assert_same(t.gradient(((mean.exp() * k3 * t.mask).sum(1) / t.mask.sum(1)).mean()), theirs)


def test_entropy_bonus_is_a_token_mean():
    """TRL's entropy bonus is a mean over tokens whatever the loss type; here it follows the aggregation."""
    batch = example()
    t = Theirs(batch)
    fields = {"_entropy_bonus_enabled": True, "entropy_coef": 0.1}
    bonus = trl_loss(batch, "grpo")[0] - trl_loss(batch, "grpo", **fields)[0]
    assert bonus == pytest.approx(0.1 * ((t.entropy * t.mask).sum() / t.mask.sum()).item())
    options = {"surrogate": "clip", "aggregation": "seq-mean-token-mean"}
    our = ours(batch, options)[0] - ours(batch, {**options, "entropy_coef": 0.1}, ("entropies",))[0]
    assert our == pytest.approx(0.1 * ((t.entropy * t.mask).sum(1) / t.mask.sum(1)).mean().item())
    assert abs(our - bonus) > 1e-4


def test_vespo_folds_the_mismatch_into_its_weight():
    """With vLLM's ratios, TRL adds Σ log w to the sequence's log-ratio; here `mismatch` multiplies the loss."""
    batch = example(drift=0.1)
    weights = torch.where(
        batch.padded("mask").bool(), (batch.padded("old_log_probs") - batch.padded("sample_log_probs")).exp(), 1.0
    )
    theirs = trl_loss(batch, "vespo", weights=weights)
    folded = example(drift=0.1)  # the same sum, if the sampler's log-probs are called old
    folded.tokens["old_log_probs"][:] = folded.tokens["sample_log_probs"]
    assert_same(ours(folded, {"surrogate": "vespo"}), theirs)


def test_std_is_unbiased_and_eps_is_1e_4():
    """(r − mean)/(std + 1e-4): rein's group-std with advantage_eps 1e-4."""
    rewards = torch.tensor([[1.0, 0.5, 0.5, 0.0]], dtype=torch.float64)
    std = grpo_trainer.nanstd(rewards, dim=1)
    assert std.item() == pytest.approx(math.sqrt(0.5 / 3))
    source = inspect.getsource(grpo_trainer.GRPOTrainer)
    assert (
        "advantages / (std_rewards + 1e-4)" in source and "nanstd(rewards.view(-1, num_generations), dim=1)" in source
    )


# ------------------------------------------------------------------------------------------------- reward functions


def test_reward_functions_work_as_they_are(tmp_path):
    """TRL's own reward functions in rein.run. What they give is compared with a second call of theirs on the recorded
    completions."""
    import json
    from pathlib import Path

    from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment, think_format_reward

    import rein

    functions = [get_repetition_penalty_reward(2), get_soft_overlong_punishment(16, 8), think_format_reward]
    chats = [{"prompt": [{"role": "user", "content": f"Q: {i} + {i}"}], "answer": str(2 * i)} for i in range(20)]
    run = rein.run(
        tmp_path / "run",
        model=Path(__file__).parents[3] / "models/sums",
        task=chats,
        reward=functions,
        chat_format="raw",
        preset="grpo",
        steps=1,
        prompts=4,
        samples=4,
        max_tokens=16,
        eval_prompts=0,
    )
    assert run.step == 1
    groups = [json.loads(line) for line in (tmp_path / "run/trajectories/train/0001.jsonl").read_text().splitlines()]
    trajectories = [one for group in groups for one in group["trajectories"]]
    assert len(trajectories) == 16
    ids = [one["response_ids"] for one in trajectories]
    texts = [[{"role": "assistant", "content": "".join(one["metadata"]["pieces"])}] for one in trajectories]
    for function in functions:
        expected = function(completions=texts, completion_ids=ids)
        assert [one["metrics"][function.__name__] for one in trajectories] == pytest.approx(expected, abs=1e-12)
    assert any(one["reward"] for one in trajectories)
