"""Trajectories of ART as the server reads them (docs/trajectories.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

Json = dict[str, Any]

# The server wants a message in each conversation, a conversation in each group, and a group.
_EMPTY = [{"role": "user", "content": ""}]
_NOTHING: Json = {"trajectories": [{"messages_and_choices": _EMPTY, "reward": 0.0}]}


def rl_groups(groups: Iterable[Any], *, without_log_probs: bool, recompute: bool) -> list[Json]:
    """Trajectory groups for reinforcement learning.

    As in ART, groups of equal rewards do not train, with or without a KL penalty. They are sent as context alone: that
    costs no computation, the run records them, and the errors of the server name the positions that the caller knows.

    without_log_probs  assistant messages and Choices without log-probs train too
    recompute          the recorded log-probs are not sent: the trainer computes those of its current policy
    """

    def message(item: Any) -> Json:
        if not isinstance(item, dict):
            return _choice(item, without_log_probs, recompute)
        turn = _context(item)
        return {**turn, "trainable": True} if without_log_probs and turn.get("role") == "assistant" else turn

    result = []
    for g, group in enumerate(groups):
        for i, one in enumerate(group):
            if not math.isfinite(one.reward):
                place = f"trajectory_groups[{g}].trajectories[{i}].reward"
                raise ValueError(f"{place} is {one.reward}: a finite number is needed")
        read = message if len({one.reward for one in group}) > 1 else _context
        result.append(
            {"trajectories": [_trajectory(one, read, one.reward) for one in group]} if len(group) else _NOTHING
        )
    return result or [_NOTHING]


def sft_groups(batches: Iterable[Sequence[Any]]) -> list[Json]:
    """One group for each batch, in which every turn of the assistant trains, with its end, and has the same weight."""

    def message(item: Any) -> Json:
        turn = _context(item)
        ends = {"trainable": True, "finish_reason": "stop"}
        return {**turn, **ends} if turn.get("role") == "assistant" else turn

    return [{"trajectories": [_trajectory(one, message, 1.0) for one in batch]} for batch in batches]


def _trajectory(trajectory: Any, message: Callable[[Any], Json], reward: float) -> Json:
    result = {**_history(trajectory, message), "reward": float(reward)}
    if trajectory.additional_histories:
        result["additional_histories"] = [_history(history, message) for history in trajectory.additional_histories]
    if trajectory.initial_policy_version is not None:
        result["initial_policy_version"] = trajectory.initial_policy_version
    return result


def _history(history: Any, message: Callable[[Any], Json]) -> Json:
    messages = list(map(message, history.messages_and_choices)) or _EMPTY
    return {"messages_and_choices": messages, "tools": to_jsonable_python(history.tools)}


def _context(item: Any) -> Json:
    """A message, or that of a Choice, which does not train."""
    if isinstance(item, dict):
        return {key: value for key, value in to_jsonable_python(item).items() if key != "trainable"}
    return {"content": "", **item.message.model_dump(mode="json", exclude_none=True)}


def _choice(choice: Any, without_log_probs: bool, recompute: bool) -> Json:
    """A Choice without log-probs was not sampled by this policy: as in ART, it is a message that does not train."""
    recorded = {kind: getattr(choice.logprobs, kind, None) or [] for kind in ("content", "refusal")}
    if not any(recorded.values()):
        return {**choice.model_dump(mode="json"), "logprobs": None} if without_log_probs else _context(choice)
    entries = {kind: [_entry(one, recompute) for one in entries] or None for kind, entries in recorded.items()}
    return {**choice.model_dump(mode="json", exclude={"logprobs"}), "logprobs": entries}


def _entry(entry: Any, recompute: bool) -> Json:
    """What the reader needs of a token. All of it would make the request three times as long."""
    result = {"token": entry.token, "logprob": None if recompute else entry.logprob}
    return result if entry.token.startswith("token_id:") else {**result, "bytes": entry.bytes}
