"""advantages.py - reward shaping and advantage estimators in torch, each from its paper. All are constants for the
gradient.

r is one reward a sequence. Every function returns one number a sequence, or one a token where the name says so.
"""

from itertools import combinations

import torch


# ------------------------------------------------------------------------------------------------------------ shaping
def budget_linear(step, r, token_budget, budget_penalty_coef):
    """Kimi K2 (2507.20534): r − λ·max(0, L − B)."""
    return r - budget_penalty_coef * torch.relu(step.length - token_budget)


def budget_truncate(step, r, token_budget, budget_penalty):
    """Kimi K2, its own rule: over the budget, the reward is −penalty."""
    return torch.where(step.length > token_budget, torch.full_like(r, -budget_penalty), r)


def overlong(step, r, overlong_max, overlong_cushion):
    """DAPO (2503.14476), eq. 13: 0 up to Lmax − Lc, then falling to −1 at Lmax."""
    return r + ((overlong_max - overlong_cushion - step.length) / overlong_cushion).clamp(-1, 0)


def length_reward(step, r, length_weight, correct=None):
    """Kimi k1.5 (2501.12599), 2.3.3: λ = 0.5 − (L − min)/(max − min); λ if correct, min(0, λ) if not; 0 when max =
    min."""
    right = r > 0 if correct is None else torch.tensor(correct)
    bonus = torch.zeros_like(r)
    for members in step.groups():
        length = step.length[members]
        if length.max() > length.min():
            value = 0.5 - (length - length.min()) / (length.max() - length.min())
            bonus[members] = torch.where(right[members], value, value.clamp(max=0))
    return r + length_weight * bonus


# --------------------------------------------------------------------------------------------------------- estimators
def by_group(rule):
    """An estimator that compares a response with its group: equal rewards and groups of one have nothing to compare."""

    def estimate(step, r, **options):
        out = torch.zeros_like(r)
        for members in step.groups():
            rewards = r[members]
            if len(rewards) > 1 and rewards.max() > rewards.min():
                out[members] = rule(rewards, length=step.length[members], batch=r, **options)
        return out

    return estimate


@by_group
def group_mean(r, **_):
    """Dr. GRPO (2503.20783)."""
    return r - r.mean()


@by_group
def group_std(r, advantage_eps=1e-6, **_):
    """GRPO (2402.03300), with the unbiased std."""
    return (r - r.mean()) / (r.std(unbiased=True) + advantage_eps)


@by_group
def batch_std(r, batch, advantage_eps=1e-6, **_):
    """TRL's scale_rewards="batch": the group's mean, the step's std."""
    return (r - r.mean()) / (batch.std(unbiased=True) + advantage_eps)


@by_group
def leave_one_out(r, **_):
    """RLOO (2402.14740): the baseline is the mean of the others."""
    others = (r.sum() - r) / (len(r) - 1)
    return r - others


@by_group
def opo(r, length, **_):
    """OPO (2505.23585): the baseline is the length-weighted mean."""
    return r - (length * r).sum() / length.sum()


@by_group
def max_rl(r, **_):
    """MaxRL (2602.02710): (r − mean)/mean, 0 when the mean is 0."""
    return (r - r.mean()) / r.mean() if r.mean() != 0 else torch.zeros_like(r)


def pass_at_k(step, r, pass_k=None):
    """2503.19595: what a response adds to the best of k, over all choices of the k − 1 others."""
    out = torch.zeros_like(r)
    for members in step.groups():
        rewards = r[members].tolist()
        k = pass_k or len(rewards)
        for at, i in enumerate(members.tolist()):
            others = rewards[:at] + rewards[at + 1 :]
            best = [max(subset) for subset in combinations(others, k - 1)] if len(rewards) > 1 else []
            out[i] = sum(max(rewards[at], b) - b for b in best) / len(best) if best else 0.0
    return out


def remax(step, r):
    """ReMax (2310.10505): minus the greedy response's reward."""
    return r - torch.tensor(step.batch.baselines)


def gdpo(step, components, weights, advantage_eps=1e-6):
    """GDPO (2601.05242): each component normalised in its group, weighted sum, normalised over the responses of the
    step."""
    total = sum(w * group_std(step, components[:, k], advantage_eps=advantage_eps) for k, w in enumerate(weights))
    if len(total) < 2:
        return torch.zeros_like(total)
    return (total - total.mean()) / (total.std(unbiased=True) + advantage_eps)


# ---------------------------------------------------------------------------------------------- one advantage a token
def token_rewards(step, r, token_kl, coef):
    """The reward on the last trained token, −coef·k1 on every one."""
    out = -coef * token_kl
    for i, run in enumerate(step.token_runs()):
        if len(run):
            out[run[-1]] += r[i]
    return out


def whitened_returns(step, rewards_of_tokens, advantage_eps=1e-8):
    """REINFORCE++ (2501.03262): the return from t on, normalised over all trained tokens of the step."""
    returns = torch.zeros_like(rewards_of_tokens)
    for run in step.token_runs():
        returns[run] = rewards_of_tokens[run].flip(0).cumsum(0).flip(0)
    if len(returns) < 2:
        return torch.zeros_like(returns)
    return (returns - returns.mean()) / torch.sqrt(returns.var(unbiased=True) + advantage_eps)


def gae(step, rewards_of_tokens, gae_gamma=1.0, gae_lambda=0.95):
    """GAE (1506.02438) by its sum: A_t = Σ_l (γλ)^l δ_{t+l}, δ_t = r_t + γV_{t+1} − V_t, over trained tokens."""
    out = torch.zeros_like(rewards_of_tokens)
    for run in step.token_runs():
        value = torch.cat([step.values[run], torch.zeros(1, dtype=torch.float64)])
        delta = rewards_of_tokens[run] + gae_gamma * value[1:] - value[:-1]
        for at in range(len(run)):
            discount = (gae_gamma * gae_lambda) ** torch.arange(len(run) - at, dtype=torch.float64)
            out[run[at]] = (discount * delta[at:]).sum()
    return out


def balance(advantage, advantage_balance):
    """ART: b > 0 scales negative advantages by 1 − b, b < 0 positive ones by 1 + b."""
    shrink = advantage < 0 if advantage_balance > 0 else advantage > 0
    return torch.where(shrink, advantage * (1 - abs(advantage_balance)), advantage)


def kl_penalty(step, advantage, source, coef, scope="batch", per_sequence=False):
    """ART #562: A_t + c·(avg − d_t), d = stop(source − ref), avg over the scope; per sequence, D_i = Σ_t d_t in its
    place."""
    d = (source - step.ref).detach()
    unit_sequence = step.sequence
    if per_sequence:
        unit_sequence = torch.nonzero(step.n > 0).flatten()
        d = step.sequence_sum(d)[unit_sequence]
    label = {"batch": torch.zeros_like(unit_sequence), "group": step.group[unit_sequence], "sequence": unit_sequence}[
        scope
    ]
    average = torch.zeros_like(d)
    for scope_id in label.unique():
        average[label == scope_id] = d[label == scope_id].mean()
    change = coef * (average - d)
    if per_sequence:
        spread = torch.zeros(step.n_sequences, dtype=torch.float64)
        spread[unit_sequence] = change
        change = step.to_tokens(spread)
    return advantage + change
