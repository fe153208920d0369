"""A run on the disk that stays open: its policy samples, and it trains step by step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from . import _engine as e
from . import _library as c
from ._groups import Groups, GroupsLike
from ._play import Source
from ._rollout import Episode
from ._train import (
    _ALLOW_CHANGED,
    _ALLOW_COMMANDS,
    Report,
    _chat_of,
    _make_step,
    _note,
    _Options,
    _session_begin,
    _session_check,
    _session_close,
    _session_prepare,
    _session_save,
    _session_settings,
    _settings_allow,
    _tokenizer_of,
    checkpoint_path,
    settings_of,
)

_session_policy = e.declare("rein_session_policy", "p", e.PolicyStruct)
_session_step = e.declare("rein_session_step", "p", ctypes.c_int64)
_session_revert = e.declare("rein_session_revert", "pp")
_settings_number = e.declare("rein_settings_number", "ps", ctypes.c_double)


def open_run(
    directory: e.PathLike,
    *,
    model: e.PathLike | None = None,
    accept_changed: bool = False,
    trust: bool = False,
    **settings: Any,
) -> Session:
    """Opens a run for training in this process. A new run starts in `directory` with `model`; an existing one resumes
    from its last checkpoint. Keywords are those of rein.train: settings by their names on the command line.

    >>> import asyncio, tempfile
    >>> from rein import rollout
    >>> async def play(client, scenario):
    ...     messages = [{"role": "user", "content": scenario}]
    ...     answer = await client.chat.completions.create(messages=messages, max_tokens=4)
    ...     return float(len(answer.choices[0].message.content))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_run(folder + "/run", model="models/sums", preset="grpo", chat_format="raw") as run:
    ...         groups = asyncio.run(rollout(run, play, ["1+2=", "3+4="], samples=4))
    ...         made = run.train(groups)
    >>> made["step"], made["on_policy/max_gap"]
    (1, 0.0)
    """
    where, given = e.path_of(directory, "directory"), settings_of(model, settings)
    _settings_allow(given.address, _ALLOW_CHANGED * bool(accept_changed) + _ALLOW_COMMANDS * bool(trust))
    return Session(where, e.opened(_session_prepare, _session_close, where, None, given.address))


class Session:
    """A run that rein.open_run opened: `rein.rollout` samples from its newest policy, and `train` makes a step.

    One call at a time; other threads wait. It is closed by close(), or at the end of a `with`.

    >>> import tempfile
    >>> from rein import open_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_run(folder + "/run", model="models/sums") as run:
    ...         run.step
    0
    """

    def __init__(self, directory: bytes, session: e.Handle) -> None:
        self._lock, self._directory = threading.RLock(), directory
        self._session: e.Handle | None = session
        self._tokenizer = _tokenizer_of(session)
        e.call(_session_begin, session.address)
        self._shown = _note(session, "")

    @property
    def step(self) -> int:
        """The number of steps made."""
        with self._use() as session:
            return int(_session_step(session.address))

    @property
    def checkpoint(self) -> str:
        """The directory of the newest checkpoint: an adapter (or, with full=True, a model) for rein.Policy."""
        with self._use():
            return checkpoint_path(self._directory, -1)

    def train(self, groups: GroupsLike, *, seconds_sample: float | None = None) -> dict[str, Any]:
        """Makes one step with groups: those of a rollout, or what rein.train takes. Checkpoint, history, metrics and
        trajectories are on the disk when it returns. Returns what rein.train returns.

        Groups that cannot train are an error, and the run is as it was.
        """
        with self._use() as session:
            listed = groups if isinstance(groups, (str, os.PathLike)) else list(groups)
            report, options = Report(), _Options(np.nan if seconds_sample is None else float(seconds_sample))
            options.own_samples = self._has_sampled(session, listed)
            with Groups(listed, self._tokenizer, _chat_of(session, self._tokenizer)) as given:
                e.call(_session_check, ctypes.byref(c.Loss()), session.address, given.reference, b"groups")
                try:
                    _make_step(report, session, given, options)
                except BaseException:
                    e.call(_session_revert, session.address)
                    raise
            e.call(_session_save, session.address)
            self._shown = _note(session, self._shown)
            made: dict[str, Any] = {"step": report.step, "nothing_to_train": bool(report.nothing_to_train)}
            made["checkpoint"] = checkpoint_path(self._directory, report.step)
            made.update(report.as_dict())
            return made

    def _has_sampled(self, session: e.Handle, groups: Any) -> bool:
        """Whether the current policy of this run has sampled all of them, without a change of the sampler."""
        if isinstance(groups, (str, os.PathLike)):
            return False
        return all(
            isinstance(one, Episode) and one._source is session and one.policy_step == self.step
            for group in groups
            for one in group
        )

    def close(self) -> None:
        """Closes the run. It may be called twice. The run can be opened again."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._session is None else f"step {self.step}"
        return f"Session({os.fsdecode(self._directory)!r}, {state})"

    @contextlib.contextmanager
    def _use(self) -> Iterator[e.Handle]:
        with self._lock:
            if self._session is None:
                raise ValueError("the run is closed")
            yield self._session

    def _rollout_source(self, step: int | None, evaluation: bool) -> Source:
        """What rein.rollout needs."""
        with self._use() as session:
            settings = _session_settings(session.address)
            if self._tokenizer is None:
                raise ValueError("the model of the run has no tokenizer.json: a rollout is made of messages")
            info = e.model_describe(_session_policy(session.address).model)
            at = self.step
            return Source(
                name=os.path.basename(os.path.normpath(os.fsdecode(self._directory))),
                policy=_session_policy(session.address),
                tokenizer=self._tokenizer,
                chat=_chat_of(session, self._tokenizer),
                end_ids=e.ids_of(list(info.end_ids[: info.n_end_ids]), "end_ids"),
                seed=int(_settings_number(settings, b"seed")),
                step=at if step is None else e.count_of(step, "step", limit=2**63),
                policy_step=None if evaluation else at,
                exec=c.Exec(int(_settings_number(settings, b"threads")), 0),
                needs=(session, self._tokenizer._handle),
                use=self._use,
                steps=lambda: self.step,
                session=session,
            )
