"""What the theory is given, checked at the door."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import as_float, is_number, is_whole, real_array


def count(name: str, value: object) -> int:
    """Return a positive integer, or raise naming the argument."""
    if not is_whole(value):
        raise InputTypeError(f"{name}={_shown(value)} is {type(value).__name__}; give a positive integer")
    if value < 1:
        raise InputError(f"{name}={value} is not allowed; give a positive integer")
    if math.isinf(as_float(value)):
        raise InputError(f"{name}={value} is beyond float64; give a smaller integer")
    return int(value)


def number(name: str, value: object, lowest: float, highest: float, allowed: str, *, ends: bool = True) -> float:
    """Return a number from `lowest` to `highest` (without the ends unless `ends`), or raise saying what is allowed."""
    if not is_number(value):
        raise InputTypeError(f"{name}={_shown(value)} is {type(value).__name__}; give {allowed}")
    found = as_float(value)
    inside = lowest <= found <= highest if ends else lowest < found < highest
    if not inside:  # NaN is in no interval
        raise InputError(f"{name}={value} is not allowed; give {allowed}")
    return found


def share(name: str, value: object) -> float:
    """Return a number between 0 and 1, both left out."""
    return number(name, value, 0, 1, "a number between 0 and 1, such as 0.1", ends=False)


def positive(name: str, value: object) -> float:
    """Return a positive finite number."""
    return number(name, value, 0, math.inf, "a positive finite number", ends=False)


def not_negative(name: str, value: object) -> float:
    """Return a number >= 0; infinity is one."""
    return number(name, value, 0, math.inf, "a number >= 0")


def index_range(value: object) -> tuple[float, float]:
    """Return the ends of the range of the index, from B for |u| <= B or from both ends."""
    if is_number(value):
        bound = not_negative("index_range", value)
        return -bound, bound
    pair = _numbers("index_range", value, "a bound B >= 0 of |u|, or (lowest, highest)")
    if len(pair) != 2 or not pair[0] <= pair[1] or pair[0] == math.inf or pair[1] == -math.inf:
        raise InputError(
            f"index_range={_shown(value)} is no interval; give a bound B >= 0 of |u|, or (lowest, highest)"
        )
    return float(pair[0]), float(pair[1])


def labels(value: object) -> tuple[float, float]:
    """Return the smallest and the largest label."""
    found = _numbers("labels", value, "the labels, or (lowest, highest)")
    if not len(found) or not np.isfinite(found).all():
        raise InputError("labels are none, or not finite; give the labels, or (lowest, highest)")
    return float(found.min()), float(found.max())


def scores(name: str, value: object) -> np.ndarray:
    """Return scores as float64 of shape (n,), finite, >= 0 and not all zero."""
    found = _numbers(name, value, "scores of shape (n,)")
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(f"{name}[{first}]={found[first]} is not allowed ({int(wrong.sum())} in all); give scores >= 0")
    if not found.any():
        raise InputError(f"{name} holds no score above 0; give scores of a matrix that is not zero")
    return found


def _numbers(name: str, value: Any, allowed: str) -> np.ndarray:
    """Return real numbers as float64 of one dimension, or raise saying what is allowed."""
    if isinstance(value, str | bytes | Mapping) or not (hasattr(value, "__array__") or isinstance(value, Iterable)):
        raise InputTypeError(f"{name}={_shown(value)} is {type(value).__name__}; give {allowed}")
    found = real_array(name, value if hasattr(value, "__array__") else list(value), allowed, "iuf")
    if found.ndim != 1:
        raise InputTypeError(f"{name} is {type(value).__name__} of shape {found.shape}; give {allowed}")
    return found


def _shown(value: object) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."
