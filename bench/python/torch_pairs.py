"""Steps on pairs in PyTorch: DPO and a reward model, as TRL's trainers make them, without the trainers' own overhead.
Both answers of all pairs are one batch; a LoRA of rank 8 trains, with AdamW. Better than the trainers do: no token is
padding, and only logits that are needed are computed. The log-probabilities of the reference (the model without its
adapter) are part of a step, as in a first epoch.
"""

from __future__ import annotations

import torch
from peer import SHAPES, best
from torch.nn.functional import cross_entropy, logsigmoid
from torch_models import Lora, add_lora, make_model

PAIRS, PROMPT, ANSWER = 8, 64, 32


def make_pairs(shape):
    """The tokens of rein's round 0: pair by pair, the chosen one first. Answers differ, prompts of a pair do not."""
    rows, places = torch.arange(2 * PAIRS)[:, None], torch.arange(PROMPT + ANSWER)[None]
    ids = torch.where(places < PROMPT, rows // 2 * 131 + places * 17, rows * 37 + places * 29)
    return ids % SHAPES[shape]["vocab_size"]


def sums(model, ids):
    logits = model(ids, use_cache=False, logits_to_keep=ANSWER + 1).logits[:, :-1]
    return -cross_entropy(logits.flatten(0, 1), ids[:, PROMPT:].flatten(), reduction="none").view(len(ids), -1).sum(1)


def stepper(parameters, loss):
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)

    def step():
        loss().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def dpo(shape="smollm", beta=0.1):
    """Seconds of a step; all pairs at once, or half of them at a time: the faster one."""
    model, ids = make_model(shape), make_pairs(shape)
    parameters = add_lora(model)

    def in_parts(count):
        def loss():
            for i in range(0, 2 * PAIRS, count):
                part = ids[i : i + count]
                Lora.enabled = False
                with torch.no_grad():
                    reference = sums(model, part)
                Lora.enabled = True
                chosen, rejected = (sums(model, part) - reference).view(-1, 2).unbind(1)
                mean = -logsigmoid(beta * (chosen - rejected)).sum() / PAIRS
                if i + count < 2 * PAIRS:
                    mean.backward()
            return mean

        return loss

    return min(best(stepper(parameters, in_parts(n)), rounds=3, warm=1) for n in (2 * PAIRS, PAIRS))


def reward_model(shape="smollm"):
    whole, ids = make_model(shape), make_pairs(shape)  # whose head is not used
    score = torch.nn.Linear(SHAPES[shape]["hidden_size"], 1, bias=False)
    parameters = [*add_lora(whole), *score.parameters()]
    model = whole.model

    def loss():
        chosen, rejected = score(model(ids, use_cache=False).last_hidden_state[:, -1]).view(-1, 2).unbind(1)
        return -logsigmoid(chosen - rejected).mean()

    return best(stepper(parameters, loss), rounds=3, warm=1)
