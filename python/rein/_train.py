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

_READ, _END = 0, 5
_ALLOW_CHANGED, _ALLOW_COMMANDS = 1, 2


class _Metric(ctypes.Structure):
    """rein_named_number."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Report(ctypes.Structure):
    """rein_session_report."""

    _fields_ = [
        ("step", ctypes.c_int64),
        ("nothing_to_train", ctypes.c_int),
        ("n", ctypes.c_size_t),
        ("metrics", ctypes.POINTER(_Metric)),
    ]

    def as_dict(self) -> dict[str, float]:
        return {metric.name.decode(): metric.value for metric in self.metrics[: self.n]}


class _Options(ctypes.Structure):
    """rein_train_options."""

    _fields_ = [
        ("seconds_sample", ctypes.c_double),
        ("own_samples", ctypes.c_int),
        ("ptx", ctypes.c_void_p),
        ("ptx_batch", ctypes.c_size_t),
        ("temperature", ctypes.c_double),
        ("keep_advantages", ctypes.c_int),
        ("learning_rates", ctypes.c_void_p),
        ("n_learning_rates", ctypes.c_size_t),
        ("preference", ctypes.c_void_p),
        ("reward_model", ctypes.c_void_p),
        ("progress", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


c.check_sizes({"rein_named_number": _Metric, "rein_session_report": Report, "rein_train_options": _Options})

_settings_new = e.declare("rein_settings_new", "pp")
_settings_free = e.declare("rein_settings_free", "p", None)
_settings_set = e.declare("rein_settings_set", "pssp")
_settings_allow = e.declare("rein_settings_allow", "pi", None)
_settings_text = e.declare("rein_settings_text", "ps", ctypes.c_char_p)
_settings_read = e.declare("rein_settings_read", "psp")
_setting_at = e.declare("rein_setting_at", "n", ctypes.POINTER(ctypes.c_char_p))  # a setting begins with its name
_setting_is_list = e.declare("rein_setting_is_list", "s")
_task_kind = e.declare("rein_task_kind_of", "s")
_session_prepare = e.declare("rein_session_prepare", "psppp")
_session_begin = e.declare("rein_session_begin", "pp")
_session_check = e.declare("rein_session_check", "pppsp")
_session_close = e.declare("rein_session_close", "p", None)
_session_note = e.declare("rein_session_note", "p", ctypes.c_char_p)
_session_settings = e.declare("rein_session_settings", "p", ctypes.c_void_p)
_settings_chat = e.declare("rein_settings_chat", "pppp")
_session_train = e.declare("rein_session_train", "ppppp")
_session_commit = e.declare("rein_session_commit", "ppppnp")
_session_save = e.declare("rein_session_save", "pp")
_run_open = e.declare("rein_run_open", "psip")
_run_close = e.declare("rein_run_close", "p", None)
_run_checkpoint_path = e.declare("rein_run_checkpoint_path", "pnpl", ctypes.c_size_t)
_run_last_good = e.declare("rein_run_last_good", "pppp")
_run_check_step = e.declare("rein_run_check_step", "plsp")
_checkpoint_verify = e.declare("rein_checkpoint_verify", "plp")


def train(
    run: e.PathLike,
    groups: GroupsLike,
    *,
    model: e.PathLike | None = None,
    seconds_sample: float | None = None,
    accept_changed: bool = False,
    trust: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Trains one step of a run. A new run starts in the directory `run` with `model`; an existing run resumes from its
    last checkpoint. Checkpoint, history, metrics and trajectories are on disk when it returns.

    `groups`: as for Policy.forward_backward, or the path of a JSON-lines file. Every other keyword is a setting by its
    name on the command line (lora_rank, learning_rate, preset, kl_penalty_coef, …). Settings that are not given, or
    None, keep the values with which the run was started. `seconds_sample`: how long sampling took, for the history.
    A run keeps the hashes of its model and adapter: if one of them is not what it was, that is an error, unless
    `accept_changed` is True; then the next checkpoint has the new hashes. The same model may be at another place.
    A run that was copied from elsewhere and has commands as its tasks or rewards is an error, too,
    unless `trust` is True.

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
    directory, given = e.path_of(run, "run"), settings_of(model, settings)
    _settings_allow(given.address, _ALLOW_CHANGED * bool(accept_changed) + _ALLOW_COMMANDS * bool(trust))
    with contextlib.closing(e.opened(_session_prepare, _session_close, directory, None, given.address)) as session:
        report, options = Report(), _Options(np.nan if seconds_sample is None else float(seconds_sample))
        tokenizer = _tokenizer_of(session)
        with Groups(groups, tokenizer, _chat_of(session, tokenizer)) as listed:
            e.call(_session_check, ctypes.byref(c.Loss()), session.address, listed.reference, b"groups")
            e.call(_session_begin, session.address)  # from here on the run is written
            note = _note(session, "")
            _make_step(report, session, listed, options)
        e.call(_session_save, session.address)
        _note(session, note)
        made: dict[str, Any] = {"step": report.step, "nothing_to_train": bool(report.nothing_to_train)}
        made["checkpoint"] = checkpoint_path(directory, report.step)
        made.update(report.as_dict())
        return made


def _make_step(report: Report, session: e.Handle, groups: Groups, options: _Options) -> None:
    """Trains a step and commits it."""
    step = (ctypes.byref(report), session.address, groups.reference)
    e.call(_session_train, *step, ctypes.byref(options))
    e.call(_session_commit, *step, None, 0)


def _note(session: e.Handle, before: str) -> str:
    """Shows the note of the session as a warning at the caller's line, unless it was shown before."""
    note = str(_session_note(session.address).decode(errors="replace"))
    if note and note != before:
        warnings.warn(note, stacklevel=3)
    return note


# Settings that are paths: a run can be resumed from another directory.
_PATHS = ("model", "adapter", "kl_ref_adapter_path", "teacher", "ptx_data")
_TASKS = ("task", "eval_task")
_TASK_FILE = 2


def settings_of(model: e.PathLike | None, settings: dict[str, Any], config: e.PathLike | None = None) -> e.Handle:
    """Settings by their names, on top of those of a file (config) if there is one."""
    given = e.opened(_settings_new, _settings_free)
    if config is not None:
        e.call(_settings_read, given.address, e.path_of(config, "config"))
    named = {"preset": settings.get("preset"), **settings}  # the preset comes first: other options change it
    if model is not None:
        named["model"] = os.fsdecode(e.path_of(model, "model"))
    for name, value in named.items():
        if value is not None:
            try:
                text = _text_of(name, value)
            except TypeError:
                if _is_setting(name):
                    raise
                text = ""  # the mistake is the name
            e.call(_settings_set, given.address, name.encode(), text.encode())
    _make_absolute(given, set(named))
    return given


def _is_setting(name: str) -> bool:
    settings = {row.contents.value for row in c.each(_setting_at)}
    return name.encode() in settings | {row.contents.name for row in c.each(c.option_at)}


def _make_absolute(given: e.Handle, names: set[str]) -> None:
    for name in names.intersection(_PATHS + _TASKS):
        path = _settings_text(given.address, name.encode())
        if path and (name in _PATHS or _task_kind(path) == _TASK_FILE) and os.path.exists(path):
            e.call(_settings_set, given.address, name.encode(), os.path.realpath(path))


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
        between = "\n" if _setting_is_list(name.encode()) else ","
        return between.join(_text_of(name, entry) for entry in value)
    raise TypeError(f"{name} is {value!r}: a number, a string or a list of them is needed")


def _tokenizer_of(session: e.Handle) -> Tokenizer | None:
    """The tokenizer of the run's model, if it has one."""
    directory = os.fsdecode(_settings_text(_session_settings(session.address), b"model"))
    return Tokenizer(directory) if e.tokenizer_exists(os.fsencode(directory)) else None


def _chat_of(session: e.Handle, tokenizer: Tokenizer | None) -> e.Chat | None:
    """The run's format of messages, with the date that its chat template sees; None: there is none."""
    chat, error = e.Chat(), c.Error()
    place = None if tokenizer is None else tokenizer._handle.address
    status = _settings_chat(ctypes.byref(chat), _session_settings(session.address), place, ctypes.byref(error))
    if status and status != _END:
        e.fail(status, error)
    return None if status else chat


def checkpoint_path(run: bytes, step: int) -> str:
    """The directory of a checkpoint that is whole; step -1: of the newest one."""
    path, note, found = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(500), ctypes.c_int64(step)
    with contextlib.closing(e.opened(_run_open, _run_close, run, _READ)) as opened:
        if step >= 0:
            e.call(_run_check_step, opened.address, step, None)
            e.call(_checkpoint_verify, opened.address, step)
        else:
            e.call(_run_last_good, ctypes.byref(found), note, opened.address)
        if found.value < 0:
            raise ValueError(f"{os.fsdecode(run)} has no checkpoint yet")
        _run_checkpoint_path(path, len(path), opened.address, found.value)
    return os.fsdecode(path.value)
