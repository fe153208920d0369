"""The episodes of a rollout as the library plays them (rein_play), and the futures of those who wait for the model's
turns."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from . import _engine as e
from . import _library as c
from ._arrays import Array
from ._client import EpisodeOver, Request, Written
from ._tokenizer import Tokenizer

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]
_END = 5  # REIN_END
EVALUATION = 1  # REIN_PURPOSE_EVALUATION
FINISHES = ("unfinished", "ended", "stopped", "cut", "full")  # rein_finish


class _Prompting(ctypes.Structure):
    """rein_prompting."""

    _fields_ = [
        ("chat", ctypes.POINTER(e.Chat)),
        ("chat_prompts", ctypes.c_int),
        ("system", ctypes.c_char_p),
        ("no_thinking", ctypes.c_int),
        ("max_tokens", ctypes.c_size_t),
    ]


class RolloutOptions(ctypes.Structure):
    """rein_rollout_options."""

    _fields_ = [
        ("task", ctypes.c_void_p),
        ("split", ctypes.c_int),
        ("indices", ctypes.c_void_p),
        ("n", ctypes.c_size_t),
        ("samples", ctypes.c_size_t),
        ("policy", e.PolicyStruct),
        ("tokenizer", ctypes.c_void_p),
        ("prompting", _Prompting),
        ("sampling", e.Sampling),
        ("address", e.Address),
        ("sampler_log_probs", ctypes.c_int),
        ("max_turns", ctypes.c_size_t),
        ("exec", c.Exec),
        ("activation_cache", ctypes.c_void_p),
        ("progress", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class _PlayRequest(ctypes.Structure):
    """rein_play_request."""

    _fields_ = [
        ("episode", ctypes.c_size_t),
        ("messages", ctypes.c_void_p),
        ("tools", ctypes.c_void_p),
        ("max_tokens", ctypes.c_size_t),
        ("stops", ctypes.c_void_p),
        ("n_stops", ctypes.c_size_t),
    ]


class _PlayTurn(ctypes.Structure):
    """rein_play_turn."""

    _fields_ = [
        ("number", ctypes.c_size_t),
        ("episode", ctypes.c_size_t),
        ("message", ctypes.c_void_p),
        ("finish", ctypes.c_int),
        ("prompt_tokens", ctypes.c_size_t),
        ("cached_tokens", ctypes.c_size_t),
        ("tokens", ctypes.c_size_t),
        ("ids", ctypes.POINTER(ctypes.c_int32)),
        ("log_probs", ctypes.POINTER(ctypes.c_float)),
    ]


class Number(ctypes.Structure):
    """rein_named_number."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


c.check_sizes(
    {
        "rein_prompting": _Prompting,
        "rein_rollout_options": RolloutOptions,
        "rein_play_request": _PlayRequest,
        "rein_play_turn": _PlayTurn,
        "rein_named_number": Number,
    }
)

_play_open = e.declare("rein_play_open", "ppp")
_play_close = e.declare("rein_play_close", "p", None)
_play_ask = e.declare("rein_play_ask", "pppp")
_play_step = e.declare("rein_play_step", "pppp")
_play_unfinished = e.declare("rein_play_unfinished", "p", ctypes.c_size_t)
_play_end = e.declare("rein_play_end", "pndp")
_play_set_metric = e.declare("rein_play_set_metric", "pnsdp")
_play_drop = e.declare("rein_play_drop", "pn", None)
_play_take = e.declare("rein_play_take", "ppp")
_json_put_value = e.declare("rein_json_put_value", "pp", None)


# --------------------------------------------------------------------------------------------------------------- policy


@dataclass(frozen=True)
class Source:
    """What a policy gives to a rollout."""

    name: str
    policy: e.PolicyStruct
    tokenizer: Tokenizer
    chat: e.Chat | None
    end_ids: Array
    seed: int
    step: int
    policy_step: int | None
    exec: c.Exec
    needs: tuple[Any, ...]
    use: Callable[[], contextlib.AbstractContextManager[Any]]
    steps: Callable[[], int]
    session: e.Handle | None = None


class Sampler(Protocol):
    """A rein.Policy or a rein.Session."""

    def _rollout_source(self, step: int | None, evaluation: bool) -> Source: ...


# ------------------------------------------------------------------------------------------------------------ the play


def _json(text: bytes, name: str) -> e.Handle:
    return e.opened(e.json_parse, e.json_free, text, len(text), name.encode(), 0)


def _message_of(place: int) -> dict[str, Any]:
    text = e.Text()
    _json_put_value(ctypes.byref(text), place)
    try:
        if text.failed:
            raise c.OutOfMemoryError("no memory for a message")
        message: dict[str, Any] = json.loads(ctypes.string_at(text.data, text.length))
        return message
    finally:
        e.text_free(ctypes.byref(text))


class Owner:
    """The library's groups, freed when no episode refers to them any more."""

    def __init__(self, source: e.Handle | None) -> None:
        self.groups, self.source = e.Groups(), source

    def __del__(self) -> None:
        e.groups_free(ctypes.byref(self.groups))


class Table:
    """All episodes of a rollout: rein_play, used by one thread at a time, and those who wait for its turns."""

    def __init__(self, source: Source, options: RolloutOptions, keep: tuple[Any, ...]) -> None:
        self._source, self._greedy = source, bool(options.sampling.greedy)
        needs = (*source.needs, keep, options)
        with source.use():
            self._play = e.opened(_play_open, _play_close, ctypes.byref(options), needs=needs)
        self._thread = ThreadPoolExecutor(1, "rein-rollout")
        self._calls: list[_Call] = []
        self._waiting: dict[int, asyncio.Future[Written]] = {}
        self._work = asyncio.Event()
        self._problem: BaseException | None = None

    async def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._play.close()

    async def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function between two steps, in the thread of the library's calls."""
        if self._problem is not None:
            raise self._problem
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.append((function, future))
        self._work.set()
        return await future

    async def write(self, episode: int, request: Request) -> Written:
        """The model's next message."""
        future: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        await self.call(functools.partial(self._ask, episode, request, future))
        return await future

    def _ask(self, episode: int, request: Request, future: asyncio.Future[Written]) -> None:
        messages = _json(request.messages, "messages")
        tools = None if request.tools is None else _json(request.tools, "tools")
        stops = (ctypes.c_char_p * len(request.stops))(*request.stops)
        asked = _PlayRequest(episode, messages.address, tools.address if tools else None, request.max_tokens)
        asked.stops, asked.n_stops = ctypes.addressof(stops), len(stops)
        number, error = ctypes.c_size_t(), c.Error()
        place = ctypes.byref(number), self._play.address, ctypes.byref(asked), ctypes.byref(error)
        status = _play_ask(*place)
        if status == _END:
            raise EpisodeOver(error.message.decode(errors="replace"), error.field.decode())
        if status:
            e.fail(status, error)
        self._waiting[number.value] = future

    def end(self, episode: int, reward: float, metrics: Mapping[str, float]) -> None:
        e.call(_play_end, self._play.address, episode, reward)
        for name, value in metrics.items():
            e.call(_play_set_metric, self._play.address, episode, str(name).encode(), float(value))

    def drop(self, episode: int) -> None:
        _play_drop(self._play.address, episode)

    def take(self) -> Owner:
        owner = Owner(None if self._greedy else self._source.session)
        e.call(_play_take, ctypes.byref(owner.groups), self._play.address)
        return owner

    # ---- the thread of the library's calls

    def _advance(self, calls: list[_Call]) -> tuple[list[Any], list[Any]]:
        """Runs the calls, then makes a step: the results of the calls, as (future, result, problem), and the turns. A
        step that fails is the problem of the rollout."""
        done: list[Any] = []
        try:
            with self._source.use():
                for function, future in calls:
                    try:
                        done.append((future, function(), None))
                    except Exception as problem:
                        done.append((future, None, problem))
                return done, self._step() if _play_unfinished(self._play.address) else []
        except Exception as problem:
            self._problem = problem
            done += [(future, None, problem) for _, future in calls[len(done) :]]
            return done, []

    def _step(self) -> list[tuple[int, Written]]:
        if self._source.steps() != self._steps:
            raise RuntimeError("the policy made a step while a rollout samples from it: wait for the rollout")
        place, count = ctypes.POINTER(_PlayTurn)(), ctypes.c_size_t()
        e.call(_play_step, ctypes.byref(place), ctypes.byref(count), self._play.address)
        return [(int(one.number), _written(one)) for one in place[: count.value]]

    # ---- the event loop

    async def run(self) -> None:
        """Works until it is cancelled. After a step that failed, every call fails with it."""
        self._loop = asyncio.get_running_loop()
        self._steps = self._source.steps()
        while self._problem is None:
            if not self._calls and not self._waiting:
                self._work.clear()
                await self._work.wait()
            calls, self._calls = self._calls, []
            done, written = await self._loop.run_in_executor(self._thread, self._advance, calls)
            self._report(done, written)
            await asyncio.sleep(0)  # those who waited may ask again before the next step
        self._fail(self._problem)

    def _report(self, done: list[Any], written: list[tuple[int, Written]]) -> None:
        for future, result, problem in done:
            if not future.done():
                future.set_result(result) if problem is None else future.set_exception(problem)
        for number, turn in written:
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(turn)
        self._waiting = {number: one for number, one in self._waiting.items() if not one.cancelled()}

    def _fail(self, problem: BaseException) -> None:
        self._problem = problem
        for future in [*self._waiting.values(), *(future for _, future in self._calls)]:
            if not future.done():
                future.set_exception(problem)


def _written(one: _PlayTurn) -> Written:
    return Written(
        message=_message_of(one.message),
        finish=one.finish,
        prompt_tokens=one.prompt_tokens,
        cached_tokens=one.cached_tokens,
        ids=one.ids[: one.tokens],
        log_probs=one.log_probs[: one.tokens],
    )
