"""Whole runs: sample, reward, train, evaluate and report, by the loop of the library."""

from __future__ import annotations

import contextlib
import ctypes
import html
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Union

from . import _engine as e
from . import _library as c
from ._model import Policy
from ._rewards import Inputs, InputsStruct, Rewards, Task
from ._trackers import find_tracker
from ._train import Report, checkpoint_path, settings_of

OnStep = Union[Callable[["StepReport"], Any], Sequence[Callable[["StepReport"], Any]]]

_ENVIRONMENT = 5  # REIN_TASK_ENVIRONMENT
_PHASES = ("sampling", "training", "evaluating")
_Progress = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)
_Sampling = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _Fork(ctypes.Structure):
    """rein_fork."""

    _fields_ = [("run", ctypes.c_char_p), ("step", ctypes.c_int64)]


class _LoopOptions(ctypes.Structure):
    """rein_loop_options."""

    _fields_ = [
        ("progress", _Progress),
        ("context", ctypes.c_void_p),
        ("fork", ctypes.POINTER(_Fork)),
        ("inputs", ctypes.POINTER(InputsStruct)),
    ]


class _Figures(ctypes.Structure):
    """rein_evaluation."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("n", "prompts", "samples")),
        *((name, ctypes.c_double) for name in ("accuracy", "accuracy_low", "accuracy_high", "pass_at_k")),
        *((name, ctypes.c_double) for name in ("reward", "mean_length", "share_over_budget", "truncated")),
    ]


class _LoopEvaluation(ctypes.Structure):
    """rein_loop_evaluation."""

    _fields_ = [
        ("step", ctypes.c_int64),
        ("sampled", _Figures),
        ("greedy", _Figures),
        ("kl", ctypes.c_double),
        ("kl_policy_ref", ctypes.c_double),
    ]


class _LoopReport(ctypes.Structure):
    """rein_loop_report."""

    _fields_ = [
        ("trained", Report),
        ("evaluated", ctypes.c_int),
        ("done", ctypes.c_int),
        ("stopped", ctypes.c_char_p),
        ("judge_log", ctypes.c_char_p),
    ]


c.check_sizes(
    {
        "rein_fork": _Fork,
        "rein_loop_options": _LoopOptions,
        "rein_evaluation": _Figures,
        "rein_loop_evaluation": _LoopEvaluation,
        "rein_loop_report": _LoopReport,
    }
)

_loop_open = e.declare("rein_loop_open", "psppp")
_loop_close = e.declare("rein_loop_close", "p", None)
_loop_session = e.declare("rein_loop_session", "p", ctypes.c_void_p)
_loop_evaluate = e.declare("rein_loop_evaluate", "pp")
_loop_first = e.declare("rein_loop_first", "p", ctypes.POINTER(_LoopEvaluation))
_loop_last = e.declare("rein_loop_last", "p", ctypes.POINTER(_LoopEvaluation))
_loop_done = e.declare("rein_loop_done", "p")
_loop_stopped = e.declare("rein_loop_stopped", "p", ctypes.c_char_p)
_loop_step = e.declare("rein_loop_step", "ppp")
_loop_finish = e.declare("rein_loop_finish", "pp")
_session_step = e.declare("rein_session_step", "p", ctypes.c_int64)
_session_note = e.declare("rein_session_note", "p", ctypes.c_char_p)
_session_settings = e.declare("rein_session_settings", "p", ctypes.c_void_p)
_task_kind = e.declare("rein_task_kind_of", "s")
_settings_number = e.declare("rein_settings_number", "ps", ctypes.c_double)
_settings_text = e.declare("rein_settings_text", "ps", ctypes.c_char_p)
_settings_read = e.declare("rein_settings_read", "psp")
_settings_temperature = e.declare("rein_settings_temperature", "pl", ctypes.c_double)
_runner_open = e.declare("rein_task_runner_open", "ppppp")
_runner_close = e.declare("rein_task_runner_close", "p", None)
_runner_evaluate = e.declare("rein_task_runner_evaluate", "pppipppp")
_evaluate = e.declare("rein_evaluate", "pl", _Figures)
_report_write = e.declare("rein_report_write", "spnp")


# ------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Evaluation:
    """Figures of a policy on held-out prompts.

    accuracy           share of completions that are right (the first judge gave 1 or more), the mean over prompts;
                       accuracy_low to accuracy_high is its 95 % interval
    pass_at_k          share of the prompts with a right completion among `samples`
    reward             mean reward
    mean_length        mean number of tokens of a completion
    share_over_budget  share of the completions over their budget; None if none has one
    truncated          share cut off at max_tokens
    n, prompts, samples  completions, prompts, completions of each prompt
    step               the step of the policy; None: not of a run
    greedy_accuracy    of the most probable completions; None: not measured
    kl                 to the policy of step 0, nats per token, by k3: never negative; None: not measured
    kl_policy_ref      the same by k1
    """

    accuracy: float
    accuracy_low: float
    accuracy_high: float
    pass_at_k: float
    reward: float
    mean_length: float
    share_over_budget: float | None
    truncated: float
    n: int
    prompts: int
    samples: int
    step: int | None = None
    greedy_accuracy: float | None = None
    kl: float | None = None
    kl_policy_ref: float | None = None

    def _repr_html_(self) -> str:
        return _table({"": self})


@dataclass(frozen=True)
class StepReport:
    """What a step of a run did.

    step              counted from 1
    metrics           by name (docs/metrics.md)
    nothing_to_train  True if the policy did not change
    evaluation        the evaluation that followed the step, or None
    log               what reward programs wrote to standard error
    """

    step: int
    metrics: dict[str, float]
    nothing_to_train: bool
    evaluation: Evaluation | None = None
    log: str = ""


@dataclass(frozen=True)
class Run:
    """A run on the disk, as rein.run leaves it.

    directory   of the run
    step        the number of steps made
    checkpoint  the directory of the last one: an adapter (or, with full=True, a model) for rein.Policy
    report      the path of the HTML report
    first, last evaluations of the first and the last policy; None without evaluations
    stopped     the condition `stop_at`, if it ended the run; else ""
    """

    directory: str
    step: int
    checkpoint: str
    report: str
    model: str
    first: Evaluation | None = None
    last: Evaluation | None = None
    stopped: str = ""
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def policy(self, **options: Any) -> Policy:
        """The policy of the last step; keywords are those of rein.Policy."""
        return _policy_at(self.model, self.checkpoint, **options)

    def _repr_html_(self) -> str:
        rows = {"base": self.first, "final": self.last}
        title = f"<p><b>{html.escape(self.directory)}</b>: {self.step} steps</p>"
        return title + _table({name: one for name, one in rows.items() if one})


_COLUMNS: dict[str, Callable[[Evaluation], str]] = {
    "accuracy": lambda one: (
        f"{100 * one.accuracy:.1f} % ({100 * one.accuracy_low:.1f} to {100 * one.accuracy_high:.1f})"
    ),
    "reward": lambda one: f"{one.reward:.4g}",
    "length": lambda one: f"{one.mean_length:.1f}",
    "over budget": lambda one: "" if one.share_over_budget is None else f"{100 * one.share_over_budget:.1f} %",
    "kl": lambda one: "" if one.kl is None else f"{one.kl:.4f}",
}


def _table(rows: dict[str, Evaluation]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("", "step", *_COLUMNS))
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{'' if one.step is None else one.step}</td>"
        + "".join(f"<td>{show(one)}</td>" for show in _COLUMNS.values())
        + "</tr>"
        for name, one in rows.items()
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _evaluation(figures: _Figures, **more: Any) -> Evaluation:
    values = {row[0]: getattr(figures, row[0]) for row in _Figures._fields_}
    if math.isnan(values["share_over_budget"]):
        values["share_over_budget"] = None
    return Evaluation(**values, **more)


def _loop_evaluation(of: Any) -> Evaluation | None:
    if not of:
        return None
    one = of.contents
    return _evaluation(
        one.sampled, step=one.step, greedy_accuracy=one.greedy.accuracy, kl=one.kl, kl_policy_ref=one.kl_policy_ref
    )


# ------------------------------------------------------------------------------------------------------------ progress


class _Line:
    """One line on standard error that is written over again and again, in terminals and notebooks."""

    def __init__(self, wanted: bool | None) -> None:
        shows = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._stream = sys.stderr if (shows if wanted is None else wanted) else None
        self._shown, self._next, self._width = "", 0.0, 0
        self.title = ""

    def show(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._stream is None or (now < self._next and done < total):
            return
        self._next = now + 0.1
        self._write(f"{self.title}{what} {done}/{total}")

    def step(self, report: StepReport, total: int) -> None:
        if self._stream is None:
            return
        reward, length = report.metrics.get("reward", math.nan), report.metrics.get("completions/mean_length", math.nan)
        self._write(f"step {report.step}/{total}  reward {reward:.4g}  length {length:.1f}")
        self._stream.write("\n")
        self._width = 0

    def clear(self) -> None:
        if self._stream is not None and self._width:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _write(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


# ---------------------------------------------------------------------------------------------------------------- runs


def run(
    directory: e.PathLike,
    *,
    model: e.PathLike | None = None,
    task: Task | None = None,
    reward: Rewards | None = None,
    eval_task: Task | None = None,
    on_step: OnStep | None = None,
    report_to: str | Sequence[str] | None = None,
    progress: bool | None = None,
    fork: tuple[e.PathLike, int] | None = None,
    **settings: Any,
) -> Run:
    """Trains a model by reinforcement learning: samples, rewards, trains, evaluates and reports, as `rein run` does. A
    new run starts in `directory` with `model` and `task`; an existing one resumes bit for bit.

    `task`: a built-in task, a file of JSON lines, a command, or a list of examples, dicts with "prompt" (a text or a
    list of messages), "answer" and any other fields. `reward`: a judge ("exact", "number", "regex:…"), a command, a
    function, or a list of these, whose weighted sum is the reward. `eval_task`: what evaluations use; None: a part of
    `task` that is held out. Every other keyword is a setting by its name on the command line (preset, learning_rate,
    steps, chat, token_budget, …). A setting that is not given keeps its value, or its default.

    A reward function is called as TRL calls it, with those of these keywords that it takes: prompts, completions,
    completion_ids, trainer_state, and the other fields of the examples, each a list with one entry per completion. It
    returns one number per completion, or None where it does not apply. It may be async.

    `on_step`: a function, or several, called with a StepReport after each step. `report_to`: "wandb", "trackio" or
    "mlflow", or several. `progress`: whether to show progress on standard error; None: in terminals and notebooks.
    `fork`: (run, step) from which a new run starts. Ctrl-C finishes the current step, saves it, and raises
    KeyboardInterrupt; the same call resumes the run.

    >>> import tempfile
    >>> def short(completions, **_):
    ...     return [1.0 / (1 + len(text)) for text in completions]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = run(folder + "/short", model="models/sums", task="sums", reward=short, preset="rloo", steps=1,
    ...                prompts=2, samples=2, max_tokens=8, eval_prompts=2)
    >>> made.step, made.last.prompts
    (1, 2)
    """
    where = e.path_of(directory, "directory")
    inputs = Inputs(settings.get("steps"))
    named = dict(settings)
    for name, one in (("task", task), ("eval_task", eval_task)):
        if one is not None:
            named[name] = inputs.task(one, name)
    if reward is not None:
        named["reward"] = inputs.reward(reward)
    given = settings_of(model, named)
    hooks = _hooks(on_step)
    trackers = [find_tracker(name) for name in _names(report_to)]
    with _Loop(where, given, inputs, fork, progress) as loop:
        hooks += [start(os.fsdecode(where), settings) for start in trackers]
        loop.work(hooks)
        return loop.result()


def _hooks(on_step: OnStep | None) -> list[Callable[[StepReport], Any]]:
    several: list[Any] = [] if on_step is None else list(on_step) if isinstance(on_step, (list, tuple)) else [on_step]
    for one in several:
        if not callable(one):
            raise TypeError(f"on_step is {one!r}: a function, or a list of functions, is needed")
    return several


def _names(report_to: str | Sequence[str] | None) -> list[str]:
    return [] if report_to is None else [report_to] if isinstance(report_to, str) else list(report_to)


class _Loop:
    """A loop of the library, and what is shown of it."""

    def __init__(
        self,
        directory: bytes,
        given: e.Handle,
        inputs: Inputs,
        fork: tuple[e.PathLike, int] | None,
        progress: bool | None,
    ) -> None:
        self._directory, self._inputs, self._line = directory, inputs, _Line(progress)
        self._interrupted = False
        begins = _Fork(e.path_of(fork[0], "fork"), e.count_of(fork[1], "fork[1]")) if fork else None
        self._needs = struct, options = inputs.struct(), _LoopOptions()
        options.progress = _Progress(self._on_progress)
        options.inputs = ctypes.pointer(struct)
        if begins is not None:
            options.fork = ctypes.pointer(begins)
        opening = (_loop_open, _loop_close, directory, given.address, ctypes.byref(options))
        self._loop = e.opened(*opening, needs=(given, inputs, options))
        self._note = ""
        self._show_note()

    def __enter__(self) -> _Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        self._line.clear()
        self._loop.close()

    @property
    def _session(self) -> int:
        return int(_loop_session(self._loop.address))

    @property
    def steps(self) -> int:
        return int(_settings_number(_session_settings(self._session), b"steps"))

    def setting(self, name: str) -> str:
        return os.fsdecode(_settings_text(_session_settings(self._session), name.encode()))

    def work(self, hooks: list[Callable[[StepReport], Any]]) -> None:
        """All steps that are left. After Ctrl-C, or a hook that failed, the last step is saved."""
        try:
            if not _loop_first(self._loop.address):
                self._call(_loop_evaluate, self._loop.address)
            while not _loop_done(self._loop.address):
                report = self._step()
                self._line.step(report, self.steps)
                for hook in hooks:
                    hook(report)
        except BaseException as problem:
            if self._inputs.problem is None and not isinstance(problem, c.ReportedError):
                self._call(_loop_finish, self._loop.address)
            raise
        self._call(_loop_evaluate, self._loop.address)
        self._call(_loop_finish, self._loop.address)
        self._show_note()

    def _step(self) -> StepReport:
        made = _LoopReport()
        self._line.title = f"step {_session_step(self._session) + 1}/{self.steps}: "
        self._call(_loop_step, ctypes.byref(made), self._loop.address)
        trained = made.trained
        return StepReport(
            step=trained.step,
            metrics=trained.as_dict(),
            nothing_to_train=bool(trained.nothing_to_train),
            evaluation=_loop_evaluation(_loop_last(self._loop.address)) if made.evaluated else None,
            log=made.judge_log.decode(errors="replace"),
        )

    def _call(self, function: Any, *arguments: Any) -> None:
        """A call of the loop. The exception of a reward function replaces the error that the library made of it."""
        try:
            e.call(function, *arguments)
        except c.ReportedError as error:
            if self._inputs.problem is not None:
                raise self._inputs.problem from error
            raise
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _on_progress(self, _: Any, phase: int, done: int, total: int) -> None:
        try:
            self._line.show(_PHASES[phase], done, total)
        except KeyboardInterrupt:  # nothing may pass through C; raised again when the call has returned
            self._interrupted = True

    def _show_note(self) -> None:
        note = _session_note(self._session).decode(errors="replace")
        if note and note != self._note:
            warnings.warn(note, stacklevel=5)
        self._note = note

    def result(self) -> Run:
        directory = os.fsdecode(self._directory)
        step = int(_session_step(self._session))
        return Run(
            directory=directory,
            step=step,
            checkpoint=checkpoint_path(self._directory, step),
            report=os.fspath(report(directory)),
            model=self.setting("model"),
            first=_loop_evaluation(_loop_first(self._loop.address)),
            last=_loop_evaluation(_loop_last(self._loop.address)),
            stopped=_loop_stopped(self._loop.address).decode(),
            history=list(_history(directory)),
        )


def _history(directory: str) -> Iterator[dict[str, Any]]:
    with open(os.path.join(directory, "history.jsonl"), encoding="utf-8") as lines:
        yield from map(json.loads, lines)


# --------------------------------------------------------------------------------------------------------- evaluations


def _policy_at(model: str, checkpoint: str, **options: Any) -> Policy:
    """A checkpoint holds an adapter of the model, or is itself a model."""
    if os.path.exists(os.path.join(checkpoint, "adapter_config.json")):
        return Policy(model, checkpoint, **options)
    return Policy(checkpoint, False, **options)


def _run_at(text: str) -> tuple[str, int | None]:
    """RUN or RUN@STEP."""
    run, at, step = text.rpartition("@")
    return (run, int(step)) if at and step.isdigit() and not os.path.exists(text) else (text, None)


def evaluate(
    policy: Policy | e.PathLike,
    *,
    task: Task | None = None,
    reward: Rewards | None = None,
    greedy: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> Evaluation:
    """Scores a policy on held-out prompts of a task, as `rein eval` does. The prompts and the randomness are the same
    every time: two evaluations differ only by their policies.

    `policy`: a rein.Policy, the directory of a model, RUN or "RUN@STEP". `task`, `reward` and other settings
    (eval_prompts, eval_samples, max_tokens, chat, …) are those of rein.run; for a run those that it has are used where
    none are given. A list of examples as `task` is held out as a whole. `greedy`: the most probable completion of each
    prompt.

    >>> evaluate("models/sums", task="sums", eval_prompts=4, eval_samples=2, max_tokens=16).n
    8
    """
    inputs = Inputs()
    named = dict(settings)
    if task is not None:
        listed = not isinstance(task, (str, os.PathLike))
        named["task"] = inputs.task(task, "task")
        if listed:
            named["eval_task"] = named["task"]
    if reward is not None:
        named["reward"] = inputs.reward(reward)
    with contextlib.ExitStack() as stack:
        opened, given, step = _candidate(stack, policy, named)
        kinds = [_task_kind(_settings_text(given.address, name)) for name in (b"task", b"eval_task")]
        if settings.get("max_turns") is not None and _ENVIRONMENT not in kinds:
            raise ValueError("max_turns has no effect: the task is not an environment (env: COMMAND)")
        struct = inputs.struct()
        with opened._use() as (loaded, _):
            runner = e.opened(
                _runner_open, _runner_close, given.address, loaded.address, ctypes.byref(struct), needs=(inputs,)
            )
            stack.callback(runner.close)
            figures = _measure(runner, opened, given, greedy, _Line(progress), inputs)
    return _evaluation(figures, step=step)


def _candidate(
    stack: contextlib.ExitStack, policy: Policy | e.PathLike, named: dict[str, Any]
) -> tuple[Policy, e.Handle, int | None]:
    """The policy, its settings, and its step."""
    if isinstance(policy, Policy):
        return policy, settings_of(policy._name, named), None
    run, step = _run_at(os.fspath(policy))
    config = os.path.join(run, "config.yaml")
    if not os.path.exists(config):
        return stack.enter_context(Policy(run, False)), settings_of(run, named), None
    given = settings_of(None, named, config)
    where = e.path_of(run, "policy")
    checkpoint = checkpoint_path(where, -1 if step is None else step)
    step = int(os.path.basename(checkpoint))
    model = os.fsdecode(_settings_text(given.address, b"model"))
    temperature = float(_settings_temperature(given.address, step))
    return stack.enter_context(_policy_at(model, checkpoint, temperature=temperature)), given, step


def _measure(runner: e.Handle, policy: Policy, given: e.Handle, greedy: bool, line: _Line, inputs: Inputs) -> _Figures:
    groups, interrupted = e.Groups(), []

    def on_progress(_: Any, done: int, total: int) -> None:
        try:
            line.show("sampling", done, total)
        except KeyboardInterrupt as problem:
            interrupted.append(problem)

    arguments = (ctypes.byref(groups), runner.address, ctypes.byref(policy._policy()), int(greedy), None)
    try:
        e.call(_runner_evaluate, *arguments, _Sampling(on_progress), None)
    except c.ReportedError as error:
        if inputs.problem is not None:
            raise inputs.problem from error
        raise
    finally:
        line.clear()
    budget = float(_settings_number(given.address, b"token_budget"))
    figures: _Figures = _evaluate(ctypes.byref(groups), -1 if math.isnan(budget) else int(budget))
    e.groups_free(ctypes.byref(groups))
    if interrupted:
        raise interrupted[0]
    return figures


# ------------------------------------------------------------------------------------------------------------- reports


class HtmlReport(os.PathLike):  # type: ignore[type-arg]
    """The path of a report; a notebook shows the report itself."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"HtmlReport({self.path!r})"

    def _repr_html_(self) -> str:
        with open(self.path, encoding="utf-8") as page:
            return f'<iframe style="width:100%;height:800px;border:0" srcdoc="{html.escape(page.read())}"></iframe>'


def report(*runs: e.PathLike, output: e.PathLike | None = None) -> HtmlReport:
    """Writes one HTML file about one or several runs, which are compared, and returns its path. `output`: None for
    report.html in the directory of the run; several runs need one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = run(folder + "/run", model="models/sums", task="sums", preset="rloo", steps=1, prompts=2, samples=2,
    ...                max_tokens=8, eval_prompts=0)
    ...     os.path.basename(report(made.directory))
    'report.html'
    """
    if not runs:
        raise TypeError("report needs the directory of a run")
    if output is None and len(runs) > 1:
        raise ValueError(
            "output is missing: the report of several runs belongs to none of them, so its path must be given"
        )
    places = [e.path_of(run, "run") for run in runs]
    path = e.path_of(os.path.join(os.fsdecode(places[0]), "report.html") if output is None else output, "output")
    e.call(_report_write, path, (ctypes.c_char_p * len(places))(*places), len(places))
    return HtmlReport(os.fsdecode(path))
