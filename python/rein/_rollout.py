"""Episodes of several turns that a Python function plays with a policy. The turns of all episodes are sampled in one
batch, by the library; here is only who waits for what."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import hashlib
import inspect
import json
import math
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _engine as e
from . import _library as c
from ._arrays import FLOAT32, Array, address
from ._client import ChatCompletion, Client, EpisodeOver, Rules, completion_of, read_request
from ._play import EVALUATION, FINISHES, Number, Owner, RolloutOptions, Sampler, Source, Table

Play = Callable[[Client, Any], Union[Any, Awaitable[Any]]]
OnError = Union[str, float]

# ------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, eq=False)
class History:
    """Tokens of an episode, as the model saw and wrote them.

    ids        int32 [n]
    mask       bool [n], True where the model wrote the token, so that it trains
    log_probs  float32 [n] under the policy where mask is True, bit for bit those that training computes; else NaN
    """

    ids: Array
    mask: Array
    log_probs: Array


class Episode:
    """One episode, ready for training: groups of episodes go into Policy.forward_backward and Session.train as they
    are."""

    def __init__(self, owner: Owner, struct: e.TrajectoryStruct, group: e.Group, scenario: int, sample: int) -> None:
        self._owner, self._struct, self._group = owner, struct, group
        self._source: e.Handle | None = owner.source  # the session that sampled it, and may rely on its log-probs
        self.scenario, self.sample = scenario, sample

    @property
    def reward(self) -> float:
        """The reward. It can be set: a judge that compares the episodes of a group comes after them."""
        return float(self._struct.reward)

    @reward.setter
    def reward(self, reward: float) -> None:
        self._struct.reward = e.number_of(reward, "reward")

    @property
    def metrics(self) -> dict[str, float]:
        """What the function measured, and "turns": the turns of the model."""
        listed = ctypes.cast(self._struct.metrics, ctypes.POINTER(Number))
        return {one.name.decode(): one.value for one in listed[: self._struct.n_metrics]}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The first conversation of the episode."""
        messages: list[dict[str, Any]] = json.loads(ctypes.string_at(self._struct.json))["messages"]
        return messages

    @property
    def histories(self) -> list[History]:
        """One for each conversation; more where the chat template writes an earlier turn in another way."""
        histories = (e.History * self._struct.n_histories).from_address(self._struct.histories)
        return [_history(one) for one in histories]

    @property
    def truncated(self) -> bool:
        """Whether a limit of length cut it off."""
        return bool(self._struct.truncated)

    @property
    def policy_step(self) -> int | None:
        """The step of the policy; None in an evaluation."""
        return None if self._struct.policy_step < 0 else int(self._struct.policy_step)

    @property
    def finish(self) -> str:
        """How the last turn ended: "ended", "stopped", "cut" (by a limit of tokens) or "full"."""
        return FINISHES[self._struct.finish]

    def __repr__(self) -> str:
        return f"Episode(scenario={self.scenario}, sample={self.sample}, reward={self.reward:g}, {self.metrics})"


def _history(one: e.History) -> History:
    n = one.n
    return History(
        np.frombuffer(ctypes.string_at(one.ids, 4 * n), e.INT32),
        np.frombuffer(ctypes.string_at(one.mask, n), np.bool_),
        np.frombuffer(ctypes.string_at(one.log_probs, 4 * n), FLOAT32),
    )


class Rollout(list[list[Episode]]):
    """Groups of episodes: one list for each scenario, in their order. Scenarios of which every episode was dropped are
    left out.

    errors   (scenario, sample, exception) of every episode whose function failed
    limits   the episodes whose function did not catch EpisodeOver
    """

    def __init__(self, groups: list[list[Episode]], errors: list[tuple[int, int, BaseException]], limits: int) -> None:
        super().__init__(groups)
        self.errors, self.limits = errors, limits

    @property
    def metrics(self) -> dict[str, float]:
        """Means over the episodes, "episodes", "errors" and "limits"."""
        episodes = [episode for group in self for episode in group]
        names = sorted({name for episode in episodes for name in episode.metrics})
        found = {"episodes": float(len(episodes)), "errors": float(len(self.errors)), "limits": float(self.limits)}
        if episodes:
            found["reward"] = float(np.mean([episode.reward for episode in episodes]))
            found["truncated"] = float(np.mean([episode.truncated for episode in episodes]))
        for name in names:
            found[name] = float(np.mean([one.metrics[name] for one in episodes if name in one.metrics]))
        return found


# ------------------------------------------------------------------------------------------------------------- episodes


class _Clock:
    """The time that a function has for itself: it stands still while the function waits for the model."""

    def __init__(self, seconds: float | None, expire: Callable[[], Any]) -> None:
        self._seconds, self._expire = seconds, expire
        self._handle: asyncio.TimerHandle | None = None
        self._asked = 0
        self.expired = False

    def start(self) -> None:
        if self._seconds is not None and not self._asked:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._end)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        self.stop()
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
            self.start()

    def _end(self) -> None:
        self.expired = True
        self._expire()


class _Player:
    """Plays one episode: runs the function, and makes of what it returns, or raises, a reward."""

    def __init__(self, game: _Game, number: int) -> None:
        self._game, self._number = game, number
        self.scenario, self.sample = divmod(number, game.samples)
        self._task: asyncio.Future[Any] | None = None
        self._clock = _Clock(game.faults.timeout, self._cancel)
        self._over = False
        self._answers = 0

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # ---- requests

    async def _create(self, **arguments: Any) -> ChatCompletion:
        game = self._game
        if self._over:
            raise RuntimeError("the episode has ended: its client cannot be used any more")
        request = read_request(game.rules, **arguments)
        with self._clock.pause():
            asked = [game.table.write(self._number, request) for _ in range(request.n)]
            several = await asyncio.gather(*asked)
        self._answers += 1
        name = f"chatcmpl-{self.scenario}-{self.sample}-{self._answers}"
        completion: ChatCompletion = completion_of(
            name, game.rules.model, several, game.piece if request.log_probs else None
        )
        return completion

    def _create_and_wait(self, **arguments: Any) -> ChatCompletion:
        return asyncio.run_coroutine_threadsafe(self._create(**arguments), self._game.loop).result()

    # ---- the function

    async def play(self) -> None:
        async with self._game.places:
            self._clock.start()
            try:
                self._task = self._start()
                result = await self._task
            except asyncio.CancelledError:
                if not self._clock.expired:
                    raise
                seconds = self._game.faults.timeout
                await self._failed(TimeoutError(f"the function took longer than {seconds:g} seconds"))
            except EpisodeOver:
                self._game.limits += 1
                await self._end(self._game.faults.limit_reward, {})
            except Exception as problem:
                await self._failed(problem)
            else:
                await self._end(*_reward_of(result, self._where()))
            finally:
                self._over = True
                self._clock.stop()

    def _start(self) -> asyncio.Future[Any]:
        game = self._game
        place = f"{game.address} {game.first + self.scenario} {self.sample}"
        seed = hashlib.sha256(place.encode()).digest()
        create = self._create if game.is_async else self._create_and_wait
        client = Client(create, game.rules.model, self.scenario, self.sample, int.from_bytes(seed[:7], "little"))
        scenario = game.scenarios[self.scenario]
        if game.is_async:
            return asyncio.ensure_future(game.function(client, scenario))
        return _in_thread(game.loop, functools.partial(game.function, client, scenario))

    def _where(self) -> str:
        return f"scenario {self.scenario}, sample {self.sample}"

    async def _end(self, reward: float, metrics: Mapping[str, float]) -> None:
        try:
            await self._game.table.call(
                functools.partial(self._game.table.end, self._number, reward, metrics),
            )
        except c.ArgumentError as problem:
            if problem.field != "episode":
                raise
            await self._failed(problem, no_turn=True)

    async def _failed(self, problem: Exception, no_turn: bool = False) -> None:
        game = self._game
        if game.faults.on_error == "raise":
            if hasattr(problem, "add_note"):
                problem.add_note(f"in the rollout: {self._where()}, after {self._answers} answers of the model")
            raise problem
        if not no_turn:
            game.errors.append((self.scenario, self.sample, problem))
        if game.faults.on_error == "drop" or no_turn or not self._answers:
            game.dropped.add(self._number)
            await game.table.call(functools.partial(game.table.drop, self._number))
        else:
            await self._end(float(game.faults.on_error), {})


def _in_thread(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> asyncio.Future[Any]:
    """The result of a function in a thread of its own, which may outlive the rollout: a function that hangs must not
    keep the process from ending."""
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, problem: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if problem is None else future.set_exception(problem)

    def work() -> None:
        result, problem = None, None
        try:
            result = function()
        except BaseException as raised:
            problem = raised
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=work, daemon=True, name="rein-episode").start()
    return future


def _reward_of(result: Any, where: str) -> tuple[float, Mapping[str, float]]:
    """What a function returns: a reward, or a reward and metrics."""
    reward, metrics = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    try:
        if reward is None or isinstance(reward, str) or not isinstance(metrics, Mapping):
            raise TypeError
        return float(reward), {str(name): float(value) for name, value in metrics.items()}
    except (TypeError, ValueError):
        needed = "a reward is needed, a number, or (reward, {name: number})"
        raise TypeError(f"{where}: the function returned {result!r:.80}: {needed}") from None


class Faults:
    """What becomes of an episode whose function fails, is too slow, or does not catch EpisodeOver."""

    def __init__(self, timeout: float | None, on_error: OnError, limit_reward: float) -> None:
        if timeout is not None and not e.number_of(timeout, "timeout") > 0:
            raise ValueError(f"timeout is {timeout}: it must be above 0")
        if isinstance(on_error, str) and on_error not in ("raise", "drop"):
            raise ValueError(f'on_error is {on_error!r}: "raise", "drop" or a reward is needed')
        self.timeout = timeout
        self.on_error = on_error if isinstance(on_error, str) else _finite(on_error, "on_error")
        self.limit_reward = _finite(limit_reward, "limit_reward")


class _Game:
    """A rollout at work."""

    table: Table
    places: asyncio.Semaphore
    loop: asyncio.AbstractEventLoop

    def __init__(
        self, source: Source, function: Play, scenarios: list[Any], options: RolloutOptions, faults: Faults
    ) -> None:
        self.function, self.scenarios, self.faults = function, scenarios, faults
        self.samples, self.first = int(options.samples), int(options.address.prompt)
        self.rules = Rules(source.name, source.policy.temperature, bool(options.sampling.greedy))
        call = getattr(type(function), "__call__", None)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self.address = f"{options.sampling.seed} {options.address.purpose} {options.address.step}"
        self.policy_step, self._tokenizer = source.policy_step, source.tokenizer
        self.limits = 0
        self.errors: list[tuple[int, int, BaseException]] = []
        self.dropped: set[int] = set()

    def piece(self, token: int) -> bytes:
        return self._tokenizer.decode([token]).encode()

    async def play(self, concurrency: int) -> Rollout:
        self.loop, self.places = asyncio.get_running_loop(), asyncio.Semaphore(concurrency)
        worker = asyncio.ensure_future(self.table.run())
        tasks = [asyncio.ensure_future(_Player(self, i).play()) for i in range(len(self.scenarios) * self.samples)]
        try:
            await asyncio.gather(*tasks)
            owner = await self.table.call(self.table.take)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await self.table.close()
        return self._result(owner)

    def _result(self, owner: Owner) -> Rollout:
        groups = (e.Group * owner.groups.n).from_address(owner.groups.groups) if owner.groups.n else ()
        rows = iter(groups)
        at = self.policy_step
        found: list[list[Episode]] = []
        for scenario in range(len(self.scenarios)):
            kept = [k for k in range(self.samples) if scenario * self.samples + k not in self.dropped]
            if kept:
                group = next(rows)
                structs = (e.TrajectoryStruct * group.n).from_address(group.trajectories)
                for struct in structs:
                    struct.policy_step = -1 if at is None else at
                found.append([Episode(owner, structs[i], group, scenario, k) for i, k in enumerate(kept)])
        return Rollout(found, sorted(self.errors, key=lambda one: one[:2]), self.limits)


# -------------------------------------------------------------------------------------------------------------- rollout


async def rollout(
    policy: Sampler,
    play: Play,
    scenarios: Sequence[Any],
    *,
    samples: int = 1,
    max_turns: int = 8,
    max_tokens: int = 1024,
    seed: int | None = None,
    step: int | None = None,
    first_scenario: int = 0,
    evaluation: bool = False,
    greedy: bool = False,
    chat_format: str | None = None,
    on_error: OnError = "raise",
    limit_reward: float = 0.0,
    timeout: float | None = None,
    concurrency: int = 256,
) -> Rollout:
    """Plays `samples` episodes of each scenario with a policy (a rein.Policy, or the Session of a run) and returns them
    as groups, which train as they are.

    `play(client, scenario)` plays one episode and returns its reward, or (reward, metrics). The client is that of the
    openai package in shape: `await client.chat.completions.create(messages=…, tools=…)` gives the model's next message.
    It may ask any number of times, for any conversations. All that the model writes in an episode trains with its
    reward. `play` may be async, or a plain function, which runs in a thread of its own and does not await. Up to
    `concurrency` episodes are open at a time, and their turns are sampled in one batch.

    `max_turns`, `max_tokens`: limits of an episode, of all its turns and tokens. At a limit `create` raises
    EpisodeOver; a function that does not catch it has the reward `limit_reward`. `timeout`: seconds that `play` may
    take between two answers of the model. `on_error`: what becomes of an episode whose function raises an exception or
    is too slow: "raise" ends the rollout with it, "drop" leaves the episode out of its group, a number is its reward
    (if the model wrote something). `Rollout.errors` has the exceptions.

    Randomness is addressed by (seed, step, first_scenario + the position of the scenario, sample, tokens before): the
    same call gives the same bits, in whatever order the functions run. `step` None: the step of the run, or the
    number of earlier calls of the policy. `evaluation`: random numbers of no step, the same every time, and nothing
    that is meant for training. `greedy`: the most probable tokens. `chat_format`: for a model without a chat template.

    >>> from rein import Policy
    >>> async def play(client, scenario):
    ...     messages = [{"role": "user", "content": scenario}]
    ...     answer = await client.chat.completions.create(messages=messages, max_tokens=4)
    ...     return float(len(answer.choices[0].message.content))
    >>> policy = Policy("models/sums")
    >>> groups = asyncio.run(rollout(policy, play, ["1+2=", "3+4="], samples=4, chat_format="raw"))
    >>> len(groups), len(groups[0]), policy.forward_backward(groups, "reinforce").max_gap
    (2, 4, 0.0)
    """
    if not callable(play):
        raise TypeError(f"play is {play!r}: a function is needed")
    listed, places = list(scenarios), e.count_of(concurrency, "concurrency", 1)
    if not listed:
        raise ValueError("scenarios is empty: at least one is needed")
    faults = Faults(timeout, on_error, limit_reward)
    source = policy._rollout_source(step, bool(evaluation))
    chat, keep = _chat_of(source, chat_format)
    options = RolloutOptions(
        n=len(listed),
        samples=e.count_of(samples, "samples", 1),
        policy=source.policy,
        tokenizer=source.tokenizer._handle.address,
        max_turns=e.count_of(max_turns, "max_turns", 1),
        exec=source.exec,
        sampler_log_probs=bool(greedy),
    )
    options.prompting.chat = ctypes.pointer(chat)
    options.sampling = e.Sampling(
        greedy=bool(greedy),
        top_p=1.0,
        max_tokens=e.count_of(max_tokens, "max_tokens", 1),
        end_ids=address(source.end_ids),
        n_end_ids=source.end_ids.size,
        seed=source.seed if seed is None else e.count_of(seed, "seed", limit=2**64),
    )
    options.address.purpose = EVALUATION if evaluation else 0
    options.address.step = 0 if evaluation else source.step
    options.address.prompt = e.count_of(first_scenario, "first_scenario")
    game = _Game(source, play, listed, options, faults)
    game.table = Table(source, options, (chat, keep, source.end_ids))
    return await game.play(places)


def _finite(value: Any, name: str) -> float:
    number = e.number_of(value, name)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}: a finite number is needed")
    return number


def _chat_of(source: Source, chat_format: str | None) -> tuple[e.Chat, Any]:
    """The format of messages."""
    if chat_format is not None:
        chat, name = e.Chat(), chat_format.encode()
        e.call(e.chat_named, ctypes.byref(chat), name)
        return chat, name
    if source.chat is None:
        raise ValueError('chat_format is missing: the model has no chat template; name one, such as "chatml" or "raw"')
    return source.chat, None
