"""Converts the user's arguments to plain arrays in C order, and copies only when needed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ArrayLike = Any  # ndarrays, nested lists, CPU tensors of torch: anything that numpy can read

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
SIZE = np.dtype(np.uintp)

_at_buffer: Any = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address(array: Array) -> int:
    """The address of the array's numbers. ndarray.ctypes.data is the same, but four times slower."""
    try:
        return _addressof(_at_buffer(array))
    except (TypeError, ValueError):  # read-only, or empty
        return int(array.ctypes.data)


def from_tensor(tensor: Any) -> Array:
    """A torch tensor as an array. It shares memory if it is on the CPU and numpy has its type."""
    tensor = tensor.detach()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.double()
    array: Array = tensor.numpy()
    return array


def as_array(value: ArrayLike, name: str) -> Array:
    """Any array-like as an ndarray of numbers or booleans."""
    if hasattr(value, "detach"):
        value = from_tensor(value)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{name} is not an array of numbers: {problem}") from None
    if array.dtype.kind not in "fiubO":
        raise ValueError(f"{name} has type {array.dtype}: an array of numbers is needed")
    return array


def is_float32(value: ArrayLike) -> bool:
    """Whether the value is an array or a tensor of float32 in native byte order. A list never is."""
    dtype = getattr(value, "dtype", None)
    if dtype is FLOAT32:
        return True
    return bool(dtype == FLOAT32) if isinstance(dtype, np.dtype) else str(dtype) == "torch.float32"


def real(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
    """Numbers of type float32 or float64 in C order; the same array if it has this form already."""
    if type(value) is np.ndarray and value.dtype is dtype and value.flags.c_contiguous:
        return value
    array = as_array(value, name)
    try:
        return np.ascontiguousarray(array, dtype).reshape(array.shape)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{name} is not an array of numbers: {problem}") from None


def reals_like(value: ArrayLike, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], other: str) -> Array:
    """Like `real`, but the array must have the shape of `other`."""
    array = real(value, name, dtype)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {show(array.shape)}, {other} has {show(shape)}: they must agree")
    return array


def whole(value: ArrayLike, name: str) -> Array:
    """Whole numbers as int64 in C order."""
    if type(value) is np.ndarray and value.dtype is INT64 and value.flags.c_contiguous:
        return value
    array = as_array(value, name)
    if array.dtype.kind == "b":
        raise ValueError(f"{name} has type bool: whole numbers are needed")
    if array.dtype.kind in "fO":
        numbers = real(array, name, FLOAT64)
        with np.errstate(invalid="ignore"):
            converted = numbers.astype(INT64)
        refuse(~((converted == numbers) & (np.abs(numbers) < 2.0**63)), numbers, name, "a whole number is needed")
        return converted
    if array.dtype.kind == "u":
        refuse(array > np.uint64(2**63 - 1), array, name, "it is too large")
    return np.ascontiguousarray(array, INT64).reshape(array.shape)


def marks(value: ArrayLike, name: str) -> Array:
    """0 and 1 in C order, one byte each. bool arrays are used as they are, other types are checked and converted."""
    if type(value) is np.ndarray and value.dtype is BOOL and value.flags.c_contiguous:
        return value
    array = as_array(value, name)
    if array.dtype.kind == "O":
        array = real(array, name, FLOAT64)
    marked = array != 0
    if array.dtype.kind != "b":
        refuse(marked != array, array, name, "0 or 1 is needed")
    return np.ascontiguousarray(marked).reshape(array.shape)


def refuse(bad: Array, array: Array, name: str, why: str) -> None:
    """Raises an error for the first bad entry of `array`."""
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ValueError(f"{name}{''.join(f'[{int(i)}]' for i in place)} is {array[place]}: {why}")


def show(shape: Sequence[int]) -> str:
    """A shape as the documentation writes it: [2, 8]."""
    return "[" + ", ".join(str(size) for size in shape) + "]"


def not_empty(array: Array, name: str) -> None:
    if array.size == 0:
        raise ValueError(f"{name} is empty (its shape is {show(array.shape)}): at least one entry is needed")


def _even_offsets(rows: int, size: int) -> tuple[Array, int]:
    offsets = np.arange(rows + 1, dtype=SIZE) * SIZE.type(size)
    return offsets, address(offsets)


_few_rows = lru_cache(maxsize=64)(_even_offsets)
_many_rows = lru_cache(maxsize=2)(_even_offsets)  # these are large, and the next batch often has the same size


def even_offsets(rows: int, size: int) -> tuple[Array, int]:
    """Offsets of `rows` rows of `size` entries, with their address. Keep the array as long as the address is used."""
    return _few_rows(rows, size) if rows <= 4096 else _many_rows(rows, size)


def offsets_of(lengths: ArrayLike, name: str, total: int, what: str) -> tuple[Array, int]:
    """Offsets of rows with these lengths, which must add up to `total`."""
    array = whole(lengths, name)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {show(array.shape)}: a one-dimensional array is needed")
    refuse(array < 0, array, name, "it must be 0 or more")
    offsets = np.zeros(array.size + 1, SIZE)
    np.cumsum(array, out=offsets[1:], dtype=SIZE)
    if int(offsets[-1]) != total:
        raise ValueError(f"{name} adds up to {int(offsets[-1])}, but there are {total} {what}")
    return offsets, address(offsets)


GroupSizes = Optional[Union[int, ArrayLike]]


def group_offsets_of(group_sizes: GroupSizes, n_sequences: int) -> tuple[Array, int]:
    """The offsets of groups, counted in sequences. group_sizes is one size for all groups, or one per group."""
    if type(group_sizes) is int or isinstance(group_sizes, np.integer):
        size = int(group_sizes)
        if size < 1 or n_sequences % size:
            raise ValueError(f"group_sizes is {size}: {n_sequences} sequences cannot be cut into groups of {size}")
        return even_offsets(n_sequences // size, size)
    return offsets_of(group_sizes, "group_sizes", n_sequences, "sequences")
