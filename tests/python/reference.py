"""The four operations in plain numpy, written from their formulas, independently of the C code."""

import numpy as np


def rl_budget_loss(rewards, log_probs, old, lengths, budget, tau, penalty):
    adjusted = rewards - penalty * np.maximum(0, lengths - budget)
    gap = adjusted - adjusted.mean(axis=1, keepdims=True) - tau * (log_probs - old)
    return (gap**2).mean(), -2 * tau * gap / gap.size


def gpo_objective(ratios, advantages, current, ref, epsilon, beta, direction="current_over_ref"):
    q = current / ref if direction == "current_over_ref" else ref / current
    clipped = np.clip(ratios, 1 - epsilon, 1 + epsilon)
    surrogate = np.minimum(ratios * advantages, clipped * advantages).mean()
    return surrogate - beta * (ratios * (q - np.log(q) - 1)).mean()


def rlhf_weight_update(weights, rewards, log_probs, ref, grads, beta, lr):
    return weights + lr * ((rewards - beta * (log_probs - ref))[:, None] * grads).mean(axis=0)


def kl_penalized_advantages(advantages, log_probs, ref, mask, coef, scopes):
    """`scopes` has the number of each token's scope."""
    d = log_probs - ref
    out = advantages.copy()
    for scope in np.unique(scopes):
        inside = mask & (scopes == scope)
        if inside.any():
            out[inside] += coef * (d[inside].mean() - d[inside])
    return out, d[mask].mean()


def grpo(log_probs, old, ref, mask, rewards, group, beta=0.04, epsilon=0.2, eps=1e-6):
    """GRPO with k3, mean over sequences of the mean over tokens; loss and gradient."""
    grouped = rewards.reshape(-1, group)
    std = grouped.std(axis=1, ddof=1, keepdims=True)
    advantages = ((grouped - grouped.mean(axis=1, keepdims=True)) / (std + eps)).reshape(-1, 1)
    d = np.where(mask, log_probs - old, 0)
    x = np.where(mask, ref - log_probs, 0)
    ratio = np.exp(d)
    unclipped, clipped = ratio * advantages, np.clip(ratio, 1 - epsilon, 1 + epsilon) * advantages
    weight = mask / (mask.sum(axis=1, keepdims=True) * len(rewards))
    loss = (weight * (-np.minimum(unclipped, clipped) + beta * (np.exp(x) - x - 1))).sum()
    gradient = weight * (np.where(unclipped <= clipped, -unclipped, 0) + beta * (1 - np.exp(x)))
    return loss, gradient
