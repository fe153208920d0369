"""losses.py - surrogates, ratios, mismatch corrections, KL and aggregation in torch, each from its paper.

Written with detach() where the paper stops the gradient; autograd does the rest. Nothing is translated from the C code.
"""

import torch


# ------------------------------------------------------------------------------------------------------------- ratios
def log_ratio(step, level):
    """The log of R, one a token."""
    d = step.d
    sequence = step.to_tokens(step.sequence_mean(d))
    return {
        "token": lambda: d,
        "sequence": lambda: sequence,  # GSPO (2507.18071), eq. 7
        "sequence-sum": lambda: step.to_tokens(step.sequence_sum(d)),
        "sequence-token": lambda: sequence.detach() + step.lp - step.lp.detach(),  # GSPO-token, eq. 14
        "average": lambda: torch.log((d.exp() + sequence.exp()) / 2),  # ART
        "geometric-average": lambda: (d + sequence) / 2,
    }[level]()


# -------------------------------------------------------------------------------------------- surrogates, one a token
def clip(ratio, advantage, epsilon=0.2, epsilon_high=None):
    """PPO (1707.06347), eq. 7; clip-higher is DAPO's."""
    high = epsilon if epsilon_high is None else epsilon_high
    return -torch.min(ratio * advantage, ratio.clamp(1 - epsilon, 1 + high) * advantage)


def dual_clip(ratio, advantage, epsilon=0.2, epsilon_high=None, dual_clip=3.0):
    """1912.09729: for A < 0 the objective is at least cA."""
    loss = clip(ratio, advantage, epsilon, epsilon_high)
    return torch.where(advantage < 0, torch.min(loss, -dual_clip * advantage), loss)


def cispo(ratio, advantage, lp, epsilon=1.0, epsilon_high=4.0):
    """MiniMax-M1 (2506.13585): the clipped weight is a constant."""
    return -ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * lp


def squared(log_r, advantage, tau):
    """Kimi k1.5 (2501.12599): (A − τ log R)²."""
    return (advantage - tau * log_r) ** 2


def dro(log_r, advantage, lp, dro_beta):
    """2405.19107, the token form: −(A·lp − β/2·(log R)²)."""
    return -(advantage * lp - dro_beta / 2 * log_r**2)


def gmpo(step, advantage, epsilon=0.4, epsilon_high=None):
    """2507.20673: −A·(Π ρ̃)^{1/n}, each log-ratio clipped on the side that the advantage pushes to."""
    high = epsilon if epsilon_high is None else epsilon_high
    d = step.d
    kept = torch.where(advantage > 0, d.clamp(max=high), d.clamp(min=-epsilon))
    return -advantage * step.to_tokens(step.sequence_mean(kept).exp())


def sapo(ratio, advantage, sapo_tau_positive=1.0, sapo_tau_negative=1.05):
    """2511.20347: a sigmoid gate in place of the clip."""
    tau = torch.where(
        advantage > 0,
        torch.tensor(sapo_tau_positive, dtype=torch.float64),
        torch.tensor(sapo_tau_negative, dtype=torch.float64),
    )
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantage


def vespo(ratio, advantage, lp, k=(2.0, 3.0), rate=(3.0, 2.0)):
    """2602.10693: the weight R^k·e^{λ(1−R)}, a constant; (k, λ) by the sign of A."""
    power = torch.where(advantage < 0, k[1], k[0])
    speed = torch.where(advantage < 0, rate[1], rate[0])
    return -(ratio**power * torch.exp(speed * (1 - ratio))).detach() * advantage * lp


def topr(ratio, advantage, lp, positive=(1.0, 1.0), negative=(0.0, 1.0)):
    """2503.14286: positives with weight 1, negatives with min(R, 1)."""
    weight = torch.where(advantage < 0, ratio.clamp(*negative), ratio.clamp(*positive))
    return -weight.detach() * advantage * lp


def dppo(ratio, advantage, lp, old, divergence="tv", dppo_delta=None, dppo_ratio_cap=None):
    """2602.04879: no gradient where R moves further away, as A asks, and the token's probability moved by more than
    δ."""
    p, q = lp.exp(), old.exp()
    moved = (p - q).abs() if divergence == "tv" else q * (old - lp) + (1 - q) * torch.log((1 - q) / (1 - p))
    limit = dppo_delta if dppo_delta is not None else {"tv": 0.15, "kl": 0.05}[divergence]
    away = ((advantage > 0) & (ratio > 1)) | ((advantage < 0) & (ratio < 1))
    weight = ratio if dppo_ratio_cap is None else ratio.clamp(max=dppo_ratio_cap)
    return -torch.where(away & (moved > limit), torch.zeros_like(weight), weight).detach() * advantage * lp


def luspo(step, ratio, advantage, epsilon=0.002, epsilon_high=0.0025):
    """2602.05261: GSPO times the length of the sequence."""
    return step.to_tokens(step.n) * clip(ratio, advantage, epsilon, epsilon_high)


# -------------------------------------------------------------------------------------------------------- corrections
def mismatch_weight(step, kind, tis_cap=2.0, low=0.5, high=None):
    """w = exp(old − samp), of a token or a whole sequence: truncated (TIS), or 0 outside [low, high] (IcePop,
    2510.18855)."""
    gap = step.old - step.sample
    token, rule = kind.split("-")
    weight = (gap if token == "token" else step.to_tokens(step.sequence_sum(gap))).exp()
    if rule == "tis":
        return weight.clamp(max=tis_cap)
    high = high if high is not None else {"token": 5.0, "sequence": 2.0}[token]
    return torch.where((weight >= low) & (weight <= high), weight, torch.zeros_like(weight))


def off_policy_keep(step, advantage, delta):
    """DeepSeek-V3.2 (2512.02556), eq. 9: 0 where A < 0 in a sequence with mean(samp − lp) > δ."""
    drift = step.to_tokens(step.sequence_mean(step.sample - step.lp.detach()))
    return torch.where((advantage < 0) & (drift > delta), 0.0, 1.0).to(torch.float64)


def top_entropy_keep(step, share):
    """2506.01939: 1 where the entropy is at or above the quantile 1 − share of the trained tokens."""
    threshold = torch.quantile(step.entropies, 1 - share)
    return (step.entropies >= threshold).to(torch.float64)


# ----------------------------------------------------------------------------------------------------------------- KL
def kl(step, estimator, direction="ref_over_current", clamp=None):
    """Schulman's k1, k2, k3 of x = ref − lp, |x|, and times ρ with the gradient through ρ (DeepSeek-V3.2, eq. 7)."""
    x = step.ref - step.lp if direction == "ref_over_current" else step.lp - step.ref
    if clamp is not None:
        x = x.clamp(-clamp, clamp)
    plain = estimator.removeprefix("is-")
    value = {"k1": lambda: -x, "k2": lambda: x**2 / 2, "k3": lambda: torch.expm1(x) - x, "abs": lambda: x.abs()}[
        plain
    ]()
    return step.d.exp() * value if estimator != plain else value


# -------------------------------------------------------------------------------------------------------- aggregation
def aggregate(step, x, aggregation="token-mean", max_response_length=None):
    return {
        "token-mean": lambda: step.mean_over_tokens(x),
        "token-sum": lambda: x.sum(),
        "seq-mean-token-mean": lambda: step.mean_of_sequence_means(x),
        "seq-mean-token-sum": lambda: step.mean_of_sequence_sums(x),
        "dr-grpo": lambda: step.mean_of_sequence_sums(x) / max_response_length,
    }[aggregation]()
