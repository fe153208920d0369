"""formulas.py - the specification's operations, from a JSON input to named outputs, as plain as their formulas.

Slow and literal on purpose: nothing is shared with the C code, and no gradient is derived by hand (dual.py carries them).
"""
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from dual import (ONE, ZERO, Dual, NearKink, above, bounded, clip, decimals, equal, lift, mean, sign, total, unbiased_std,
                  unbiased_variance)


# ---------------------------------------------------------------------------------------------------- 1. the four named operations
def budget_loss(data):
    """adjusted = r − λ·max(0, L − B), or −budget_penalty when L > B (truncate); A = adjusted − prompt mean;
    loss = mean_i (A_i − τ(lp_i − old_i))²."""
    tau, truncate = Decimal(data["kl_coef"]), data.get("budget_rule") == "truncate"
    adjusted, advantages, baselines, terms = [], [], [], []
    for g, rewards in enumerate(data["rewards"]):
        row = []
        for i, r in enumerate(rewards):
            budget = data["token_budget"]
            over = data["response_lengths"][g][i] - Decimal(budget[g][i] if isinstance(budget, list) else budget)
            if truncate:
                row.append(-Decimal(data["budget_penalty"]) if over > 0 else Decimal(r))
            else:
                row.append(Decimal(r) - Decimal(data["budget_penalty_coef"]) * max(ZERO, over))
        baselines.append(mean(row))
        for i, r in enumerate(row):
            advantage = ZERO if equal(row) else r - baselines[-1]
            lp = Dual(data["log_probs"][g][i], {len(terms): ONE})
            error = advantage - tau * (lp - Decimal(data["old_log_probs"][g][i]))
            terms.append(error * error)
            advantages.append(advantage)
        adjusted += row
    loss = total(terms) / len(terms)
    return {"loss": [loss.value], "adjusted_rewards": adjusted, "advantages": advantages, "baselines": baselines,
            "grad_log_probs": [loss.grad[i] for i in range(len(terms))]}


def gpo(data):
    """J = mean min(ρA, clip(ρ, 1−ε, 1+ε)A) − β·mean ρ(q − log q − 1), q = π/π_ref or π_ref/π."""
    epsilon, beta, n = Decimal(data["epsilon"]), Decimal(data["beta"]), len(data["ratios"])
    surrogate, kl = [], []
    for i in range(n):
        rho, pi = Dual(data["ratios"][i], {("rho", i): ONE}), Dual(data["pi_current"][i], {("pi", i): ONE})
        advantage, ref = Decimal(data["advantages"][i]), Decimal(data["pi_ref"][i])
        unclipped = rho * advantage
        clipped = bounded(rho.value, 1 - epsilon, 1 + epsilon) * advantage
        surrogate.append(unclipped if unclipped.value <= clipped else Dual(clipped))
        q = ref / pi if data.get("kl_direction") == "ref_over_current" else pi / ref
        kl.append(rho * (q - q.ln() - 1))
    surrogate, kl = total(surrogate) / n, total(kl) / n
    j = surrogate - beta * kl
    return {"objective": [j.value], "surrogate": [surrogate.value], "kl": [kl.value],
            "grad_ratios": [j.grad[("rho", i)] for i in range(n)],
            "grad_pi_current": [j.grad.get(("pi", i), ZERO) for i in range(n)]}


def rlhf_update(data):
    """w' = w + lr·(1/N) Σ_i (R_i − β(lp_i − ref_i))·G_i."""
    n, beta, lr = len(data["rewards"]), Decimal(data["beta"]), Decimal(data["lr"])
    gains = [Decimal(r) - beta * (Decimal(lp) - Decimal(ref))
             for r, lp, ref in zip(data["rewards"], data["policy_log_probs"], data["ref_log_probs"])]
    return {"weights": [Decimal(w) + lr / n * sum((a * Decimal(row[p]) for a, row in zip(gains, data["log_prob_grads"])), ZERO)
                        for p, w in enumerate(data["weights"])]}


def kl_advantage(data):
    """A'_t = A_t + c·(avg − d_t) on trained tokens, avg the mean of d = lp − ref over the trained tokens of the scope."""
    a, c, n = decimals(data["advantages"]), Decimal(data["kl_penalty_coef"]), len(data["advantages"])
    trained = [t for t in range(n) if "mask" not in data or data["mask"][t]]
    d = {t: Decimal(data["log_probs"][t]) - Decimal(data["ref_log_probs"][t]) for t in trained}
    scope = data.get("kl_scope", "batch")
    bounds = [n]
    if scope != "batch":
        bounds = list(data["sequence_lengths"])
    if scope == "group":
        bounds = regroup(bounds, data["group_sizes"])
    first = 0
    for size in bounds:
        tokens = [t for t in trained if first <= t < first + size]
        first += size
        for t in tokens:
            a[t] += c * (mean([d[s] for s in tokens]) - d[t])
    return {"advantages": a, "kl_policy_ref": [mean(list(d.values()))]}


def logistic(x):
    return ONE / (1 + (-x).exp())


def minus_log_logistic(x):
    return (1 + (-x).exp()).ln()


def completion(data, side, i):
    """s of one completion as a variable, its reference (0 without one) and its length (1 without one)."""
    s = Dual(data[f"{side}_log_probs"][i], {(side, i): ONE})
    ref = Decimal(data[f"ref_{side}_log_probs"][i]) if f"ref_{side}_log_probs" in data else ZERO
    return s, ref, Decimal(data[f"{side}_lengths"][i]) if f"{side}_lengths" in data else ONE


def pair_loss(data, i):
    """The loss of a pair as its paper has it: (s, ref, length) of the chosen and of the rejected completion."""
    (s_w, ref_w, n_w), (s_l, ref_l, n_l) = completion(data, "chosen", i), completion(data, "rejected", i)
    name, beta = data["loss"], Decimal(data.get("beta", 2 if data["loss"] == "simpo" else 0.1))
    noise, h = Decimal(data.get("label_smoothing", 0)), beta * ((s_w - ref_w) - (s_l - ref_l))
    agree, contradict = minus_log_logistic(h), minus_log_logistic(-h)
    if name == "dpo":                                           # 2305.18290, eq. 7
        return agree
    if name == "cdpo":                                          # Mitchell 2023: cross-entropy with the target 1 − ε
        return (1 - noise) * agree + noise * contradict
    if name == "robust":                                        # 2403.00409, eq. 12
        return ((1 - noise) * agree - noise * contradict) / (1 - 2 * noise)
    if name == "hinge":                                         # 2305.10425
        return 1 - h if not above(h.value, ONE) else Dual(0)
    if name in ("ipo_sum", "ipo_mean"):                         # 2310.12036, eq. 17; TRL divides by the lengths
        gap = (s_w - ref_w) / n_w - (s_l - ref_l) / n_l - 1 / (2 * beta)
        return gap * gap
    if name == "simpo":                                         # 2405.14734, eq. 6
        return minus_log_logistic(beta / n_w * s_w - beta / n_l * s_l - Decimal(data.get("simpo_gamma", 0.5)))
    if name == "cpo":                                           # 2401.08417: a uniform reference, and the log-likelihood
        return minus_log_logistic(beta * (s_w - s_l)) - Decimal(data.get("cpo_alpha", 1)) * s_w / n_w
    p_w, p_l = (s_w / n_w).exp(), (s_l / n_l).exp()             # orpo, 2403.07691, eqs. 4 to 7
    odds = (p_w / (1 - p_w)) / (p_l / (1 - p_l))
    return -(s_w / n_w) + beta * minus_log_logistic(odds.ln())


def kto_loss(data):
    """2402.01306, eqs. 7 and 8: λ_D(1 − σ(β(u − z))) or λ_U(1 − σ(β(z − u))), z = max(0, kl)."""
    beta, n = Decimal(data.get("beta", 0.1)), len(data["labels"])
    z, losses = max(ZERO, Decimal(data["kl"])), []
    for i, label in enumerate(data["labels"]):
        u = Dual(data["log_probs"][i], {i: ONE}) - Decimal(data["ref_log_probs"][i])
        weight = Decimal(data.get("desirable_weight" if label else "undesirable_weight", 1))
        losses.append(weight * (1 - logistic(beta * (u - z) if label else beta * (z - u))))
    loss = total(losses) / n
    return {"loss": [loss.value], "grad_log_probs": [loss.grad.get(i, ZERO) for i in range(n)]}


def preference_loss(data):
    if data["loss"] == "kto":
        return kto_loss(data)
    n = len(data["chosen_log_probs"])
    loss = total([pair_loss(data, i) for i in range(n)]) / n
    return {"loss": [loss.value], "grad_chosen_log_probs": [loss.grad.get(("chosen", i), ZERO) for i in range(n)],
            "grad_rejected_log_probs": [loss.grad.get(("rejected", i), ZERO) for i in range(n)]}


def reward_loss(data):
    """−log σ(r_w − r_l − m) + c·(r_w + r_l)²: 2307.09288 eq. 2, and the centring of 2312.09244."""
    n, c = len(data["chosen_rewards"]), Decimal(data.get("center_rewards_coefficient", 0))
    losses = []
    for i in range(n):
        r_w, r_l = Dual(data["chosen_rewards"][i], {("w", i): ONE}), Dual(data["rejected_rewards"][i], {("l", i): ONE})
        centre = r_w + r_l
        losses.append(minus_log_logistic(r_w - r_l - Decimal(data.get("margins", [0] * n)[i])) + c * centre * centre)
    loss = total(losses) / n
    right = sum(Decimal(w) > Decimal(r) for w, r in zip(data["chosen_rewards"], data["rejected_rewards"]))
    return {"loss": [loss.value], "accuracy": [Decimal(right) / n],
            "grad_chosen_rewards": [loss.grad[("w", i)] for i in range(n)],
            "grad_rejected_rewards": [loss.grad[("l", i)] for i in range(n)]}


def value_loss(data):
    """½·mean max((V − G)², (clip(V, V_old ± ε) − G)²) over the trained tokens."""
    n, epsilon, losses = len(data["values"]), Decimal(data.get("value_clip", 0.5)), []
    trained = [t for t in range(n) if "mask" not in data or data["mask"][t]]
    for t in trained:
        v, old, target = Dual(data["values"][t], {t: ONE}), Decimal(data["old_values"][t]), Decimal(data["returns"][t])
        free, near = v - target, clip(v, old - epsilon, old + epsilon) - target
        losses.append(free * free if near.grad or above((free * free).value, (near * near).value) else near * near)
    loss = total(losses) / (2 * len(trained))
    return {"loss": [loss.value], "grad_values": [loss.grad.get(t, ZERO) for t in range(n)]}


def regroup(lengths, sizes):
    ends = [sum(sizes[:g]) for g in range(len(sizes) + 1)]
    return [sum(lengths[ends[g]:ends[g + 1]]) for g in range(len(sizes))]


# ----------------------------------------------------------------------------------------------------- 2. the policy loss: options
PRESETS = {
    "reinforce": dict(surrogate="reinforce", advantage="none", aggregation="seq-mean-token-sum"),
    "rloo": dict(surrogate="reinforce", advantage="leave-one-out", kl_reward_coef=0.03, aggregation="seq-mean-token-sum"),
    "reinforce++": dict(surrogate="clip", epsilon=0.2, advantage="reinforce++", kl_reward_coef=0.001,
                        aggregation="seq-mean-token-mean"),
    "ppo": dict(surrogate="clip", epsilon=0.2, advantage="gae", gae_gamma=1.0, gae_lambda=0.95, aggregation="token-mean"),
    "grpo": dict(surrogate="clip", epsilon=0.2, advantage="group-std", kl_loss_coef=0.04, kl_estimator="k3",
                 aggregation="seq-mean-token-mean"),
    "dr-grpo": dict(surrogate="clip", epsilon=0.2, advantage="group-mean", aggregation="dr-grpo"),
    "dapo": dict(surrogate="clip", epsilon=0.2, epsilon_high=0.28, advantage="group-std", shape="overlong", overlong_max=20480.0,
                 overlong_cushion=4096.0, aggregation="token-mean"),
    "bnpo": dict(surrogate="clip", epsilon=0.2, advantage="group-std", aggregation="token-mean"),
    "gspo": dict(surrogate="clip", ratio="sequence", epsilon=3e-4, epsilon_high=4e-4, advantage="group-std",
                 aggregation="seq-mean-token-mean"),
    "gmpo": dict(surrogate="gmpo", epsilon=0.4, advantage="group-std", aggregation="seq-mean-token-mean"),
    "cispo": dict(surrogate="cispo", epsilon=1.0, epsilon_high=4.0, advantage="group-std", aggregation="token-mean"),
    "sapo": dict(surrogate="sapo", advantage="group-std", aggregation="seq-mean-token-mean"),
    "k1.5": dict(surrogate="squared", advantage="group-mean", shape="k1.5-length", aggregation="seq-mean-token-mean"),
    "k2": dict(surrogate="squared", advantage="group-mean", shape="budget", aggregation="seq-mean-token-mean"),
    "deepseek-v3.2": dict(surrogate="clip", epsilon=0.2, advantage="group-mean", kl_estimator="is-k3",
                          kl_direction="ref_over_current", aggregation="seq-mean-token-mean"),
    "art": dict(surrogate="cispo", epsilon=1.0, epsilon_high=4.0, advantage="group-std", advantage_eps=1e-6,
                aggregation="seq-mean-token-mean"),
}

EMPTY = dict(shape="none", advantage="none", surrogate="reinforce", mismatch="none", aggregation="token-mean", kl_estimator="k1",
             kl_direction="ref_over_current", kl_scope="batch", kl_penalty_source="current_learner", dppo_divergence="tv",
             gae_gamma=1.0, gae_lambda=0.95, dual_clip=3.0, tis_cap=2.0, sapo_tau_positive=1.0, sapo_tau_negative=1.05,
             vespo_k_positive=2.0, vespo_lambda_positive=3.0, vespo_k_negative=3.0, vespo_lambda_negative=2.0,
             topr_positive_low=1.0, topr_positive_high=1.0, topr_negative_low=0.0, topr_negative_high=1.0,
             kl_reward_coef=0.0, kl_reward_exact=0.0, kl_penalty_coef=0.0, kl_loss_coef=0.0, entropy_coef=0.0,
             teacher_coef=0.0, divergence="sampled", teacher_discount=0.0)
PUBLISHED_EPSILON = {"cispo": (1.0, 4.0), "gmpo": (0.4, 0.4), "luspo": (0.002, 0.0025)}
PUBLISHED_RATIO = {"squared": "sequence-sum", "vespo": "sequence-sum", "topr": "sequence-sum", "luspo": "sequence"}
MISMATCH_RANGE = {"token-mask": (0.5, 5.0), "sequence-mask": (0.5, 2.0)}


class Options:
    """Preset, overridden by what was given, with the published constants where nothing was. Numbers are decimals."""

    def __init__(self, data):
        o = {**EMPTY, **PRESETS.get(data.get("preset"), {}), **data.get("options", {})}
        low, high = PUBLISHED_EPSILON.get(o["surrogate"], (0.2, None))
        o["epsilon_high"] = o.get("epsilon_high", o.get("epsilon", high or low) if high in (None, low) else high)
        o.setdefault("epsilon", low)
        o.setdefault("ratio", PUBLISHED_RATIO.get(o["surrogate"], "token"))
        o.setdefault("advantage_eps", 1e-8 if o["advantage"] == "reinforce++" else 1e-6)
        o.setdefault("dppo_delta", 0.05 if o["dppo_divergence"] == "kl" else 0.15)
        for name, value in zip(("mismatch_low", "mismatch_high"), MISMATCH_RANGE.get(o["mismatch"], ())):
            o.setdefault(name, value)
        self.values = {k: v if isinstance(v, str) else Decimal(v) for k, v in o.items()}

    def __getattr__(self, name):
        return self.values.get(name)

    @property
    def sequence_unit(self):
        return self.surrogate == "gmpo" or self.surrogate != "reinforce" and self.ratio in ("sequence", "sequence-sum")


# ------------------------------------------------------------------------------------------------------- 2. the policy loss: batch
@dataclass
class Sequence:
    index: int
    group: int
    tokens: list  # indices of the trained ones

    def __len__(self):
        return len(self.tokens)


class Batch:
    def __init__(self, data):
        self.data, self.n_tokens, self.sequences = data, len(data["log_probs"]), []
        first, group_of = 0, [g for g, size in enumerate(data["group_sizes"]) for _ in range(size)]
        for i, length in enumerate(data["sequence_lengths"]):
            tokens = [t for t in range(first, first + length) if "mask" not in data or data["mask"][t]]
            self.sequences.append(Sequence(i, group_of[i], tokens))
            first += length
        self.groups = [[s for s in self.sequences if s.group == g] for g in range(len(data["group_sizes"]))]
        self.trained = [t for s in self.sequences for t in s.tokens]
        self.lengths = data.get("response_lengths", [len(s) for s in self.sequences])

    def __getattr__(self, name):  # a token or sequence array, None when not given
        values = decimals(self.data[name]) if name in self.data else None
        setattr(self, name, values)
        return values

    def budget(self, i):
        budget = self.data["token_budget"]
        return Decimal(budget[i] if isinstance(budget, list) else budget)


# -------------------------------------------------------------------------------------------- 2.1 shape, 2.2 advantages (detached)
def raw_rewards(b):
    if "rewards" in b.data:
        return decimals(b.data["rewards"])
    weights = b.data.get("reward_weights") or [1] * len(b.data["reward_components"][0])
    return [sum((Decimal(w) * Decimal(x) for w, x in zip(weights, row)), ZERO) for row in b.data["reward_components"]]


def shaped_rewards(b, o):
    r = raw_rewards(b)
    for i, length in enumerate(b.lengths):
        if o.shape == "budget":  # r − λ·max(0, L − B)
            r[i] -= o.budget_penalty_coef * max(ZERO, length - b.budget(i))
        elif o.shape == "truncate" and length > b.budget(i):
            r[i] = -o.budget_penalty
        elif o.shape == "overlong":  # 0 up to Lmax − Lc, then ((Lmax − Lc) − L)/Lc, at least −1
            r[i] += bounded((o.overlong_max - o.overlong_cushion - length) / o.overlong_cushion, -ONE, ZERO)
        elif o.shape == "k1.5-length":  # λ = .5 − (L − min)/(max − min); min(0, λ) when wrong
            near = [b.lengths[s.index] for s in b.groups[b.sequences[i].group]]
            if max(near) > min(near):
                bonus = Decimal("0.5") - Decimal(length - min(near)) / (max(near) - min(near))
                correct = b.data["correct"][i] if "correct" in b.data else r[i] > 0
                r[i] += o.length_weight * (bonus if correct else min(ZERO, bonus))
    return r if o.reward_clip is None else [bounded(x, -o.reward_clip, o.reward_clip) for x in r]


def kl_source(b, o):
    """k1 = stop(src − ref) of each trained token."""
    source = b.sample_log_probs if o.kl_penalty_source == "sample" else b.log_probs
    return {t: source[t] - b.ref_log_probs[t] for t in b.trained}


def pass_at_k(r, k):
    """Mean over the (k−1)-subsets T of the other responses of max(r_i, max T) − max T."""
    if len(r) == 1:
        return [ZERO]
    others = [r[:i] + r[i + 1:] for i in range(len(r))]
    return [mean([max(x, *s) - max(s) for s in combinations(rest, k - 1)]) for x, rest in zip(r, others)]


def group_advantages(r, lengths, batch_rewards, o):
    """The estimators that compare a response with its group. A group of one, or of equal rewards, learns nothing."""
    if o.advantage == "pass-at-k":
        return pass_at_k(r, int(o.pass_k or len(r)))
    if len(r) == 1 or equal(r):
        return [ZERO] * len(r)
    m, k = mean(r), len(r)
    if o.advantage == "opo" and sum(lengths) > 0:
        m = sum((x * length for x, length in zip(r, lengths)), ZERO) / sum(lengths)
    if o.advantage == "max-rl" and sign(m) == 0:
        return [ZERO] * k
    scale = {"group-std": lambda: ONE / (unbiased_std(r) + o.advantage_eps),
             "batch-std": lambda: ONE / (unbiased_std(batch_rewards) + o.advantage_eps),
             "leave-one-out": lambda: Decimal(k) / (k - 1),
             "max-rl": lambda: ONE / m}.get(o.advantage, lambda: ONE)()
    return [(x - m) * scale for x in r]


def gdpo_advantages(b, o):
    """z-score of each component in its group, weighted sum, then whitened over the responses of the batch."""
    rows = [decimals(row) for row in b.data["reward_components"]]
    weights = decimals(b.data.get("reward_weights") or [1] * len(rows[0]))
    sums = [ZERO] * len(rows)
    for group in b.groups:
        for k, w in enumerate(weights):
            xs = [rows[s.index][k] for s in group]
            for s, x in zip(group, xs):
                if len(xs) > 1 and not equal(xs):
                    sums[s.index] += w * (x - mean(xs)) / (unbiased_std(xs) + o.advantage_eps)
    return [(x - mean(sums)) / (unbiased_std(sums) + o.advantage_eps) for x in sums]


def token_rewards(b, o, r, k1):
    """The response's reward on its last trained token, the KL on each."""
    return {t: (r[s.index] if t == s.tokens[-1] else ZERO) - (o.kl_reward_coef * k1[t] if k1 else ZERO)
            for s in b.sequences for t in s.tokens}


def whitened_returns(b, o, r, k1):
    """REINFORCE++: R_t = Σ_{s≥t} r_s, A = (R − mean)/sqrt(var + eps) over the trained tokens of the batch."""
    returns, r_t = {}, token_rewards(b, o, r, k1)
    for s in b.sequences:
        for at in range(len(s)):
            returns[s.tokens[at]] = sum((r_t[t] for t in s.tokens[at:]), ZERO)
    values = list(returns.values())
    if len(values) < 2:
        return dict.fromkeys(returns, ZERO)
    m, scale = mean(values), (unbiased_variance(values) + o.advantage_eps).sqrt()
    return {t: (x - m) / scale for t, x in returns.items()}


def generalized_advantages(b, o, r, k1):
    """GAE over the trained tokens: δ_t = r_t + γV_{t+1} − V_t, A_t = δ_t + γλA_{t+1}."""
    advantages, r_t = {}, token_rewards(b, o, r, k1)
    for s in b.sequences:
        next_value = next_advantage = ZERO
        for t in reversed(s.tokens):
            delta = r_t[t] + o.gae_gamma * next_value - b.values[t]
            advantages[t] = next_advantage = delta + o.gae_gamma * o.gae_lambda * next_advantage
            next_value = b.values[t]
    return advantages


def balanced(a, o):
    if o.advantage_balance is None or a == 0:
        return a
    if sign(a) != sign(o.advantage_balance):
        return a * (1 - abs(o.advantage_balance))
    return a


def base_advantages(b, o, shaped):
    """({token: A}, share of groups whose advantages are all 0), before the adjustments per token."""
    k1 = kl_source(b, o) if o.kl_reward_coef else None
    if o.advantage in ("reinforce++", "gae"):
        estimate = whitened_returns if o.advantage == "reinforce++" else generalized_advantages
        a = {t: balanced(x, o) for t, x in estimate(b, o, shaped, k1).items()}
        by_group = [[a[t] for s in group for t in s.tokens] for group in b.groups]
    else:
        r = [x - (o.kl_reward_coef * sum((k1[t] for t in s.tokens), ZERO) if k1 else ZERO) for x, s in zip(shaped, b.sequences)]
        if o.advantage == "gdpo":
            per_sequence = gdpo_advantages(b, o)
        elif o.advantage == "remax":
            per_sequence = [x - y for x, y in zip(r, b.baseline_rewards)]
        elif o.advantage == "none":
            per_sequence = r
        else:
            per_sequence = []
            for group in b.groups:
                per_sequence += group_advantages([r[s.index] for s in group], [b.lengths[s.index] for s in group], r, o)
        per_sequence = [balanced(x, o) for x in per_sequence]
        a = {t: per_sequence[s.index] for s in b.sequences for t in s.tokens}
        by_group = [[per_sequence[s.index] for s in group] for group in b.groups]
        for group in b.groups:  # a group known only by a sequence that does not train: not the place to test the metric
            if any(per_sequence[s.index] for s in group) and not any(a[t] for s in group for t in s.tokens) and b.trained:
                raise NearKink
    return a, mean([ONE if not any(xs) else ZERO for xs in by_group])


def adjusted_advantages(b, o, a):
    """A_t − kimi_k2_tau·stop(d_t), then + c·(avg − k1) over the scope; a sequence unit has one k1, the sum of its tokens'."""
    a = dict(a)
    if o.kimi_k2_tau is not None:
        for t in a:
            a[t] -= o.kimi_k2_tau * (b.log_probs[t] - b.old_log_probs[t])
    if o.kl_penalty_coef:
        k1 = kl_source(b, o)
        scopes = {"batch": [b.sequences], "group": b.groups, "sequence": [[s] for s in b.sequences]}[o.kl_scope]
        for scope in scopes:
            units = [s.tokens if o.sequence_unit else [t] for s in scope for t in (s.tokens[:1] if o.sequence_unit else s.tokens)]
            sums = [sum((k1[t] for t in unit), ZERO) for unit in units]
            for unit, x in zip(units, sums):
                for t in unit:
                    a[t] += o.kl_penalty_coef * (mean(sums) - x)
    if o.kl_reward_exact:  # the reward-to-go of -KL_s: the trained tokens after t
        for s in b.sequences:
            for place, t in enumerate(s.tokens):
                a[t] -= o.kl_reward_exact * sum((b.exact_kl[later] for later in s.tokens[place + 1:]), ZERO)
    if o.teacher_coef and o.divergence == "sampled":  # from token t on, discounted by how many trained tokens later they are
        for s in b.sequences:
            gaps = [b.log_probs[t] - b.teacher_log_probs[t] for t in s.tokens]
            for place, t in enumerate(s.tokens):
                a[t] -= o.teacher_coef * sum((o.teacher_discount ** later * gap if later else gap
                                              for later, gap in enumerate(gaps[place:])), ZERO)
    return a


# ------------------------------------------------------------------------------------------------------- 2.3 ratio, 2.4 surrogates
@dataclass
class Unit:
    """What a surrogate sees of one trained token."""
    ratio: Dual       # the surrogate's, at most max_negative_advantage_importance_sampling_weight where A < 0
    full_ratio: Dual  # without that bound
    log_ratio: Dual
    lp: Dual
    old: Decimal
    advantage: Decimal
    n: int            # trained tokens of its sequence
    d: Dual           # its token log-ratio
    sequence_d: list  # and all of its sequence's


def log_ratio(level, d, sequence_d, lp):
    n = len(sequence_d)
    if level == "token":
        return d
    if level == "sequence":
        return total(sequence_d) / n
    if level == "sequence-sum":
        return total(sequence_d)
    if level == "sequence-token":  # the sequence's value, the token's own derivative
        return (total(sequence_d) / n).stop() + lp - lp.stop()
    if level == "average":
        return ((d.exp() + (total(sequence_d) / n).exp()) / 2).ln()
    return (d + total(sequence_d) / n) / 2  # geometric-average


def bounded_ratio(ratio, advantage, o):
    """min(R, c) where A < 0."""
    bound = o.max_negative_advantage_importance_sampling_weight
    return Dual(bound) if bound is not None and sign(advantage) < 0 and above(ratio.value, bound) else ratio


def clip_loss(u, o):
    """−min(RA, clip(R, 1−ε, 1+ε_h)A)"""
    unclipped, clipped = u.ratio * u.advantage, clip(u.ratio, 1 - o.epsilon, 1 + o.epsilon_high) * u.advantage
    return -(unclipped if unclipped.value <= clipped.value else clipped)


def dual_clip_loss(u, o):
    """A < 0: min(ℓ, −cA)"""
    loss, cap = clip_loss(u, o), -o.dual_clip * u.advantage
    return Dual(cap) if sign(u.advantage) < 0 and above(u.ratio.value, o.dual_clip) and loss.value > cap else loss


def squared_loss(u, o):
    """(A − τD)²"""
    error = u.advantage - o.tau * u.log_ratio
    return error * error


def gmpo_loss(u, o):
    """−A·exp(mean of d clipped on the side that A's sign allows)"""
    if sign(u.advantage) > 0:
        clipped = [d if not above(d.value, o.epsilon_high) else Dual(o.epsilon_high) for d in u.sequence_d]
    else:
        clipped = [d if above(d.value, -o.epsilon) else Dual(-o.epsilon) for d in u.sequence_d]
    return -u.advantage * (total(clipped) / u.n).exp()


def sapo_loss(u, o):
    """−(4/τ)σ(τ(R − 1))A"""
    tau = o.sapo_tau_positive if sign(u.advantage) > 0 else o.sapo_tau_negative
    return -(4 / tau * u.advantage) / (1 + (-tau * (u.ratio - 1)).exp())


def weighted_likelihood(weight):
    """The family −stop(weight)·A·lp."""
    return lambda u, o: -(lift(weight(u, o)).stop() * u.advantage * u.lp)


def vespo_weight(u, o):
    """R^k·e^{λ(1−R)}"""
    k, rate = ((o.vespo_k_negative, o.vespo_lambda_negative) if sign(u.advantage) < 0
               else (o.vespo_k_positive, o.vespo_lambda_positive))
    return (k * u.log_ratio + rate * (1 - u.ratio)).exp()


def topr_range(u, o):
    return ((o.topr_negative_low, o.topr_negative_high) if sign(u.advantage) < 0 else (o.topr_positive_low, o.topr_positive_high))


def dppo_dropped(u, o):
    """−1 or 1 when the token moves away from old, by more than δ in binary TV or KL, the way A pushes it; else 0."""
    p, q = u.lp.value.exp(), u.old.exp()
    divergence = abs(p - q) if o.dppo_divergence == "tv" else q * (q / p).ln() + (1 - q) * ((1 - q) / (1 - p)).ln()
    away = 1 if above(u.ratio.value, ONE) else -1
    return away if above(divergence, o.dppo_delta) and sign(u.advantage) == away else 0


def dppo_weight(u, o):
    if dppo_dropped(u, o):
        return ZERO
    return u.ratio if o.dppo_ratio_cap is None or not above(u.ratio.value, o.dppo_ratio_cap) else o.dppo_ratio_cap


SURROGATES = {
    "reinforce": weighted_likelihood(lambda u, o: ONE),
    "clip": clip_loss,
    "dual-clip": dual_clip_loss,
    "luspo": lambda u, o: u.n * clip_loss(u, o),
    "cispo": weighted_likelihood(lambda u, o: clip(u.ratio, 1 - o.epsilon, 1 + o.epsilon_high)),
    "squared": squared_loss,
    "dro": lambda u, o: -(u.advantage * u.lp - o.dro_beta / 2 * (u.log_ratio * u.log_ratio)),
    "gmpo": gmpo_loss,
    "sapo": sapo_loss,
    "vespo": weighted_likelihood(vespo_weight),
    "topr": weighted_likelihood(lambda u, o: clip(u.ratio, *topr_range(u, o))),
    "dppo": weighted_likelihood(dppo_weight),
}


def clipped_side(u, o):
    """−1, 0, 1: how the metrics clip_low and clip_high count the token."""
    if o.surrogate == "dppo":
        return dppo_dropped(u, o)
    if o.surrogate in ("cispo", "topr"):  # outside the interval, whatever A
        low, high = (1 - o.epsilon, 1 + o.epsilon_high) if o.surrogate == "cispo" else topr_range(u, o)
        return 1 if above(u.full_ratio.value, high) else 0 if above(u.full_ratio.value, low) else -1
    if o.surrogate == "gmpo":
        x, low, high = u.d.value, -o.epsilon, o.epsilon_high
    elif o.surrogate in ("clip", "dual-clip", "luspo"):
        x, low, high = u.full_ratio.value, 1 - o.epsilon, 1 + o.epsilon_high
    else:
        return 0
    side = sign(u.advantage)
    return side if side > 0 and above(x, high) or side < 0 and not above(x, low) else 0


# ------------------------------------------------------------------------------------- weights, KL, entropy, aggregation: one loss
def mismatch_weights(b, o):
    """ω_t from w = exp(old − samp), of the token or of the whole sequence."""
    weights = {}
    for s in b.sequences:
        gaps = [b.old_log_probs[t] - b.sample_log_probs[t] for t in s.tokens] if o.mismatch != "none" else []
        for at, t in enumerate(s.tokens):
            w = ONE if o.mismatch == "none" else (sum(gaps) if o.mismatch.startswith("sequence") else gaps[at]).exp()
            if o.mismatch.endswith("tis"):
                w = o.tis_cap if above(w, o.tis_cap) else w
            elif o.mismatch.endswith("mask"):
                w = w if above(w, o.mismatch_low) and not above(w, o.mismatch_high) else ZERO
            weights[t] = w
    return weights


def surrogate_weights(b, o, a):
    """Mismatch, off-policy sequence mask and top-entropy mask: all detached, all on the surrogate only."""
    weights = mismatch_weights(b, o)
    if o.off_policy_mask_delta is not None:
        for s in filter(len, b.sequences):
            drifted = above(mean([b.sample_log_probs[t] - b.log_probs[t] for t in s.tokens]), o.off_policy_mask_delta)
            weights.update({t: ZERO for t in s.tokens if drifted and sign(a[t]) < 0})
    if o.top_entropy is not None:
        ordered = sorted(b.entropies[t] for t in b.trained)
        at = (1 - o.top_entropy) * (len(ordered) - 1)  # the quantile, linear between neighbours
        low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
        threshold = low + (at - int(at)) * (high - low)
        weights.update({t: ZERO for t in b.trained if not above(b.entropies[t], threshold)})
    return weights


def kl_term(o, lp, ref, d):
    """x = ref − lp (or lp − ref): k1 = −x, k2 = x²/2, k3 = e^x − x − 1, |x|; is-*: times e^d, through which the gradient flows."""
    x = lp - ref if o.kl_direction == "current_over_ref" else ref - lp
    if o.kl_clamp is not None:
        x = clip(x, -o.kl_clamp, o.kl_clamp)
    kind = o.kl_estimator
    if kind.endswith("k1"):
        k = -x
    elif kind == "k2":
        k = x * x / 2
    elif kind.endswith("k3"):
        k = x.exp() - x - 1
    else:
        k = x if above(x.value, ZERO) else -x
    return d.exp() * k if kind.startswith("is-") else k


def aggregation_weights(b, o):
    """w_i of every trained token of sequence i; S counts the sequences with trained tokens."""
    live = sum(1 for s in b.sequences if len(s))
    rule = {"token-mean": lambda n: ONE / len(b.trained), "token-sum": lambda n: ONE,
            "seq-mean-token-mean": lambda n: ONE / (live * n), "seq-mean-token-sum": lambda n: ONE / live,
            "dr-grpo": lambda n: ONE / (live * o.max_response_length)}[o.aggregation]
    return {t: rule(len(s)) for s in b.sequences for t in s.tokens}


def policy_loss(data):
    b, o = Batch(data), Options(data)
    shaped = shaped_rewards(b, o)
    base, zero_groups = base_advantages(b, o, shaped)
    a = adjusted_advantages(b, o, base)
    omega, weight = surrogate_weights(b, o, a), aggregation_weights(b, o)
    lp = {t: Dual(b.log_probs[t], {("lp", t): ONE}) for t in b.trained}
    d = {t: lp[t] - b.old_log_probs[t] for t in b.trained}
    entropy = {t: Dual(b.entropies[t], {("H", t): ONE}) for t in b.trained} if b.entropies else {}
    exact_kl = {t: Dual(b.exact_kl[t], {("KL", t): ONE}) for t in b.trained} if b.exact_kl else {}
    divergence = {t: Dual(b.teacher_divergence[t], {("D", t): ONE}) for t in b.trained} if b.teacher_divergence else {}
    bonus = o.entropy_coef
    if o.entropy_target is not None and above(mean([h.value for h in entropy.values()]), o.entropy_target):
        bonus = ZERO
    terms, units = [], []
    for s in b.sequences:
        sequence_d = [d[t] for t in s.tokens]
        for t in s.tokens:
            level = "token" if o.surrogate in ("reinforce", "gmpo") else o.ratio
            log_r = log_ratio(level, d[t], sequence_d, lp[t])
            ratio = bounded_ratio(log_r.exp(), a[t], o)
            units.append(Unit(ratio, log_r.exp(), log_r, lp[t], b.old_log_probs[t], a[t], len(s), d[t], sequence_d))
            term = SURROGATES[o.surrogate](units[-1], o) * omega[t]
            if o.kl_loss_coef and o.kl_estimator == "exact":
                term += o.kl_loss_coef * exact_kl[t]
            elif o.kl_loss_coef:
                term += o.kl_loss_coef * kl_term(o, lp[t], b.ref_log_probs[t], d[t])
            if divergence:
                term += o.teacher_coef * divergence[t]
            if bonus:
                term -= bonus * entropy[t]
            terms.append(weight[t] * term)
    loss = total(terms)
    tokens = range(b.n_tokens)
    out = {"loss": [loss.value], "advantages": [a.get(t) for t in tokens],
           "grad_log_probs": [loss.grad.get(("lp", t), ZERO) for t in tokens]}
    if b.entropies:
        out["grad_entropies"] = [loss.grad.get(("H", t), ZERO) for t in tokens]
    if b.exact_kl:
        out["grad_exact_kl"] = [loss.grad.get(("KL", t), ZERO) for t in tokens]
    if b.teacher_divergence:
        out["grad_teacher_divergence"] = [loss.grad.get(("D", t), ZERO) for t in tokens]
    return {**out, **{"metric:" + k: v for k, v in metrics(b, o, shaped, zero_groups, units, lp).items()}}


def metrics(b, o, shaped, zero_groups, units, lp):
    n = len(units)
    m = {"trained_tokens": Decimal(n)}
    if n == 0:
        return m
    m["reward"] = mean(shaped)
    m["reward_std"] = mean([unbiased_std([shaped[s.index] for s in group]) for group in b.groups])
    if o.advantage != "gdpo":  # its whitening leaves a rounding residue where the sum is 0
        m["frac_reward_zero_std"] = zero_groups
    m["length_mean"], m["length_max"] = mean(b.lengths), max(b.lengths)
    if "token_budget" in b.data:
        m["share_over_budget"] = mean([ONE if length > b.budget(i) else ZERO for i, length in enumerate(b.lengths)])
    sides, ratios, ds = [clipped_side(u, o) for u in units], [u.full_ratio.value for u in units], [u.d.value for u in units]
    m["clip_low"], m["clip_high"] = (Decimal(sides.count(side)) / n for side in (-1, 1))
    m["ratio_mean"], m["ratio_min"], m["ratio_max"] = mean(ratios), min(ratios), max(ratios)
    m["ess"] = sum(ratios) ** 2 / (n * sum(r * r for r in ratios))
    m["kl_old_k1"], m["kl_old_k3"] = mean([-x for x in ds]), mean([x.exp() - 1 - x for x in ds])
    if b.ref_log_probs:
        xs = [b.ref_log_probs[t] - lp[t].value for t in b.trained]
        m["kl_ref_k1"], m["kl_ref_k3"] = mean([-x for x in xs]), mean([x.exp() - x - 1 for x in xs])
    if b.exact_kl:
        m["kl_exact"] = mean([b.exact_kl[t] for t in b.trained])
    if b.teacher_divergence:
        m["teacher_divergence"] = mean([b.teacher_divergence[t] for t in b.trained])
    if b.teacher_log_probs:
        m["teacher_divergence"] = mean([b.log_probs[t] - b.teacher_log_probs[t] for t in b.trained])
    if b.entropies:
        m["entropy"] = mean([b.entropies[t] for t in b.trained])
    return m
