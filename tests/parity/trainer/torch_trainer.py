"""torch_trainer.py - the same training with torch and PEFT: models and LoRA of Hugging Face, autograd, torch's AdamW.

The losses are written from the formulas of the papers, a sequence at a time, with nothing of rein in them."""

import copy
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import peft
import torch

# models with lively weights, and their float64 copies
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))
import oracle


@dataclass
class Response:
    prompt: list
    ids: list
    mask: torch.Tensor  # bool: trains
    old: torch.Tensor  # log-probs as recorded
    reward: float


# ---- groups
def read(path, dtype):
    """Groups of responses, from rein's exact form."""
    groups = []
    for line in Path(path).read_text().splitlines():
        groups.append([])
        for t in json.loads(line)["trajectories"]:
            old = torch.tensor([0.0 if x is None else x for x in t["logprobs"]], dtype=dtype)
            mask = torch.tensor(t["mask"], dtype=torch.bool)
            groups[-1].append(Response(t["prompt_ids"], t["response_ids"], mask, old, t["reward"]))
    return groups


def write(path, model, seed, vocabulary):
    """Random groups; the recorded log-probs are the model's, a little off, as floats. Some tokens do not train."""
    g = torch.Generator().manual_seed(seed)
    lines = []
    for size in (4, 3, 5):
        prompt = torch.randint(vocabulary, (int(torch.randint(3, 12, (1,), generator=g)),), generator=g).tolist()
        trajectories = []
        for _ in range(size):
            n = int(torch.randint(2, 14, (1,), generator=g))
            ids = torch.randint(vocabulary, (n,), generator=g).tolist()
            mask = torch.rand(n, generator=g) > 0.15
            mask[0] = True
            with torch.no_grad():
                noise = torch.randn(n, generator=g, dtype=torch.float64)
                old = (log_probs(model, prompt, ids).double() + 0.1 * noise).clamp(max=-1e-3)
            known = [float(x) if m else None for x, m in zip(old.float(), mask)]
            reward = round(float(torch.randn(1, generator=g)), 3)
            trajectories.append(
                dict(prompt_ids=prompt, response_ids=ids, logprobs=known, mask=mask.int().tolist(), reward=reward)
            )
        lines.append(json.dumps(dict(trajectories=trajectories)))
    Path(path).write_text("\n".join(lines) + "\n")


def log_probs(model, prompt, ids):
    logits = model(torch.tensor([prompt + ids]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]


# ---- losses; lp, ref: [group][response] log-probs of the tokens that train
def group_std(rewards, eps):
    r = torch.tensor(rewards, dtype=torch.float64)
    return (r - r.mean()) / (r.std() + eps)


def k2(groups, lp, old, _, o):
    """Kimi K2, arXiv 2507.20534: mean_i (A_i - tau·Σ_t (lp - old))²; A of r - lambda·max(0, L - B), less its mean."""
    units = []
    for group, lps, olds in zip(groups, lp, old):
        adjusted = [
            r.reward - o["budget_penalty_coef"] * max(0, len(x) - o["token_budget"]) for r, x in zip(group, lps)
        ]
        mean = sum(adjusted) / len(adjusted)
        units += [(a - mean - o["tau"] * (x - y).sum()) ** 2 for a, x, y in zip(adjusted, lps, olds)]
    return torch.stack(units).mean()


def grpo(groups, lp, old, ref, o):
    """DeepSeekMath, arXiv 2402.03300, eq. 3, with ART's penalised advantages: A_t + c·(avg d - d_t), d = lp - ref."""
    d = [[(x - y).detach() for x, y in zip(*pair)] for pair in zip(lp, ref)]
    average = torch.cat(sum(d, [])).mean()
    units = []
    for group, lps, olds, refs, ds in zip(groups, lp, old, ref, d):
        advantages = group_std([r.reward for r in group], o["advantage_eps"])
        for a, x, y, z, k in zip(advantages, lps, olds, refs, ds):
            a = a + o["kl_penalty_coef"] * (average - k)
            ratio = (x - y).exp()
            clipped = ratio.clamp(1 - o["epsilon"], 1 + o["epsilon"])
            k3 = (z - x).exp() - (z - x) - 1
            units.append((-torch.minimum(ratio * a, clipped * a) + o["kl_loss_coef"] * k3).mean())
    return torch.stack(units).mean()


def exact(groups, lp, old, kl, o):
    """The clipped surrogate with KL(policy‖reference) over the whole vocabulary: in the loss, and in the reward the
    sum of that of the later tokens, detached."""
    units = []
    for group, lps, olds, kls in zip(groups, lp, old, kl):
        advantages = group_std([r.reward for r in group], o["advantage_eps"])
        for a, x, y, k in zip(advantages, lps, olds, kls):
            later = (k.sum() - k.cumsum(0)).detach()
            a, ratio = a - o["kl_reward_exact"] * later, (x - y).exp()
            clipped = ratio.clamp(1 - o["epsilon"], 1 + o["epsilon"])
            units.append((-torch.minimum(ratio * a, clipped * a) + o["kl_loss_coef"] * k).mean())
    return torch.stack(units).mean()


def cispo(groups, lp, old, _, o):
    """MiniMax-M1, arXiv 2506.13585, with ART's constants and mean: -stop(clip(ratio, 0, 5))·A·lp."""
    units = []
    for group, lps, olds in zip(groups, lp, old):
        advantages = group_std([r.reward for r in group], o["advantage_eps"])
        for a, x, y in zip(advantages, lps, olds):
            units.append((-(x - y).exp().clamp(0, 5).detach() * a * x).mean())
    return torch.stack(units).mean()


# ---- training
def wrap(model, adapter, dtype):
    """PEFT's own LoRA around the model, from the files, in this precision."""
    base = oracle.exact(model) if dtype == torch.float64 else copy.deepcopy(model)
    wrapped = peft.PeftModel.from_pretrained(base, adapter, is_trainable=True)
    return wrapped.to(dtype).train()  # no dropout anywhere: train() changes nothing


def factors(wrapped):
    return {k.replace(".default", ""): p for k, p in wrapped.named_parameters() if p.requires_grad}


def distributions(model, r):
    logits = model(torch.tensor([r.prompt + r.ids]), use_cache=False).logits[0, len(r.prompt) - 1 : -1]
    return logits.log_softmax(-1)[r.mask]


def all_exact_kls(policy, first, groups):
    """Over the whole vocabulary, by autograd."""
    kls = []
    for group in groups:
        kls.append([])
        for r in group:
            p = distributions(policy, r)
            with torch.no_grad():
                q = distributions(first, r)
            kls[-1].append((p.exp() * (p - q)).sum(-1))
    return kls


def all_log_probs(model, groups):
    return [[log_probs(model, r.prompt, r.ids)[r.mask] for r in group] for group in groups]


def train(model, adapter, paths, loss, options, optimizer, dtype):
    """One step on each file: [(loss, norm, kl)], and the factors by PEFT's names."""
    policy, first = wrap(model, adapter, dtype), wrap(model, adapter, dtype)
    own = factors(policy)
    adamw = torch.optim.AdamW(
        own.values(),
        lr=optimizer["learning_rate"],
        betas=(optimizer["adam_beta1"], optimizer["adam_beta2"]),
        eps=optimizer["adam_epsilon"],
        weight_decay=optimizer["weight_decay"],
    )
    steps = []
    for path in paths:
        groups = read(path, dtype)
        lp, old = all_log_probs(policy, groups), [[r.old[r.mask] for r in group] for group in groups]
        with torch.no_grad():
            ref = all_log_probs(first, groups) if loss in (grpo, exact) else lp
        kls = all_exact_kls(policy, first, groups) if loss is exact else ref
        value = loss(groups, lp, old, kls, options)
        adamw.zero_grad()
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(own.values(), optimizer["max_grad_norm"])
        adamw.step()
        kl = (torch.cat(sum(lp, [])) - torch.cat(sum(ref, []))).mean()
        steps.append((value.item(), norm.item(), kl.item()))
    return steps, {k: p.detach() for k, p in own.items()}
