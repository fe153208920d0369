"""The guessing game over HTTP: an agent that is a program of its own, and trains the policy that `rein serve` serves.

rein serve RUN --model MODEL --preset grpo --learning-rate 1e-3 --port 8000 &
python examples/environments/guess_http.py http://127.0.0.1:8000 [STEPS]

An episode is one list of token ids: what the model saw, and what it wrote, which trains. An answer of the server goes
back to it as the ids that were sampled, so each prompt begins with all that was before.
"""

import json
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

NUMBERS = [1, 2, 3] * 2
SAMPLES = 8


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def play(server, model, number):
    text = "I think of a whole number from 1 to 3. Answer with the number only."
    messages, ids, mask, log_probs, reward = [], [], [], [], 0.0
    for guesses in range(2):
        messages.append({"role": "user", "content": text})
        asked = {"model": model, "messages": messages, "max_tokens": 12, "logprobs": True, "return_token_ids": True}
        answer = call(f"{server}/v1/chat/completions", asked)
        choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
        wrote = [token["logprob"] for token in choice["logprobs"]["content"]]
        given = len(prompt) - len(ids)
        assert prompt[: len(ids)] == ids, "the chat template changes earlier turns: train each turn by itself"
        ids = prompt + choice["token_ids"]
        mask += [0] * given + [1] * len(wrote)
        log_probs += [None] * given + wrote
        found = re.findall(r"\d", choice["message"]["content"])
        guess = int(found[0]) if found else None
        if guess == number:
            reward = 1 - 0.1 * guesses
            break
        messages.append(choice["message"])
        text = "That is not a number." if guess is None else "Higher." if guess < number else "Lower."
    first = mask.index(1)
    parts = {
        "prompt_ids": ids[:first],
        "response_ids": ids[first:],
        "mask": mask[first:],
        "logprobs": log_probs[first:],
    }
    return {**parts, "reward": reward, "policy_step": choice["policy_step"]}


def step(server, model):
    with ThreadPoolExecutor(len(NUMBERS) * SAMPLES) as pool:
        games = [[pool.submit(play, server, model, number) for _ in range(SAMPLES)] for number in NUMBERS]
        groups = [{"trajectories": [game.result() for game in group]} for group in games]
    job = call(f"{server}/v1/train", {"trajectory_groups": groups})
    while (state := call(f"{server}/v1/train/{job['id']}"))["status"] in ("queued", "running"):
        time.sleep(0.1)
    if state["status"] != "done":
        raise SystemExit(f"the step failed: {state['error']}")
    return state


def main(server="http://127.0.0.1:8000", steps="8"):
    model = call(f"{server}/v1/models")["data"][0]["id"]
    for _ in range(int(steps)):
        made = step(server, model)
        gap = made["metrics"]["on_policy/max_gap"]
        print(f"step {made['step']:2}   reward {made['metrics']['reward']:.3f}   gap {gap:g}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
