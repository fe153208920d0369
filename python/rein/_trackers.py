"""Experiment trackers of others, for `report_to` of rein.run. Each gets the metrics of every step."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import StepReport


Start = Callable[[str, "dict[str, Any]"], "Callable[[StepReport], None]"]


def find_tracker(name: str) -> Start:
    """A function that starts a tracker, for the run in a directory with these settings. It returns one for on_step."""
    if name not in _TRACKERS:
        raise ValueError(f"report_to is {name!r}: one of {', '.join(sorted(_TRACKERS))} is needed")
    try:
        module = importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"report_to is {name!r}, and the package {name} is not installed: pip install {name}"
        ) from None
    return partial(_TRACKERS[name], module)


def _wandb(wandb: Any, directory: str, settings: dict[str, Any]) -> Callable[[StepReport], None]:
    """An active wandb run is used as it is; otherwise one is started with the name of the run."""
    if wandb.run is None:
        wandb.init(project=os.environ.get("WANDB_PROJECT", "rein"), name=os.path.basename(directory), config=settings)
    return lambda report: wandb.log(report.metrics, step=report.step)


def _trackio(trackio: Any, directory: str, settings: dict[str, Any]) -> Callable[[StepReport], None]:
    trackio.init(project="rein", name=os.path.basename(directory), config=settings)
    return lambda report: trackio.log(report.metrics, step=report.step)


def _mlflow(mlflow: Any, directory: str, settings: dict[str, Any]) -> Callable[[StepReport], None]:
    if mlflow.active_run() is None:
        mlflow.start_run(run_name=os.path.basename(directory))
    mlflow.log_params(settings)
    return lambda report: mlflow.log_metrics(report.metrics, step=report.step)


_TRACKERS: dict[str, Callable[..., Any]] = {
    "mlflow": _mlflow,
    "trackio": _trackio,
    "wandb": _wandb,
}
