#!/usr/bin/env python3
"""diary.py COMMAND…: the world of the example: lines of a diary, and what a reader truly likes about them.

    diary.py write N SEED           N lines as a person writes them, for rein sft
    diary.py prompts N              a task for rein run: the days of the diary
    diary.py label FILE SEED N      pairs of the completions that rein generate printed (--json): what the reader likes
                                    more is chosen
    diary.py judge                  a judge for rein run: the true reward
    diary.py table RUN…             proxy and true reward over the KL, from the histories of runs

The reader likes a happy word, dislikes a sad one, and is bored by a word that came before in the line. People rarely
repeat themselves, so pairs of their lines say next to nothing about that: a reward model has to guess."""

import json
import random
import sys
from collections import Counter

HAPPY = "warm kind sweet merry bright calm".split()
SAD = "cold cruel bitter grim dark lost".split()
PLAIN = "old new red tall round small".split()
WHO = "dog cat man bird girl boy fox hen".split()
DID = "sat ran sang ate hid slept".split()
DAYS = "mon tue wed thu fri sat sun".split()


def line(rng):
    """Two to four clauses; a person takes care not to say the same adjective twice."""
    adjectives = rng.sample(HAPPY + SAD + PLAIN * 2, 8)
    adjectives = list(dict.fromkeys(adjectives))
    clauses = [f"a {adjectives[i]} {rng.choice(WHO)} {rng.choice(DID)}" for i in range(rng.randint(2, 4))]
    return ", ".join(clauses) + "."


def liking(text):
    """The true reward: +1 for a happy word, −1 for a sad one; a repeated word of either list costs 1 instead."""
    total = 0.0
    for word, n in Counter(text.replace(",", " ").replace(".", " ").split()).items():
        value = (word in HAPPY) - (word in SAD)
        total += value - (n - 1) * (word in HAPPY or word in SAD)
    return total


def write(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        print(json.dumps({"prompt": rng.choice(DAYS) + ": ", "completion": line(rng)}))


def prompts(n):
    for i in range(n):
        print(json.dumps({"prompt": DAYS[i % len(DAYS)] + ": "}))


def label(path, seed, n):
    """Two lines of which the reader likes one more."""
    rng = random.Random(seed)
    with open(path) as file:
        lines = list(dict.fromkeys(json.loads(row)["text"] for row in file))
    while n:
        rejected, chosen = sorted(rng.sample(lines, 2), key=liking)
        if liking(rejected) < liking(chosen):
            print(json.dumps({"prompt": rng.choice(DAYS) + ": ", "chosen": chosen, "rejected": rejected}))
            n -= 1


def judge():
    for row in sys.stdin:
        request = json.loads(row)
        print(json.dumps({"id": request["id"], "reward": liking(request["response"])}), flush=True)


def rows(run, steps):
    """(step, KL, proxy, true reward): the KL of the policy after a step, the rewards of what it then writes."""
    with open(f"{run}/history.jsonl") as file:
        history = {row["step"]: row for row in map(json.loads, file)}
    for step in steps:
        kl = 0.0 if step == 0 else history[step]["eval/kl_policy_ref"]
        then = history[step + 1]
        models = [name for name in then if name.startswith("rewards/") and name != "rewards/diary.py/mean"]
        proxy = sum(then[name] for name in models) / len(models)
        yield step, kl, proxy, then["rewards/diary.py/mean"]


def table(runs):
    for run in runs:
        last = max(json.loads(row)["step"] for row in open(f"{run}/history.jsonl"))
        steps = [s for s in (0, 5, 10, 15, 20, 30, 40, 60, 80, 100, 200) if s < last]
        print(f"\n{run}\n{'step':>6} {'KL':>8} {'reward model':>13} {'reader':>8}")
        for step, kl, proxy, true in rows(run, steps):
            print(f"{step:6} {kl:8.3f} {proxy:13.2f} {true:8.2f}")


if __name__ == "__main__":
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "write":
        write(int(rest[0]), int(rest[1]))
    elif command == "prompts":
        prompts(int(rest[0]))
    elif command == "label":
        label(rest[0], rest[1], int(rest[2]))
    elif command == "judge":
        judge()
    elif command == "table":
        table(rest)
    else:
        sys.exit(__doc__)
