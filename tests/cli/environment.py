"""environment.py MODE [RANK]: environments for run_environment.sh and run_ranks_environment.sh. MODE is a game, or a way to break the protocol;
with RANK only on that one, and on others a game."""

import json
import os
import random
import re
import sys
import time

mode, *arguments = sys.argv[1:]
if arguments and os.environ.get("OMPI_COMM_WORLD_RANK", "0") != arguments[0]:
    mode = "guess"
games = {}
waiting = []  # answers that are kept back, with mode shuffled
CALLS = {"tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]}


def say(text):
    return [{"role": "user", "content": text}]


def guess(event):
    """A number from 1 to 3, and two guesses: the first digit of an answer is a guess."""
    episode = event["episode"]
    if event["event"] == "reset":
        dice = random.Random(f"{event['seed']} {event['split']} {event['index']}")
        games[episode] = [dice.randint(1, 3), 0]
        return {"messages": say("Q:n=?  A:")}
    if event["event"] == "end":
        return {"reward": -0.5}
    game = games[episode]
    game[1] += 1
    digits = re.findall(r"\d", event["message"]["content"] or "")
    found = digits and int(digits[0]) == game[0]
    if found or game[1] == 2:
        return {"messages": [], "reward": float(bool(found)), "done": True}
    hint = "Q:?  A:" if not digits else "Q:+=?  A:" if int(digits[0]) < game[0] else "Q:-=?  A:"
    return {"messages": say(hint), "reward": 0, "done": False}


def endless(event):
    """Never ends by itself. The reward tells how it ended."""
    if event["event"] == "reset":
        return {"messages": say("Q:1+1=?  A:")}
    if event["event"] == "end":
        return {"reward": ["turns", "tokens", "context"].index(event["reason"]) + 10}
    return {"messages": say("Q:1+1=?  A:"), "reward": 0, "done": False}


def tools(event):
    """Wants one call of a tool, then an answer."""
    if event["event"] == "reset":
        games[event["episode"]] = 0
        return {"messages": say("go"), **CALLS}
    if event["event"] == "end":
        return {"reward": 0}
    games[event["episode"]] += 1
    calls = event["message"].get("tool_calls")
    if not calls or games[event["episode"]] > 1:
        return {"messages": [], "reward": 0, "done": True}
    right = json.loads(calls[0]["function"]["arguments"]) == {"a": 3} and event["message"]["content"] == "hm"
    message = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "3"}
    return {"messages": [message], "reward": float(right), "done": False}


FAULTS = {
    "garbage": "this is no JSON",
    "list": "[1, 2]",
    "no-episode": '{"messages": [], "reward": 0, "done": true}',
    "stranger": '{"episode": 999, "messages": [], "reward": 0, "done": true}',
    "no-reward": {"messages": [], "done": True},
    "null-reward": {"messages": [], "reward": None, "done": True},
    "no-done": {"messages": say("x"), "reward": 0},
    "text-done": {"messages": say("x"), "reward": 0, "done": "no"},
    "no-messages": {"messages": [], "reward": 0, "done": False},
    "assistant": {"messages": [{"role": "assistant", "content": "x"}], "reward": 0, "done": False},
    "no-content": {"messages": [{"role": "user", "content": 3}], "reward": 0, "done": False},
    "unknown-key": {"messages": say("x"), "reward": 0, "done": False, "score": 1},
}


def fault(event):
    if mode == "crash-reset":
        print("boom: no such game", file=sys.stderr, flush=True)
        sys.exit(3)
    if event["event"] == "reset":
        return {"messages": say("Q:1+1=?  A:")}
    if event["event"] == "end":
        return {"reward": 0}
    if mode == "crash":
        print("boom: no such game", file=sys.stderr, flush=True)
        sys.exit(3)
    if mode == "slow":
        time.sleep(60)
    return FAULTS[mode]


def put(event, answer):
    if isinstance(answer, str):
        print(answer, flush=True)
    elif mode == "twice" and event["event"] == "step":
        line = json.dumps({**answer, "episode": event["episode"]})
        print(line + "\n" + line, flush=True)
    else:
        print(json.dumps({**answer, **({"episode": event["episode"]} if "episode" in event else {})}), flush=True)


def more_to_read():
    import select

    return bool(select.select([0], [], [], 0.02)[0])


PLAY = {"guess": guess, "shuffled": guess, "twice": guess, "endless": endless, "tools": tools, "few": guess}.get(mode, fault)
DESCRIBE = {"few": {"train": 4, "held_out": 2}, "describe": {"train": 0, "held_out": None}, "undescribed": {"train": None}}
for line in iter(lambda: os.read(0, 1 << 20) if mode == "shuffled" else sys.stdin.buffer.readline(), b""):
    for one in line.splitlines():
        event = json.loads(one)
        if event["event"] == "describe":
            put(event, DESCRIBE.get(mode, {"train": None, "held_out": None}))
        elif mode == "shuffled":
            waiting.append((event, PLAY(event)))
        else:
            put(event, PLAY(event))
    if mode == "shuffled" and not more_to_read():
        random.shuffle(waiting)
        for pair in waiting:
            put(*pair)
        waiting.clear()
