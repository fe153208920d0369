"""Two steps of PPO with a learned critic, `rein train --critic`, beside the same in torch with autograd in float64.

All weights of policy and critic train, two epochs of two minibatches a step, so that values move beyond their clip and
ratios away from 1. The critic is a model that transformers wrote (…ForSequenceClassification), and what rein saves is
read by transformers again. Written from the formulas, a sequence at a time, with nothing of rein in them."""

import copy
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch_trainer
from test_three_steps import SIZES
from torch_trainer import oracle
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

ROOT = Path(__file__).resolve().parents[3]
CONFIG = LlamaConfig(**SIZES, num_labels=1, pad_token_id=0)
LEARNING_RATE, CRITIC_RATE, BETA, GAMMA, LAMBDA, VALUE_CLIP, EPSILON = 1e-3, 2e-3, 0.1, 0.98, 0.9, 0.003, 0.05
EPOCHS, MINIBATCHES = 2, 2


def rein(*arguments):
    done = subprocess.run([ROOT / "build/rein", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Folders of a policy and a critic, and two files of groups recorded by a policy that is a little off."""
    alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "build/rein"], cwd=ROOT, env=alone, capture_output=True, check=True)
    folder = tmp_path_factory.mktemp("critic")
    policy = oracle.make(LlamaConfig(**SIZES), seed=31)
    policy.save_pretrained(folder / "policy")
    critic = AutoModelForSequenceClassification.from_config(CONFIG).float().eval()
    oracle.randomize(critic, 32)
    critic.model.embed_tokens.padding_idx = None  # torch would leave out the gradient of that row
    critic.save_pretrained(folder / "critic")
    paths = [folder / f"{step}.jsonl" for step in range(2)]
    sampler = copy.deepcopy(policy).double()
    for step, path in enumerate(paths):
        torch_trainer.write(path, sampler, 300 + step, SIZES["vocab_size"])
    return folder, policy, critic, paths


def log_probs(model, r):
    return torch_trainer.log_probs(model, r.prompt, r.ids)[r.mask]


def values(critic, r):
    """V_t is the head on the hidden state before token t."""
    hidden = critic.model(torch.tensor([r.prompt + r.ids]), use_cache=False).last_hidden_state[0]
    before = hidden[len(r.prompt) - 1 : len(r.prompt) + len(r.ids) - 1]
    return critic.score(before)[:, 0][r.mask]


def advantages(rewards, v):
    """A_t = Σ_l (γλ)^l·δ_{t+l}."""
    after = torch.cat([v[1:], torch.zeros(1, dtype=v.dtype)])
    delta = rewards + GAMMA * after - v
    decay = [(GAMMA * LAMBDA) ** torch.arange(len(v) - t, dtype=v.dtype) for t in range(len(v))]
    return torch.stack([(decay[t] * delta[t:]).sum() for t in range(len(v))])


def valued(groups, first, critic):
    """For each response: old values, returns, advantages whitened over the step."""
    steps = []
    with torch.no_grad():
        for r in (r for g in groups for r in g):
            v = values(critic, r)
            rewards = -BETA * (r.old[r.mask] - log_probs(first, r))
            rewards[-1] += r.reward
            steps.append((v, advantages(rewards, v)))
    every = torch.cat([a for _, a in steps])
    returns = torch.cat([v + a for v, a in steps])
    scale = (every.var() + 1e-8).sqrt()
    measured = {
        "advantages/mean": every.mean(),
        "advantages/std": every.std(),
        "critic/return_mean": returns.mean(),
        "critic/value_mean": torch.cat([v for v, _ in steps]).mean(),
        "critic/explained_variance": 1 - every.var() / returns.var(),
    }
    whitened = [(v, v + a, (a - every.mean()) / scale) for v, a in steps]
    sizes = [len(g) for g in groups]
    at = [sum(sizes[:i]) for i in range(len(sizes))]
    return [whitened[i : i + n] for i, n in zip(at, sizes)], {k: float(x) for k, x in measured.items()}


def adamw(model, rate):
    return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), eps=1e-8, weight_decay=0)


def descend(optimizer, model, loss):
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def ppo(policy, responses, step):
    losses = []
    for r, (_, _, a) in zip(responses, step):
        ratio = (log_probs(policy, r) - r.old[r.mask]).exp()
        losses.append(-torch.minimum(ratio * a, ratio.clamp(1 - EPSILON, 1 + EPSILON) * a))
    return torch.cat(losses).mean()


def value_loss(critic, responses, step):
    losses, clipped = [], []
    for r, (old, target, _) in zip(responses, step):
        v = values(critic, r)
        free, near = (v - target) ** 2, (v.clamp(old - VALUE_CLIP, old + VALUE_CLIP) - target) ** 2
        losses.append(torch.maximum(free, near))
        clipped.append(near > free)
    return 0.5 * torch.cat(losses).mean(), torch.cat(clipped).double().mean()


def train(policy, critic, paths):
    first = copy.deepcopy(policy)
    optimizers = adamw(policy, LEARNING_RATE), adamw(critic, CRITIC_RATE)
    history = []
    for path in paths:
        groups = torch_trainer.read(path, torch.float64)
        steps, measured = valued(groups, first, critic)
        losses, shares = [], []
        for _ in range(EPOCHS):
            for b in range(MINIBATCHES):
                part = slice(len(groups) * b // MINIBATCHES, len(groups) * (b + 1) // MINIBATCHES)
                responses, step = sum(groups[part], []), sum(steps[part], [])
                descend(optimizers[0], policy, ppo(policy, responses, step))
                loss, share = value_loss(critic, responses, step)
                descend(optimizers[1], critic, loss)
                losses.append(loss.item())
                shares.append(share.item())
        passes = len(losses)
        history.append(measured | {"critic/loss": sum(losses) / passes, "critic/clip_fraction": sum(shares) / passes})
    return history


def off(ours, start, right):
    """How far from where it should be, relative to how far it should have gone."""
    apart = sum((ours[k].double() - right[k]).norm() ** 2 for k in right)
    gone = sum((right[k] - start[k].double()).norm() ** 2 for k in right)
    return (apart / gone).sqrt().item()


@pytest.fixture(scope="module")
def trained(material):
    folder, policy, critic, paths = material
    run = folder / "run"
    new = ["--model", folder / "policy", "--critic", folder / "critic", "--full", "--preset", "ppo"]
    new += ["--gae-gamma", GAMMA, "--gae-lambda", LAMBDA, "--epsilon", EPSILON, "--value-clip", VALUE_CLIP]
    new += ["--kl-reward-coef", BETA, "--learning-rate", LEARNING_RATE, "--critic-learning-rate", CRITIC_RATE]
    new += ["--epochs", EPOCHS, "--minibatches", MINIBATCHES, "--kl-penalty-reference-step", 0]
    for step, path in enumerate(paths):
        rein("train", run, "--groups", path, *(new if step == 0 else []))
    right_policy, right_critic = copy.deepcopy(policy).double(), copy.deepcopy(critic).double()
    history = train(right_policy, right_critic, paths)
    return run, right_policy, right_critic, history


def test_metrics(trained):
    run, _, _, history = trained
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert len(lines) == len(history) == 2
    for mine, right in zip(lines, history):
        for name, x in right.items():
            assert mine[name] == pytest.approx(x, rel=1e-3, abs=1e-5), name
    assert all(0.1 < right["critic/clip_fraction"] < 0.9 for right in history)  # the clip acts


def test_policy(material, trained):
    _, policy, _, _ = material
    run, right, _, _ = trained
    ours = type(policy).from_pretrained(run / "checkpoints/0002").state_dict()
    distance = off(ours, policy.state_dict(), right.state_dict())
    print(f"policy: off by {distance:.1e} of the way")
    assert distance <= 5e-4


def test_critic(material, trained):
    _, _, critic, _ = material
    run, _, right, _ = trained
    ours = LlamaForSequenceClassification.from_pretrained(run / "checkpoints/0002/critic").state_dict()
    distance = off(ours, critic.state_dict(), right.state_dict())
    print(f"critic: off by {distance:.1e} of the way")
    assert distance <= 5e-4


def test_what_is_compared_is_sharp(material, trained):
    """Without whitening over the step the policy would be elsewhere, by far more than what is tolerated."""
    folder, policy, _, paths = material
    _, right, _, _ = trained
    run = folder / "sharp"
    new = ["--model", folder / "policy", "--critic", folder / "critic", "--full", "--preset", "ppo"]
    new += ["--gae-gamma", GAMMA, "--gae-lambda", 0.8, "--epsilon", EPSILON, "--value-clip", VALUE_CLIP]
    new += ["--kl-reward-coef", BETA, "--learning-rate", LEARNING_RATE, "--critic-learning-rate", CRITIC_RATE]
    new += ["--epochs", EPOCHS, "--minibatches", MINIBATCHES, "--kl-penalty-reference-step", 0]
    for step, path in enumerate(paths):
        rein("train", run, "--groups", path, *(new if step == 0 else []))
    ours = type(policy).from_pretrained(run / "checkpoints/0002").state_dict()
    assert off(ours, policy.state_dict(), right.state_dict()) > 0.02
