"""One step of a run, by a session of the library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
from typing import Any

import numpy as np

from . import _engine as e
from . import _library as c
from ._groups import Groups, GroupsLike
from ._tokenizer import Tokenizer

_READ = 0


class _Report(ctypes.Structure):
    """rein_session_report."""

    _fields_ = [
        ("step", ctypes.c_int64),
        ("nothing_to_train", ctypes.c_int),
        ("n", ctypes.c_size_t),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("values", ctypes.POINTER(ctypes.c_double)),
    ]


class _Options(ctypes.Structure):
    """rein_train_options."""

    _fields_ = [
        ("seconds_sample", ctypes.c_double),
        ("own_samples", ctypes.c_int),
        ("ptx", ctypes.c_void_p),
        ("ptx_batch", ctypes.c_size_t),
        ("budget_penalty_coef", ctypes.c_void_p),
        ("temperature", ctypes.c_double),
        ("keep_advantages", ctypes.c_int),
    ]


c.check_sizes({"rein_session_report": _Report, "rein_train_options": _Options})

_settings_new = e.declare("rein_settings_new", "pp")
_settings_free = e.declare("rein_settings_free", "p", None)
_settings_set = e.declare("rein_settings_set", "pssp")
_settings_text = e.declare("rein_settings_text", "ps", ctypes.c_char_p)
_session_open = e.declare("rein_session_open", "pspp")
_session_close = e.declare("rein_session_close", "p", None)
_session_note = e.declare("rein_session_note", "p", ctypes.c_char_p)
_session_settings = e.declare("rein_session_settings", "p", ctypes.c_void_p)
_session_train = e.declare("rein_session_train", "ppppp")
_session_commit = e.declare("rein_session_commit", "ppppnp")
_session_save = e.declare("rein_session_save", "pp")
_run_open = e.declare("rein_run_open", "psip")
_run_close = e.declare("rein_run_close", "p", None)
_run_checkpoint_path = e.declare("rein_run_checkpoint_path", "pnpl", ctypes.c_size_t)


def train(
    run: e.PathLike,
    groups: GroupsLike,
    *,
    model: e.PathLike | None = None,
    seconds_sample: float | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Trains one step of a run. A new run starts in the directory `run` with `model`; an existing run resumes from its
    last checkpoint. Checkpoint, history, metrics and trajectories are on disk when it returns.

    `groups`: as for Policy.forward_backward, or the path of a JSON-lines file. Every other keyword is a setting by its
    name on the command line (lora_rank, learning_rate, preset, kl_penalty_coef, …). Settings that are not given, or
    None, keep the values with which the run was started. `seconds_sample`: how long sampling took, for the history.

    Returns "step", "nothing_to_train", "checkpoint" (the directory it wrote: an adapter for Policy, and the state for
    Policy.load_state) and every metric of the step by name. Repairs of a damaged run are warnings. Each call opens
    the model: for many small steps in one process a Policy is faster.

    >>> import tempfile
    >>> from rein import Trajectory
    >>> group = [Trajectory([1, 5], [7, 8, 2], None, reward=1), Trajectory([1, 5], [9, 2], None, reward=0)]
    >>> with tempfile.TemporaryDirectory() as run:
    ...     report = train(run, [group], model="tests/model/fixtures/engine/llama", preset="rloo", learning_rate=1e-3)
    >>> report["step"], report["nothing_to_train"], report["reward"]
    (1, False, 0.5)
    """
    if settings.get("save_steps") is not None:
        raise ValueError("save_steps has no effect: the call makes one step and saves it")
    directory, given = e.path_of(run, "run"), _settings_of(model, settings)
    with contextlib.closing(e.opened(_session_open, _session_close, directory, given.address)) as session:
        note = _note(session, "")
        report, options = _Report(), _Options(np.nan if seconds_sample is None else float(seconds_sample))
        with Groups(groups, _tokenizer_of(session)) as listed:
            step = (ctypes.byref(report), session.address, listed.reference)
            e.call(_session_train, *step, ctypes.byref(options))
            e.call(_session_commit, *step, None, 0)
        e.call(_session_save, session.address)
        _note(session, note)
        made: dict[str, Any] = {"step": report.step, "nothing_to_train": bool(report.nothing_to_train)}
        made["checkpoint"] = _checkpoint(directory, report.step)
        made.update((report.names[i].decode(), report.values[i]) for i in range(report.n))
        return made


def _note(session: e.Handle, before: str) -> str:
    """Shows the note of the session as a warning at the caller's line, unless it was shown before."""
    note = str(_session_note(session.address).decode(errors="replace"))
    if note and note != before:
        warnings.warn(note, stacklevel=3)
    return note


def _settings_of(model: e.PathLike | None, settings: dict[str, Any]) -> e.Handle:
    given = e.opened(_settings_new, _settings_free)
    named = {"preset": settings.get("preset"), **settings}  # the preset comes first: other options change it
    if model is not None:
        named["model"] = os.fsdecode(e.path_of(model, "model"))
    for name, value in named.items():
        if value is not None:
            e.call(_settings_set, given.address, name.encode(), _text_of(name, value).encode())
    return given


def _text_of(name: str, value: Any) -> str:
    """The value of a setting as text."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return format(float(value), ".17g")
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return ",".join(_text_of(name, entry) for entry in value)
    raise TypeError(f"{name} is {value!r}: a number, a string or a list of them is needed")


def _tokenizer_of(session: e.Handle) -> Tokenizer | None:
    """The tokenizer of the run's model, if it has one."""
    directory = os.fsdecode(_settings_text(_session_settings(session.address), b"model"))
    return Tokenizer(directory) if os.path.exists(os.path.join(directory, "tokenizer.json")) else None


def _checkpoint(run: bytes, step: int) -> str:
    path = ctypes.create_string_buffer(4096)
    with contextlib.closing(e.opened(_run_open, _run_close, run, _READ)) as opened:
        _run_checkpoint_path(path, len(path), opened.address, step)
    return os.fsdecode(path.value)
