"""Trajectory groups, the training data, in Python and in the form of the library."""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _engine as e
from ._arrays import BOOL, FLOAT32, Array, ArrayLike, address, as_array, marks, real, show
from ._engine import INT32
from ._rollout import Episode


@dataclass(eq=False)
class Trajectory:
    """One response to a prompt, with its reward.

    prompt_ids    [P] token ids of the prompt, at least one
    response_ids  [R] token ids of the response
    log_probs     [R] of the response when it was sampled, NaN where unknown; None: unknown, then those of the current
                  policy are used
    reward        a finite number
    mask          [R] 1 where the policy sampled the token, so that it trains; None: all tokens
    policy_step   the step of the policy that sampled it (Sample has it); None: unknown
    truncated     cut off at a length limit, not ended by the policy
    budget        its token budget, for objectives with one; None: the budget of the objective
    values        [R] of a critic, for objectives that need one
    sampler_log_probs  [R] of the sampler, where top_k, top_p, min_p or greedy made it differ from the policy;
                  None: the sampler was the policy itself
    activation_key  key of its activations in the policy's activation cache (Sample has it); 0: they are computed again

    >>> Trajectory([1, 5], [7, 8, 2], [-0.1, -2.0, -0.5], reward=1.0).reward
    1.0
    """

    prompt_ids: ArrayLike
    response_ids: ArrayLike
    log_probs: ArrayLike | None
    reward: float
    mask: ArrayLike | None = None
    policy_step: int | None = None
    truncated: bool = False
    budget: int | None = None
    values: ArrayLike | None = None
    activation_key: int = 0
    sampler_log_probs: ArrayLike | None = None

    @classmethod
    def from_ids(
        cls, ids: ArrayLike, mask: ArrayLike, log_probs: ArrayLike | None, reward: float, **more: Any
    ) -> Trajectory:
        """A whole conversation: ids, mask and log_probs [n] of all its tokens. Where mask is 1 the policy sampled the
        token. The other tokens (turns of a user, answers of a tool) are only read, and their log_probs are ignored.

        >>> turns = Trajectory.from_ids([1, 7, 8, 5, 9], [0, 1, 1, 0, 1], [0, -0.5, -1, 0, -2], reward=1)
        >>> turns.prompt_ids.tolist(), turns.response_ids.tolist(), turns.mask.tolist()
        ([1], [7, 8, 5, 9], [True, True, False, True])
        """
        tokens, trains = e.ids_of(ids, "ids"), marks(mask, "mask")
        _same_length(trains, "mask", tokens.size, "ids")
        first = int(np.argmax(trains)) if trains.any() else tokens.size
        if first == 0:
            raise ValueError("mask[0] is 1: the first token cannot train, because no token comes before it")
        recorded = None
        if log_probs is not None:
            recorded = real(log_probs, "log_probs", FLOAT32)
            _same_length(recorded, "log_probs", tokens.size, "ids")
            recorded = recorded[first:]
        return cls(tokens[:first], tokens[first:], recorded, reward, trains[first:], **more)


TrajectoryLike = Union[Trajectory, Episode, Mapping[str, Any]]
GroupLike = Union[Sequence[TrajectoryLike], Mapping[str, Any]]
GroupsLike = Union[Iterable[GroupLike], str, "os.PathLike[str]"]


def _same_length(array: Array, name: str, n: int, other: str) -> None:
    if array.shape != (n,):
        raise ValueError(f"{name} has shape {show(array.shape)}, {other} has {show((n,))}: they must agree")


class Groups:
    """rein_groups, and the memory it points to. A context manager: at its end memory of the library is freed."""

    def __init__(self, groups: GroupsLike, tokenizer: Any | None, chat: e.Chat | None = None) -> None:
        """`chat`: the format of messages; None: that of the tokenizer."""
        self.struct = e.Groups()
        self.reference = ctypes.byref(self.struct)
        self._keep: list[Any] = []
        self._owned = False
        if chat is None and tokenizer is not None:
            chat = tokenizer._dated_format()
        how = (tokenizer._handle.address if tokenizer is not None else None, ctypes.byref(chat) if chat else None)
        if isinstance(groups, (str, os.PathLike)):
            self._owned = True
            e.call(e.groups_read, self.reference, e.path_of(groups, "groups"), *how)
            return
        listed: list[Any] = [group if isinstance(group, Mapping) else list(group) for group in groups]
        if not listed:
            raise ValueError("groups is empty: at least one group is needed")
        if any(map(_has_episode, listed)):
            self._borrow_episodes(listed)
        elif any(map(_is_json, listed)):
            self._owned = True
            text = "\n".join(_line(group, i) for i, group in enumerate(listed)).encode()
            e.call(e.groups_from_memory, self.reference, text, len(text), b"groups", *how)
        else:
            self._borrow(listed)

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            e.groups_free(self.reference)

    def _borrow_episodes(self, groups: Sequence[Sequence[Any]]) -> None:
        """Fills the library's structs with those of episodes, which keep their memory."""
        structs = (e.Group * len(groups))()
        for g, group in enumerate(groups):
            for i, episode in enumerate(group):
                if not isinstance(episode, Episode):
                    raise TypeError(f"groups[{g}][{i}] is {episode!r:.60}: give only episodes of a rollout, or none")
            trajectories = (e.TrajectoryStruct * len(group))(*(episode._struct for episode in group))
            structs[g].trajectories, structs[g].n = ctypes.addressof(trajectories), len(group)
            if group:
                structs[g].example = group[0]._group.example
            self._keep += [trajectories, list(group)]
        self.struct.groups, self.struct.n = ctypes.addressof(structs), len(groups)
        self._keep.append(structs)

    def _borrow(self, groups: Sequence[Sequence[Trajectory]]) -> None:
        """Fills the library's structs; they point into arrays that hold the tokens of all trajectories."""
        rows = [_row(t, f"groups[{g}][{i}]") for g, group in enumerate(groups) for i, t in enumerate(group)]
        flat = _Flat(rows)
        histories, trajectories = (e.History * len(rows))(), (e.TrajectoryStruct * len(rows))()
        for i, row in enumerate(rows):
            histories[i] = flat.history(i)
            key = row.trajectory.activation_key
            histories[i].activation_key = e.count_of(key, f"{row.name}.activation_key", limit=2**64)
            _fill(trajectories[i], row.trajectory, row.name)
            trajectories[i].histories = ctypes.addressof(histories) + i * ctypes.sizeof(e.History)
        structs, first = (e.Group * len(groups))(), 0
        for g, group in enumerate(groups):
            structs[g].trajectories = ctypes.addressof(trajectories) + first * ctypes.sizeof(e.TrajectoryStruct)
            structs[g].n = len(group)
            first += len(group)
        self.struct.groups, self.struct.n = ctypes.addressof(structs), len(groups)
        self._keep = [flat, histories, trajectories, structs]


# ------------------------------------------------------------------------------------------------------- groups as JSON


def _has_episode(group: Any) -> bool:
    return not isinstance(group, Mapping) and any(isinstance(one, Episode) for one in group)


def _is_json(group: Any) -> bool:
    return isinstance(group, Mapping) or any(isinstance(trajectory, Mapping) for trajectory in group)


def _line(group: Any, i: int) -> str:
    """A group as a line of rein's JSON."""
    whole = group if isinstance(group, Mapping) else {"trajectories": group}
    trajectories = whole.get("trajectories") or ()
    if any(isinstance(trajectory, Trajectory) for trajectory in trajectories) or not _is_json(group):
        raise TypeError(f"groups[{i}] has a Trajectory: give only rein.Trajectory, or only dicts")
    return json.dumps(whole, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays and numpy numbers as lists and numbers for JSON; NaN becomes null."""
    if isinstance(value, Mapping):
        return dict(value)
    listed = as_array(value, "a value").tolist()
    if isinstance(listed, list):
        return [None if isinstance(x, float) and math.isnan(x) else x for x in listed]
    return listed


# --------------------------------------------------------------------------------------------------------- flat arrays


@dataclass
class _Row:
    """A trajectory with its arrays checked."""

    name: str
    trajectory: Trajectory
    prompt: Array
    response: Array


def _row(trajectory: Any, name: str) -> _Row:
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"{name} is {trajectory!r:.60}: a rein.Trajectory or a dict is needed")
    prompt = e.ids_of(trajectory.prompt_ids, f"{name}.prompt_ids")
    return _Row(name, trajectory, prompt, e.ids_of(trajectory.response_ids, f"{name}.response_ids"))


class _Flat:
    """The tokens of all trajectories in flat arrays, one trajectory after another."""

    def __init__(self, rows: list[_Row]) -> None:
        lengths = [row.prompt.size + row.response.size for row in rows]
        self.offsets = [0, *np.cumsum(lengths).tolist()] if rows else [0]
        n = self.offsets[-1]
        self.ids, self.mask = np.empty(n, INT32), np.zeros(n, BOOL)
        self.log_probs = np.full(n, np.nan, FLOAT32)
        self.has_values = [row.trajectory.values is not None for row in rows]
        self.values = np.full(n if any(self.has_values) else 0, np.nan, FLOAT32)
        self.has_sampler = [row.trajectory.sampler_log_probs is not None for row in rows]
        self.sampler_log_probs = np.full(n if any(self.has_sampler) else 0, np.nan, FLOAT32)
        for row, start, end in zip(rows, self.offsets, self.offsets[1:]):
            self._put(row, start, start + row.prompt.size, end)

    def _put(self, row: _Row, start: int, middle: int, end: int) -> None:
        trajectory, n = row.trajectory, end - middle
        self.ids[start:middle] = row.prompt
        self.ids[middle:end] = row.response
        self.mask[middle:end] = True
        if trajectory.mask is not None:
            mask = marks(trajectory.mask, f"{row.name}.mask")
            _same_length(mask, f"{row.name}.mask", n, "response_ids")
            self.mask[middle:end] = mask
        for name, to in (
            ("log_probs", self.log_probs),
            ("values", self.values),
            ("sampler_log_probs", self.sampler_log_probs),
        ):
            given = getattr(trajectory, name)
            if given is not None:
                numbers = real(given, f"{row.name}.{name}", FLOAT32)
                _same_length(numbers, f"{row.name}.{name}", n, "response_ids")
                to[middle:end] = numbers

    def history(self, i: int) -> e.History:
        start, n = self.offsets[i], self.offsets[i + 1] - self.offsets[i]
        values = address(self.values) + 4 * start if self.has_values[i] else None
        sampler = address(self.sampler_log_probs) + 4 * start if self.has_sampler[i] else None
        arrays = (address(self.ids) + 4 * start, address(self.mask) + start, address(self.log_probs) + 4 * start)
        return e.History(n, *arrays, values, sampler)


def _fill(struct: e.TrajectoryStruct, trajectory: Trajectory, name: str) -> None:
    try:
        struct.reward = float(trajectory.reward)
    except (TypeError, ValueError):
        raise ValueError(f"{name}.reward is {trajectory.reward!r}: a number is needed") from None
    struct.n_histories = 1
    step, budget = trajectory.policy_step, trajectory.budget
    struct.policy_step = -1 if step is None else e.count_of(step, f"{name}.policy_step")
    struct.budget = -1 if budget is None else e.count_of(budget, f"{name}.budget")
    struct.truncated = bool(trajectory.truncated)
