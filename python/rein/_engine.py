"""The engine through ctypes: models, adapters, tokenizers, sampling, training. It follows the pattern of _library.

A Handle holds an object of the library; ctypes releases the GIL while a call runs.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, NoReturn, Union

import numpy as np

from . import _library as c
from ._arrays import FLOAT32, Array, ArrayLike, refuse, show, whole

EIO, ESYSTEM = 4, 6
PathLike = Union[str, "os.PathLike[str]"]

INT32 = np.dtype(np.int32)

_int32, _int64, _uint64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
_int, _size, _double, _float, _address = (
    ctypes.c_int,
    ctypes.c_size_t,
    ctypes.c_double,
    ctypes.c_float,
    ctypes.c_void_p,
)

# ------------------------------------------------------------------------------------------------------------- structs


class ModelOptions(ctypes.Structure):
    """rein_model_options."""

    _fields_ = [
        ("train", _int),
        ("exec", c.Exec),
        ("quantize", ctypes.c_char_p),
        ("score", _int),
        ("score_seed", _uint64),
    ]


class ModelInfo(ctypes.Structure):
    """rein_model_info."""

    _fields_ = [
        ("family", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("vocabulary", _int64),
        ("hidden", _int64),
        ("intermediate", _int64),
        ("layers", _int64),
        ("heads", _int64),
        ("kv_heads", _int64),
        ("head_dim", _int64),
        ("max_positions", _int64),
        ("parameters", _int64),
        ("ignored", _int64),
        ("tied", _int),
        ("begin_id", _int32),
        ("end_ids", _int32 * 16),
        ("n_end_ids", _size),
        ("score", _int),
    ]


class LoraOptions(ctypes.Structure):
    """rein_lora_options."""

    _fields_ = [
        ("rank", _int64),
        ("alpha", _double),
        ("rank_stabilized", _int),
        ("modules", _address),
        ("n_modules", _size),
        ("seed", _uint64),
        ("score", _int),
    ]


class AdapterInfo(ctypes.Structure):
    """rein_adapter_info."""

    _fields_ = [
        ("rank", _int64),
        ("alpha", _double),
        ("rank_stabilized", _int),
        ("modules", ctypes.c_char_p * 8),
        ("n_modules", _size),
        ("parameters", _int64),
        ("base", ctypes.c_char_p),
        ("score", _int),
    ]


class Parameter(ctypes.Structure):
    """rein_parameter: a trained array."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("value", _address),
        ("gradient", _address),
        ("rows", _size),
        ("columns", _size),
        ("size", _size),
        ("decay", _int),
    ]


class PolicyStruct(ctypes.Structure):
    """rein_policy."""

    _fields_ = [("model", _address), ("adapter", _address), ("temperature", _double)]


class Tokens(ctypes.Structure):
    """rein_tokens: segments of ids."""

    _fields_ = [
        ("n", _size),
        ("offsets", _address),
        ("parents", _address),
        ("ids", _address),
        ("wanted", _address),
        ("activation_keys", _address),
    ]


class ForwardOptions(ctypes.Structure):
    """rein_forward_options."""

    _fields_ = [
        ("keep", _int),
        ("entropy_gradient", _int),
        ("recompute", _int),
        ("activation_cache", _address),
        ("truncation", _address),
    ]


class Ids(ctypes.Structure):
    """rein_ids: ids that the library appends."""

    _fields_ = [("data", _address), ("count", _size), ("capacity", _size)]


class Text(ctypes.Structure):
    """rein_text: bytes that the library appends."""

    _fields_ = [("data", _address), ("length", _size), ("capacity", _size), ("failed", ctypes.c_int)]


class Span(ctypes.Structure):
    """rein_span."""

    _fields_ = [("begin", _size), ("end", _size)]


class Encoding(ctypes.Structure):
    """rein_encoding."""

    _fields_ = [
        ("add_special", _int),
        ("parse_special", _int),
        ("literal", _address),
        ("literals", _size),
        ("max_tokens", _size),
    ]


class Chat(ctypes.Structure):
    """rein_chat."""

    _fields_ = [
        ("kind", _int),
        ("always_generation", _int),
        ("system", ctypes.c_void_p),
        ("system_length", _size),
        ("run", _address),
        ("date", ctypes.c_char_p),
    ]


class Message(ctypes.Structure):
    """rein_message."""

    _fields_ = [("role", ctypes.c_char_p), ("content", ctypes.c_char_p), ("length", _size)]


class ChatOptions(ctypes.Structure):
    """rein_chat_options."""

    _fields_ = [
        ("add_generation_prompt", _int),
        ("no_thinking", _int),
        ("begin", ctypes.c_char_p),
        ("date", ctypes.c_char_p),
    ]


class ChatSpan(ctypes.Structure):
    """rein_chat_span."""

    _fields_ = [("content", Span), ("stop", _size), ("assistant", _int)]


class Rendered(ctypes.Structure):
    """rein_rendered."""

    _fields_ = [
        ("text", Text),
        ("literals", _address),
        ("n_literals", _size),
        ("generated", _address),
        ("n_generated", _size),
    ]


class TemplateOptions(ctypes.Structure):
    """rein_template_options."""

    _fields_ = [
        ("add_generation_prompt", _int),
        ("tools", _address),
        ("documents", _address),
        ("variables", _address),
        ("date", ctypes.c_char_p),
    ]


class Sampling(ctypes.Structure):
    """rein_sampling."""

    _fields_ = [
        ("greedy", _int),
        ("top_k", _int64),
        ("top_p", _double),
        ("min_p", _double),
        ("max_tokens", _size),
        ("min_tokens", _size),
        ("end_ids", _address),
        ("n_end_ids", _size),
        ("stops", _address),
        ("n_stops", _size),
        ("top_log_probs", _size),
        ("seed", _uint64),
    ]


class Address(ctypes.Structure):
    """rein_address."""

    _fields_ = [("purpose", ctypes.c_int), *((name, _uint64) for name in ("step", "prompt", "sample", "position"))]


class Request(ctypes.Structure):
    """rein_request."""

    _fields_ = [
        ("prompt", _address),
        ("n_prompt", _size),
        ("samples", _size),
        ("address", Address),
        ("sampling", Sampling),
        ("policy", ctypes.POINTER(PolicyStruct)),
        ("prompt_log_probs", _int),
    ]


class GeneratorOptions(ctypes.Structure):
    """rein_generator_options."""

    _fields_ = [
        ("max_active", _size),
        ("exec", c.Exec),
        ("activation_cache", _address),
        ("max_prompt_tokens", _size),
        ("memory", _address),
        ("prefix_cache", _size),
    ]


class Sampled(ctypes.Structure):
    """rein_sampled; addresses are sizes, so that numpy can read it."""

    _fields_ = [
        ("request", _size),
        ("sample", _size),
        ("position", _size),
        ("id", _int32),
        ("log_prob", _float),
        ("sampler_log_prob", _float),
        ("top", _size),
        ("n_top", _size),
        ("text", _size),
        ("length", _size),
        ("finish", _int),
        ("activation_key", _uint64),
        ("cached_tokens", _size),
        ("prompt_log_probs", _size),
        ("prompt_top", _size),
    ]


SAMPLED = np.dtype(Sampled)
CHOICE = np.dtype([("id", np.int32), ("log_prob", np.float32)])


class History(ctypes.Structure):
    """rein_history."""

    _fields_ = [
        ("n", _size),
        ("ids", _address),
        ("mask", _address),
        ("log_probs", _address),
        ("values", _address),
        ("sampler_log_probs", _address),
        ("advantages", _address),
        ("text", Text),
        ("text_ends", _address),
        ("activation_key", _uint64),
    ]


class TrajectoryStruct(ctypes.Structure):
    """rein_trajectory."""

    _fields_ = [
        ("histories", _address),
        ("n_histories", _size),
        ("reward", _double),
        ("policy_step", _int64),
        ("truncated", _int),
        ("budget", _int64),
        ("finish", _int),
        ("scores", _address),
        ("n_scores", _size),
        ("metrics", _address),
        ("n_metrics", _size),
        ("from_messages", _int),
        ("json", _address),
    ]


class Example(ctypes.Structure):
    """rein_example."""

    _fields_ = [
        ("prompt", _address),
        ("messages", _address),
        ("n_messages", _size),
        ("answer", _address),
        ("budget", _int64),
        ("json", _address),
        ("memory", _address),
        ("needs_template", _int),
    ]


class Group(ctypes.Structure):
    """rein_group."""

    _fields_ = [("trajectories", _address), ("n", _size), ("example", Example), ("json", _address)]


class Groups(ctypes.Structure):
    """rein_groups."""

    _fields_ = [("groups", _address), ("n", _size), ("capacity", _size)]


class TrainerOptions(ctypes.Structure):
    """rein_trainer_options."""

    _fields_ = [
        ("temperature", _double),
        ("shards", _size),
        ("share_limit", _size),
        ("no_sharing", _int),
        ("recompute", _int),
        ("exec", c.Exec),
        ("activation_cache", _address),
    ]


class PassOptions(ctypes.Structure):
    """rein_pass_options."""

    _fields_ = [
        ("objective", _address),
        ("reference", _address),
        ("reference_log_probs", _address),
        ("old_log_probs", _address),
        ("policy_step", _int64),
        ("mask_truncated_completions", _int),
        ("recorded_are_current", _int),
        ("advantages", _address),
        ("temperature", _double),
        ("truncation", _address),
        ("preference", _address),
        ("preference_kl", _double),
        ("values", _address),
        ("given_advantages", _address),
        ("shaped_rewards", _address),
        ("teacher", _address),
        ("teacher_log_probs", _address),
    ]


class PassStruct(ctypes.Structure):
    """rein_pass_result."""

    _fields_ = [
        ("loss", c.Loss),
        ("nothing_to_train", _int),
        ("max_gap", _double),
        ("recomputed", _size),
        ("reference_tokens", _size),
        ("cached_tokens", _size),
        ("seconds_reference", _double),
        ("seconds_forward", _double),
        ("seconds_backward", _double),
        ("preference", c.PreferenceMetrics),
    ]


class AdamW(ctypes.Structure):
    """rein_adamw."""

    _fields_ = [
        ("learning_rate", _double),
        ("beta1", _double),
        ("beta2", _double),
        ("epsilon", _double),
        ("weight_decay", _double),
        ("max_gradient_norm", _double),
    ]


c.check_sizes(
    {
        "rein_model_options": ModelOptions,
        "rein_model_info": ModelInfo,
        "rein_lora_options": LoraOptions,
        "rein_adapter_info": AdapterInfo,
        "rein_parameter": Parameter,
        "rein_policy": PolicyStruct,
        "rein_tokens": Tokens,
        "rein_forward_options": ForwardOptions,
        "rein_ids": Ids,
        "rein_text": Text,
        "rein_span": Span,
        "rein_encoding": Encoding,
        "rein_chat": Chat,
        "rein_message": Message,
        "rein_chat_options": ChatOptions,
        "rein_chat_span": ChatSpan,
        "rein_rendered": Rendered,
        "rein_template_options": TemplateOptions,
        "rein_sampling": Sampling,
        "rein_address": Address,
        "rein_request": Request,
        "rein_generator_options": GeneratorOptions,
        "rein_sampled": Sampled,
        "rein_example": Example,
        "rein_history": History,
        "rein_trajectory": TrajectoryStruct,
        "rein_group": Group,
        "rein_groups": Groups,
        "rein_trainer_options": TrainerOptions,
        "rein_pass_options": PassOptions,
        "rein_pass_result": PassStruct,
        "rein_adamw": AdamW,
    }
)

# ---------------------------------------------------------------------------------------------------------- signatures

_LETTERS = {"p": _address, "n": _size, "d": _double, "i": _int, "l": _int64, "s": ctypes.c_char_p}


def declare(name: str, arguments: str, result: Any = ctypes.c_int) -> Any:
    """A function of the library: p is an address, n a size, d a double, i an int, l an int64, s a string."""
    function = getattr(c.library, name)
    function.argtypes = [_LETTERS[letter] for letter in arguments]
    function.restype = result
    return function


model_open = declare("rein_model_open", "pspp")
model_close = declare("rein_model_close", "p", None)
model_describe = declare("rein_model_describe", "p", ModelInfo)
model_save = declare("rein_model_save", "ppsp")
adapter_new = declare("rein_adapter_new", "pppp")
adapter_open = declare("rein_adapter_open", "ppsp")
adapter_copy = declare("rein_adapter_copy", "ppp")
adapter_save = declare("rein_adapter_save", "psp")
adapter_close = declare("rein_adapter_close", "p", None)
adapter_describe = declare("rein_adapter_describe", "p", AdapterInfo)
parameter_count = declare("rein_parameter_count", "pp", ctypes.c_size_t)
parameter_floats = declare("rein_parameter_floats", "pp", ctypes.c_size_t)
parameters = declare("rein_parameters", "pppp", None)
parameters_changed = declare("rein_parameters_changed", "ppp")
activations_open = declare("rein_activations_open", "ppp")
activations_close = declare("rein_activations_close", "p", None)
forward = declare("rein_forward", "ppppppp")
backward = declare("rein_backward", "ppppp")

tokenizer_open = declare("rein_tokenizer_open", "psp")
tokenizer_exists = declare("rein_tokenizer_exists", "s", ctypes.c_int)
tokenizer_close = declare("rein_tokenizer_close", "p", None)
tokenizer_encode = declare("rein_tokenizer_encode", "ppsnpp")
tokenizer_decode = declare("rein_tokenizer_decode", "pppnip")
tokenizer_size = declare("rein_tokenizer_size", "p", ctypes.c_size_t)
tokenizer_id = declare("rein_tokenizer_id", "psn", ctypes.c_int32)
tokenizer_chat_template = declare("rein_tokenizer_chat_template", "pp", ctypes.c_void_p)
ids_free = declare("rein_ids_free", "p", None)
text_free = declare("rein_text_free", "p", None)
chat_of = declare("rein_chat_of", "ppp")
chat_messages_read = declare("rein_chat_messages_read", "ppp")
chat_template_render = declare("rein_chat_template_render", "ppppp")
rendered_free = declare("rein_rendered_free", "p", None)
json_parse = declare("rein_json_parse", "psnsip")
json_free = declare("rein_json_free", "p", None)
chat_named = declare("rein_chat_named", "psp")
chat_render = declare("rein_chat_render", "ppppnpp")

activation_cache_open = declare("rein_activation_cache_open", "pnip")
activation_cache_close = declare("rein_activation_cache_close", "p", None)
generator_open = declare("rein_generator_open", "ppppp")
generator_close = declare("rein_generator_close", "p", None)
generator_add = declare("rein_generator_add", "pppp")
generator_step = declare("rein_generator_step", "pppp")
generator_failed = declare("rein_generator_failed", "ppp")
generator_unfinished = declare("rein_generator_unfinished", "p", ctypes.c_size_t)

groups_free = declare("rein_groups_free", "p", None)
groups_read = declare("rein_groups_read", "psppp")
groups_from_memory = declare("rein_groups_from_memory", "psnsppp")
trainer_open = declare("rein_trainer_open", "ppppp")
trainer_close = declare("rein_trainer_close", "p", None)
trainer_forward_backward = declare("rein_trainer_forward_backward", "ppppp")
trainer_optim_step = declare("rein_trainer_optim_step", "pppp")
trainer_steps = declare("rein_trainer_steps", "p", ctypes.c_int64)
trainer_save = declare("rein_trainer_save", "psp")
trainer_load = declare("rein_trainer_load", "psp")

# --------------------------------------------------------------------------------------------------- calls and handles


def fail(status: int, error: c.Error) -> NoReturn:
    """Raises the error that the library reported: OSError for files, ArithmeticError for results that are not finite
    numbers, MemoryError, and ValueError for wrong arguments."""
    if status in (EIO, ESYSTEM):
        raise c.reported(c.FileError, error)
    if status == c.ERANGE:
        raise c.reported(c.ResultError, error)
    c.raise_error(status, error)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that can fail; its last argument is the error."""
    error = c.Error()
    status = function(*arguments, ctypes.byref(error))
    if status:
        fail(status, error)


class Handle:
    """An object of the library, closed by close() or when nothing refers to it any more. It keeps alive the objects
    that it needs."""

    __slots__ = ("__weakref__", "_needs", "address", "close")

    def __init__(self, address: int, close: Any, *needs: Any) -> None:
        self.address = address
        self._needs = needs
        self.close = weakref.finalize(self, close, address)
        self.close.atexit = False  # another thread may still use it, and the system frees the memory anyway


def opened(function: Any, close: Any, *arguments: Any, needs: tuple[Any, ...] = ()) -> Handle:
    """The Handle of an object that a function opens and stores in its first argument."""
    place = ctypes.c_void_p()
    call(function, ctypes.byref(place), *arguments)
    assert place.value is not None
    return Handle(place.value, close, *needs)


class Memory:
    """Floats of the library for numpy, with their owner, so that an array of them keeps the owner alive."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, address: int, shape: tuple[int, ...], owner: Handle) -> None:
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": FLOAT32.str, "data": (address, False)}
        self._owner = owner


# ----------------------------------------------------------------------------------------------------------- arguments


def path_of(path: PathLike, name: str) -> bytes:
    """A path in the form of the library."""
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name} is {path!r}: a path is needed") from None
    if not encoded or b"\0" in encoded:
        raise ValueError(f"{name} is {path!r}: a path without NUL is needed")
    return encoded


def ids_of(value: ArrayLike, name: str, vocabulary: int | None = None) -> Array:
    """Token ids [n] as int32 in C order; the same array if it has this form already."""
    given = type(value) is np.ndarray and value.dtype is INT32 and value.flags.c_contiguous
    array = value if given else whole(value, name)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {show(array.shape)}: one sequence of token ids is needed")
    limit = 2**31 if vocabulary is None else vocabulary
    refuse((array < 0) | (array >= limit), array, name, f"a token id from 0 to {limit - 1} is needed")
    return array if given else array.astype(INT32)


def number_of(value: Any, name: str) -> float:
    """A number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: a number is needed") from None


def count_of(value: Any, name: str, least: int = 0, limit: int = 2**63) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}: a whole number is needed")
    if int(value) < least:
        raise ValueError(f"{name} is {value}: it must be {least} or more")
    if int(value) >= limit:
        raise ValueError(f"{name} is {value}: it must be below {limit}")
    return int(value)
