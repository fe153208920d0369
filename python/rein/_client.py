"""What an episode's function gets: a client with the shape of the openai package's, in process, without a port."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from . import _library as c


class EpisodeOver(Exception):
    """The episode is at a limit: the model has no turn left in it. A function may catch it and return a reward; if it
    does not, the reward is `limit_reward`.

    `reason` is "turns", "tokens" or "context" (the model's positions).
    """

    __module__ = "rein"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class _Object:
    """An answer of the API: fields as attributes, and all of them as a dict."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """The object as dicts and lists, as the openai package's has it."""
        return {
            field.name: _plain(getattr(self, field.name), exclude_none)
            for field in fields(self)  # type: ignore[arg-type]
            if not exclude_none or getattr(self, field.name) is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """model_dump, leaving out fields whose value is None."""
        return self.model_dump(exclude_none=True)

    def model_dump_json(self) -> str:
        """model_dump as JSON."""
        return json.dumps(self.model_dump())


def _plain(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, _Object):
        return value.model_dump(exclude_none=exclude_none)
    return [_plain(one, exclude_none) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class FunctionCall(_Object):
    """The name of the function that the model calls, and the arguments as a JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCall(_Object):
    """A call of a tool; the answer to it is a message with role "tool" and this id as tool_call_id."""

    id: str
    function: FunctionCall
    type: str = "function"


@dataclass(frozen=True)
class Message(_Object):
    """What the model wrote. It can stand in the next `messages` as it is, or as a dict."""

    role: str
    content: str | None
    tool_calls: list[ToolCall] | None = None


@dataclass(frozen=True)
class TokenLogProb(_Object):
    """A token that was sampled: its text, its log-probability under the policy, and its bytes."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[Any]


@dataclass(frozen=True)
class LogProbs(_Object):
    """The log-probabilities of every token that was sampled, with the token that ends the turn."""

    content: list[TokenLogProb]


@dataclass(frozen=True)
class Choice(_Object):
    """One answer. finish_reason is "stop", "length" or "tool_calls"."""

    index: int
    message: Message
    finish_reason: str
    logprobs: LogProbs | None = None


@dataclass(frozen=True)
class PromptTokensDetails(_Object):
    """Tokens of the prompt whose keys were there from earlier turns."""

    cached_tokens: int


@dataclass(frozen=True)
class Usage(_Object):
    """The tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


@dataclass(frozen=True)
class ChatCompletion(_Object):
    """The answer to a request."""

    id: str
    model: str
    choices: list[Choice]
    usage: Usage
    created: int
    object: str = "chat.completion"


# ------------------------------------------------------------------------------------------------------------ requests


@dataclass(frozen=True)
class Request:
    """A request that was checked."""

    messages: bytes
    tools: bytes | None
    n: int
    max_tokens: int
    stops: tuple[bytes, ...]
    log_probs: bool


@dataclass(frozen=True)
class Written:
    """A turn that the model has written."""

    message: dict[str, Any]
    finish: int
    prompt_tokens: int
    cached_tokens: int
    ids: list[int]
    log_probs: list[float]


# What OpenAI documents and has no effect at this value; any other value is an error.
_NEUTRAL: dict[str, Any] = {
    "audio": None,
    "frequency_penalty": 0,
    "function_call": None,
    "functions": None,
    "logit_bias": {},
    "modalities": ["text"],
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "seed": None,
    "store": False,
    "stream": False,
    "stream_options": None,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1,
}
_RECORDED = ("user", "metadata")  # for the server of a service: there is none


def refuse(field: str, reason: str) -> c.ArgumentError:
    """The error of a field."""
    problem = c.ArgumentError(f"{field} {reason}")
    problem.field = field
    return problem


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refuse(name, f"is {value!r}: a whole number of {least} or more is needed")
    return value


def _object_of(value: Any, name: str) -> Any:
    """Messages and tools as dicts. None counts as not given, except as a content."""
    if isinstance(value, _Object):
        value = value.model_dump()
    elif hasattr(value, "model_dump"):  # the openai package's own objects
        value = value.model_dump()
    elif is_dataclass(value) or not isinstance(value, Mapping):
        raise refuse(name, f"is {value!r:.80}: a dict is needed, or a message of an answer")
    return {key: one for key, one in value.items() if one is not None or key == "content"}


def _list_of(value: Any, name: str) -> bytes:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise refuse(name, f"is {value!r:.80}: a list is needed")
    try:
        listed = [_object_of(one, f"{name}[{i}]") for i, one in enumerate(value)]
        return json.dumps(listed, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        if isinstance(error, c.ReportedError):
            raise
        raise refuse(name, f"cannot be JSON: {error}") from None


def _stops_of(stop: Any) -> tuple[bytes, ...]:
    listed = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    for i, one in enumerate(listed):
        if not isinstance(one, str) or not one or "\0" in one:
            raise refuse("stop", f"[{i}] is {one!r}: a text is needed, not an empty one")
    return tuple(one.encode() for one in listed)


def _refuse_others(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if name in _RECORDED or value is None:
            continue
        if name not in _NEUTRAL:
            raise refuse(name, "is not a field of this request")
        if value != _NEUTRAL[name]:
            raise refuse(name, f"is {value!r:.80}: in a rollout only {_NEUTRAL[name]!r} is possible")


@dataclass(frozen=True)
class Rules:
    """What a rollout says about every request of it."""

    model: str
    temperature: float
    greedy: bool

    def check(self, model: Any, temperature: Any) -> None:
        if model is not None and model != self.model:
            raise refuse("model", f"is {model!r}: the policy is called {self.model!r} (client.model)")
        wanted = 0.0 if self.greedy else self.temperature
        if temperature is not None and temperature != wanted:
            why = "the rollout is greedy" if self.greedy else "the temperature is part of the policy, which trains"
            raise refuse("temperature", f"is {temperature!r}: it is {wanted:g} here, because {why}")


def read_request(
    rules: Rules,
    *,
    messages: Any,
    model: Any = None,
    tools: Any = None,
    n: Any = None,
    temperature: Any = None,
    max_tokens: Any = None,
    max_completion_tokens: Any = None,
    stop: Any = None,
    logprobs: Any = None,
    **others: Any,
) -> Request:
    """Checks the arguments of `create`; errors name the field."""
    rules.check(model, temperature)
    _refuse_others(others)
    if max_tokens is not None and max_completion_tokens is not None:
        raise refuse("max_tokens", "and max_completion_tokens are the same: give one of them")
    limit = max_completion_tokens if max_tokens is None else max_tokens
    name = "max_completion_tokens" if max_tokens is None else "max_tokens"
    return Request(
        messages=_list_of(messages, "messages"),
        tools=_list_of(tools, "tools") if tools else None,
        n=1 if n is None else _whole(n, "n", 1),
        max_tokens=0 if limit is None else _whole(limit, name, 1),
        stops=_stops_of(stop),
        log_probs=bool(logprobs),
    )


# ------------------------------------------------------------------------------------------------------------- answers

_LENGTH = (3, 4)  # REIN_FINISH_MAX_TOKENS, REIN_FINISH_CONTEXT


def _message_of(message: dict[str, Any]) -> Message:
    calls = [
        ToolCall(one["id"], FunctionCall(one["function"]["name"], one["function"]["arguments"]))
        for one in message.get("tool_calls") or ()
    ]
    return Message("assistant", message["content"], calls or None)


def _choice(i: int, written: Written, piece: Callable[[int], bytes] | None) -> Choice:
    message, log_probs = _message_of(written.message), None
    if piece is not None:
        read = [(piece(token), log_prob) for token, log_prob in zip(written.ids, written.log_probs)]
        log_probs = LogProbs([TokenLogProb(x.decode(errors="replace"), p, list(x), []) for x, p in read])
    reason = "length" if written.finish in _LENGTH else "tool_calls" if message.tool_calls else "stop"
    return Choice(i, message, reason, log_probs)


def completion_of(name: str, model: str, several: Sequence[Written], piece: Callable[[int], bytes] | None) -> Any:
    """The answer of which these are the choices."""
    tokens = sum(len(one.ids) for one in several)
    prompt, cached = several[0].prompt_tokens, max(one.cached_tokens for one in several)
    return ChatCompletion(
        id=name,
        model=model,
        choices=[_choice(i, one, piece) for i, one in enumerate(several)],
        usage=Usage(prompt, tokens, prompt + tokens, PromptTokensDetails(cached)),
        created=int(time.time()),
    )


# ------------------------------------------------------------------------------------------------------------- clients


class _Completions:
    def __init__(self, create: Callable[..., Any]) -> None:
        self._create = create

    def create(self, *, messages: Sequence[Any], **more: Any) -> Any:
        """Asks the policy for the next message. Arguments and answer are those of the openai package's
        chat.completions.create: tools, n, max_tokens (or max_completion_tokens), stop, logprobs. What would change the
        policy (temperature, top_p, penalties) is possible only at its neutral value."""
        return self._create(messages=messages, **more)


class _Chat:
    def __init__(self, create: Callable[..., Any]) -> None:
        self.completions = _Completions(create)


class Client:
    """The client of one episode: client.chat.completions.create(messages=…). In an async function it is awaited.

    model      the name of the policy
    scenario   the position of the scenario among those of the rollout
    sample     which episode of the scenario this is, from 0
    seed       a number that depends only on the rollout's seed, step, scenario and sample: for randomness that resumes
    """

    def __init__(self, create: Callable[..., Any], model: str, scenario: int, sample: int, seed: int) -> None:
        self.chat = _Chat(create)
        self.model, self.scenario, self.sample, self.seed = model, scenario, sample, seed


AsyncCreate = Callable[..., Awaitable[Any]]
