"""librein through ctypes: its location, structs, signatures and errors.

All numeric work of this package is done by the functions declared here. ctypes releases the GIL while they run.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NoReturn, Union

VERSION = "0.2.0"

_HERE = Path(__file__).parent

OK, EINVAL, ENOMEM, ERANGE = range(4)
F64, F32 = range(2)
MESSAGE_SIZE = 500
OPTION_IDLE, OPTION_OFF, OPTION_SET, OPTION_REQUIRED = range(4)


class Error(ctypes.Structure):
    """rein_error: filled in by a call that fails."""

    _fields_ = [
        ("code", ctypes.c_int),
        ("system", ctypes.c_int32),
        ("index", ctypes.c_int64),
        ("reason", ctypes.c_size_t),
        ("field", ctypes.c_char * 128),
        ("message", ctypes.c_char * MESSAGE_SIZE),
    ]


class Exec(ctypes.Structure):
    """rein_exec: the number of threads and the instruction set."""

    _fields_ = [("threads", ctypes.c_int), ("isa", ctypes.c_int)]


class Budget(ctypes.Structure):
    """rein_budget: the arguments of the budget-constrained loss."""

    _fields_ = [
        ("token_budget", ctypes.c_double),
        ("token_budgets", ctypes.c_void_p),
        ("kl_coef", ctypes.c_double),
        ("budget_penalty_coef", ctypes.c_double),
        ("budget_penalty", ctypes.c_double),
        ("rule", ctypes.c_int),
    ]


class Gpo(ctypes.Structure):
    """rein_gpo: the group policy objective and its two parts."""

    _fields_ = [("objective", ctypes.c_double), ("surrogate", ctypes.c_double), ("kl", ctypes.c_double)]


class PreferenceOptions(ctypes.Structure):
    """rein_preference_options: the constants of a loss over preferences; NaN is not given."""

    _fields_ = [
        ("loss", ctypes.c_int),
        ("beta", ctypes.c_double),
        ("label_smoothing", ctypes.c_double),
        ("simpo_gamma", ctypes.c_double),
        ("cpo_alpha", ctypes.c_double),
        ("desirable_weight", ctypes.c_double),
        ("undesirable_weight", ctypes.c_double),
    ]


class PreferenceInfo(ctypes.Structure):
    """rein_preference_info: the description of a loss over preferences."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("title", ctypes.c_char_p),
        ("formula", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("note", ctypes.c_char_p),
        ("loss", ctypes.c_int),
        ("uses_reference", ctypes.c_int),
        ("uses_lengths", ctypes.c_int),
    ]


class PreferenceMetrics(ctypes.Structure):
    """rein_preference_metrics: what TRL reports of a loss over preferences."""

    _fields_ = [
        ("rewards_chosen", ctypes.c_double),
        ("rewards_rejected", ctypes.c_double),
        ("rewards_margins", ctypes.c_double),
        ("rewards_accuracies", ctypes.c_double),
        ("logps_chosen", ctypes.c_double),
        ("logps_rejected", ctypes.c_double),
    ]


class Pairs(ctypes.Structure):
    """rein_pairs: pairs of completions; pointers are addresses."""

    _fields_ = [
        ("n", ctypes.c_size_t),
        ("chosen_log_probs", ctypes.c_void_p),
        ("rejected_log_probs", ctypes.c_void_p),
        ("ref_chosen_log_probs", ctypes.c_void_p),
        ("ref_rejected_log_probs", ctypes.c_void_p),
        ("chosen_lengths", ctypes.c_void_p),
        ("rejected_lengths", ctypes.c_void_p),
    ]


class Batch(ctypes.Structure):
    """rein_batch: one optimizer step of sampled responses; pointers are addresses."""

    _fields_ = [
        ("n_groups", ctypes.c_size_t),
        ("n_sequences", ctypes.c_size_t),
        ("n_components", ctypes.c_size_t),
        ("group_offsets", ctypes.c_void_p),
        ("sequence_offsets", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("mask", ctypes.c_void_p),
        ("log_probs", ctypes.c_void_p),
        ("old_log_probs", ctypes.c_void_p),
        ("ref_log_probs", ctypes.c_void_p),
        ("sample_log_probs", ctypes.c_void_p),
        ("entropies", ctypes.c_void_p),
        ("exact_kl", ctypes.c_void_p),
        ("teacher_log_probs", ctypes.c_void_p),
        ("teacher_divergence", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("rewards", ctypes.c_void_p),
        ("reward_components", ctypes.c_void_p),
        ("reward_weights", ctypes.c_void_p),
        ("baseline_rewards", ctypes.c_void_p),
        ("response_lengths", ctypes.c_void_p),
        ("token_budgets", ctypes.c_void_p),
        ("correct", ctypes.c_void_p),
        ("advantages", ctypes.c_void_p),
    ]


class OptionInfo(ctypes.Structure):
    """rein_option_info: the description of an option."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("choices", ctypes.c_char_p),
        ("stage", ctypes.c_char_p),
        ("help", ctypes.c_char_p),
    ]


class PresetInfo(ctypes.Structure):
    """rein_preset_info: the description of a preset."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("title", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("formula", ctypes.c_char_p),
        ("purpose", ctypes.c_char_p),
        ("note", ctypes.c_char_p),
    ]


class KlBiasRow(ctypes.Structure):
    """rein_kl_bias: which gradient a KL term has in expectation."""

    _fields_ = [
        ("form", ctypes.c_char_p),
        ("on_policy", ctypes.c_char_p),
        ("off_policy", ctypes.c_char_p),
        ("meaning", ctypes.c_char_p),
    ]


def library_path() -> Path:
    """The path of the library: REIN_LIBRARY if it is set, otherwise librein.so in the directory of this file."""
    override = os.environ.get("REIN_LIBRARY")
    return Path(override) if override else _HERE / "librein.so"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as problem:
        raise ImportError(
            f"rein: cannot load {path}: {problem}. Install the package with pip, or set REIN_LIBRARY to a librein.so"
        ) from None
    loaded.rein_version.restype = ctypes.c_char_p
    version = loaded.rein_version().decode()
    if version != VERSION:
        raise ImportError(f"rein: {path} is version {version}, the Python package {VERSION}: they must agree")
    return loaded


library = _load()

_LETTERS = {"p": ctypes.c_void_p, "n": ctypes.c_size_t, "d": ctypes.c_double, "i": ctypes.c_int, "s": ctypes.c_char_p}


def _function(name: str, arguments: str, result: Any = ctypes.c_int) -> Any:
    """A function of the library: p is an address, n a size, d a double, i an int, s a string."""
    function = getattr(library, name)
    function.argtypes = [_LETTERS[letter] for letter in arguments]
    function.restype = result
    return function


struct_size = _function("rein_struct_size", "s", ctypes.c_size_t)
metric_name = _function("rein_metric_name", "n", ctypes.c_char_p)


def each(item: Any) -> Iterator[Any]:
    """item(0), item(1), … up to the last one."""
    return takewhile(bool, map(item, count()))


# The metrics of a loss, in the order of rein_metrics, whose fields are all doubles.
METRICS: tuple[str, ...] = tuple(name.decode() for name in each(metric_name))


class Loss(ctypes.Structure):
    """rein_loss: the loss, the metrics in the order of METRICS, and whether anything trains."""

    _fields_ = [
        ("loss", ctypes.c_double),
        ("metrics", ctypes.c_double * len(METRICS)),
        ("nothing_to_train", ctypes.c_int),
    ]


def check_sizes(structs: Mapping[str, type[ctypes.Structure]]) -> None:
    """Checks that the structs declared in Python have the same sizes as in the library."""
    for name, kind in structs.items():
        size = struct_size(name.encode())
        if size != ctypes.sizeof(kind):
            raise ImportError(
                f"rein: {name} has {size} bytes in {library_path()}, and {ctypes.sizeof(kind)} in the Python package: "
                "they come from different builds"
            )


check_sizes(
    {
        "rein_error": Error,
        "rein_exec": Exec,
        "rein_budget": Budget,
        "rein_gpo": Gpo,
        "rein_preference_options": PreferenceOptions,
        "rein_preference_info": PreferenceInfo,
        "rein_preference_metrics": PreferenceMetrics,
        "rein_pairs": Pairs,
        "rein_batch": Batch,
        "rein_loss": Loss,
        "rein_option_info": OptionInfo,
        "rein_preset_info": PresetInfo,
        "rein_kl_bias": KlBiasRow,
    }
)

# The last argument of every function that can fail is a rein_error. Pairs are the functions for double and for float.
budget_loss = (
    _function("rein_budget_loss", "pppppppppp" + "nppp"),
    _function("rein_budget_loss_f32", "p" * 10 + "nppp"),
)
gpo_objective = (
    _function("rein_gpo_objective", "ppppppp" + "nddipp"),
    _function("rein_gpo_objective_f32", "p" * 7 + "nddipp"),
)
rlhf_update = (
    _function("rein_rlhf_update", "pppppp" + "nnddpp"),
    _function("rein_rlhf_update_f32", "p" * 6 + "nnddpp"),
)
kl_advantage = (
    _function("rein_kl_advantage", "pppppp" + "ndipnpnp"),
    _function("rein_kl_advantage_f32", "p" * 6 + "ndipnpnp"),
)
preference_at = _function("rein_preference_at", "n", ctypes.POINTER(PreferenceInfo))
preference_published = _function("rein_preference_published", "i", PreferenceOptions)
preference_check = _function("rein_preference_check", "pp")
preference_loss = _function("rein_preference_loss", "ppp" + "pppp")
kto_loss = _function("rein_kto_loss", "ppp" + "pppn" + "dpp")
reward_loss = _function("rein_reward_loss", "pppp" + "pppn" + "dp")
value_loss = (
    _function("rein_value_loss", "ppp" + "ppppn" + "dpp"),
    _function("rein_value_loss_f32", "ppp" + "ppppn" + "dpp"),
)
error_spelled = _function("rein_error_spelled", "pps", ctypes.c_char_p)
budget_control = _function("rein_budget_control", "ppnddp")
entropy_control = _function("rein_entropy_control", "pdddp")
option_at = _function("rein_option_at", "n", ctypes.POINTER(OptionInfo))
preset_name = _function("rein_preset_name", "n", ctypes.c_char_p)
preset_describe = _function("rein_preset_describe", "s", ctypes.POINTER(PresetInfo))
options_new = _function("rein_options_new", "psp")
options_copy = _function("rein_options_copy", "ppp")
options_free = _function("rein_options_free", "p", None)
options_set = _function("rein_options_set", "pssp")
options_set_number = _function("rein_options_set_number", "psdp")
options_get = _function("rein_options_get", "ppsp")
options_get_number = _function("rein_options_get_number", "ppsp")
options_state = _function("rein_options_state", "pn")
options_resolve = _function("rein_options_resolve", "ppp")
kl_bias_of = _function("rein_kl_bias_of", "pn", ctypes.POINTER(KlBiasRow))
step_size = _function("rein_step_size", "ppp", ctypes.c_size_t)
step_begin = _function("rein_step_begin", "ppnpppp")
step_loss = _function("rein_step_loss", "pnnpppppp")
step_finish = _function("rein_step_finish", "ppp")
step_exact_kl_gradient = _function("rein_step_exact_kl_gradient", "ppnnp")
step_teacher_gradient = _function("rein_step_teacher_gradient", "ppnnp")
shape_rewards = _function("rein_shape_rewards", "pppp")
advantages = _function("rein_advantages", "pppp")

# How a flat index is shown to the user: by the shape of an array, or by the offsets of ragged rows.
Layout = Union[tuple[int, ...], Sequence[int]]
Layouts = Mapping[str, tuple[str, Layout]]
Index = Union[int, tuple[int, ...]]


class ReportedError(Exception):
    """An error of the library: its message, the argument, option or JSON path that is wrong, and the position in it.

    `field` is None if the error does not concern one, and `index` is None if it does not concern one position. The
    index of an array with several axes, or of ragged rows, is a tuple: rewards[1][0] has the field "rewards" and the
    index (1, 0).

    >>> import rein
    >>> try:
    ...     rein.gpo_objective([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, -1.0], epsilon=0.2, beta=0.1)
    ... except rein.ReportedError as problem:
    ...     print(problem.field, problem.index, problem, sep="; ")
    pi_ref; 1; pi_ref[1] is -1: it must be above 0
    """

    __module__ = "rein"
    field: str | None = None
    index: Index | None = None


class ArgumentError(ReportedError, ValueError):
    """A wrong argument, or one whose result is not a finite number."""

    __module__ = "rein"


class FileError(ReportedError, OSError):
    """A file that cannot be opened, read or written."""

    __module__ = "rein"


class ResultError(ReportedError, ArithmeticError):
    """A result that is not a finite number."""

    __module__ = "rein"


class OutOfMemoryError(ReportedError, MemoryError):
    """No memory."""

    __module__ = "rein"


def raise_error(
    status: int, error: Error, layouts: Layouts | None = None, names: Mapping[str, str] | None = None
) -> NoReturn:
    """Raises the error that the library reported: OutOfMemoryError, or ArgumentError for everything else.

    Positions are shown as in the user's arrays (`layouts`), arguments by the user's names for them (`names`).
    """
    raise reported(OutOfMemoryError if status == ENOMEM else ArgumentError, error, layouts, names)


def reported(
    kind: type[ReportedError], error: Error, layouts: Layouts | None = None, names: Mapping[str, str] | None = None
) -> ReportedError:
    """The exception for an error."""
    field = error.field.decode(errors="replace")
    if not field:
        return kind(error.message.decode(errors="replace"))
    name = (names or {}).get(field, field)
    layout = (layouts or {}).get(name)
    index: Index | None = error.index if error.index >= 0 else None
    if isinstance(index, int) and layout:
        index = position(index, *layout)
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    error_spelled(message, ctypes.byref(error), f"{name}{brackets(index)}".encode())
    problem = kind(message.value.decode(errors="replace"))
    problem.field, problem.index = name, index
    return problem


def brackets(index: Index | None) -> str:
    """An index as messages show it: [1][0]."""
    places = () if index is None else index if isinstance(index, tuple) else (index,)
    return "".join(f"[{place}]" for place in places)


def position(index: int, kind: str, layout: Layout) -> Index:
    """Converts a flat index to the user's: kind is "shape" (of an array) or "offsets" (of ragged rows)."""
    if kind == "offsets":
        row = next(r for r in range(len(layout) - 1) if index < layout[r + 1])
        return row, int(index - layout[row])
    places: list[int] = []
    for size in reversed(layout):
        index, place = divmod(index, size)
        places.append(int(place))
    return places[0] if len(places) == 1 else tuple(reversed(places))
