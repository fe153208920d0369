"""rein.Policy and rein.train: steps of the optimizer, trajectory groups, steps of runs."""

import ctypes
import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from policies import (
    GOOD,
    LLAMA,
    PLAIN,
    PROMPTS,
    groups_of,
    same,
    values_of,
    whole,
)

import rein
from rein import _engine, _train

# ---------------------------------------------------------------------------------------------------------- training


def gradient_of(policy, sequences, weights):
    """The gradient of Σ weights·log_probs with respect to the parameters, computed by the engine."""
    with policy._use() as (model, adapter):
        place = adapter.address if adapter else None
        gradient = np.zeros(_engine.parameter_floats(model.address, place), np.float32)
        activations = _engine.opened(_engine.activations_open, _engine.activations_close, None)
        for ids, weight in zip(sequences, weights):
            offsets, found = np.array([0, len(ids)], np.uintp), np.empty(len(ids), np.float32)
            tokens = _engine.Tokens(1, offsets.ctypes.data, None, ids.ctypes.data, None)
            how, own = _engine.ForwardOptions(1, 0, 0), policy._policy()
            arguments = (activations.address, ctypes.byref(own), ctypes.byref(tokens), ctypes.byref(how))
            _engine.call(_engine.forward, found.ctypes.data, None, *arguments)
            _engine.call(_engine.backward, gradient.ctypes.data, activations.address, weight.ctypes.data, None)
        return gradient


@pytest.mark.parametrize("full", [False, True])
def test_a_step_is_that_of_adamw(full):
    """Three steps: gradients from rein.policy_loss and the engine's backward, steps in numpy as torch computes them."""
    policy = rein.Policy(LLAMA, full=full)
    rate, betas, eps, decay, clip = 0.01, (0.9, 0.95), 1e-6, 0.1, 0.5
    first = second = 0.0
    for step in range(1, 4):
        drawn = [sample for group in policy.sample(PROMPTS, samples=4, max_tokens=6, step=step) for sample in group]
        rewards = [float(len(set(sample.response_ids))) for sample in drawn]
        groups = [[s.trajectory(r) for s, r in zip(drawn[i : i + 4], rewards[i : i + 4])] for i in (0, 4, 8)]
        lengths = [len(sample.response_ids) for sample in drawn]
        loss = rein.policy_loss(
            "dr-grpo",
            np.concatenate([sample.log_probs for sample in drawn]),
            np.concatenate([sample.log_probs for sample in drawn]),
            rewards=rewards,
            sequence_lengths=lengths,
            group_sizes=4,
            max_response_length=6,
        )
        cuts = np.split(loss.grad_log_probs, np.cumsum(lengths)[:-1])
        weights = [np.concatenate([np.zeros(len(s.prompt_ids), np.float32), cut]) for s, cut in zip(drawn, cuts)]
        gradient = gradient_of(policy, [whole(sample) for sample in drawn], weights).astype(np.float64)
        before = np.concatenate([values.ravel() for values in policy.parameters().values()]).astype(np.float64)
        decays = np.concatenate([np.full(v.size, v.ndim == 2) for v in policy.parameters().values()])

        done = policy.forward_backward(groups, "dr-grpo", max_response_length=6)
        assert done.loss == pytest.approx(loss.loss, abs=1e-7) and done.max_gap == 0
        assert done.metrics["trained_tokens"] == sum(lengths) and not done.nothing_to_train
        norm = policy.optim_step(rate, betas=betas, eps=eps, weight_decay=decay, max_grad_norm=clip)
        assert policy.steps == step and norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)

        gradient *= min(1, clip / (norm + 1e-6))
        expected = before * np.where(decays, 1 - rate * decay, 1)
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        expected -= rate / (1 - betas[0] ** step) * first / (np.sqrt(second / (1 - betas[1] ** step)) + eps)
        after = np.concatenate([values.ravel() for values in policy.parameters().values()])
        # If a gradient is only rounding error, its sign and the step may differ; such steps are at most 1e-6.
        sure = np.abs(gradient) > 1e-6
        assert sure.mean() > 0.4 and np.allclose(after[sure], expected[sure], atol=2e-5, rtol=0)


def test_passes_add_up_and_threads_do_not_matter():
    found = []
    for threads, recompute in ((1, False), (2, True)):
        policy = rein.Policy(LLAMA, threads=threads, recompute=recompute)
        groups = groups_of(policy)
        policy.forward_backward(groups[:1], "reinforce")
        policy.forward_backward(groups[1:], "reinforce")
        policy.optim_step(0.01)
        found.append(values_of(policy))
    assert same(*found)


def test_activation_cache():
    """The same bits with and without it; no activations of an earlier policy, and no more memory than allowed."""
    policies = [rein.Policy(LLAMA, activation_cache=megabytes) for megabytes in (100, 0)]
    for step in range(3):
        done = [policy.forward_backward(groups_of(policy, step), "reinforce") for policy in policies]
        drawn = policies[1].sample(PROMPTS, samples=6, max_tokens=8, step=step)[1:]  # the first group is measured
        rows = sum(len(group[0].prompt_ids) + sum(len(sample.response_ids) - 1 for sample in group) for group in drawn)
        assert done[0].cached_tokens == (rows if step else 0) and done[1].cached_tokens == 0
        assert done[0].loss == done[1].loss and done[0].max_gap == 0
        groups = groups_of(policies[0], step)
        for policy in policies:
            policy.optim_step(0.05)
        assert same(*map(values_of, policies))
        assert policies[0].forward_backward(groups, PLAIN).cached_tokens == 0  # sampled before the step
        policies[0].optim_step(0), policies[1].forward_backward(groups, PLAIN), policies[1].optim_step(0)
    with pytest.raises(ValueError, match="activation_cache is -1"):
        rein.Policy(LLAMA, activation_cache=-1)


def test_nothing_to_train():
    policy = rein.Policy(LLAMA)
    before = values_of(policy)
    done = policy.forward_backward(groups_of(policy, reward=lambda sample: 1.0), PLAIN)
    assert done.nothing_to_train and done.loss == 0
    with pytest.raises(ValueError, match="there is no gradient"):
        policy.optim_step(0.1)
    masked = groups_of(policy, truncated=True)
    assert policy.forward_backward(masked, "reinforce", mask_truncated_completions=True).nothing_to_train
    assert policy.steps == 0 and same(before, values_of(policy))


def test_a_reference_stays():
    policy = rein.Policy(LLAMA)
    reference = policy.copy()
    groups = groups_of(policy)
    first = policy.forward_backward(groups, "grpo", reference=reference)
    assert first.metrics["kl_ref_k3"] == 0 and first.reference_tokens == first.metrics["trained_tokens"]
    policy.optim_step(0.05)
    second = policy.forward_backward(groups_of(policy, step=1), "grpo", reference=reference)
    assert second.metrics["kl_ref_k3"] > 1e-4 and second.times["reference"] > 0
    itself = policy.forward_backward(groups_of(policy, step=1), "grpo", reference=policy)
    assert itself.metrics["kl_ref_k3"] == 0
    assert same(values_of(reference), values_of(rein.Policy(LLAMA)))
    base = rein.Policy(LLAMA, False)
    assert policy.forward_backward(groups_of(policy, step=1), "grpo", reference=base).loss == second.loss
    with pytest.raises(ValueError, match="reference is missing"):
        policy.forward_backward(groups, "grpo")
    with pytest.raises(ValueError, match="does not train"):
        reference.forward_backward(groups, PLAIN)


def test_a_policy_learns_and_the_sampler_follows():
    policy = rein.Policy(LLAMA, seed=3, temperature=0.9)
    rewards = []
    for step in range(12):
        groups = groups_of(policy, step, samples=12, reward=lambda sample: float((sample.response_ids == 7).mean()))
        done = policy.forward_backward(groups, PLAIN)
        assert done.max_gap == 0 and done.recomputed == 0
        policy.optim_step(0.02)
        rewards.append(done.metrics["reward"])
    assert rewards[0] < 0.2 and rewards[-1] > 0.6


# ------------------------------------------------------------------------------------------------------------ groups


def test_groups_in_every_form(tmp_path):
    policy = rein.Policy(LLAMA)
    groups = groups_of(policy)
    expected = policy.forward_backward(groups, PLAIN).loss
    dicts = [
        [
            {
                "prompt_ids": t.prompt_ids,
                "response_ids": t.response_ids.tolist(),
                "logprobs": t.log_probs,
                "reward": t.reward,
            }
            for t in group
        ]
        for group in groups
    ]
    assert policy.forward_backward(dicts, PLAIN).loss == expected
    assert policy.forward_backward([{"trajectories": group} for group in dicts], PLAIN).loss == expected
    lines = [
        json.dumps({"trajectories": [{k: np.asarray(v).tolist() for k, v in t.items()} for t in g]}) for g in dicts
    ]
    (tmp_path / "groups.jsonl").write_text("\n".join(lines))
    assert policy.forward_backward(tmp_path / "groups.jsonl", PLAIN).loss == expected
    turns = [
        [
            rein.Trajectory.from_ids(
                [*t.prompt_ids, *t.response_ids],
                [0] * len(t.prompt_ids) + [1] * len(t.response_ids),
                [0.0] * len(t.prompt_ids) + t.log_probs.tolist(),
                t.reward,
            )
            for t in group
        ]
        for group in groups
    ]
    assert policy.forward_backward(turns, PLAIN).loss == expected
    forgotten = [[rein.Trajectory(t.prompt_ids, t.response_ids, None, t.reward) for t in group] for group in groups]
    done = policy.forward_backward(forgotten, PLAIN)
    assert done.loss == expected and done.recomputed == done.metrics["trained_tokens"] and np.isnan(done.max_gap)


def test_budgets_and_values_of_trajectories():
    policy = rein.Policy(LLAMA)
    groups, budget = groups_of(policy), {"shape": "budget", "budget_penalty_coef": 0.5, "advantage": "group-mean"}
    expected = policy.forward_backward(groups, budget, token_budget=3)
    assert expected.metrics["share_over_budget"] > 0
    own = [[dataclasses.replace(t, budget=3) for t in group] for group in groups]
    assert policy.forward_backward(own, budget).loss == expected.loss != policy.forward_backward(groups, PLAIN).loss
    with pytest.raises(ValueError, match="values"):
        policy.forward_backward(groups, "ppo")
    critic = [[dataclasses.replace(t, values=np.arange(float(len(t.response_ids)))) for t in g] for g in groups]
    flat = [t for group in critic for t in group]
    result = rein.policy_loss(
        "ppo",
        np.concatenate([t.log_probs for t in flat]),
        np.concatenate([t.log_probs for t in flat]),
        values=np.concatenate([t.values for t in flat]),
        rewards=[t.reward for t in flat],
        sequence_lengths=[len(t.values) for t in flat],
        group_sizes=6,
    )
    assert policy.forward_backward(critic, "ppo").loss == pytest.approx(result.loss, rel=1e-5)


def test_the_samplers_log_probs_correct_the_loss():
    """With top_p the tokens come from another distribution than the policy's: token-tis weighs them by the quotient."""
    policy, corrected = rein.Policy(LLAMA), {**PLAIN, "mismatch": "token-tis", "tis_cap": 10.0}
    drawn = [sample for group in policy.sample(PROMPTS, samples=4, max_tokens=8, top_p=0.6) for sample in group]
    flat = [sample.trajectory(float((sample.response_ids == 7).sum()) + 0.1 * i) for i, sample in enumerate(drawn)]
    groups = [flat[i : i + 4] for i in (0, 4, 8)]
    expected = rein.policy_loss(
        corrected,
        np.concatenate([sample.log_probs for sample in drawn]),
        np.concatenate([sample.log_probs for sample in drawn]),
        sample_log_probs=np.concatenate([sample.sampler_log_probs for sample in drawn]),
        rewards=[t.reward for t in flat],
        sequence_lengths=[len(sample.response_ids) for sample in drawn],
        group_sizes=4,
    )
    done = policy.forward_backward(groups, corrected)
    assert done.loss == pytest.approx(expected.loss, rel=1e-5) and done.max_gap > 0
    without = [[dataclasses.replace(t, sampler_log_probs=None) for t in group] for group in groups]
    uncorrected = policy.forward_backward(without, corrected)
    assert abs(done.loss - uncorrected.loss) > 1e-3 and uncorrected.max_gap == 0
    plain = policy.sample(PROMPTS, samples=1, max_tokens=8)[0][0]
    assert plain.trajectory(1.0).sampler_log_probs is None  # the policy itself sampled


def test_several_turns_train_what_was_sampled():
    policy = rein.Policy(LLAMA)
    ids, mask = [1, 5, 6, 7, 8, 9, 3], [0, 1, 1, 0, 0, 1, 1]
    rows = [rein.Trajectory.from_ids(ids, mask, None, reward) for reward in (1.0, 0.0)]
    assert rows[0].prompt_ids.tolist() == [1] and rows[0].response_ids.tolist() == ids[1:]
    assert policy.forward_backward([rows], PLAIN).metrics["trained_tokens"] == 8
    nothing = rein.Trajectory.from_ids(ids, [0] * 7, None, 1.0)
    assert nothing.response_ids.size == 0
    with pytest.raises(ValueError, match=r"mask\[0\] is 1: the first token cannot train"):
        rein.Trajectory.from_ids(ids, [1] * 7, None, 1.0)
    with pytest.raises(ValueError, match=r"mask has shape \[2\], ids has \[7\]"):
        rein.Trajectory.from_ids(ids, [0, 1], None, 1.0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"prompt_ids": [1, -5]}, r"groups\[0\]\[1\].prompt_ids\[1\] is -5: a token id from 0"),
        ({"response_ids": [7, 40]}, "40"),
        ({"prompt_ids": [], "response_ids": [7, 8]}, "first token cannot train"),
        ({"log_probs": [-1.0]}, r"groups\[0\]\[1\].log_probs has shape \[1\], response_ids has \[2\]"),
        ({"log_probs": [-1.0, 2.0]}, r"histories\[0\].log_probs\[3\] is 2: a log-probability"),
        ({"sampler_log_probs": [-1.0]}, r"groups\[0\]\[1\].sampler_log_probs has shape \[1\], response_ids has \[2\]"),
        ({"sampler_log_probs": [-1.0, 2.0]}, r"histories\[0\].sampler_log_probs\[3\] is 2: a log-probability"),
        ({"mask": [1, 2]}, r"groups\[0\]\[1\].mask\[1\] is 2: 0 or 1 is needed"),
        ({"reward": "much"}, r"groups\[0\]\[1\].reward is 'much': a number is needed"),
        ({"reward": float("nan")}, "reward is nan"),
        ({"policy_step": -2}, r"policy_step is -2: it must be 0 or more"),
    ],
)
def test_wrong_trajectories(change, match):
    policy = rein.Policy(LLAMA)
    group = [rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, **change})]
    with pytest.raises(ValueError, match=match):
        policy.forward_backward([group], PLAIN)
    policy.forward_backward([[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]], PLAIN)


def test_wrong_groups(tmp_path):
    policy = rein.Policy(LLAMA)
    good = rein.Trajectory(**GOOD)
    for groups, kind, match in (
        ([], ValueError, "groups is empty"),
        ([[]], ValueError, r"groups\[0\] has no trajectory"),
        ([[3]], TypeError, r"groups\[0\]\[0\] is 3: a rein.Trajectory or a dict is needed"),
        ([[good, {}]], TypeError, "give only rein.Trajectory, or only dicts"),
        ([[good], [{}]], TypeError, r"groups\[0\] has a Trajectory"),
        ([[{"prompt_ids": [1], "response_ids": [2]}]], ValueError, r"line 1: trajectories\[0\].reward"),
        (tmp_path / "none.jsonl", OSError, "none.jsonl"),
    ):
        with pytest.raises(kind, match=match):
            policy.forward_backward(groups, PLAIN)
    with pytest.raises(ValueError, match="epsilom is not an option"):
        policy.forward_backward([[good]], "grpo", epsilom=1)
    with pytest.raises(TypeError, match="a rein.Policy is needed"):
        policy.forward_backward([[good]], "grpo", reference=LLAMA)


# ------------------------------------------------------------------------------------------------------- steps of runs


def test_steps_of_a_run(tmp_path):
    """A run gives the same results as the methods of Policy, and its checkpoints are adapters and states."""
    run, policy = tmp_path / "run", rein.Policy(LLAMA, lora_rank=4, seed=5)
    settings = {"advantage": "group-mean", "learning_rate": 0.02, "lora_rank": 4, "seed": 5}
    for step in (1, 2):
        groups = groups_of(policy, step)
        report = rein.train(run, groups, model=LLAMA if step == 1 else None, **(settings if step == 1 else {}))
        done = policy.forward_backward(groups, PLAIN)
        norm = policy.optim_step(0.02)
        assert (report["step"], report["nothing_to_train"]) == (step, False)
        assert report["loss"] == done.loss and report["reward"] == done.metrics["reward"]
        assert report["grad_norm"] == norm
        other = rein.Policy(LLAMA, report["checkpoint"])
        assert same(values_of(policy), values_of(other))
        other.load_state(report["checkpoint"])
        assert other.steps == step
    equal = groups_of(policy, 3, reward=lambda sample: 1.0)
    report = rein.train(run, equal, learning_rate=0.01, seconds_sample=1.5)
    assert report["step"] == 3 and report["nothing_to_train"] and report["time/sample"] == 1.5
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    with (run / "config.yaml").open("a") as config:  # settings of a loop: a single step is saved nevertheless
        config.write("save_steps: 100\n")
    assert rein.train(run, equal)["step"] == 4 and (run / "checkpoints" / "0004" / "MANIFEST").exists()


def test_groups_of_a_run_from_a_file(tmp_path):
    group = [{"prompt_ids": [1, 5], "response_ids": [7, 8], "reward": reward} for reward in (1, 0)]
    (tmp_path / "groups.jsonl").write_text(json.dumps({"trajectories": group}) + "\n")
    settings = {"model": LLAMA, "preset": "grpo", "kl_loss_coef": 0.1, "lora_modules": ["q_proj", "v_proj"]}
    report = rein.train(tmp_path / "run", tmp_path / "groups.jsonl", use_rslora=True, **settings)
    assert report["step"] == 1
    adapter = json.loads((Path(report["checkpoint"]) / "adapter_config.json").read_text())
    assert sorted(adapter["target_modules"]) == ["q_proj", "v_proj"] and adapter["use_rslora"] is True


def test_other_files_of_a_run(tmp_path):
    """A model may move; one that changed is refused once."""
    good = [[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]]
    run, model = tmp_path / "run", tmp_path / "model"
    shutil.copytree(LLAMA, model)
    rein.train(run, good, model=model, advantage="group-mean")
    assert rein.train(run, good, model=model.rename(tmp_path / "moved"))["step"] == 2
    config = tmp_path / "moved" / "config.json"
    config.write_text(config.read_text() + " ")
    wanted = r"model is not what the run was made with: .*config\.json was \d+ bytes"
    with pytest.raises(ValueError, match=wanted) as caught:
        rein.train(run, good)
    assert caught.value.field == "model"
    assert rein.train(run, good, accept_changed=True)["step"] == 3
    assert rein.train(run, good)["step"] == 4


def test_texts_of_any_length(tmp_path):
    modules = "q_proj" + " " * 5000 + ",v_proj"
    good = [[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]]
    rein.train(tmp_path / "run", good, model=LLAMA, advantage="group-mean", lora_modules=modules)
    assert f'lora_modules: "{modules}"\n' in (tmp_path / "run/config.yaml").read_text()
    assert rein.train(tmp_path / "run", good)["step"] == 2
    settings = _train.settings_of(None, {"system": "s" * 5000, "stop": "x" * 5000})
    assert _train._settings_text(settings.address, b"system") == b"s" * 5000
    assert _train._settings_text(settings.address, b"stop") == b"x" * 5000


SUMS = Path(__file__).parents[2] / "models" / "sums"


def test_the_chat_format_is_kept(tmp_path):
    """As on the command line: messages are read in the format that is given, and by the next call in the same one."""
    choice = {"finish_reason": "stop", "index": 0, "logprobs": None}
    rows = [
        {
            "reward": reward,
            "messages_and_choices": [
                {"role": "user", "content": "1+1="},
                {**choice, "message": {"role": "assistant", "content": content}},
            ],
        }
        for content, reward in (("2", 1), ("3", 0))
    ]
    with pytest.raises(ValueError, match="chat template"):  # the model has none
        rein.train(tmp_path / "run", [{"trajectories": rows}], model=SUMS, preset="rloo")
    assert not (tmp_path / "run").exists()
    rein.train(tmp_path / "run", [{"trajectories": rows}], model=SUMS, preset="rloo", chat_format="raw")
    assert rein.train(tmp_path / "run", [{"trajectories": rows}])["step"] == 2


def test_a_refused_step_keeps_the_gradient():
    policy, other = rein.Policy(LLAMA), rein.Policy(LLAMA)
    for one in (policy, other):
        one.forward_backward(groups_of(one), PLAIN)
    for wrong in ({"learning_rate": float("nan")}, {"learning_rate": -1}, {"learning_rate": 0.1, "betas": (2, 3)}):
        with pytest.raises(ValueError):
            policy.optim_step(**wrong)
    assert policy.optim_step(0.1) == other.optim_step(0.1)
    assert same(values_of(policy), values_of(other))


def test_what_is_wrong_with_a_step(tmp_path):
    good = [[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]]
    for settings, kind, match in (
        ({}, ValueError, "model is missing"),
        ({"model": LLAMA, "lora_rnk": 2}, ValueError, "did you mean lora_rank"),
        ({"model": LLAMA, "lora_rank": 0}, ValueError, "lora_rank"),
        ({"model": LLAMA, "save_steps": 2}, ValueError, "save_steps has no effect"),
        ({"model": LLAMA, "keep_best": "rewrad"}, ValueError, 'keep_best names "rewrad"'),
        ({"model": LLAMA, "lora_rank": {}}, TypeError, "lora_rank is {}: a number, a string or a list"),
        ({"model": tmp_path / "none"}, ValueError, "is not a directory"),
    ):
        with pytest.raises(kind, match=match):
            rein.train(tmp_path / "run", good, **settings)
        assert not (tmp_path / "run").exists()
    for groups, kind in (
        ([["text"]], TypeError),
        ([[rein.Trajectory([1], [2, 3], [-1.0], 1.0)]], ValueError),
        ([[rein.Trajectory([1], [2, 3000], None, 1.0)]], ValueError),
        (tmp_path / "none.jsonl", OSError),
    ):
        with pytest.raises(kind):
            rein.train(tmp_path / "run", groups, model=LLAMA)
        assert not (tmp_path / "run").exists()
    rein.train(tmp_path / "run", good, model=LLAMA, advantage="group-mean")
    for _ in range(2):  # a failed call does not leave the run locked
        with pytest.raises(ValueError, match=r"log_probs has shape \[1\]"):
            rein.train(tmp_path / "run", [[rein.Trajectory([1], [2, 3], [-1.0], 1.0)]])
    with pytest.raises(ValueError, match="changing it needs a new run"):
        rein.train(tmp_path / "run", good, lora_rank=3)
    with pytest.warns(UserWarning, match="budget/share_over"):
        assert rein.train(tmp_path / "run", good, keep_best="budget/share_over")["step"] == 2


# ----------------------------------------------------------------------------------------------------------- structs


@pytest.mark.parametrize("struct", ["History", "TrajectoryStruct", "Example", "Group", "Groups"])
def test_structs_have_the_fields_of_the_header(struct):
    header = Path(__file__).parents[2] / "include" / "rein" / "trajectory.h"
    if not header.exists():
        pytest.skip("the package is tested without the project")
    name = "rein_" + struct.replace("Struct", "").lower()
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    body = text[text.index(f"typedef struct {name} {{") : text.index(f"}} {name};")].split("{")[1]
    fields = [re.findall(r"\w+", part)[-1] for line in body.split(";") for part in line.split(",") if part.strip()]
    assert fields == [field for field, _ in getattr(_engine, struct)._fields_]
