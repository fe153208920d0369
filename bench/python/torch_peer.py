"""PyTorch as a peer of `rein bench`: eager, or with --compile under torch.compile, which does the rows of training.

    python bench/python/torch_peer.py [--compile] ROW

f32 everywhere but where bf16 is faster: PyTorch's products of bf16 are slow on a CPU without instructions for them.
Where there are two good ways, both are measured and the faster one counts.
"""

from __future__ import annotations

import sys
from functools import partial

from peer import CORES, answer, best, row_of, tune

if __name__ == "__main__":
    tune()

import torch
import torch_pairs
import torch_rl
from torch.nn.functional import cross_entropy
from torch_models import add_lora, make_ids, make_model
from transformers import DynamicCache

POLICY_TOKENS, POLICY_LENGTH = 16 << 20, 1021
BUDGET = (100_000, 16)
UPDATE = (64, 4 << 20)
HEAD = (1024, 896, 151936)
GIGA = 1e9

# ----------------------------------------------------------------------------------------------------------- objectives


def grpo(log_probs, old, ref, advantages, mask=None, epsilon=0.2, beta=0.04):
    """The loss of a GRPO trainer, term by term: the mean over sequences of the means over their tokens."""
    ratio = torch.exp(log_probs - old)
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    per_token = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
    to_ref = ref - log_probs
    per_token = per_token + beta * (torch.exp(to_ref) - to_ref - 1)
    if mask is None:
        return per_token.mean(1).mean()
    return ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def group_advantages(rewards, size=8):
    groups = rewards.view(-1, size)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-6)).flatten()


def policy_batch(dtype, masked):
    n = POLICY_TOKENS // POLICY_LENGTH // 8 * 8
    generator = torch.Generator().manual_seed(0)

    def normal(scale):
        return (torch.randn((n, POLICY_LENGTH), generator=generator) * scale).to(dtype)

    old = normal(0.5) - 1.5
    rewards = (torch.rand(n, generator=generator) < 0.4).to(dtype)
    mask = (torch.rand((n, POLICY_LENGTH), generator=generator) < 0.9).to(dtype) if masked else None
    return old + normal(0.02), old, old + normal(0.05), rewards, mask


def policy_loss(dtype, masked):
    """GB/s of the bytes that must move: the three inputs, the gradient, and the mask at a byte a token."""
    log_probs, old, ref, rewards, mask = policy_batch(dtype, masked)
    gradient = torch.empty_like(log_probs)

    def in_batches_of(count):
        advantages = group_advantages(rewards)
        for i in range(0, len(log_probs), count):
            part = slice(i, i + count)
            leaf = log_probs[part].detach().requires_grad_()
            loss = grpo(leaf, old[part], ref[part], advantages[part], None if mask is None else mask[part])
            (loss * (len(leaf) / len(log_probs))).backward()
            gradient[part] = leaf.grad

    # All at once, as most write it; and in micro-batches whose temporaries stay in the caches.
    seconds = min(best(lambda n=n: in_batches_of(n), rounds=5, warm=1) for n in (len(log_probs), 64))
    return log_probs.numel() * (4 * log_probs.element_size() + masked) / seconds / GIGA


def budget_rate(dtype, with_gradient):
    generator = torch.Generator().manual_seed(0)
    rewards, log_probs, noise = (torch.randn(BUDGET, generator=generator).to(dtype) for _ in range(3))
    old = log_probs + noise / 10
    lengths = torch.randint(0, 200, BUDGET, generator=generator)
    log_probs.requires_grad_(with_gradient)

    def work(budget=100, tau=0.1, penalty=0.01):
        log_probs.grad = None
        adjusted = rewards - penalty * (lengths - budget).clamp(min=0).to(dtype)
        gap = adjusted - adjusted.mean(1, keepdim=True) - tau * (log_probs - old)
        loss = (gap * gap).mean()
        if with_gradient:
            loss.backward()

    size = rewards.element_size()
    return rewards.numel() * (3 * size + 8 + (size if with_gradient else 0)) / best(work, rounds=30) / GIGA


def update_rate(dtype):
    n, p = UPDATE
    gradients, weights = torch.rand((n, p), dtype=dtype), torch.zeros(p, dtype=dtype)
    rewards, log_probs, ref = (torch.rand(n, dtype=dtype) for _ in range(3))

    def work(beta=0.1, lr=1e-3):
        torch.addmv(weights, gradients.T, rewards - beta * (log_probs - ref), alpha=lr / n)

    return gradients.numel() * gradients.element_size() / best(work) / GIGA


# --------------------------------------------------------------------------------------------------------------- models


def train(shape, lora, compiled):
    """tok/s of AdamW steps on 4 × 256 tokens, every token but the first of a sequence trained."""
    model = make_model(shape)
    parameters = add_lora(model) if lora else list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), fused=True)
    ids = make_ids(shape, 4, 256)
    labels = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-100).flatten()

    def loss_of(ids):
        logits = model(ids, use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), labels, reduction="sum") / ids.numel()

    if compiled:
        loss_of = torch.compile(loss_of, dynamic=False)

    def step():
        loss_of(ids).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    if row_of().startswith("memory "):  # the second step has everything that there will be
        return ids.numel() / best(step, rounds=1, warm=1)
    return ids.numel() / best(step, rounds=10 if shape == "small" else 4, warm=2, seconds=60)


def head(trained):
    """tok/s of log-probabilities and their gradients; the logits all at once, or of some tokens at a time."""
    tokens, width, vocabulary = HEAD
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width)
    weight = (torch.randn(vocabulary, width) * 0.02).requires_grad_(trained)
    targets = torch.arange(tokens) * 7919 % vocabulary

    def work(count):
        weight.grad = None
        for i in range(0, tokens, count):
            leaf = hidden[i : i + count].detach().requires_grad_()
            cross_entropy(leaf @ weight.T, targets[i : i + count], reduction="sum").backward()

    return tokens / min(best(partial(work, count), rounds=3, warm=1) for count in (tokens, tokens // 4))


def decode_seconds(model, shape, batch, steps):
    """The shortest step: one token for each of `batch` sequences, the draw included. The cache is the growing one: with
    the static one, which attends to empty places, a step takes a sixth longer."""
    out = model(make_ids(shape, 16).repeat(batch, 1), past_key_values=DynamicCache(), logits_to_keep=1)

    def step():
        nonlocal out
        chosen = torch.multinomial(torch.softmax(out.logits[:, -1].float(), -1), 1)
        out = model(chosen, past_key_values=out.past_key_values)

    return best(step, rounds=steps)


@torch.no_grad()
def decode(shape, batch, dtypes):
    """tok/s of the fastest type: bf16 and f32 differ by little at batch 1, beyond it f32 is well ahead."""
    steps = 48 if batch == 1 else 24
    return batch / min(decode_seconds(make_model(shape, dtype).eval(), shape, batch, steps) for dtype in dtypes)


def prefill(shape, tokens=512):
    model, ids = make_model(shape).eval(), make_ids(shape, 1, tokens)
    with torch.no_grad():
        seconds = best(lambda: torch.log_softmax(model(ids, logits_to_keep=1).logits, -1), rounds=5)
    return tokens / seconds


# ----------------------------------------------------------------------------------------------------------------- rows


def training_rows(compiled):
    return {
        f"train {shape} {kind}": partial(train, shape, kind == "lora", compiled)
        for shape, kinds in {
            "small": ("full", "lora"),
            "smollm": ("full", "lora"),
            "gemma": ("full", "lora"),
            "experts": ("full",),
        }.items()
        for kind in kinds
    }


def eager_rows():
    f32, f64, bf16 = torch.float32, torch.float64, torch.bfloat16
    rows = {
        "policy-loss f32": partial(policy_loss, f32, False),
        "policy-loss f32 mask": partial(policy_loss, f32, True),
        "policy-loss f64 mask": partial(policy_loss, f64, True),
        "head frozen": partial(head, False),
        "head trained": partial(head, True),
        "decode smollm 1": partial(decode, "smollm", 1, (f32, bf16)),
        "decode smollm 16": partial(decode, "smollm", 16, (f32,)),
        "decode smollm 64": partial(decode, "smollm", 64, (f32,)),
        "decode smollm f32 1": partial(decode, "smollm", 1, (f32,)),
        "prefill smollm": partial(prefill, "smollm"),
        "rl step sums": partial(torch_rl.seconds, "sums"),
        "rl step smollm": partial(torch_rl.seconds, "smollm"),
        "dpo step smollm": torch_pairs.dpo,
        "reward step smollm": torch_pairs.reward_model,
    }
    for name, dtype in (("f32", f32), ("f64", f64)):
        rows[f"rlhf-update {name}"] = partial(update_rate, dtype)
        rows[f"budget-loss {name}"] = partial(budget_rate, dtype, False)
        rows[f"budget-loss {name} gradient"] = partial(budget_rate, dtype, True)
    return rows


def main():
    compiled = "--compile" in sys.argv
    torch.set_num_threads(CORES)
    rows = {**training_rows(compiled), **({} if compiled else eager_rows())}
    answer(row_of(), rows, frugal=("train smollm full", "train smollm lora"))


if __name__ == "__main__":
    main()
