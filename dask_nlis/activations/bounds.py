"""Bounds of a secant over an interval of t, from where it rises and falls."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import as_float, is_number

Array = Any
Secant = Callable[[Array], Array]


def interval(lower: object, upper: object) -> tuple[float, float]:
    """Return both ends as floats, or raise unless lower <= upper holds and a finite t lies between."""
    low, high = (_end(name, end) for name, end in (("lower", lower), ("upper", upper)))
    if not (low <= high and low < math.inf and high > -math.inf):
        raise InputError(f"secant_bounds lower={low:g}, upper={high:g} is no interval; give lower <= upper")
    return low, high


def _end(name: str, value: object) -> float:
    if not is_number(value):
        raise InputTypeError(f"secant_bounds {name}={value!r} is {type(value).__name__}; give a number or an infinity")
    return as_float(value)


def distances(lower: float, upper: float) -> tuple[float, float]:
    """Smallest and largest |t| over lower <= t <= upper."""
    return max(lower, -upper, 0.0), max(-lower, upper)


def at(secant: Secant, t: float, limit: float) -> float:
    """Secant at one t, or `limit` at an infinity."""
    return limit if math.isinf(t) else float(secant(np.array([t]))[0])


def monotone(secant: Secant, lower: float, upper: float, left: float, right: float) -> tuple[float, float]:
    """Bounds of a secant that only rises or only falls; `left` and `right` are its limits at -inf and inf."""
    lower, upper = interval(lower, upper)
    ends = at(secant, lower, left), at(secant, upper, right)
    return min(ends), max(ends)


def even(secant: Secant, lower: float, upper: float) -> tuple[float, float]:
    """Bounds of a secant that falls to 0 in |t|."""
    near, far = distances(*interval(lower, upper))
    return at(secant, far, 0.0), at(secant, near, 0.0)
