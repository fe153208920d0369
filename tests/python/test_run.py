"""rein.run, rein.evaluate and rein.report: whole runs, with rewards and tasks that are Python objects."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from policies import ROOT

import rein

MODEL = ROOT / "models/sums"
SMALL = {
    "model": MODEL,
    "preset": "rloo",
    "learning_rate": 1e-3,
    "steps": 2,
    "prompts": 4,
    "samples": 3,
    "max_tokens": 12,
    "eval_prompts": 3,
    "threads": 1,
}
EXAMPLES = [{"prompt": f"Q: {i} + 1\nA:", "answer": str(i + 1), "level": i % 3} for i in range(30)]


def digits(completions, **_):
    return [sum(letter.isdigit() for letter in text) / 12 for text in completions]


def weights(run):
    return Path(run.checkpoint, "adapter_model.safetensors").read_bytes()


# --------------------------------------------------------------------------------------------------------------- runs


def test_a_run_is_that_of_the_command_line(tmp_path):
    """The same settings give the same weights, byte for byte, through rein.run and through `rein run`."""
    ours = rein.run(tmp_path / "python", task="sums", reward="task", **SMALL)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = [str(ROOT / "build/rein"), "run", str(tmp_path / "cli"), "--task=sums", "--reward=task", *flags]
    if not os.path.exists(command[0]):
        pytest.skip("there is no build/rein")
    subprocess.run(command, check=True, capture_output=True)
    theirs = (tmp_path / "cli/checkpoints/0002/adapter_model.safetensors").read_bytes()
    assert weights(ours) == theirs
    assert ours.step == 2 and ours.first.step == 0 and ours.last.step == 2 and len(ours.history) == 2


def test_online_preferences(tmp_path):
    """A run trains on pairs of its own responses; one step on the groups that it recorded is its first step."""
    settings = {**SMALL, "preset": "online-dpo", "prompts": 8, "samples": 4, "max_tokens": 40, "eval_prompts": 0}
    run = rein.run(tmp_path / "run", task="sums", preference_loss="ipo_sum", beta=0.2, **settings)
    first = run.history[0]
    assert first["pairs"] + first["pairs/ties"] == 8 and first["pairs"] > 0 and first["rewards/margins"] == 0
    assert first["loss"] == pytest.approx((1 / 0.4) ** 2, rel=1e-12)
    same = {name: settings[name] for name in ("model", "preset", "learning_rate", "threads")}
    groups = tmp_path / "run/trajectories/train/0001.jsonl"
    step = rein.train(tmp_path / "again", groups, preference_loss="ipo_sum", beta=0.2, **same)
    assert step["loss"] == first["loss"] and step["pairs"] == first["pairs"]
    theirs = Path(step["checkpoint"], "adapter_model.safetensors").read_bytes()
    assert theirs == (tmp_path / "run/checkpoints/0001/adapter_model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="advantage has no effect: preference_loss replaces the objective"):
        rein.run(tmp_path / "wrong", task="sums", advantage="group-mean", **settings)


def test_a_run_resumes_bit_for_bit(tmp_path):
    whole = rein.run(tmp_path / "whole", task=EXAMPLES, reward=digits, **SMALL)
    rein.run(tmp_path / "parts", task=EXAMPLES, reward=digits, **{**SMALL, "steps": 1})
    parts = rein.run(tmp_path / "parts", task=EXAMPLES, reward=digits, steps=2)
    assert parts.step == 2 and weights(whole) == weights(parts)
    with pytest.raises(ValueError, match='"function:digits" is a function of the program'):
        rein.run(tmp_path / "parts", task=EXAMPLES, steps=3)
    with pytest.raises(ValueError, match="in the memory of the program that started the run: give the list again"):
        rein.run(tmp_path / "parts", reward=digits, steps=3)


def test_a_critic(tmp_path):
    """PPO with a critic beside the policy; resumed, its checkpoints are the same; without one, the error names it."""
    settings = {**SMALL, "preset": "ppo", "critic_learning_rate": 0.01, "kl_reward_coef": 0.1, "kl_target": 0.5}
    with pytest.raises(rein.ArgumentError, match="critic_learning_rate has no effect without critic"):
        rein.run(tmp_path / "none", task=EXAMPLES, reward=digits, **settings)
    with pytest.raises(rein.ArgumentError, match='critic is missing: .*critic="same"'):
        rein.run(tmp_path / "none", task=EXAMPLES, reward=digits, **{**SMALL, "preset": "ppo"})
    assert not (tmp_path / "none").exists()
    whole = rein.run(tmp_path / "whole", task=EXAMPLES, reward=digits, critic="same", **settings)
    rein.run(tmp_path / "parts", task=EXAMPLES, reward=digits, critic="same", **{**settings, "steps": 1})
    parts = rein.run(tmp_path / "parts", task=EXAMPLES, reward=digits, steps=2)
    assert weights(parts) == weights(whole)
    critics = [Path(run.checkpoint, "critic/adapter_model.safetensors").read_bytes() for run in (whole, parts)]
    assert critics[0] == critics[1]
    assert "critic/explained_variance" in whole.history[1] and whole.history[1]["kl/reward_coef"] < 0.1


def test_a_fork_starts_from_a_step(tmp_path):
    rein.run(tmp_path / "old", task="sums", **SMALL)
    new = rein.run(tmp_path / "new", fork=(tmp_path / "old", 1), steps=1)
    state = json.loads((tmp_path / "new/checkpoints/0000/state.json").read_text())
    assert new.step == 1 and state["forked_from"]


def test_on_step_and_the_result(tmp_path):
    seen = []
    made = rein.run(tmp_path / "run", task="sums", on_step=[seen.append, lambda _: None], **{**SMALL, "eval_steps": 2})
    assert [report.step for report in seen] == [1, 2]
    assert seen[0].metrics["reward"] == made.history[0]["reward"]
    assert seen[0].evaluation is None and seen[1].evaluation == made.last
    assert made.last.accuracy_low <= made.last.accuracy <= made.last.accuracy_high
    assert "<table>" in made._repr_html_() and "<iframe" in rein.report(made.directory)._repr_html_()
    with made.policy() as policy:
        assert policy.sample([[1, 5]], max_tokens=2)
    with pytest.raises(ZeroDivisionError):
        rein.run(tmp_path / "run", steps=4, on_step=lambda report: 1 / (report.step - 3))
    assert rein.run(tmp_path / "run", steps=4).step == 4  # step 3 was saved before the exception left


def test_a_mistake_is_found_before_anything_is_written(tmp_path):
    wrong = [
        ({"task": "sums", "reward": 7}, TypeError, "reward is 7"),
        ({"task": [3]}, TypeError, r"task\[0\] is 3: a dict with a prompt is needed"),
        ({"task": [{"answer": "1"}], "reward": "exact"}, ValueError, "line 1"),
        ({"task": "sums", "on_step": 3}, TypeError, "on_step is 3"),
        ({"task": "sums", "learning_rat": 1}, ValueError, "did you mean learning_rate"),
        ({"task": "sums", "rewards": digits}, ValueError, r"^rewards is not a setting: did you mean reward\?$"),
        ({"task": "sums", "rewards": [digits]}, ValueError, r"^rewards is not a setting: did you mean reward\?$"),
        ({"task": "sums", "steps": digits}, TypeError, "^steps is <function"),
        ({"task": "sums", "kl_loss_coef": digits}, TypeError, "^kl_loss_coef is <function"),
        ({"task": "sums", "report_to": "wandbb"}, ValueError, "report_to is 'wandbb'"),
    ]
    for given, kind, message in wrong:
        with pytest.raises(kind, match=message):
            rein.run(tmp_path / "run", **{**SMALL, **given})
        assert not (tmp_path / "run").exists()


def test_progress_is_one_line(tmp_path, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    rein.run(tmp_path / "run", task="sums", progress=True, **SMALL)
    lines = shown.getvalue().split("\n")
    assert len(lines) == 3 and lines[0].endswith(lines[0].split("\r")[-1]) and "step 1/2  reward" in lines[0]
    assert "sampling" in lines[0]


def test_an_interrupt_saves_the_step(tmp_path):
    """Ctrl-C in the middle of a run: KeyboardInterrupt, and the same call resumes to the same weights."""
    long = {**SMALL, "steps": 6, "save_steps": 100, "eval_prompts": 0}
    whole = rein.run(tmp_path / "whole", task="sums", **long)
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))

    def slow(report):
        if report.step == 2:
            timer.start()
        time.sleep(0.15)

    with pytest.raises(KeyboardInterrupt):
        rein.run(tmp_path / "cut", task="sums", on_step=slow, **long)
    steps = []
    resumed = rein.run(tmp_path / "cut", steps=6, on_step=lambda report: steps.append(report.step))
    assert steps and steps[0] > 1 and weights(resumed) == weights(whole)


# ------------------------------------------------------------------------------------------------------------- rewards


def test_a_reward_function_gets_what_it_takes(tmp_path):
    seen = {}

    def judge(prompts, completions, completion_ids, level, trainer_state, answer):
        seen.update(locals())
        assert len(prompts) == len(completions) == len(completion_ids) == len(level) == len(answer)
        assert all(isinstance(text, str) for text in prompts + completions)
        assert {entry["prompt"]: entry["level"] for entry in EXAMPLES}[prompts[0]] == level[0]
        return [float(len(ids)) for ids in completion_ids]

    made = rein.run(tmp_path / "run", task=EXAMPLES, reward=judge, **SMALL)
    assert made.history[0]["reward"] == made.history[0]["completions/mean_length"]
    assert seen["trainer_state"].max_steps == 2


def test_messages_are_conversational(tmp_path):
    chats = [{"prompt": [{"role": "user", "content": f"say {i}"}], "answer": str(i)} for i in range(8)]

    def judge(prompts, completions, **_):
        assert prompts[0][0]["role"] == "user" and prompts[0][0]["content"].startswith("say")
        assert completions[0][0]["role"] == "assistant"
        return [len(turn[0]["content"]) for turn in completions]

    settings = {**SMALL, "chat_format": "raw", "eval_prompts": 1, "held_out": 0.3}
    assert rein.run(tmp_path / "run", task=chats, reward=judge, **settings).step == 2


def test_several_rewards_and_none(tmp_path):
    def even(level, **_):
        return [None if value % 2 else 0.25 for value in level]

    made = rein.run(
        tmp_path / "run", task=EXAMPLES, reward=[digits, even, "length:4"], reward_weights=[1, 2, 0.5], **SMALL
    )
    row = made.history[0]
    assert row["rewards/even/mean"] == 0.25 and "rewards/length/mean" in row and "rewards/digits/mean" in row

    def never(completions):
        return [None] * len(completions)

    with pytest.raises(ArithmeticError, match="no judge gave a reward"):
        rein.run(tmp_path / "never", task=EXAMPLES, reward=never, **SMALL)


def test_reward_models(tmp_path):
    """Two models of rein reward, whose mean is the reward; a relative path and a step."""
    program = ROOT / "build/rein"
    if not program.exists():
        pytest.skip("there is no build/rein")
    pairs = [{"prompt": e["prompt"], "chosen": e["answer"], "rejected": e["answer"] + "!"} for e in EXAMPLES[:8]]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    for seed in (1, 2):
        command = [program, "reward", f"judge{seed}", f"--model={MODEL}", "--data=pairs.jsonl", f"--seed={seed}"]
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    specs = [f"model:{tmp_path / 'judge1'}", f"model:{tmp_path / 'judge2'}@0"]
    run = rein.run(tmp_path / "run", task=EXAMPLES, reward=specs, reward_weights="0.5,0.5", **SMALL)
    row = run.history[0]
    mean = (row["rewards/judge1/mean"] + row["rewards/judge2/mean"]) / 2
    assert row["rewards/judge1/mean"] != row["rewards/judge2/mean"]
    assert abs(row["reward"] - mean) < 1e-9


def test_async_rewards(tmp_path):
    import asyncio

    async def later(completions, **_):
        await asyncio.sleep(0)
        return [float(len(text)) for text in completions]

    plain = rein.run(tmp_path / "plain", task="sums", reward=lambda completions: list(map(len, completions)), **SMALL)
    assert weights(rein.run(tmp_path / "async", task="sums", reward=later, **SMALL)) == weights(plain)

    async def inside():
        return rein.run(tmp_path / "inside", task="sums", reward=later, **SMALL)

    assert weights(asyncio.run(inside())) == weights(plain)


@pytest.mark.parametrize(
    ("returned", "kind", "message"),
    [
        (1.0, TypeError, "a list of 3 numbers is needed"),
        ([1.0], ValueError, "returned 1 rewards for 3 completions"),
        ([1.0, float("nan"), 2.0], ValueError, "returned nan for completion 1"),
        (np.array([1.0, np.inf, 2.0]), ValueError, "returned inf for completion 1"),
        (["a", "b", "c"], ValueError, "^_lambda_ returned 'a' for completion 0: a number is needed, or None"),
    ],
)
def test_wrong_rewards(tmp_path, returned, kind, message):
    with pytest.raises(kind, match=message):
        rein.run(tmp_path / "run", task="sums", reward=lambda completions: returned, **SMALL)


# --------------------------------------------------------------------------------------------------------- evaluations


def test_evaluate(tmp_path):
    made = rein.run(tmp_path / "run", task="sums", **SMALL)
    assert rein.evaluate(made.directory).accuracy == made.last.accuracy
    first = rein.evaluate(f"{made.directory}@0")
    assert first.step == 0 and first.reward == made.first.reward
    assert rein.evaluate(MODEL, task="sums", eval_prompts=3, max_tokens=12).reward == made.first.reward
    with made.policy() as policy:
        assert rein.evaluate(policy, task="sums", eval_prompts=3, max_tokens=12).reward == made.last.reward
        listed = rein.evaluate(policy, task=EXAMPLES, reward=digits, eval_prompts=30, max_tokens=4, greedy=True)
    assert listed.prompts == 30 and listed.samples == 1
    with pytest.raises(ValueError, match=" has no step 9: it has 0, 1, 2$"):
        rein.evaluate(f"{made.directory}@9")


def test_report(tmp_path):
    runs = [rein.run(tmp_path / name, task="sums", **SMALL).directory for name in ("a", "b")]
    assert os.fspath(rein.report(runs[0])) == f"{runs[0]}/report.html"
    with pytest.raises(ValueError, match="output is missing"):
        rein.report(*runs)
    assert os.path.getsize(rein.report(*runs, output=tmp_path / "both.html")) > 10000


def test_a_list_of_examples_is_named_in_words(tmp_path):
    """What is internal, as examples:task, is in no message."""
    examples = [{"prompt": f"Q:{i}+1=?", "answer": str(i + 1)} for i in range(3)]
    few = {**SMALL, "prompts": 2, "reward": "number", "eval_prompts": 1}
    with pytest.raises(ValueError, match=r"^the list of examples: held_out 1e-09 holds out none of 3 examples"):
        rein.run(tmp_path / "few", task=examples, **few, held_out=1e-9)
    rein.run(tmp_path / "run", task=examples, **{**few, "eval_prompts": 0, "steps": 1})
    with pytest.raises(ValueError, match=r"give the list again \(in Python task=\[\.\.\.\]\)"):
        rein.run(tmp_path / "run", steps=2)
