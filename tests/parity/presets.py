"""presets.py - each preset of rein as its paper prints it: one function a preset, from a step to a loss.

These are not compositions of options: a constant that is wrong in rein's table of presets shows here.
"""

import advantages as adv
import losses


def reinforce(step):
    """Williams 1992: −mean_i Σ_t r·lp."""
    return -step.mean_of_sequence_sums(step.to_tokens(step.reward) * step.lp)


def rloo(step, beta=0.03):
    """2402.14740: leave-one-out advantages of r − β Σ_t (lp − ref)."""
    paid = step.reward - beta * step.sequence_sum((step.lp - step.ref).detach())
    return -step.mean_of_sequence_sums(step.to_tokens(adv.leave_one_out(step, paid)) * step.lp)


def reinforce_pp(step, beta=0.001):
    """2501.03262: the clipped loss with returns whitened over the batch's tokens."""
    rewards = adv.token_rewards(step, step.reward, (step.lp - step.ref).detach(), beta)
    return step.mean_of_sequence_means(losses.clip(step.d.exp(), adv.whitened_returns(step, rewards), 0.2))


def ppo(step):
    """1707.06347 with γ = 1, λ = 0.95."""
    rewards = adv.token_rewards(step, step.reward, (step.lp * 0).detach(), 0.0)
    return step.mean_over_tokens(losses.clip(step.d.exp(), adv.gae(step, rewards, 1.0, 0.95), 0.2))


def normalised(step):
    return step.to_tokens(adv.group_std(step, step.reward))


def grpo(step):
    """2402.03300, eq. 3 and 4, β = 0.04."""
    return step.mean_of_sequence_means(losses.clip(step.d.exp(), normalised(step), 0.2) + 0.04 * losses.kl(step, "k3"))


def dr_grpo(step, max_response_length):
    """2503.20783: no std, no length in the denominator."""
    loss = losses.clip(step.d.exp(), step.to_tokens(adv.group_mean(step, step.reward)), 0.2)
    return step.mean_of_sequence_sums(loss) / max_response_length


def dapo(step, overlong_max=20480, overlong_cushion=4096):
    """2503.14476: clip-higher, token mean, overlong shaping."""
    shaped = adv.overlong(step, step.reward, overlong_max, overlong_cushion)
    return step.mean_over_tokens(losses.clip(step.d.exp(), step.to_tokens(adv.group_std(step, shaped)), 0.2, 0.28))


def bnpo(step):
    """TRL's loss_type="bnpo": GRPO's surrogate over all tokens of the batch."""
    return step.mean_over_tokens(losses.clip(step.d.exp(), normalised(step), 0.2))


def gspo(step):
    """2507.18071, eq. 5 to 7: one clipped ratio a sequence."""
    ratio = step.sequence_mean(step.d).exp()
    loss = losses.clip(ratio, adv.group_std(step, step.reward), 3e-4, 4e-4)
    return loss[step.n > 0].sum() / step.trained_sequences


def gmpo(step):
    """2507.20673, ε = 0.4 in logs."""
    return step.mean_of_sequence_means(losses.gmpo(step, normalised(step), 0.4))


def cispo(step):
    """2506.13585."""
    return step.mean_over_tokens(losses.cispo(step.d.exp(), normalised(step), step.lp, 1.0, 4.0))


def sapo(step):
    """2511.20347."""
    return step.mean_of_sequence_means(losses.sapo(step.d.exp(), normalised(step), 1.0, 1.05))


def squared_loss(step, shaped, tau):
    """mean_i (A_i − τ Σ_t d_t)²"""
    error = adv.group_mean(step, shaped) - tau * step.sequence_sum(step.d)
    return (error[step.n > 0] ** 2).sum() / step.trained_sequences


def k15(step, tau, length_weight):
    """2501.12599, 2.3.2 and 2.3.3."""
    return squared_loss(step, adv.length_reward(step, step.reward, length_weight, step.batch.correct), tau)


def k2(step, tau, token_budget, budget_penalty_coef):
    """2507.20534, 3.2.3, with a linear penalty."""
    return squared_loss(step, adv.budget_linear(step, step.reward, token_budget, budget_penalty_coef), tau)


def deepseek_v32(step, kl_loss_coef, off_policy_mask_delta=None):
    """2512.02556, eq. 7 to 9."""
    advantage = step.to_tokens(adv.group_mean(step, step.reward))
    loss = losses.clip(step.d.exp(), advantage, 0.2)
    if off_policy_mask_delta is not None:
        loss = loss * losses.off_policy_keep(step, advantage, off_policy_mask_delta)
    return step.mean_of_sequence_means(loss + kl_loss_coef * losses.kl(step, "is-k3"))


def art(step, kl_penalty_coef=0.0):
    """OpenPipe ART, loss.py: CISPO with KL-penalised advantages, ε = 1, ε_h = 4."""
    advantage = normalised(step)
    if kl_penalty_coef:
        advantage = adv.kl_penalty(step, advantage, step.lp, kl_penalty_coef)
    return step.mean_of_sequence_means(losses.cispo(step.d.exp(), advantage, step.lp, 1.0, 4.0))


# name: (oracle, arrays it reads beyond rewards and log-probs, options it is tried with)
PRESETS = {
    "reinforce": (reinforce, (), [{}]),
    "rloo": (rloo, ("ref_log_probs",), [{}]),
    "reinforce++": (reinforce_pp, ("ref_log_probs",), [{}]),
    "ppo": (ppo, ("values",), [{}]),
    "grpo": (grpo, ("ref_log_probs",), [{}]),
    "dr-grpo": (dr_grpo, (), [{"max_response_length": 7.0}]),
    "dapo": (dapo, ("response_lengths",), [{}, {"overlong_max": 120.0, "overlong_cushion": 60.0}]),
    "bnpo": (bnpo, (), [{}]),
    "gspo": (gspo, (), [{}]),
    "gmpo": (gmpo, (), [{}]),
    "cispo": (cispo, (), [{}]),
    "sapo": (sapo, (), [{}]),
    "k1.5": (k15, ("response_lengths", "correct"), [{"tau": 0.3, "length_weight": 0.5}]),
    "k2": (k2, ("response_lengths",), [{"tau": 0.3, "token_budget": 80.0, "budget_penalty_coef": 0.01}]),
    "deepseek-v3.2": (
        deepseek_v32,
        ("ref_log_probs", "sample_log_probs"),
        [{"kl_loss_coef": 0.05}, {"kl_loss_coef": 0.05, "off_policy_mask_delta": 0.1}],
    ),
    "art": (art, ("ref_log_probs",), [{}, {"kl_penalty_coef": 0.2}]),
}
