"""Rewards and tasks that are Python objects: functions as TRL's users write them, and lists of examples."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Union

from . import _engine as e
from . import _library as c

Reward = Union[str, Callable[..., Any]]
Rewards = Union[Reward, Sequence[Reward]]
Task = Union[str, "os.PathLike[str]", Iterable[Mapping[str, Any]]]

_OWN = ("prompt", "messages")  # keys of an example that are not columns


class _Response(ctypes.Structure):
    """rein_response."""

    _fields_ = [
        ("example", ctypes.POINTER(e.Example)),
        ("group", ctypes.c_size_t),
        ("text", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("tokens", ctypes.c_size_t),
        ("truncated", ctypes.c_int),
        ("step", ctypes.c_int64),
        ("ids", ctypes.POINTER(ctypes.c_int32)),
        ("n_ids", ctypes.c_size_t),
        ("earned", ctypes.c_double),
    ]


_Give = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(_Response),
    ctypes.c_size_t,
    ctypes.POINTER(c.Error),
)


class _Function(ctypes.Structure):
    """rein_reward_function."""

    _fields_ = [("name", ctypes.c_char_p), ("give", _Give), ("context", ctypes.c_void_p)]


class _Text(ctypes.Structure):
    """rein_task_text."""

    _fields_ = [("name", ctypes.c_char_p), ("text", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class InputsStruct(ctypes.Structure):
    """rein_task_inputs."""

    _fields_ = [
        ("functions", ctypes.POINTER(_Function)),
        ("n_functions", ctypes.c_size_t),
        ("texts", ctypes.POINTER(_Text)),
        ("n_texts", ctypes.c_size_t),
    ]


c.check_sizes(
    {
        "rein_response": _Response,
        "rein_reward_function": _Function,
        "rein_task_text": _Text,
        "rein_task_inputs": InputsStruct,
    }
)

_fail = c.library.rein_fail


class Inputs:
    """What settings name and Python has. It must live as long as what is opened with it.

    `problem` is the exception that a reward function raised: the library reports a failure, and this is its cause.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        self.problem: BaseException | None = None
        self._max_steps = max_steps
        self._functions: list[_Function] = []
        self._texts: list[_Text] = []

    def struct(self) -> InputsStruct:
        functions, texts = self._functions, self._texts
        self._arrays = (_Function * len(functions))(*functions), (_Text * len(texts))(*texts)
        return InputsStruct(self._arrays[0], len(functions), self._arrays[1], len(texts))

    def reward(self, reward: Rewards) -> str:
        """The setting "reward" for judges, functions, or both."""
        several: Sequence[Any] = reward if isinstance(reward, (list, tuple)) else [reward]
        return "\n".join(self._judge(one) for one in several)

    def task(self, task: Task, name: str) -> str:
        """The setting "task" or "eval_task"."""
        if isinstance(task, (str, os.PathLike)):
            return os.fspath(task)
        lines = [json.dumps(_example(one, f"{name}[{i}]"), ensure_ascii=False) for i, one in enumerate(task)]
        text = "\n".join(lines).encode()
        self._texts.append(_Text(name.encode(), text, len(text)))
        return f"examples:{name}"

    def _judge(self, reward: Reward) -> str:
        if isinstance(reward, str):
            return reward
        if not callable(reward):
            raise TypeError(f"reward is {reward!r}: the name of a judge, a command, or a function is needed")
        name = _name_of(reward)
        taken = {function.name.decode() for function in self._functions}
        unique = next(one for one in _numbered(name) if one not in taken)
        self._functions.append(_Function(unique.encode(), _Give(self._giving(reward, unique)), None))
        return f"function:{unique}"

    def _giving(self, function: Callable[..., Any], name: str) -> Callable[..., int]:
        def give(_: Any, rewards: Any, responses: Any, n: int, error: Any) -> int:
            try:
                given = _call(function, [responses[i] for i in range(n)], self._max_steps)
                for i, reward in enumerate(_numbers(given, name, n)):
                    rewards[i] = reward
            except BaseException as problem:  # nothing may pass through C; raised again when the call has returned
                self.problem = problem
                message = f"{type(problem).__name__}: {problem}".encode(errors="replace")
                return int(_fail(error, c.EINVAL, b"%s", message))
            return c.OK

        return give


# ------------------------------------------------------------------------------------------------------------ examples


def _example(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An example for the library. A prompt that is a list of messages, as in TRL's data sets, becomes messages."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {given!r}: a dict with a prompt is needed")
    example = dict(given)
    if isinstance(example.get("prompt"), (list, tuple)):
        example["messages"] = example.pop("prompt")
    return example


def _messages(example: e.Example) -> list[dict[str, str]] | None:
    if not example.messages:
        return None
    messages = (e.Message * example.n_messages).from_address(example.messages)
    return [
        {"role": ctypes.string_at(m.role).decode(), "content": ctypes.string_at(m.content, m.length).decode()}
        for m in messages
    ]


# ----------------------------------------------------------------------------------------------------------- functions


def _name_of(function: Callable[..., Any]) -> str:
    named = getattr(function, "__name__", None) or getattr(function, "func", None)
    name = named if isinstance(named, str) else getattr(named, "__name__", type(function).__name__)
    return "".join(letter if letter.isalnum() and letter.isascii() or letter in "._-" else "_" for letter in name)


def _numbered(name: str) -> Iterable[str]:
    yield name
    yield from (f"{name}-{i}" for i in range(2, 1000))


def _call(function: Callable[..., Any], responses: list[_Response], max_steps: int | None) -> Any:
    arguments = _arguments(responses, max_steps)
    parameters = inspect.signature(function).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        accepted = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        arguments = {name: value for name, value in arguments.items() if name in accepted}
    given = function(**arguments)
    return _wait_for(given) if inspect.isawaitable(given) else given


def _arguments(responses: list[_Response], max_steps: int | None) -> dict[str, Any]:
    """What TRL gives to reward functions: prompts, completions, completion_ids, trainer_state, and the columns of the
    examples. Chats are lists of messages, plain prompts and their completions are texts."""
    prompts: list[Any] = []
    completions: list[Any] = []
    ids: list[list[int]] = []
    objects: list[dict[str, Any]] = []
    for response in responses:
        example = response.example.contents
        messages = _messages(example)
        text = ctypes.string_at(response.text, response.length).decode(errors="replace") if response.length else ""
        prompts.append(ctypes.string_at(example.prompt).decode() if messages is None else messages)
        completions.append(text if messages is None else [{"role": "assistant", "content": text}])
        ids.append(response.ids[: response.n_ids] if response.ids else [])
        objects.append(json.loads(ctypes.string_at(example.json)) if example.json else {})
    step = responses[0].step if responses else -1
    state = SimpleNamespace(global_step=step if step >= 0 else None, max_steps=max_steps)
    columns = {name for example in objects for name in example if name not in _OWN}
    return {
        **{name: [example.get(name) for example in objects] for name in sorted(columns)},
        "prompts": prompts,
        "completions": completions,
        "completion_ids": ids,
        "trainer_state": state,
    }


def _wait_for(awaitable: Any) -> Any:
    """The result of an async function, also where an event loop is running already, as in a notebook."""
    result: list[Any] = []

    async def wait() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    thread = threading.Thread(target=lambda: result.append(asyncio.run(wait())))
    thread.start()
    thread.join()
    if not result:
        raise RuntimeError("the async reward function failed in its thread")
    return result[0]


def _number(value: Any, name: str, i: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} returned {value!r} for completion {i}: a number is needed, or None") from None


def _numbers(given: Any, name: str, n: int) -> list[float]:
    """Rewards as the library wants them: None, where a function does not apply, is NaN."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name} returned {given!r}: a list of {n} numbers is needed, one for each completion")
    if len(values) != n:
        raise ValueError(f"{name} returned {len(values)} rewards for {n} completions")
    rewards = [math.nan if value is None else _number(value, name, i) for i, value in enumerate(values)]
    for i, (value, reward) in enumerate(zip(values, rewards)):
        if value is not None and not math.isfinite(reward):
            raise ValueError(f"{name} returned {reward} for completion {i}: a finite number is needed, or None")
    return rewards
