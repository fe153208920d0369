"""One step of reinforcement learning in PyTorch, as TRL's GRPO trainer makes it, without the trainer's own overhead:
32 prompts × 8 responses drawn with a cache of keys and values, rewards, log-probabilities of the reference (the model
without its adapter), GRPO with k3, backward, AdamW on a LoRA of rank 8.

Better than the trainer does: a prompt is read once for its 8 responses, the adapter is merged into a copy of the
weights for drawing, and only logits that are needed are computed. The first update of a batch has the old policy at
hand: its log-probabilities are those of the forward pass, detached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import torch
from peer import best
from torch.nn.functional import cross_entropy
from torch_models import Lora, add_lora, make_ids, make_model, merge
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils.logging import disable_progress_bar

ROOT = Path(__file__).parents[2]
PROMPTS, RESPONSES = 32, 8

# ---------------------------------------------------------------------------------------------------------------- tasks


def sums_task():
    """models/sums on the first prompts of its task; a response is right if the number after its last = is."""
    rein = next(
        p for p in (os.environ.get("REIN"), ROOT / "build/rein", shutil.which("rein")) if p and Path(p).exists()
    )
    printed = subprocess.run([rein, "task", "sums", "--count", str(PROMPTS), "--json"], check=True, capture_output=True)
    examples = [json.loads(line) for line in printed.stdout.splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/sums")
    ids = [tokenizer(example["prompt"]).input_ids for example in examples]

    def reward(i, response):
        found = re.findall(r"=\s*(-?\d+)", tokenizer.decode(response, skip_special_tokens=True))
        return float(bool(found) and found[-1] == examples[i // RESPONSES]["answer"])

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(ROOT / "models/sums", dtype=torch.float32)
    return SimpleNamespace(model=model, prompts=ids, reward=reward, end=0, longest=64, rows=64)


def smollm_task():
    """Random weights: nothing ends a response, and a reward is as good as another."""
    prompts = [ids.tolist() for ids in make_ids("smollm", PROMPTS, 32)]

    def share_of_even(i, response):
        return sum(token % 2 == 0 for token in response) / len(response)

    return SimpleNamespace(
        model=make_model("smollm"), prompts=prompts, reward=share_of_even, end=None, longest=16, rows=16
    )


def padded_left(prompts):
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


def positions(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


# ----------------------------------------------------------------------------------------------------------------- step


@torch.no_grad()
def draw(model, ids, mask, task):
    """The responses [n, ≤ longest] and which of their tokens count: all up to and with the end. All are drawn at once;
    it is over when each has ended."""
    cache = DynamicCache()
    out = model(ids, attention_mask=mask, position_ids=positions(mask), past_key_values=cache, logits_to_keep=1)
    cache.batch_repeat_interleave(RESPONSES)
    logits, mask = (t.repeat_interleave(RESPONSES, 0) for t in (out.logits[:, -1], mask))
    going = torch.ones(len(mask), dtype=torch.bool)
    drawn, counted = [], []
    for _ in range(task.longest):
        chosen = torch.multinomial(torch.softmax(logits, -1), 1)
        drawn.append(chosen)
        counted.append(going)
        going = going & (chosen[:, 0] != task.end) if task.end is not None else going
        if not going.any() or len(drawn) == task.longest:
            break
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        place = mask.sum(1, keepdim=True) - 1
        logits = model(chosen, attention_mask=mask, position_ids=place, past_key_values=cache).logits[:, -1]
    return torch.cat(drawn, 1), torch.stack(counted, 1)


def log_probs_of(model, ids, mask, length):
    """Of the last `length` tokens; logits of no others."""
    out = model(
        ids, attention_mask=mask, position_ids=positions(mask), use_cache=False, logits_to_keep=length + 1
    ).logits[:, :-1]
    return -cross_entropy(out.flatten(0, 1), ids[:, -length:].flatten(), reduction="none").view(len(ids), length)


def reference_of(model, ids, mask, length):
    Lora.enabled = False
    with torch.no_grad():
        found = log_probs_of(model, ids, mask, length)
    Lora.enabled = True
    return found


def update(policy, batch, rows, beta=0.04, epsilon=0.2):
    """Gradients of GRPO, some sequences at a time."""
    n, length = batch.responses.shape
    for i in range(0, n, rows):
        part = slice(i, i + rows)
        ids, mask, counted = batch.ids[part], batch.mask[part], batch.counted[part].float()
        ref = reference_of(policy, ids, mask, length)
        log_probs = log_probs_of(policy, ids, mask, length)
        ratio = torch.exp(log_probs - log_probs.detach())
        advantages = batch.advantages[part, None]
        surrogate = torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
        to_ref = ref - log_probs
        per_token = (beta * (torch.exp(to_ref) - to_ref - 1) - surrogate) * counted
        ((per_token.sum(1) / counted.sum(1)).sum() / n).backward()


class Loop:
    def __init__(self, task):
        self.task, self.policy = task, task.model
        self.sampler = deepcopy(self.policy).eval()
        self.parameters = add_lora(self.policy)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)
        self.ids, self.mask = padded_left(task.prompts)

    def step(self, prompts=PROMPTS):
        ids, mask = self.ids[:prompts], self.mask[:prompts]
        merge(self.sampler, self.policy)
        responses, counted = draw(self.sampler, ids, mask, self.task)
        rewards = torch.tensor([self.task.reward(i, r[c].tolist()) for i, (r, c) in enumerate(zip(responses, counted))])
        groups = rewards.float().view(prompts, RESPONSES)
        advantages = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-6)
        ids, mask = (t.repeat_interleave(RESPONSES, 0) for t in (ids, mask))
        batch = SimpleNamespace(
            responses=responses,
            counted=counted,
            ids=torch.cat([ids, responses], 1),
            mask=torch.cat([mask, counted.long()], 1),
            advantages=advantages.flatten(),
        )
        update(self.policy, batch, self.task.rows)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def seconds(name):
    """Of a whole step, after one with a few prompts: the best of six for the small model, of two for the large one."""
    torch.manual_seed(0)
    loop = Loop(sums_task() if name == "sums" else smollm_task())
    loop.step(4)
    return best(loop.step, rounds=6 if name == "sums" else 2, warm=0)
