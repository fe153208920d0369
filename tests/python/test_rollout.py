"""rein.rollout and rein.open_run: episodes of several turns that a Python function plays, and runs that train on
them."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import rein

ROOT = Path(__file__).parents[2]
SUMS = str(ROOT / "models/sums")
RAW = {"chat_format": "raw"}


def say(text):
    return {"role": "user", "content": text}


def hint(digit, number):
    return say("Q:?  A:" if digit is None else "Q:+=?  A:" if digit < number else "Q:-=?  A:")


async def guess(client, number):
    """A number from 1 to 3, and two guesses: the first digit of an answer is a guess."""
    messages = [say("Q:n=?  A:")]
    for _ in range(2):
        await asyncio.sleep(random.random() * 0.01)  # episodes continue in a different order every time
        choice = (await client.chat.completions.create(messages=messages)).choices[0]
        if choice.finish_reason == "length":
            return -0.5
        digits = re.findall(r"\d", choice.message.content)
        digit = int(digits[0]) if digits else None
        if digit == number:
            return 1
        messages += [choice.message, hint(digit, number)]
    return 0


def play(policy, function, scenarios=(2,), **options):
    return asyncio.run(rein.rollout(policy, function, scenarios, **{**RAW, "max_tokens": 24, **options}))


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype == np.float32)


def tokens_of(groups):
    return [(h.ids, h.mask, h.log_probs) for group in groups for one in group for h in one.histories]


def equal(first, second):
    """Whether all tokens, masks and log-probs of two rollouts are the same bits."""
    a, b = tokens_of(first), tokens_of(second)
    return len(a) == len(b) and all(same(x, y) for i, j in zip(a, b) for x, y in zip(i, j))


@pytest.fixture(scope="module")
def policy():
    return rein.Policy(SUMS)


# -------------------------------------------------------------------------------------------------------------- tokens


def test_groups_train_without_a_gap(policy):
    groups = play(policy, guess, [1, 2, 3], samples=4)
    assert [len(group) for group in groups] == [4, 4, 4]
    assert [(one.scenario, one.sample) for one in groups[1]] == [(1, k) for k in range(4)]
    several = [one for group in groups for one in group if one.metrics["turns"] == 2]
    assert several
    for one in several:
        assert [message["role"] for message in one.messages][:4] == ["user", "assistant"] * 2
        (history,) = one.histories
        edges = np.flatnonzero(np.diff(history.mask.astype(int)))
        assert len(edges) == 3  # prompt, turn, hint, turn
        assert np.isnan(history.log_probs[~history.mask]).all()
    passed = policy.forward_backward(groups, "reinforce")
    assert passed.max_gap == 0
    histories = [history for one in several for history in one.histories]
    for history, own in zip(histories, policy.log_probs([history.ids for history in histories])):
        assert same(history.log_probs[history.mask], own[history.mask])


def test_the_order_and_the_number_of_episodes_at_a_time_change_no_bit(policy):
    first = play(policy, guess, [1, 2, 3], samples=4, step=5)
    assert equal(first, play(policy, guess, [1, 2, 3], samples=4, step=5))
    assert equal(first, play(policy, guess, [1, 2, 3], samples=4, step=5, concurrency=1))
    assert equal(first[1:], play(policy, guess, [2, 3], samples=4, step=5, first_scenario=1))
    assert not equal(first, play(policy, guess, [1, 2, 3], samples=4, step=6))
    assert not equal(first, play(policy, guess, [1, 2, 3], samples=4, step=5, seed=9))


def test_calls_without_a_step_are_new_samples(policy):
    assert not equal(play(policy, guess), play(policy, guess))
    assert equal(play(policy, guess, evaluation=True), play(policy, guess, evaluation=True))
    (episode,) = play(policy, guess, evaluation=True)[0]
    assert episode.policy_step is None


def test_a_plain_function_plays_in_a_thread(policy):
    seen = set()

    def plain(client, number):
        seen.add(threading.get_ident())
        messages = [say("Q:n=?  A:")]
        for _ in range(2):
            time.sleep(random.random() * 0.01)
            choice = client.chat.completions.create(messages=messages).choices[0]
            if choice.finish_reason == "length":
                return -0.5
            digits = re.findall(r"\d", choice.message.content)
            digit = int(digits[0]) if digits else None
            if digit == number:
                return 1
            messages += [choice.message.model_dump(), hint(digit, number)]
        return 0

    assert equal(play(policy, plain, [1, 2], samples=4, step=3), play(policy, guess, [1, 2], samples=4, step=3))
    assert threading.get_ident() not in seen


def test_several_conversations_in_an_episode(policy):
    """Choices, branches and conversations of their own: each is a history; a turn trains once."""

    async def several(client, _):
        create = client.chat.completions.create
        answer = await create(messages=[say("Q:1+1=?  A:")], n=3, max_tokens=6)
        texts = [choice.message.content for choice in answer.choices]
        first = [say("Q:1+1=?  A:"), answer.choices[0].message]
        await create(messages=[*first, say("Q:2+2=?  A:")], max_tokens=6)
        await create(messages=[*first, say("Q:3+3=?  A:")], max_tokens=6)
        await asyncio.gather(*(create(messages=[say(f"Q:{i}+1=?  A:")], max_tokens=6) for i in range(3)))
        return len(texts), {"twins": texts.count(texts[0]) - 1}

    groups = play(policy, several, [0], samples=2, step=1, max_tokens=200)
    assert equal(groups, play(policy, several, [0], samples=2, step=1, max_tokens=200))
    for one in groups[0]:
        assert one.metrics["turns"] == 8 and one.reward == 3
        # three choices, of which one goes on; a branch of it, which goes on with a twin if there is one; three more
        trained = [np.count_nonzero(np.diff(history.mask.astype(int)) == 1) for history in one.histories]
        assert sum(trained) == 8 and len(trained) == (6 if one.metrics["twins"] else 7)
    assert policy.forward_backward(groups, "reinforce").max_gap == 0


def test_what_an_answer_has(policy):
    seen = []

    async def look(client, scenario):
        answer = await client.chat.completions.create(
            model=client.model, messages=[say(scenario)], max_completion_tokens=8, logprobs=True, temperature=1.0
        )
        seen.append((client, answer))
        return 1

    groups = play(policy, look, ["Q:1+1=?  A:"])
    ((client, answer),) = seen
    (history,) = groups[0][0].histories
    assert (client.model, client.scenario, client.sample) == ("sums", 0, 0) and client.seed >= 0
    choice = answer.choices[0]
    assert choice.finish_reason in ("stop", "length") and choice.message.role == "assistant"
    assert [one.logprob for one in choice.logprobs.content] == history.log_probs[history.mask].tolist()
    assert b"".join(bytes(one.bytes) for one in choice.logprobs.content).decode().startswith(choice.message.content)
    assert answer.usage.completion_tokens == history.mask.sum()
    assert answer.usage.total_tokens == len(history.ids)
    assert json.loads(answer.model_dump_json()) == answer.model_dump()
    assert answer.to_dict()["choices"][0]["message"] == {"role": "assistant", "content": choice.message.content}
    assert answer.object == "chat.completion" and answer.id == "chatcmpl-0-0-1"


def test_greedy(policy):
    groups = play(policy, guess, [1], samples=2, greedy=True, evaluation=True)
    first, second = (one.histories[0] for one in groups[0])
    assert same(first.ids, second.ids)


# -------------------------------------------------------------------------------------------------------------- limits


def test_limits_end_an_episode(policy):
    reasons = []

    async def endless(client, _):
        messages = [say("Q:1+1=?  A:")]
        try:
            while True:
                answer = await client.chat.completions.create(messages=messages, max_tokens=5)
                messages += [answer.choices[0].message, say("Q:1+1=?  A:")]
        except rein.EpisodeOver as over:
            reasons.append(over.reason)
            return 7

    (one,) = play(policy, endless, max_turns=3, max_tokens=1000)[0]
    assert reasons.pop() == "turns" and one.metrics["turns"] == 3 and one.reward == 7
    (one,) = play(policy, endless, max_turns=1000, max_tokens=7)[0]
    assert reasons.pop() == "tokens" and sum(history.mask.sum() for history in one.histories) == 7
    assert one.truncated and one.finish == "cut"
    (one,) = play(policy, endless, max_turns=10**6, max_tokens=10**6)[0]
    assert reasons.pop() == "context" and len(one.histories[0].ids) <= policy.max_positions


def test_a_limit_that_is_not_caught(policy):
    async def endless(client, _):
        while True:
            await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)

    groups = play(policy, endless, samples=2, max_turns=2, limit_reward=-1)
    assert groups.limits == 2 and [one.reward for one in groups[0]] == [-1, -1] and not groups.errors
    assert groups.metrics["limits"] == 2


# -------------------------------------------------------------------------------------------------------------- faults


async def moody(client, scenario):
    await client.chat.completions.create(messages=[say("Q:1+1=?  A:")], max_tokens=4)
    if scenario == "bad" and client.sample == 1:
        raise KeyError("boom")
    return 1


def test_a_function_that_fails(policy):
    with pytest.raises(KeyError, match="boom") as problem:
        play(policy, moody, ["good", "bad"], samples=2)
    if sys.version_info >= (3, 11):
        assert problem.value.__notes__ == ["in the rollout: scenario 1, sample 1, after 1 answers of the model"]
    dropped = play(policy, moody, ["good", "bad"], samples=2, on_error="drop")
    assert [[one.sample for one in group] for group in dropped] == [[0, 1], [0]]
    assert [(s, k, type(p)) for s, k, p in dropped.errors] == [(1, 1, KeyError)]
    rewarded = play(policy, moody, ["good", "bad"], samples=2, on_error=-3)
    assert [one.reward for one in rewarded[1]] == [1, -3] and rewarded.metrics["errors"] == 1
    assert policy.forward_backward(dropped, "reinforce").max_gap == 0


def test_groups_without_episodes_are_left_out(policy):
    async def fails(client, scenario):
        if scenario == 1:
            raise ValueError(scenario)
        return await guess(client, 2)

    groups = play(policy, fails, [0, 1, 2], samples=2, on_error="drop")
    assert [group[0].scenario for group in groups] == [0, 2] and len(groups.errors) == 2
    assert [group[0].scenario for group in play(policy, fails, [0, 1, 2], samples=2, on_error=0)] == [0, 2]


def test_a_function_that_hangs(policy):
    async def hangs(client, _):
        await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)
        await asyncio.sleep(100)

    def blocks(client, _):
        time.sleep(3)
        return 1

    for function, answers in ((hangs, 1), (blocks, 0)):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"took longer than 0\.2 seconds"):
            play(policy, function, samples=2, timeout=0.2)
        groups = play(policy, function, samples=2, timeout=0.2, on_error=-1)
        assert [one.reward for group in groups for one in group] == [-1, -1] * answers
        assert time.monotonic() - began < 2.5 and len(groups.errors) == 2


def test_a_function_that_returns_something_else(policy):
    for wrong in (None, "1", [1], (1, 2, 3), (1, 2), (1, {"a": "b"})):

        async def returns(client, _, wrong=wrong):
            await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)
            return wrong

        with pytest.raises(TypeError, match=r"scenario 0, sample 0: the function returned .*: a reward is needed"):
            play(policy, returns)

    async def infinite(client, _):
        await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)
        return float("nan")

    with pytest.raises(rein.ArgumentError, match="reward is nan: a finite number is needed"):
        play(policy, infinite)

    async def asks_nothing(client, _):
        return 1

    with pytest.raises(rein.ArgumentError, match="episode has no turn: the model was asked for nothing"):
        play(policy, asks_nothing)
    assert play(policy, asks_nothing, on_error="drop") == []


FIELDS = {
    "messages": (3, [], "text", [3], [{"role": "user", "content": object()}]),
    "model": ("gpt-4o",),
    "temperature": (0.5, 0),
    "top_p": (0.9,),
    "stream": (True,),
    "n": (0, 1.5, True),
    "max_tokens": (0, "5"),
    "max_completion_tokens": (-1,),
    "stop": ("", [3]),
    "tool_choice": ("required",),
    "tools": ({"type": "function"}, [{"type": "function"}]),
    "colour": ("red",),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_request_names_its_field(policy, field):
    for value in FIELDS[field]:
        seen = []

        async def asks(client, _, value=value, seen=seen):
            try:
                limit = {} if field.startswith("max_") else {"max_tokens": 2}
                await client.chat.completions.create(**{"messages": [say("Q:")], **limit, field: value})
            except rein.ArgumentError as problem:
                seen.append(problem)
            await client.chat.completions.create(messages=[say("Q:")], max_tokens=2, stop=None, top_p=1, stream=False)
            return 1

        assert play(policy, asks)[0][0].metrics["turns"] == 1
        assert str(seen[0].field).split("[")[0] == field, seen[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"scenarios": []}, "scenarios is empty"),
        ({"timeout": 0}, "timeout is 0"),
        ({"on_error": "ignore"}, 'on_error is \'ignore\': "raise", "drop" or a reward'),
        ({"on_error": float("nan")}, "on_error is nan"),
        ({"limit_reward": float("inf")}, "limit_reward is inf"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"chat_format": "telex"}, "telex"),
        ({"chat_format": None}, "chat_format is missing"),
    ],
)
def test_wrong_arguments(policy, options, message):
    with pytest.raises(ValueError, match=message):
        play(policy, guess, **options)


def test_a_client_is_for_its_episode_only(policy):
    kept = []

    async def keeps(client, _):
        kept.append(client)
        return await guess(client, 2)

    play(policy, keeps)
    with pytest.raises(RuntimeError, match="the episode has ended"):
        asyncio.run(kept[0].chat.completions.create(messages=[say("Q:")]))


def test_a_policy_that_trains_meanwhile():
    policy = rein.Policy(SUMS)
    policy.forward_backward(play(policy, guess, samples=4), "reinforce")

    async def trains(client, _):
        await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)
        policy.optim_step(1e-3)
        await client.chat.completions.create(messages=[say("Q:")], max_tokens=2)
        return 1

    with pytest.raises(RuntimeError, match="the policy made a step while a rollout samples from it"):
        play(policy, trains)


# --------------------------------------------------------------------------------------------------------------- tools


TEMPLATE = (
    "{%- if tools %}T{{ tools | length }}\n{% endif %}"
    "{%- for m in messages %}{{ m.role[0] }}:{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<end>\n{% endfor %}"
    "{%- if add_generation_prompt %}a:{% endif %}"
)
CALL = 'hm <tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


def with_template(directory, template):
    shutil.copytree(SUMS, directory)
    config = directory / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    return str(directory)


def test_tools(tmp_path):
    """A model that learned to call a tool: the call is an object, and the tool's answer continues its history."""
    policy = rein.Policy(with_template(tmp_path / "chatty", TEMPLATE), lora_rank=16)
    prompt = policy.tokenizer.apply_chat_template([say("go")], tools=TOOLS)
    response = [*policy.tokenizer.encode(CALL, add_special=False), *policy.end_ids[:1]]
    for _ in range(60):
        policy.forward_backward([[rein.Trajectory(prompt, response, None, 1)]], {})
        policy.optim_step(5e-3)
    seen = []

    async def calls(client, _):
        messages = [say("go")]
        choice = (await client.chat.completions.create(messages=messages, tools=TOOLS)).choices[0]
        seen.append(choice)
        (call,) = choice.message.tool_calls
        answer = {"role": "tool", "tool_call_id": call.id, "content": "3"}
        await client.chat.completions.create(messages=[*messages, choice.message, answer], tools=TOOLS)
        return float(json.loads(call.function.arguments) == {"a": 3})

    groups = asyncio.run(rein.rollout(policy, calls, [0], greedy=True, max_tokens=90))
    assert groups[0][0].reward == 1 and len(groups[0][0].histories) == 1
    assert seen[0].finish_reason == "tool_calls" and seen[0].message.content == "hm"
    assert seen[0].message.tool_calls[0].model_dump()["function"] == {"name": "add", "arguments": '{"a": 3}'}


def test_a_template_that_rewrites_earlier_turns(tmp_path):
    """It shows every turn but the last as "-": then each turn has a history of its own."""
    forgetful = TEMPLATE.replace(
        "{{ m.content }}", "{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% else %}-{% endif %}"
    )
    policy = rein.Policy(with_template(tmp_path / "forgetful", forgetful))

    async def chats(client, _):
        messages = [say("1")]
        for _ in range(3):
            answer = await client.chat.completions.create(messages=messages, max_tokens=4)
            messages += [answer.choices[0].message, say("2")]
        return 1

    groups = asyncio.run(rein.rollout(policy, chats, [0], samples=2))
    assert [len(one.histories) for one in groups[0]] == [3, 3]
    assert policy.forward_backward(groups, "reinforce").max_gap == 0


# ---------------------------------------------------------------------------------------------------------------- runs

SETTINGS = {"model": SUMS, "preset": "grpo", "learning_rate": 1e-3, "chat_format": "raw"}


def train(directory, steps, **settings):
    with rein.open_run(directory, **{**SETTINGS, **settings}) as run:
        while run.step < steps:
            made = run.train(asyncio.run(rein.rollout(run, guess, range(1, 9), samples=8, max_tokens=24)))
            assert made["on_policy/max_gap"] == 0 and made["step"] == run.step
        return Path(run.checkpoint)


def weights(checkpoint):
    return (checkpoint / "adapter_model.safetensors").read_bytes()


def test_the_game_is_learned(tmp_path):
    """Numbers from 1 to 3 in turn: a policy that guesses 2, and then believes the hint, has the reward 1."""
    numbers = [1 + i % 3 for i in range(9)]

    def score(run):
        groups = asyncio.run(rein.rollout(run, guess, numbers, samples=8, max_tokens=24, evaluation=True))
        return groups.metrics["reward"]

    with rein.open_run(tmp_path / "run", **SETTINGS) as run:
        before = score(run)
        while run.step < 24:
            run.train(asyncio.run(rein.rollout(run, guess, numbers, samples=8, max_tokens=24)))
        after = score(run)
    assert before < 0 and after > 0.5, (before, after)


ENVIRONMENT = """
import json, re, sys
games = {}
for line in sys.stdin:
    event = json.loads(line)
    if event["event"] == "describe":
        print(json.dumps({"train": None, "held_out": None}), flush=True)
        continue
    episode, answer = event["episode"], {"messages": [], "reward": 0.0, "done": True}
    if event["event"] == "reset":
        games[episode] = 0
        answer = {"messages": [{"role": "user", "content": "Q:n=?  A:"}]}
    elif event["event"] == "end":
        answer = {"reward": -0.5}
    else:
        games[episode] += 1
        digits = re.findall(r"\\d", event["message"]["content"])
        if digits and int(digits[0]) == 2:
            answer["reward"] = 1.0
        elif games[episode] < 2:
            text = "Q:?  A:" if not digits else "Q:+=?  A:" if int(digits[0]) < 2 else "Q:-=?  A:"
            answer.update(messages=[{"role": "user", "content": text}], done=False)
    print(json.dumps({"episode": episode, **answer}), flush=True)
"""


def written(run):
    lines = (run / "trajectories/train/0002.jsonl").read_text().splitlines()
    return [trajectory for line in lines for trajectory in json.loads(line)["trajectories"]]


def test_a_function_and_an_environment_train_the_same_policy(tmp_path):
    """The same game as a program (rein.run) and as a function: the same tokens, rewards and weights."""
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    rollout = {"prompts": 8, "samples": 8, "max_tokens": 24, "eval_prompts": 0, "steps": 2}
    task = f"env: {sys.executable} {tmp_path}/env.py"
    made = rein.run(tmp_path / "environment", task=task, **SETTINGS, **rollout, max_turns=8)
    with rein.open_run(tmp_path / "function", **SETTINGS) as run:
        while run.step < 2:
            run.train(asyncio.run(rein.rollout(run, guess, [2] * 8, samples=8, max_tokens=24)))
        assert weights(Path(run.checkpoint)) == weights(Path(made.checkpoint))
    first, second = (written(tmp_path / name) for name in ("environment", "function"))
    for name in ("prompt_ids", "response_ids", "logprobs", "mask", "reward", "messages"):
        assert [t[name] for t in first] == [t[name] for t in second], name
    assert made.step == 2


def test_an_environment_can_be_evaluated(tmp_path):
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    task = f"env: {sys.executable} {tmp_path}/env.py"
    rollout = {"eval_prompts": 3, "eval_samples": 2, "max_tokens": 24}
    one = rein.evaluate(SUMS, task=task, chat_format="raw", max_turns=1, **rollout)
    assert (one.n, one.prompts, one.samples) == (6, 3, 2)
    with pytest.raises(ValueError, match="max_turns"):
        rein.evaluate(SUMS, task="sums", max_turns=1, **rollout)


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import test_rollout as t, asyncio, rein

async def dies(client, number):
    reward = await t.guess(client, number)
    if run.step == 2 and client.scenario == 3 and client.sample == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return reward

with rein.open_run(sys.argv[1], **t.SETTINGS) as run:
    while run.step < 4:
        run.train(asyncio.run(rein.rollout(run, dies, range(1, 9), samples=8, max_tokens=24)))
"""


def test_a_run_that_was_killed_resumes_bit_for_bit(tmp_path):
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "killed"], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert weights(train(tmp_path / "killed", 4)) == weights(train(tmp_path / "plain", 4, threads=1))


def test_a_session(tmp_path):
    with rein.open_run(tmp_path / "run", **SETTINGS) as run:
        assert run.step == 0 and "step 0" in repr(run)
        groups = asyncio.run(rein.rollout(run, guess, [1, 2], samples=4, max_tokens=24))
        with pytest.raises(TypeError, match="give only episodes of a rollout, or none"):
            run.train([[groups[0][0], rein.Trajectory([1], [2], None, 1)]])
        groups[0][0].reward = float("nan")
        with pytest.raises(rein.ArgumentError, match="reward"):
            run.train(groups)
        groups[0][0].reward = 2
        assert run.train([group for group in groups])["reward"] == np.mean([one.reward for g in groups for one in g])
        # groups of an earlier policy train too, with their log-probs as they are
        assert run.train(groups)["step"] == 2
        with pytest.raises(rein.FileError, match="is being written by process"):
            rein.open_run(tmp_path / "run")
    assert "closed" in repr(run)
    run.close()
    for use in (lambda: run.step, lambda: run.train(groups), lambda: play(run, guess)):
        with pytest.raises(ValueError, match="the run is closed"):
            use()
    with rein.open_run(tmp_path / "run") as run:
        assert run.step == 2
    with pytest.raises(ValueError, match="max_tokens has no effect"):
        rein.open_run(tmp_path / "other", **SETTINGS, max_tokens=3)
