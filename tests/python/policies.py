"""Tiny models, prompts and rewards for tests of rein.Policy."""

from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/model/fixtures/engine"
LLAMA = FIXTURES / "llama"
FAMILIES = sorted(path.name for path in FIXTURES.iterdir() if (path / "config.json").exists())
STORIES = ROOT.parent / "shared/models/stories260K"
PROMPTS = [[1, 5, 6], [1], [1, 9, 30, 11, 2, 17]]
PLAIN = {"advantage": "group-mean"}  # a baseline for each prompt, and nothing else
GOOD = {"prompt_ids": [1, 5], "response_ids": [7, 8], "log_probs": [-1.0, -1.0], "reward": 1.0}


def whole(sample):
    return np.concatenate([sample.prompt_ids, sample.response_ids])


def groups_of(policy, step=0, samples=6, reward=None, **more):
    reward = reward or (lambda sample: float((sample.response_ids == 7).sum()) + 0.1 * len(sample.response_ids))
    drawn = policy.sample(PROMPTS, samples=samples, max_tokens=8, step=step)
    return [[sample.trajectory(reward(sample), **more) for sample in group] for group in drawn]


def values_of(policy):
    return {name: values.copy() for name, values in policy.parameters().items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def trained(policy, steps=2):
    for _ in range(steps):
        policy.forward_backward(groups_of(policy, policy.steps), PLAIN)
        policy.optim_step(0.02)
    return policy
