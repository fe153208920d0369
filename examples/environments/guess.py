#!/usr/bin/env python3
"""An environment: the model finds a number by guessing, and is told after each guess whether it is higher or lower.

    --task 'env: python3 examples/environments/guess.py --highest 10 --guesses 4'

One line of JSON comes in for each event, and one goes out; docs/agents.md has the fields. Episodes of the same split
and index have the same number. The reward is 1 for finding it, a little less for each guess before, and 0 without.
"""

import argparse
import json
import random
import re
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--highest", type=int, default=10)
parser.add_argument("--guesses", type=int, default=4)
options = parser.parse_args()

games = {}  # by episode: the number, and the guesses so far


def say(text):
    return [{"role": "user", "content": text}]


def reset(event):
    # Everything that an episode begins with depends on these three alone, so that a resumed run sees the same.
    dice = random.Random(f"{event['seed']} {event['split']} {event['index']}")
    games[event["episode"]] = [dice.randint(1, options.highest), 0]
    rules = f"I think of a whole number from 1 to {options.highest}. You have {options.guesses} guesses."
    return {"messages": say(f"{rules} Answer with the number only.")}


def step(event):
    game = games[event["episode"]]
    number, game[1] = game[0], game[1] + 1
    found = re.findall(r"\d+", event["message"]["content"] or "")
    guess = int(found[-1]) if found else None
    if guess == number:
        return {"messages": [], "reward": 1 - 0.1 * (game[1] - 1), "done": True}
    if game[1] == options.guesses:
        return {"messages": [], "reward": 0, "done": True}
    if guess is None:
        return {"messages": say("That is not a number. Answer with the number only."), "reward": 0, "done": False}
    return {"messages": say("Higher." if guess < number else "Lower."), "reward": 0, "done": False}


for line in sys.stdin.buffer:  # bytes: the lines are UTF-8 in every locale
    event = json.loads(line)
    if event["event"] == "describe":
        answer = {"train": None, "held_out": None}  # there are always more games
    elif event["event"] == "reset":
        answer = reset(event)
    elif event["event"] == "step":
        answer = step(event)
    else:  # "end": rein ends an episode at its limit of turns or tokens
        answer = {"reward": 0}
    if answer.get("done") or event["event"] == "end":
        games.pop(event["episode"])
    if "episode" in event:
        answer["episode"] = event["episode"]
    print(json.dumps(answer), flush=True)
