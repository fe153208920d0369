"""Collects the tokens that a generator samples into responses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _engine as e
from ._arrays import Array
from ._groups import Trajectory

FINISHES = ("unfinished", "ended", "stopped", "cut", "full")  # rein_finish


@dataclass(frozen=True, eq=False)
class Sample:
    """A sampled response.

    prompt_ids         int32 [P]
    response_ids       int32 [R], including the token that ended it
    log_probs          float32 [R] under the policy: bit for bit those that training computes
    text               of the response, without a stop text; "" if the model has no tokenizer
    finish             "ended" (by a stop id), "stopped" (by a stop text), "cut" (max_tokens), "full" (the model's last
                       position)
    sampler_log_probs  float32 [R] under the distribution after top_k, top_p and min_p; 0 when greedy
    top                with top_log_probs: for each token the most probable ones, [(id, log-prob), …]; else None
    policy_step        the `steps` of the policy when it sampled; None for a policy that does not train
    activation_key     key of its activations in the policy's activation cache; 0: they are not in the cache
    """

    prompt_ids: Array
    response_ids: Array
    log_probs: Array
    text: str
    finish: str
    sampler_log_probs: Array
    top: list[list[tuple[int, float]]] | None = None
    policy_step: int | None = None
    activation_key: int = 0

    @property
    def truncated(self) -> bool:
        """Whether it was cut off, instead of ended by the policy or a stop."""
        return self.finish in ("cut", "full")

    def trajectory(self, reward: float, **more: Any) -> Trajectory:
        """The trajectory with this reward, for forward_backward; keywords are those of Trajectory.

        It has the sampler's log-probs where they differ from the policy's.
        """
        own: dict[str, Any] = {"policy_step": self.policy_step, "truncated": self.truncated}
        own["activation_key"] = self.activation_key
        if not np.array_equal(self.sampler_log_probs, self.log_probs):
            own["sampler_log_probs"] = self.sampler_log_probs
        return Trajectory(self.prompt_ids, self.response_ids, self.log_probs, reward, **{**own, **more})


class Drawn:
    """All tokens that a generator samples, sorted by sample."""

    def __init__(self, generator: e.Handle, n: int, samples: int, with_top: bool) -> None:
        self._texts: list[list[bytes]] = [[] for _ in range(n)]
        self._tops: list[list[list[tuple[int, float]]]] | None = [[] for _ in range(n)] if with_top else None
        steps = [np.empty(0, e.SAMPLED)]
        place, count, failed = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        while e.generator_unfinished(generator.address):
            e.call(e.generator_step, ctypes.byref(place), ctypes.byref(count), generator.address)
            e.call(e.generator_failed, ctypes.byref(failed), generator.address)
            if not count.value or place.value is None:
                continue
            read = ctypes.string_at(place.value, count.value * e.SAMPLED.itemsize)
            steps.append(np.frombuffer(read, e.SAMPLED))
            self._copy_borrowed(steps[-1], samples)
        events = np.concatenate(steps)
        slots = (events["request"] * samples + events["sample"]).astype(np.int64)
        self._events = events[np.argsort(slots, kind="stable")]
        self._offsets = [0, *np.cumsum(np.bincount(slots, minlength=n)).tolist()]

    def _copy_borrowed(self, events: Array, samples: int) -> None:
        """Copies texts and most probable tokens, which are valid only until the next step."""
        for event in events[events["length"] > 0] if self._tops is None else events:
            slot = int(event["request"]) * samples + int(event["sample"])
            if event["length"]:
                self._texts[slot].append(ctypes.string_at(int(event["text"]), int(event["length"])))
            if self._tops is not None:
                read = ctypes.string_at(int(event["top"]), int(event["n_top"]) * e.CHOICE.itemsize)
                self._tops[slot].append([(int(i), float(p)) for i, p in np.frombuffer(read, e.CHOICE)])

    def sample(self, slot: int, prompt: Array, policy_step: int | None) -> Sample:
        events = self._events[self._offsets[slot] : self._offsets[slot + 1]]
        return Sample(
            prompt_ids=prompt,
            response_ids=np.ascontiguousarray(events["id"]),
            log_probs=np.ascontiguousarray(events["log_prob"]),
            text=b"".join(self._texts[slot]).decode(),
            finish=FINISHES[int(events["finish"][-1])],
            sampler_log_probs=np.ascontiguousarray(events["sampler_log_prob"]),
            top=self._tops[slot] if self._tops else None,
            policy_step=policy_step,
            activation_key=int(events["activation_key"][-1]),
        )
