#!/usr/bin/env python3
"""generate.py - golden values for the objectives, made outside the C code: four.txt, preference.txt and policy.txt beside this file.

Everything is computed from the formulas of the specification (formulas.py) in 50-digit decimals. Gradients come from dual numbers
(dual.py: a value and its derivatives, carried through every operation), so no hand-derived gradient is involved.
Inputs are doubles and taken exactly; an expected value is the double nearest to the 50-digit result, as a C hex float.

    python3 generate.py            rewrites the files
    python3 generate.py --check    exits 1 if they would change

A case, one item a line:
    case NAME OPERATION JSON       the JSON object is what `rein objective OPERATION --grad` reads
    FIELD COUNT VALUE...           nested lists are flattened; nan: not to be checked (advantages of masked tokens)
    metric:NAME VALUE
    end
Each case draws its batch from a seed made of its own name: adding a case changes no other. A batch that comes closer than a margin
to a kink (where a branch would depend on rounding) is thrown away and drawn again.
"""
import json
import math
import random
import sys
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

sys.dont_write_bytecode = True  # the folder holds goldens, not caches
from dual import Kinks, NearKink  # noqa: E402
from formulas import (PRESETS, Options, budget_loss, gpo, kl_advantage, policy_loss, preference_loss, reward_loss,  # noqa: E402
                      rlhf_update, value_loss)


# ------------------------------------------------------------------------------------------------------------- drawing the batches
@dataclass
class Spec:
    """One case of the policy loss: its options and what its batch looks like."""
    name: str
    options: dict
    preset: str = None
    sizes: list = None          # sequences of each group; drawn when None
    rewards: str = "real"       # real, binary, signed (±1), equal (the first group of two or more: all 0.1)
    drift: float = 0.5          # |d| up to this
    margin: str = "1e-3"        # distance from kinks
    masked: bool = True         # False: no mask, every token trains
    nothing: bool = False       # True: no token trains
    lengths: tuple = None       # response_lengths drawn from this range; None: not given
    extra: dict = field(default_factory=dict)   # entries of the input as they are
    also: tuple = ()            # token arrays given though no option reads them


def draw(spec, rng):
    """The JSON input of a case: ragged groups, one of them of one, one sequence without a trained token."""
    o = Options({"preset": spec.preset, "options": spec.options})
    sizes = spec.sizes or rng.sample([1] + [rng.randint(2, 4) for _ in range(rng.randint(2, 3))], k=3)
    sizes = sizes if spec.sizes or 1 in sizes else [1] + sizes
    n = sum(sizes)
    crowded = [i for i, size in enumerate(size for size in sizes for _ in range(size)) if size > 1]
    empty = rng.choice(crowded) if spec.masked else None
    lengths = [rng.choice([0, 3]) if i == empty else rng.randint(1, 7) for i in range(n)]
    mask = []
    for i, length in enumerate(lengths):
        row = [int(i != empty and rng.random() < 0.75) for _ in range(length)]
        if i != empty and not any(row):
            row[rng.randrange(length)] = 1
        mask += row
    if not spec.masked or spec.nothing:
        mask = [int(not spec.nothing)] * len(mask)
    data = {"preset": spec.preset} if spec.preset else {}
    data.update(options=spec.options, group_sizes=sizes, sequence_lengths=lengths)
    if spec.masked:
        data["mask"] = mask
    data.update(token_arrays(spec, o, rng, mask))
    if spec.lengths:
        data["response_lengths"] = [max(length, rng.randint(*spec.lengths)) for length in lengths]
    data.update(sequence_arrays(spec, o, rng, sizes))
    return {**data, **spec.extra}


def token_arrays(spec, o, rng, mask):
    """Masked entries are null or absurd: whoever reads them shows it."""
    digits = 4 if spec.drift > 0.01 else 7
    lp = [rng.uniform(-3, -0.05) for _ in mask]
    columns = {"log_probs": lp, "old_log_probs": [min(-0.01, x + rng.uniform(-spec.drift, spec.drift)) for x in lp]}
    if o.kl_reward_exact or o.kl_loss_coef and o.kl_estimator == "exact":
        columns["exact_kl"] = [rng.uniform(0, 0.6) for _ in mask]
    elif o.kl_reward_coef or o.kl_penalty_coef or o.kl_loss_coef or "ref_log_probs" in spec.also:
        columns["ref_log_probs"] = [min(-0.01, x + rng.uniform(-0.5, 0.5)) for x in lp]
    if (o.mismatch != "none" or o.off_policy_mask_delta is not None or o.kl_penalty_source == "sample"
            or "sample_log_probs" in spec.also):
        columns["sample_log_probs"] = [min(-0.01, x + rng.uniform(-0.3, 0.3)) for x in columns["old_log_probs"]]
    if o.entropy_coef or o.top_entropy is not None or "entropies" in spec.also:
        columns["entropies"] = [rng.uniform(0.05, 2.5) for _ in mask]
    if o.advantage == "gae":
        columns["values"] = [rng.uniform(-1, 1) for _ in mask]
    if o.teacher_coef and o.divergence == "sampled":
        columns["teacher_log_probs"] = [min(-0.01, x + rng.uniform(-0.5, 0.5)) for x in lp]
    elif o.teacher_coef:
        columns["teacher_divergence"] = [rng.uniform(0, 0.6) for _ in mask]
    return {name: [round(x, digits) if m else rng.choice([None, -900.0, round(x, digits)]) for x, m in zip(column, mask)]
            for name, column in columns.items()}


def sequence_arrays(spec, o, rng, sizes):
    n, out = sum(sizes), {}
    pick = {"binary": lambda: rng.randint(0, 1), "signed": lambda: rng.choice([-1, 1])}
    one = pick.get(spec.rewards, lambda: round(rng.uniform(-1, 2), 3))
    if o.advantage == "gdpo":
        out["reward_components"] = [[one(), round(rng.uniform(0, 1), 2), rng.randint(0, 1)] for _ in range(n)]
    else:
        out["rewards"] = [one() for _ in range(n)]
    if spec.rewards == "equal":
        g = next(g for g, size in enumerate(sizes) if size > 1)
        for i in range(sum(sizes[:g]), sum(sizes[:g + 1])):
            if o.advantage == "gdpo":
                out["reward_components"][i][1] = 0.1
            else:
                out["rewards"][i] = 0.1
    if o.advantage == "remax":
        out["baseline_rewards"] = [round(rng.uniform(-1, 2), 3) for _ in range(n)]
    if o.shape in ("budget", "truncate"):
        out["token_budget"] = 4 if rng.random() < 0.5 else [rng.randint(2, 6) for _ in range(n)]
    if o.shape == "k1.5-length" and rng.random() < 0.5:
        out["correct"] = [rng.randint(0, 1) for _ in range(n)]
    return out


# ----------------------------------------------------------------------------------------------------------------------- the cases
SURROGATE_OPTIONS = {"clip": {}, "dual-clip": dict(dual_clip=1.3), "cispo": dict(epsilon=0.2, epsilon_high=0.3),
                     "squared": dict(tau=0.3), "dro": dict(dro_beta=0.4), "sapo": {},
                     "vespo": {}, "topr": {}, "dppo": {}, "luspo": {}}
RATIOS = ("token", "sequence", "sequence-sum", "sequence-token", "average", "geometric-average")
ADVANTAGES = ("none", "group-mean", "group-std", "batch-std", "leave-one-out", "reinforce++", "opo", "remax", "pass-at-k", "max-rl",
              "gdpo", "gae")
AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo")
ESTIMATORS = ("k1", "k2", "k3", "abs", "is-k1", "is-k3")
NO_SINGLE = [2, 4, 3]


def opts(surrogate="clip", advantage="group-mean", aggregation="token-mean", **rest):
    rest.update({k: v for k, v in SURROGATE_OPTIONS.get(surrogate, {}).items() if k not in rest})
    return dict(surrogate=surrogate, advantage=advantage, aggregation=aggregation, **rest)


def preset_cases():
    required = {"dr-grpo": dict(max_response_length=16), "k1.5": dict(tau=0.2, length_weight=0.3),
                "k2": dict(tau=0.2, budget_penalty_coef=0.05), "deepseek-v3.2": dict(kl_loss_coef=0.01, off_policy_mask_delta=0.05)}
    explicit = {"reinforce": dict(aggregation="token-mean"), "rloo": dict(kl_reward_coef=0.05, aggregation="seq-mean-token-sum"),
                "reinforce++": dict(kl_reward_coef=0.01, aggregation="token-mean"), "ppo": dict(gae_gamma=0.99, gae_lambda=0.9),
                "grpo": dict(kl_loss_coef=0.1, epsilon=0.15), "dapo": dict(overlong_max=7, overlong_cushion=3),
                "dr-grpo": dict(max_response_length=3000), "gmpo": dict(epsilon=0.2), "sapo": dict(sapo_tau_negative=1.5),
                "deepseek-v3.2": dict(kl_loss_coef=0.05, off_policy_mask_delta=0.01, epsilon=0.1),
                "art": dict(kl_penalty_coef=0.2, kimi_k2_tau=0.1), "cispo": dict(epsilon=0.1, epsilon_high=0.2),
                "k1.5": dict(tau=0.7, length_weight=0.1), "k2": dict(tau=0.5, budget_penalty_coef=0.2)}
    for name in PRESETS:
        lengths = (15000, 21000) if name == "dapo" else None
        yield Spec(f"preset.{name}", required.get(name, {}), preset=name, lengths=lengths)
        if name in explicit:
            yield Spec(f"preset.{name}.explicit", explicit[name], preset=name, rewards="equal")
    yield Spec("preset.gspo.tight", {}, preset="gspo", drift=2e-3, margin="1e-6")


def shape_cases():
    shapes = {"none": {}, "budget": dict(budget_penalty_coef=0.1), "truncate": dict(budget_penalty=0.5),
              "overlong": dict(overlong_max=8, overlong_cushion=4), "k1.5-length": dict(length_weight=0.4)}
    for shape, rest in shapes.items():
        for variant, more in (("a", {}), ("b", {}), ("clip", dict(reward_clip=0.6))):
            for lengths in (None, (0, 10)):
                yield Spec(f"shape.{shape}.{variant}.{'given' if lengths else 'trained'}", opts(shape=shape, **rest, **more),
                           lengths=lengths, rewards="binary" if variant == "b" else "real")
    yield Spec("shape.components", opts(), extra={"reward_components": [[1, 0.5], [0, 0.25], [1, 0.1], [0.5, 0.3]],
                                                  "reward_weights": [0.7, 1.5]}, sizes=[4])


def advantage_cases():
    more = {"group-std": dict(advantage_eps=0.01), "batch-std": dict(advantage_eps=0.01), "reinforce++": dict(advantage_eps=0.01),
            "gdpo": dict(advantage_eps=0.01), "gae": dict(gae_gamma=0.97, gae_lambda=0.8), "pass-at-k": dict(pass_k=2)}
    for name in ADVANTAGES:
        sizes = NO_SINGLE if name == "gdpo" else None
        for rewards in ("real", "binary", "equal"):
            yield Spec(f"advantage.{name}.{rewards}", opts(advantage=name), rewards=rewards, sizes=sizes)
        if name in more:
            yield Spec(f"advantage.{name}.option", opts(advantage=name, **more[name]), sizes=sizes)
    yield Spec("advantage.opo.lengths", opts(advantage="opo"), lengths=(1, 900))
    yield Spec("advantage.pass-at-k.3", opts(advantage="pass-at-k", pass_k=3), sizes=[3, 1, 4])
    yield Spec("advantage.pass-at-k.4", opts(advantage="pass-at-k", pass_k=4), sizes=[5, 4, 1])
    yield Spec("advantage.max-rl.signed", opts(advantage="max-rl"), rewards="signed", sizes=[2, 2, 4, 1])
    yield Spec("advantage.gdpo.weights", opts(advantage="gdpo"), sizes=NO_SINGLE, extra={"reward_weights": [1, 0.5, 2]})
    yield Spec("advantage.gdpo.single", opts("reinforce", "gdpo"), sizes=[3, 1, 4])
    for b in (0.4, -0.6):
        for name in ("group-std", "gae", "reinforce++"):
            yield Spec(f"balance.{name}.{b}", opts(advantage=name, advantage_balance=b))


def surrogate_cases():
    for surrogate in SURROGATE_OPTIONS:
        for ratio in RATIOS:
            yield Spec(f"surrogate.{surrogate}.{ratio}", opts(surrogate, ratio=ratio))
    for surrogate in ("squared", "vespo", "topr", "luspo"):
        yield Spec(f"surrogate.{surrogate}.published", opts(surrogate, aggregation="seq-mean-token-mean"))
    yield Spec("surrogate.luspo.tight", opts("luspo"), drift=6e-3, margin="1e-6")
    yield Spec("surrogate.luspo.wide", opts("luspo", epsilon=0.1, epsilon_high=0.15))
    yield Spec("surrogate.clip.high", opts(epsilon=0.1, epsilon_high=0.28))
    yield Spec("surrogate.dual-clip.published", opts("dual-clip", dual_clip=3), drift=2.0)
    yield Spec("surrogate.cispo.published", opts("cispo", epsilon=1, epsilon_high=4), drift=2.5)
    yield Spec("surrogate.sapo.taus", opts("sapo", sapo_tau_positive=2, sapo_tau_negative=3.5))
    yield Spec("surrogate.vespo.constants", opts("vespo", vespo_k_positive=1.5, vespo_lambda_positive=2, vespo_k_negative=2.5,
                                                 vespo_lambda_negative=4))
    yield Spec("surrogate.topr.ranges", opts("topr", topr_positive_low=0.5, topr_positive_high=2, topr_negative_low=0.2,
                                             topr_negative_high=0.8))
    yield Spec("surrogate.dppo.kl", opts("dppo", dppo_divergence="kl"))
    yield Spec("surrogate.dppo.delta", opts("dppo", dppo_delta=0.04, dppo_ratio_cap=1.2))
    for name, rest in (("a", {}), ("b", dict(epsilon=0.1, epsilon_high=0.25)), ("c", dict(epsilon=0.2))):
        for aggregation in ("seq-mean-token-mean", "token-mean"):
            yield Spec(f"surrogate.gmpo.{name}.{aggregation}", opts("gmpo", aggregation=aggregation, **rest))
    for advantage in ("group-mean", "gae"):
        yield Spec(f"surrogate.reinforce.{advantage}", opts("reinforce", advantage))
    for level in RATIOS[1:]:  # advantages that differ inside a sequence
        yield Spec(f"surrogate.clip.gae.{level}", opts("clip", "gae", ratio=level))
    for tau in (0.1, 0.5):
        for surrogate in ("cispo", "clip", "reinforce"):
            yield Spec(f"kimi_k2_tau.{surrogate}.{tau}", opts(surrogate, kimi_k2_tau=tau))


def negative_bound_cases():
    """ART's bound on the ratio where A < 0, above and below 1."""
    for surrogate in ("clip", "dual-clip", "cispo", "luspo"):
        for bound in (1.1, 0.9):
            o = opts(surrogate, epsilon=0.2, epsilon_high=0.3, max_negative_advantage_importance_sampling_weight=bound)
            yield Spec(f"negative_bound.{surrogate}.{bound}", o)
    for ratio in RATIOS[1:]:
        yield Spec(f"negative_bound.clip.{ratio}", opts(ratio=ratio, max_negative_advantage_importance_sampling_weight=1.05))
    yield Spec("negative_bound.art", dict(max_negative_advantage_importance_sampling_weight=1.05, kl_penalty_coef=0.2),
               preset="art")
    yield Spec("negative_bound.gae", opts("clip", "gae", max_negative_advantage_importance_sampling_weight=1.05))


def mismatch_cases():
    settings = {"token-tis": dict(tis_cap=1.1), "token-mask": dict(mismatch_low=0.85, mismatch_high=1.15),
                "sequence-tis": dict(tis_cap=1.05), "sequence-mask": dict(mismatch_low=0.8, mismatch_high=1.3)}
    for name, rest in settings.items():
        for surrogate in ("clip", "squared", "gmpo", "cispo"):
            yield Spec(f"mismatch.{name}.{surrogate}", opts(surrogate, mismatch=name, **rest))
        yield Spec(f"mismatch.{name}.published", opts(mismatch=name))
    for delta in (0.02, 0.1):
        for surrogate in ("clip", "gmpo", "luspo"):
            yield Spec(f"off_policy.{surrogate}.{delta}", opts(surrogate, off_policy_mask_delta=delta))
    yield Spec("off_policy.with_kl", opts(off_policy_mask_delta=0.02, kl_loss_coef=0.1, kl_estimator="is-k3"))


def kl_cases():
    for estimator in ESTIMATORS:
        for surrogate in ("clip", "squared", "reinforce"):
            yield Spec(f"kl_loss.{estimator}.{surrogate}", opts(surrogate, kl_loss_coef=0.3, kl_estimator=estimator))
        yield Spec(f"kl_loss.{estimator}.clamp", opts(kl_loss_coef=0.3, kl_estimator=estimator, kl_clamp=0.25))
    for estimator in ("k3", "is-k3"):
        for direction in ("current_over_ref", "ref_over_current"):
            yield Spec(f"kl_loss.{estimator}.{direction}", opts(kl_loss_coef=0.3, kl_estimator=estimator, kl_direction=direction))
        yield Spec(f"kl_loss.{estimator}.current_over_ref.clamp",
                   opts(kl_loss_coef=0.3, kl_estimator=estimator, kl_direction="current_over_ref", kl_clamp=0.2))
    for surrogate in ("clip", "squared", "reinforce", "cispo"):
        yield Spec(f"kl_loss.exact.{surrogate}", opts(surrogate, kl_loss_coef=0.3, kl_estimator="exact"))
    for aggregation in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        both = dict(kl_reward_exact=0.3, kl_loss_coef=0.3, kl_estimator="exact", aggregation=aggregation)
        yield Spec(f"kl_exact.both.{aggregation}", opts(**both))
    for advantage in ("none", "group-std", "leave-one-out", "reinforce++", "gdpo"):
        yield Spec(f"kl_exact.reward.{advantage}", opts(advantage=advantage, kl_reward_exact=0.2))
    for advantage in ADVANTAGES:
        if advantage != "gdpo":
            yield Spec(f"kl_reward.{advantage}", opts(advantage=advantage, kl_reward_coef=0.2), rewards="equal")
    for advantage in ("group-std", "reinforce++"):
        yield Spec(f"kl_reward.{advantage}.sample", opts(advantage=advantage, kl_reward_coef=0.2, kl_penalty_source="sample"))
    for scope in ("batch", "group", "sequence"):
        for source in ("current_learner", "sample"):
            yield Spec(f"kl_penalty.{scope}.{source}", opts(kl_penalty_coef=0.4, kl_scope=scope, kl_penalty_source=source))
        yield Spec(f"kl_penalty.{scope}.kimi", opts("cispo", kl_penalty_coef=0.4, kl_scope=scope, kimi_k2_tau=0.2))
        yield Spec(f"kl_penalty.{scope}.sequence-token", opts(kl_penalty_coef=0.4, kl_scope=scope, ratio="sequence-token"))
    for scope in ("batch", "group"):
        for surrogate in ("gmpo", "luspo", "squared", "vespo", "topr"):
            yield Spec(f"kl_penalty.{scope}.{surrogate}", opts(surrogate, kl_penalty_coef=0.4, kl_scope=scope))
        for ratio in ("sequence", "sequence-sum"):
            yield Spec(f"kl_penalty.{scope}.clip.{ratio}", opts(ratio=ratio, kl_penalty_coef=0.4, kl_scope=scope))
    yield Spec("kl_penalty.squared.sample", opts("squared", kl_penalty_coef=0.4, kl_penalty_source="sample"))


def other_cases():
    for name, rest in {"bonus": dict(entropy_coef=0.02), "target.on": dict(entropy_coef=0.02, entropy_target=2.4),
                       "target.off": dict(entropy_coef=0.02, entropy_target=0.3), "top": dict(top_entropy=0.2),
                       "top.half": dict(top_entropy=0.5), "top.bonus": dict(top_entropy=0.35, entropy_coef=0.05)}.items():
        for surrogate in ("clip", "squared"):
            yield Spec(f"entropy.{name}.{surrogate}", opts(surrogate, **rest))
    yield Spec("entropy.top.kl", opts(top_entropy=0.3, kl_loss_coef=0.2, kl_estimator="k2"))
    for aggregation in AGGREGATIONS:
        rest = dict(max_response_length=12) if aggregation == "dr-grpo" else {}
        for surrogate in ("clip", "squared", "gmpo", "luspo"):
            yield Spec(f"aggregation.{aggregation}.{surrogate}", opts(surrogate, aggregation=aggregation, kl_loss_coef=0.1,
                                                                      kl_estimator="k3", entropy_coef=0.01, **rest))
    yield Spec("no_mask", opts("clip", "group-std"), masked=False)
    yield Spec("no_mask.reinforce++", opts("clip", "reinforce++"), masked=False)
    yield Spec("nothing", opts("clip", "group-std"), nothing=True)
    yield Spec("measured.ref", opts(), also=("ref_log_probs",))
    yield Spec("measured.entropies", opts("cispo"), also=("entropies",))
    yield Spec("one_group", opts("clip", "group-std"), sizes=[4])


def mixed_case(name):
    """A composition at random, as long as every option acts in it."""
    rng = random.Random(zlib.crc32(name.encode()))
    surrogate = rng.choice(list(SURROGATE_OPTIONS) + ["gmpo", "reinforce"])
    choices = [a for a in ADVANTAGES if surrogate != "gmpo" or a not in ("gae", "reinforce++")]
    o = opts(surrogate, rng.choice(choices), rng.choice(AGGREGATIONS))
    if o["aggregation"] == "dr-grpo":
        o["max_response_length"] = 10
    if surrogate not in ("gmpo", "reinforce") and rng.random() < 0.5:
        o["ratio"] = rng.choice(RATIOS)
    unit = Options({"options": o}).sequence_unit
    if rng.random() < 0.4:
        o.update(kl_loss_coef=round(rng.uniform(0.01, 0.5), 3), kl_estimator=rng.choice(ESTIMATORS))
    if rng.random() < 0.4:
        o.update(kl_penalty_coef=round(rng.uniform(0.05, 0.5), 3),
                 kl_scope=rng.choice(["batch", "group"] + ["sequence"] * (not unit)))
    if rng.random() < 0.3 and not unit:
        o["kimi_k2_tau"] = 0.2
    if rng.random() < 0.3 and o["advantage"] != "gdpo":
        o.update(kl_reward_coef=0.1)
    if rng.random() < 0.3 and o["advantage"] != "gdpo":
        o.update(rng.choice([dict(shape="budget", budget_penalty_coef=0.1), dict(shape="truncate", budget_penalty=1),
                             dict(shape="overlong", overlong_max=6, overlong_cushion=4), dict(reward_clip=0.9)]))
    if rng.random() < 0.3:
        o["advantage_balance"] = rng.choice([0.3, -0.3])
    if rng.random() < 0.4:
        o["mismatch"] = rng.choice(["token-tis", "token-mask", "sequence-tis", "sequence-mask"])
    if rng.random() < 0.3:
        o["off_policy_mask_delta"] = 0.05
    if rng.random() < 0.4:
        o.update(rng.choice([dict(entropy_coef=0.03), dict(top_entropy=0.4)]))
    return Spec(name, o, sizes=NO_SINGLE if o["advantage"] == "gdpo" else None, rewards=rng.choice(["real", "binary", "equal"]))


def teacher_cases():
    for advantage in ("none", "group-std", "reinforce++", "gdpo", "gae"):
        yield Spec(f"teacher.sampled.{advantage}", opts(advantage=advantage, teacher_coef=0.4))
        yield Spec(f"teacher.discounted.{advantage}", opts(advantage=advantage, teacher_coef=0.4, teacher_discount=0.7))
    yield Spec("teacher.undiscounted", opts("reinforce", teacher_coef=1.5, teacher_discount=1))
    yield Spec("teacher.cispo", opts("cispo", teacher_coef=0.3, kl_penalty_coef=0.2, kimi_k2_tau=0.1))
    yield Spec("teacher.exact_kl", opts(teacher_coef=0.3, teacher_discount=0.9, kl_reward_exact=0.2))
    for divergence in ("reverse", "forward", "jsd"):
        for surrogate in ("clip", "squared", "reinforce"):
            yield Spec(f"teacher.{divergence}.{surrogate}", opts(surrogate, teacher_coef=0.6, divergence=divergence))
    for aggregation in ("token-sum", "seq-mean-token-mean", "seq-mean-token-sum"):
        yield Spec(f"teacher.jsd.{aggregation}", opts(teacher_coef=0.6, divergence="jsd", aggregation=aggregation, entropy_coef=0.02))


def policy_cases():
    for family in (preset_cases, shape_cases, advantage_cases, surrogate_cases, negative_bound_cases, mismatch_cases, kl_cases,
                   other_cases):
        yield from family()
    yield from (mixed_case(f"mixed.{i}") for i in range(50))
    yield from teacher_cases()


def policy_case(spec):
    Kinks.margin = Decimal(spec.margin)
    for attempt in range(400):
        data = draw(spec, random.Random(zlib.crc32(f"{spec.name}/{attempt}".encode())))
        if "reward_components" in data:
            data.pop("rewards", None)
        try:
            out = policy_loss(data)
        except NearKink:
            continue
        if spec.nothing or any(out["grad_log_probs"]):  # a batch that teaches nothing tests nothing
            return case_text(spec.name, "policy-loss", data, out)
    raise RuntimeError(f"{spec.name}: no batch away from the kinks")


# ------------------------------------------------------------------------------------------------------ the four operations' cases
def worked_cases():
    """(operation, input, expected) of the specification's section 1; the expected value is its table's."""
    names = ("rewards", "log_probs", "old_log_probs", "response_lengths", "token_budget", "kl_coef", "budget_penalty_coef")
    for row, loss in ((([[1, .5]], [[-1, -1.5]], [[-1.2, -1.3]], [[150, 80]], 100, .1, .01), 0.0004),
                      (([[1, 2]], [[-.5, -.8]], [[-.5, -.8]], [[50, 60]], 100, .1, .01), 0.25),
                      (([[1, .5], [.8, 1.2]], [[-1, -1.2], [-.8, -.9]], [[-1.1, -1.1], [-.7, -1]], [[120, 80], [90, 110]], 100, .05,
                        .02), 0.005525)):
        yield "budget-loss", dict(zip(names, row)), loss
    names = ("ratios", "advantages", "pi_current", "pi_ref", "epsilon", "beta")
    for row, j in ((([1.2, .8, 1.1], [1, 1, 1], [.9, 1.1, 1], [1, .5, 1.5], .2, .01), 1.0319499611),
                   (([1, 1, 1], [1, 1, 1], [.5] * 3, [.5] * 3, .2, .01), 1.0),
                   (([1.1, .9, 1], [2, -1.5, .5], [.4, .6, .5], [.5] * 3, .2, .05), 0.4493105249)):
        yield "gpo", dict(zip(names, row)), j
    yield "rlhf-update", dict(weights=[1, 1], rewards=[1, 1], policy_log_probs=[-1.5, -1.5], ref_log_probs=[-1.5, -1.5],
                              log_prob_grads=[[.5, -.5], [.5, -.5]], beta=1, lr=.1), 1.05


def budget_input(rng, variant):
    sizes = [rng.randint(1, 5) for _ in range(rng.randint(1, 4))] if variant != "square" else [3, 3]
    rows = lambda draw_one: [[draw_one() for _ in range(size)] for size in sizes]
    data = dict(rewards=rows(lambda: round(rng.uniform(-1, 2), 3)), log_probs=rows(lambda: round(rng.uniform(-40, -1), 4)),
                old_log_probs=rows(lambda: round(rng.uniform(-40, -1), 4)), response_lengths=rows(lambda: rng.randint(0, 200)),
                token_budget=rows(lambda: rng.choice([50, 100, 150])) if variant in ("each", "truncate-each") else 100,
                kl_coef=round(rng.uniform(0, 0.5), 3))
    truncate = variant.startswith("truncate")
    data.update(dict(budget_rule="truncate", budget_penalty=0.7) if truncate else dict(budget_penalty_coef=0.01))
    return data


def gpo_input(rng, direction):
    n = rng.randint(1, 9)
    column = lambda low, high: [round(rng.uniform(low, high), 4) for _ in range(n)]
    data = dict(ratios=column(0.5, 1.6), advantages=column(-2, 2), pi_current=column(0.01, 1.2), pi_ref=column(0.01, 1.2),
                epsilon=0.2, beta=round(rng.uniform(0.01, 0.3), 3))
    return {**data, "kl_direction": direction} if direction else data


def rlhf_input(rng):
    n, p = rng.randint(1, 7), rng.randint(1, 9)
    column = lambda size, low, high: [round(rng.uniform(low, high), 4) for _ in range(size)]
    return dict(weights=column(p, -1, 1), rewards=column(n, -1, 2), policy_log_probs=column(n, -3, -0.1),
                ref_log_probs=column(n, -3, -0.1), log_prob_grads=[column(p, -1, 1) for _ in range(n)],
                beta=round(rng.uniform(0, 1), 3), lr=0.05)


def kl_advantage_input(rng, scope, masked):
    data = draw(Spec("", opts(kl_penalty_coef=1), masked=masked), rng)
    out = dict(advantages=[round(rng.uniform(-2, 2), 3) for _ in data["log_probs"]], log_probs=data["log_probs"],
               ref_log_probs=data["ref_log_probs"], kl_penalty_coef=round(rng.uniform(0.05, 1), 3))
    if masked:
        out["mask"] = data["mask"]
    if scope:
        out["kl_scope"] = scope
    if scope in ("group", "sequence"):
        out["sequence_lengths"] = data["sequence_lengths"]
    if scope == "group":
        out["group_sizes"] = data["group_sizes"]
    return out


FOUR = {"budget-loss": budget_loss, "gpo": gpo, "rlhf-update": rlhf_update, "kl-advantage": kl_advantage}


def four_texts():
    for i, (operation, data, expected) in enumerate(worked_cases()):
        out = FOUR[operation](data)
        got = next(iter(out.values()))[0]
        if abs(got - Decimal(expected)) > Decimal("1e-10"):
            raise RuntimeError(f"{operation} {i}: {got} is not the worked value {expected}")
        yield case_text(f"worked.{operation}.{i}", operation, data, out)
    inputs = [("budget-loss", v, lambda rng, v=v: budget_input(rng, v))
              for v in ("square", "ragged", "each", "truncate", "truncate-each") for _ in range(4)]
    inputs += [("gpo", d or "default", lambda rng, d=d: gpo_input(rng, d))
               for d in (None, "current_over_ref", "ref_over_current") for _ in range(5)]
    inputs += [("rlhf-update", "random", rlhf_input) for _ in range(6)]
    inputs += [("kl-advantage", f"{s or 'default'}.{'mask' if m else 'all'}", lambda rng, s=s, m=m: kl_advantage_input(rng, s, m))
               for s in (None, "batch", "group", "sequence") for m in (True, False) for _ in range(3)]
    for i, (operation, variant, make) in enumerate(inputs):
        data = make(random.Random(f"{operation}/{variant}/{i}"))
        yield case_text(f"{operation}.{variant}.{i}", operation, data, FOUR[operation](data))


# ------------------------------------------------------------------------------------------ preferences, reward models and critics
LOSSES = {  # whether the loss has a reference, which lengths it has, and its constants
    "dpo": (True, (), {}), "cdpo": (True, (), {"label_smoothing": (0, .4)}), "robust": (True, (), {"label_smoothing": (0, .4)}),
    "hinge": (True, (), {}), "ipo_mean": (True, ("chosen", "rejected"), {}), "ipo_sum": (True, (), {}),
    "simpo": (False, ("chosen", "rejected"), {"simpo_gamma": (0, 2)}), "cpo": (False, ("chosen",), {"cpo_alpha": (0, 2)}),
    "orpo": (False, ("chosen", "rejected"), {})}


def pairs_input(rng, loss, variant):
    """variant: published (only constants without a published value are given), given, or far (differences of 1,000 nats)."""
    n, (reference, lengths, constants) = rng.randint(1, 5), LOSSES[loss]
    reach = 1000 if variant == "far" else 20
    data = {"loss": loss}
    for side in ("chosen", "rejected"):
        data[f"{side}_log_probs"] = [round(rng.uniform(-reach, -1), 3) for _ in range(n)]
        if reference:
            data[f"ref_{side}_log_probs"] = [round(x + rng.uniform(-reach / 2, reach / 2), 3) for x in data[f"{side}_log_probs"]]
        if side in lengths:
            data[f"{side}_lengths"] = [rng.randint(1, 30) for _ in range(n)]
    if variant != "published":
        data["beta"] = round(rng.uniform(0.05, 1), 3)
    return data | {name: round(rng.uniform(*span), 3) for name, span in constants.items()
                   if variant != "published" or name == "label_smoothing"}


def kto_input(rng, variant):
    n, reach = rng.randint(1, 6), 1000 if variant == "far" else 10
    s = [round(rng.uniform(-60, -1), 3) for _ in range(n)]
    data = {"loss": "kto", "log_probs": s, "ref_log_probs": [round(x + rng.uniform(-reach, reach), 3) for x in s],
            "labels": [rng.randint(0, 1) for _ in range(n)], "kl": round(rng.uniform(-3, 5), 3)}
    if variant != "published":
        data |= {"beta": round(rng.uniform(0.05, 1), 3), "desirable_weight": round(rng.uniform(0, 2), 3),
                 "undesirable_weight": round(rng.uniform(0, 2), 3)}
    return data


def rewards_input(rng, variant):
    n, reach = rng.randint(1, 6), 1000 if variant == "far" else 3
    data = {f"{side}_rewards": [round(rng.uniform(-reach, reach), 3) for _ in range(n)] for side in ("chosen", "rejected")}
    if variant in ("margin", "both"):
        data["margins"] = [round(rng.uniform(-1, 2), 3) for _ in range(n)]
    if variant in ("centre", "both"):
        data["center_rewards_coefficient"] = round(rng.uniform(0, 0.1), 3)
    return data


def values_input(rng, variant):
    n = rng.randint(2, 12)
    column = lambda: [round(rng.uniform(-1.5, 1.5), 3) for _ in range(n)]  # noqa: E731
    data = {"values": column(), "old_values": column(), "returns": column()}
    if variant == "given":
        data["value_clip"] = round(rng.uniform(0, 1), 3)
    if variant == "mask":
        data["mask"] = [1] + [rng.randint(0, 1) for _ in range(n - 1)]
        for name in ("values", "old_values", "returns"):
            data[name] = [x if m else rng.choice([None, 900.0]) for x, m in zip(data[name], data["mask"])]
    return data


def drawn(make, compute, seed):
    """Draws again while the numbers are too near to a kink."""
    rng = random.Random(seed)
    while True:
        try:
            data = make(rng)
            return data, compute(data)
        except NearKink:
            continue


def preference_texts():
    variants = [("preference-loss", f"{loss}.{v}", lambda rng, loss=loss, v=v: pairs_input(rng, loss, v), preference_loss)
                for loss in LOSSES for v in ("published", "given", "far")]
    variants += [("preference-loss", f"kto.{v}", lambda rng, v=v: kto_input(rng, v), preference_loss)
                 for v in ("published", "given", "far")]
    variants += [("reward-loss", v, lambda rng, v=v: rewards_input(rng, v), reward_loss)
                 for v in ("plain", "margin", "centre", "both", "far")]
    variants += [("value-loss", v, lambda rng, v=v: values_input(rng, v), value_loss) for v in ("published", "given", "mask")]
    for operation, variant, make, compute in variants:
        for i in range(4):
            data, out = drawn(make, compute, f"{operation}/{variant}/{i}")
            yield case_text(f"{operation}.{variant}.{i}", operation, data, out)


# -------------------------------------------------------------------------------------------------------------------------- output
def hex_float(x):
    """The nearest double; None is nan, and there is one zero."""
    return "nan" if x is None else (float(x) + 0.0).hex()


def case_text(name, operation, data, out):
    lines = [f"case {name} {operation} {json.dumps(data, separators=(',', ':'))}"]
    for key, values in out.items():
        if key.startswith("metric:"):
            lines.append(f"{key} {hex_float(values)}")
        else:
            lines.append(" ".join([key, str(len(values))] + [hex_float(x) for x in values]))
        if any(x is not None and not math.isfinite(x) for x in (values if isinstance(values, list) else [values])):
            raise RuntimeError(f"{name}: {key} is not finite")
    return "\n".join(lines + ["end\n"])


def main():
    here, check, stale = Path(__file__).resolve().parent, "--check" in sys.argv[1:], []
    for name, texts in (("four.txt", four_texts()), ("preference.txt", preference_texts()), ("policy.txt", map(policy_case, policy_cases()))):
        text = "".join(texts)
        path = here / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}")


if __name__ == "__main__":
    main()
