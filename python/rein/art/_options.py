"""The keywords of ART's LocalBackend.train as options of rein."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

# Clip ranges of ART's loss (art/loss.py) that apply when none are given. None: that of epsilon.
_LOSSES = {"cispo": ("cispo", 1.0, 4.0), "ppo": ("clip", 0.2, None)}
_LEVELS = ("token", "sequence", "average", "geometric_average")
_OFF = (  # None and 0 turn them off, as in ART
    "max_negative_advantage_importance_sampling_weight",
    "kimi_k2_tau",
    "truncated_importance_sampling",
)

# Keywords that are accepted at ART's default only, and why.
_FIXED: dict[str, tuple[Any, str]] = {
    "loss_fn_config": (None, "ART's LocalBackend does not take it either"),
    "adam_params": (None, "ART's LocalBackend does not take it either"),
    "mask_prob_ratio": (False, "rein has no surrogate that sets ratios outside the clip range to 0"),
    "plot_tensors": (False, "there are no packed tensors to plot"),
    "logprob_calculation_chunk_size": (1024, "rein chooses the size of its chunks"),
    "packed_sequence_length": (None, "trajectories are not packed into sequences of one length"),
    "scale_learning_rate_by_reward_std_dev": (False, "ART 0.5.18 accepts it without an effect: change learning_rate"),
    "num_trajectories_learning_rate_multiplier_power": (
        0.0,
        "it counts the trajectories of a packed sequence, and there are none: change learning_rate",
    ),
}


def check_fixed(keywords: dict[str, Any]) -> None:
    """A keyword that could have no effect is an error, unless it has its default."""
    for name, (default, reason) in _FIXED.items():
        if keywords[name] != default:
            raise ValueError(f"{name} is {keywords[name]!r}: rein.art accepts only {default!r}, because {reason}")


def rl_options(k: dict[str, Any]) -> dict[str, Any]:
    """Options of a training job; k are the keywords of train, with their defaults."""
    check_fixed(k)
    if k["loss_fn"] not in _LOSSES:
        raise ValueError(f"loss_fn is {k['loss_fn']!r}: 'cispo' or 'ppo' is needed")
    if k["importance_sampling_level"] not in _LEVELS:
        raise ValueError(f"importance_sampling_level is {k['importance_sampling_level']!r}: one of {_LEVELS} is needed")
    if k["precalculate_logprobs"] and k["truncated_importance_sampling"]:
        raise ValueError("truncated_importance_sampling needs recorded log-probs, which precalculate_logprobs replaces")
    surrogate, epsilon, epsilon_high = _LOSSES[k["loss_fn"]]
    epsilon = epsilon if k["epsilon"] is None else k["epsilon"]
    epsilon_high = k["epsilon_high"] if k["epsilon_high"] is not None else epsilon_high
    options = {
        "preset": "art",
        "learning_rate": k["learning_rate"],
        "surrogate": surrogate,
        "epsilon": epsilon,
        "epsilon_high": epsilon if epsilon_high is None else epsilon_high,
        "scale_rewards": bool(k["scale_rewards"] and k["normalize_advantages"]),
        "advantage_balance": k["advantage_balance"],
        "importance_sampling_level": k["importance_sampling_level"].replace("_", "-"),
        "kl_penalty_coef": k["kl_penalty_coef"],
    }
    for name in _OFF:
        if k[name]:
            options[name] = k[name]
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}: a finite number is needed")
    return {**options, **_reference(k)}


def _reference(k: dict[str, Any]) -> dict[str, Any]:
    """The KL reference. As in ART, it has no effect without a coefficient, and a path wins over a step."""
    names = ["kl_penalty_source", "kl_penalty_step_lag", "kl_penalty_reference_step"]
    if not k["kl_penalty_coef"]:
        return {}
    options = {name: k[name] for name in names if k[name] is not None}
    if k["kl_ref_adapter_path"] is not None:
        path = os.path.abspath(os.path.expanduser(k["kl_ref_adapter_path"]))
        if not os.path.isdir(path):
            raise FileNotFoundError(f"kl_ref_adapter_path is {path}: there is no such directory")
        options.pop("kl_penalty_reference_step", None)
        options["kl_ref_adapter_path"] = path
    return options


def sft_options(learning_rate: float | list[float], batches: int) -> dict[str, Any]:
    """The mean negative log-likelihood: REINFORCE with rewards of 1. Each batch is one optimizer step."""
    if isinstance(learning_rate, list):
        if len(learning_rate) < batches:
            raise ValueError(f"learning_rate has {len(learning_rate)} numbers: the {batches} batches need one each")
        learning_rate = learning_rate[:batches]
    return {
        "preset": "reinforce",
        "aggregation": "token-mean",
        "minibatches": batches,
        "learning_rate": learning_rate,
    }


# ART's names of the metrics, and rein's (docs/metrics.md). rein's own loss/entropy is something else.
_METRICS = {
    "loss/train": "loss",
    "loss/kl_policy_ref": "kl_policy_ref",
    "loss/grad_norm": "grad_norm",
    "loss/entropy": "entropy",
    "loss/learning_rate": "learning_rate",
    "data/step_trainer_tokens": "tokens/trained",
}


def art_metrics(metrics: dict[str, float | None] | None) -> dict[str, float]:
    """What a job reported, by ART's names. A metric that does not apply is left out."""
    found = {name: (metrics or {}).get(ours) for name, ours in _METRICS.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


# ART's training defaults, as arguments of a new run, and where a model's _internal_config overrides them.
_DEFAULTS = {
    "preset": "art",
    "learning-rate": 5e-6,
    "lora-rank": 8,
    "lora-alpha": 16,
    "adam-beta1": 0.9,
    "adam-beta2": 0.99,
    "max-grad-norm": 0.1,
    "weight-decay": 0.1,
}
_INTERNAL = {
    "peft_args": {"r": "lora-rank", "lora_alpha": "lora-alpha", "random_state": "seed"},
    "trainer_args": {
        "adam_beta1": "adam-beta1",
        "adam_beta2": "adam-beta2",
        "adam_epsilon": "adam-epsilon",
        "max_grad_norm": "max-grad-norm",
        "weight_decay": "weight-decay",
        "learning_rate": "learning-rate",
    },
}


def run_arguments(internal: dict[str, Any] | None) -> list[str]:
    """Arguments that make a new run; `internal` is the _internal_config of the model.

    Settings of vLLM and of GPUs in it (engine_args, init_args, gpu ids) have nothing to act on and are not looked at.
    """
    internal = dict(internal or {})
    settings: dict[str, Any] = dict(_DEFAULTS)
    for name in ("chat_template", "chat_template_path"):
        if internal.get(name) is not None:
            raise NotImplementedError(f"_internal_config has {name}: put the template into the directory of the model")
    if internal.get("tinker_args") is not None:
        raise NotImplementedError("_internal_config has tinker_args: use ART's TinkerBackend for Tinker")
    for section, names in _INTERNAL.items():
        given = dict(internal.get(section) or {})
        if section == "peft_args" and (modules := given.pop("target_modules", None)) is not None:
            settings["lora-modules"] = modules if isinstance(modules, str) else ",".join(modules)
        for name, value in given.items():
            if name in names:
                settings[names[name]] = value
            else:
                warnings.warn(f"_internal_config: {section}.{name} has no effect in rein", stacklevel=2)
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]
