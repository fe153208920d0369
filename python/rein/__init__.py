"""rein: reinforcement learning for language models; every objective comes with its exact gradient.

Functions take and return arrays; librein, a C library inside this package, does the computation. `rein.torch` has
the same functions for PyTorch.
`rein.Policy` is a language model that samples and trains on the CPU.
"""

from ._client import ChatCompletion, Client, EpisodeOver
from ._groups import Trajectory
from ._library import VERSION as __version__
from ._library import ArgumentError, FileError, OutOfMemoryError, ReportedError, ResultError
from ._model import Pass, Policy
from ._operations import (
    budget_control,
    entropy_control,
    gpo_objective,
    kl_penalized_advantages,
    rl_budget_loss,
    rlhf_weight_update,
)
from ._options import Explanation, KlBias, Options, explain, presets
from ._policy import PolicyLoss, Step, advantages, policy_loss, shape_rewards
from ._preferences import preference_loss, reward_loss, value_loss
from ._rollout import Episode, Rollout, rollout
from ._run import Evaluation, HtmlReport, Run, StepReport, evaluate, report, run
from ._sampling import Sample
from ._session import Session, open_run
from ._tokenizer import Tokenizer
from ._train import train

__all__ = [
    "ArgumentError",
    "ChatCompletion",
    "Client",
    "Episode",
    "EpisodeOver",
    "Evaluation",
    "Explanation",
    "FileError",
    "HtmlReport",
    "KlBias",
    "Options",
    "OutOfMemoryError",
    "Pass",
    "Policy",
    "PolicyLoss",
    "ReportedError",
    "ResultError",
    "Rollout",
    "Run",
    "Sample",
    "Session",
    "Step",
    "StepReport",
    "Tokenizer",
    "Trajectory",
    "__version__",
    "advantages",
    "budget_control",
    "entropy_control",
    "evaluate",
    "explain",
    "gpo_objective",
    "kl_penalized_advantages",
    "open_run",
    "policy_loss",
    "preference_loss",
    "presets",
    "report",
    "reward_loss",
    "rl_budget_loss",
    "rlhf_weight_update",
    "rollout",
    "run",
    "shape_rewards",
    "train",
    "value_loss",
]
