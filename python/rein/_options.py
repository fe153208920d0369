"""Options and presets. Every name, range and default comes from the library's tables."""

from __future__ import annotations

import ctypes
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _library as c

Value = Union[float, str]
Preset = Union[str, Mapping[str, Any], "Options", None]


def presets() -> list[str]:
    """The names of the presets.

    >>> presets()[:5]
    ['reinforce', 'rloo', 'reinforce++', 'ppo', 'grpo']
    """
    return [name.decode() for name in c.each(c.preset_name)]


@dataclass(frozen=True)
class _Info:
    name: str
    choices: str | None
    stage: str
    help: str


def _info(row: Any) -> _Info:
    choices = row.choices.decode() if row.choices else None
    return _Info(row.name.decode(), choices, row.stage.decode(), row.help.decode())


# The library's table of options, in the same order.
_INFO: dict[str, _Info] = {row.contents.name.decode(): _info(row.contents) for row in c.each(c.option_at)}


# Arguments of the functions that take options as keywords, too.
_ARGUMENTS = (
    *(
        "rewards",
        "advantages",
        "mask",
        "sequence_lengths",
        "group_sizes",
        "reference",
        "values",
        "entropies",
        "exact_kl",
        "teacher_log_probs",
        "teacher_divergence",
        "correct",
    ),
    *("log_probs", "old_log_probs", "ref_log_probs", "sample_log_probs", "reward_components", "reward_weights"),
    *("baseline_rewards", "response_lengths", "threads", "return_grad", "return_advantages", "return_metrics"),
)


def _check_name(name: str) -> None:
    """A keyword that is almost an argument was not meant as an option."""
    near = [] if name in _INFO else difflib.get_close_matches(name, _ARGUMENTS, 1, 0.85)
    if near:
        raise ValueError(f"no argument named {name}: did you mean {near[0]}?")


def _value_of(name: str, value: Any) -> str | float:
    """The value of an option in the form of the library: a string or a number."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    info = _INFO.get(name)
    if isinstance(value, str):
        if info and info.choices is None:
            raise ValueError(f"{name} is {value!r}: a number is needed")
        return value
    if info and info.choices:
        raise ValueError(f"{name} is {value!r}: one of {info.choices} is needed")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}: a number or a string is needed") from None


class Options:
    """The options of an objective: a preset, with changes.

    `preset` is a name, a dict of options (with or without "preset"), another Options, or None: plain REINFORCE. Every
    other keyword is the name of an option. None means "not given". Immutable.

    >>> options = Options("dapo", epsilon=0.1)
    >>> options.get("epsilon"), options.get("surrogate")
    (0.1, 'clip')
    >>> Options("grpo", epsilom=0.1)
    Traceback (most recent call last):
        ...
    rein.ArgumentError: epsilom is not an option: did you mean epsilon?
    """

    __slots__ = ("address", "given", "preset")

    def __init__(self, preset: Preset = None, **options: Any) -> None:
        self.address: int | None = None  # of a rein_options, which this object owns
        self.preset: str = "none"
        self.given: dict[str, Any] = {}
        if isinstance(preset, Options):
            self._open(c.options_copy, preset.address)
            self.preset, self.given = preset.preset, dict(preset.given)
        else:
            options = self._start(preset, options)
        for name, value in options.items():
            self._set(name, value)

    def __del__(self, free: Any = c.options_free) -> None:
        free(self.address)

    def _open(self, function: Any, source: Any) -> None:
        place, error = ctypes.c_void_p(), c.Error()
        status = function(ctypes.byref(place), source, ctypes.byref(error))
        if status:
            c.raise_error(status, error)
        self.address = place.value

    def _start(self, preset: Preset, options: dict[str, Any]) -> dict[str, Any]:
        """Fills in the preset; returns the options to set after it."""
        if isinstance(preset, Mapping):
            given = dict(preset)
            self.preset = str(given.pop("preset", None) or "none")
            more = {name: value for name, value in options.items() if value is not None}
            for name in more:
                if given.get(name) is not None:
                    raise ValueError(f"{name} is given twice: give it once")
            options = {**given, **more}
        elif isinstance(preset, str):
            self.preset = preset
        elif preset is not None:
            raise TypeError(f"preset is {preset!r}: a name, a dict or rein.Options is needed")
        self._open(c.options_new, self.preset.encode())
        return options

    def _set(self, name: str, value: Any) -> None:
        if value is None:
            return
        _check_name(name)
        error, wanted = c.Error(), _value_of(name, value)
        if isinstance(wanted, str):
            status = c.options_set(self.address, name.encode(), wanted.encode(), ctypes.byref(error))
        else:
            status = c.options_set_number(self.address, name.encode(), wanted, ctypes.byref(error))
        if status:
            c.raise_error(status, error)
        self.given[name] = value

    def get(self, name: str) -> Value | None:
        """The value of an option: a number, a string, or None if it is not set.

        >>> Options("grpo").get("kl_loss_coef")
        0.04
        """
        error, word, number = c.Error(), ctypes.c_char_p(), ctypes.c_double()
        if name in _INFO and _INFO[name].choices:
            status = c.options_get(ctypes.byref(word), self.address, name.encode(), ctypes.byref(error))
        else:
            status = c.options_get_number(ctypes.byref(number), self.address, name.encode(), ctypes.byref(error))
        if status:
            c.raise_error(status, error)
        if word.value is not None:
            return word.value.decode() or None
        return number.value if math.isfinite(number.value) else None

    def as_dict(self) -> dict[str, Value]:
        """Every option that has a value, by name, in the order of the pipeline.

        >>> Options({"surrogate": "squared", "tau": 0.1}).as_dict()["tau"]
        0.1
        """
        values = ((name, self.get(name)) for name in _INFO)
        return {name: value for name, value in values if value is not None}

    def resolve(self) -> Options:
        """A copy with published constants for options that were not given, checked as a whole.

        >>> Options("grpo").resolve().get("epsilon_high")
        0.2
        >>> Options("k2", tau=0.1).resolve()
        Traceback (most recent call last):
            ...
        rein.ArgumentError: budget_penalty_coef is required: it has no published value, so give one
        """
        error, resolved = c.Error(), Options(self)
        status = c.options_resolve(resolved.address, self.address, ctypes.byref(error))
        if status:
            c.raise_error(status, error)
        return resolved

    def __repr__(self) -> str:
        parts = [repr(self.preset)] + [f"{name}={value!r}" for name, value in self.given.items()]
        return f"rein.Options({', '.join(parts)})"


# Where advantages come from: an estimator, given per token, or given per sequence.
ESTIMATED, PER_TOKEN, PER_SEQUENCE = range(3)

_cache: dict[Any, Options] = {}


def cached_options(preset: Preset, options: dict[str, Any], token_budget: float | None, source: int) -> Options:
    """The options of a call. Calls with the same arguments share them."""
    first = tuple(preset.items()) if isinstance(preset, dict) else preset
    key: Any = (first, token_budget, source)
    if options:
        # With their types: 1 and True are equal as keys, but differ for the library.
        key += (tuple(options.items()), tuple(map(type, options.values())))
    try:
        return _cache[key]
    except KeyError:
        pass
    except TypeError:  # a value that cannot be hashed: _value_of reports what is wrong with it
        return _options_for(preset, options, token_budget, source)
    made = _options_for(preset, options, token_budget, source)
    if len(_cache) >= 256:  # otherwise a coefficient that changes at every step would fill the memory
        _cache.clear()
    _cache[key] = made
    return made


def _options_for(preset: Preset, options: dict[str, Any], token_budget: float | None, source: int) -> Options:
    more = dict(options)
    if token_budget is not None:
        if isinstance(preset, Options) and "token_budget" in preset.given:
            raise ValueError("token_budget is given twice: give it once")
        more["token_budget"] = token_budget
    made = Options(preset, **more)
    if source == PER_SEQUENCE:
        _take_per_sequence(made)
    elif source == PER_TOKEN and "advantage" not in made.given:
        made._set("advantage", "given")
    return made


def _take_per_sequence(options: Options) -> None:
    """One advantage per sequence is given to the library as a reward without an estimator, so no other option may
    change it before the loss."""
    if options.given.get("advantage", "given") != "given":
        raise ValueError("advantages has no effect: it needs advantage given")
    for name, off in (("shape", "none"), ("reward_clip", 0), ("kl_reward_coef", 0)):
        if options.given.get(name, off) != off:
            raise ValueError(f"{name} has no effect: the advantages are given")
    for name, value in (("advantage", "none"), ("shape", "none"), ("kl_reward_coef", 0)):
        options._set(name, value)


@dataclass(frozen=True)
class KlBias:
    """The expected gradient of a KL term, compared with that of KL(policy‖reference)."""

    form: str
    on_policy: str
    off_policy: str
    meaning: str


@dataclass(frozen=True)
class Explanation:
    """The description of a preset. `options` has a value for each option that has an effect, None if it is off or
    required; `required` names the options that you must give. str() is readable."""

    name: str
    title: str
    formula: str
    purpose: str
    source: str
    note: str
    options: dict[str, Value | None]
    required: tuple[str, ...]
    kl_bias: tuple[KlBias, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.title}"]
        texts = (("formula", self.formula), ("for", self.purpose), ("source", self.source), ("note", self.note))
        for label, text in texts:
            for part in text.split(",  ") if text else []:
                lines.append(f"  {label:9}{part}")
                label = ""
        for stage in dict.fromkeys(_INFO[name].stage for name in self.options):
            lines += ["", stage]
            lines += [self._line(name) for name in self.options if _INFO[name].stage == stage]
        lines += ["", "KL: the expectation of its gradient, compared with that of KL(policy‖reference)"]
        pairs = self.options.get("preference_loss", "none") != "none"
        none = (
            "the reference, if there is one, is part of the loss over pairs" if pairs else "every KL coefficient is 0"
        )
        lines += [] if self.kl_bias else [f"  No KL term: {none}."]
        for row in self.kl_bias:
            lines += [f"  {row.form}", f"    on-policy   {row.on_policy}", f"    off-policy  {row.off_policy}"]
            lines += [f"    {row.meaning}"]
        return "\n".join(lines)

    def _line(self, name: str) -> str:
        value = self.options[name]
        shown = f"{value:g}" if isinstance(value, float) else value or "not set"
        return f"  {name:22}{'required' if name in self.required else shown:20}{_INFO[name].help}"


def explain(name: str) -> Explanation:
    """Describes the preset `name`: its formula, source, defaults, and the expected gradient of its KL.

    >>> explain("dapo").options["epsilon_high"]
    0.28
    >>> explain("k2").required
    ('token_budget', 'budget_penalty_coef', 'tau')
    >>> print(explain("grpo").kl_bias[0].form)
    k3 as loss
    """
    options = Options(name)
    states = {option: c.options_state(options.address, i) for i, option in enumerate(_INFO)}
    required = {option for option, state in states.items() if state == c.OPTION_REQUIRED}
    resolved = Options(options, **dict.fromkeys(required, 1)).resolve()
    if resolved.get("shape") in ("budget", "truncate") and resolved.get("token_budget") is None:
        required.add("token_budget")  # the batch may have it
    info = c.preset_describe(name.encode()).contents
    texts = {
        field: (getattr(info, field) or b"").decode() for field in ("title", "formula", "purpose", "source", "note")
    }
    shown = [option for option, state in states.items() if state != c.OPTION_IDLE]
    return Explanation(
        name=name,
        options={option: None if option in required else resolved.get(option) for option in shown},
        required=tuple(option for option in _INFO if option in required),
        kl_bias=_kl_bias(resolved),
        **texts,
    )


def _kl_bias(options: Options) -> tuple[KlBias, ...]:
    fields = ("form", "on_policy", "off_policy", "meaning")
    rows = c.each(lambda i: c.kl_bias_of(options.address, i))
    return tuple(KlBias(*(getattr(row.contents, field).decode() for field in fields)) for row in rows)
