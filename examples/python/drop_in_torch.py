"""A small GRU learns to sort by reinforcement learning, with groups of sampled answers and rein.torch.policy_loss.

The prompt is four letters; the answer must be the same letters in order and then an end token. The model never sees a
correct answer: the reward is the share of correct positions. Each step samples 16 answers to each of 16 prompts and
makes two updates with them; the second is off-policy, so that ratios and clipping matter.

    python examples/python/drop_in_torch.py        about half a minute on two cores
"""

import time

import torch
from torch import nn

import rein.torch

LETTERS, LENGTH, END = 6, 4, 6
PROMPTS, GROUP, STEPS = 16, 16, 100


class Sorter(nn.Module):
    """Reads the prompt with one GRU cell and writes the answer with another."""

    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS + 1, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, LETTERS + 1)

    def start(self, prompts):
        counts = torch.nn.functional.one_hot(prompts, LETTERS + 1).float()
        return self.reader(self.embedding(prompts) + counts.sum(1, keepdim=True) @ self.embedding.weight)[1]

    def log_probs(self, prompts, answers):
        """The log-probability of every token of given answers [B, T], and the entropy of its distribution."""
        inputs = torch.cat([torch.full_like(answers[:, :1], END), answers[:, :-1]], dim=1)
        hidden, _ = self.writer(self.embedding(inputs), self.start(prompts))
        logits = self.head(hidden).log_softmax(-1)
        return logits.gather(-1, answers[..., None])[..., 0], -(logits.exp() * logits).sum(-1)

    @torch.no_grad()
    def sample(self, prompts, greedy=False):
        """Answers [B, LENGTH + 1], with the mask of the tokens up to the end token."""
        state, token = self.start(prompts), torch.full((len(prompts), 1), END)
        tokens = []
        for _ in range(LENGTH + 1):
            hidden, state = self.writer(self.embedding(token), state)
            logits = self.head(hidden[:, 0])
            token = logits.argmax(-1, keepdim=True) if greedy else torch.multinomial(logits.softmax(-1), 1)
            tokens.append(token)
        answers = torch.cat(tokens, dim=1)
        ended = (answers == END).cumsum(1)
        return answers, (ended == 0) | ((ended == 1) & (answers == END))


def rewards_of(prompts, answers, mask):
    """The share of correct positions, including that of the end token. Later tokens are ignored."""
    right = torch.cat([prompts.sort(dim=1).values, torch.full_like(prompts[:, :1], END)], dim=1)
    return ((answers == right) & mask).double().mean(1)


def train(model, optimizer, preset):
    prompts = torch.randint(0, LETTERS, (PROMPTS, LENGTH)).repeat_interleave(GROUP, dim=0)
    answers, mask = model.sample(prompts)
    rewards = rewards_of(prompts, answers, mask)
    with torch.no_grad():
        old, _ = model.log_probs(prompts, answers)
    for _ in range(2):
        log_probs, entropies = model.log_probs(prompts, answers)
        loss, metrics = rein.torch.policy_loss(
            log_probs,
            old,
            preset=preset,
            rewards=rewards,
            mask=mask,
            group_sizes=GROUP,
            entropies=entropies,
            entropy_coef=0.003,
            return_metrics=True,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return metrics


def sorted_share(model, prompts=1024):
    """The share of new prompts whose greedy answer is entirely correct."""
    fresh = torch.randint(0, LETTERS, (prompts, LENGTH))
    return (rewards_of(fresh, *model.sample(fresh, greedy=True)) == 1).double().mean().item()


def main():
    torch.manual_seed(0)
    model = Sorter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    started, first = time.time(), sorted_share(model)
    print("step   reward                              all right  entropy  clipped  length")
    for step in range(STEPS + 1):
        metrics = train(model, optimizer, preset="dapo")
        if step % 10 == 0:
            share, reward = sorted_share(model), metrics["reward"]
            clipped = metrics["clip_low"] + metrics["clip_high"]
            print(
                f"{step:4d}   {reward:.2f} {'#' * round(30 * reward):30s} {share:8.1%}  {metrics['entropy']:7.3f}"
                f"  {clipped:7.1%}  {metrics['length_mean']:6.2f}",
                flush=True,
            )
    last = sorted_share(model)
    print(f"\nsorted entirely right: {first:.1%} before, {last:.1%} after, in {time.time() - started:.0f} s")
    assert last > 0.8 > first, "it did not learn"


if __name__ == "__main__":
    main()
