"""What counts as a number in an argument: Python's and NumPy's, bools not; and arrays of them."""

import math
from typing import Any, TypeGuard

import numpy as np

from dask_nlis.errors import InputError, InputTypeError

#: What makes a NumPy array of those that other libraries hold elsewhere.
_ELSEWHERE = {"torch": ".detach().cpu().numpy()", "cupy": ".get()"}


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is an integer of Python or NumPy; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a real number of Python or NumPy; a bool is none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def as_float(value: float) -> float:
    """Return a number as float64; integers beyond it are infinite.

    >>> as_float(3), as_float(-(10**400))
    (3.0, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_lazy(value: object) -> bool:
    """Whether a value has a graph of Dask; an xarray array in memory has the method, but none."""
    graph = getattr(value, "__dask_graph__", None)
    return callable(graph) and graph() is not None


def real_array(argument: str, value: Any, allowed: str, kinds: str = "biuf") -> np.ndarray:
    """Return a float64 copy of an array of real numbers held in memory, or raise saying what is allowed.

    NumPy alone would take dates, the real parts of complex numbers, text that looks like numbers and what a mask hides.
    """
    library = type(value).__module__.partition(".")[0]
    if library in _ELSEWHERE:
        raise InputTypeError(f"{argument} is a {library} {type(value).__name__}; give {argument}{_ELSEWHERE[library]}")
    if isinstance(value, np.ma.MaskedArray):
        raise InputTypeError(f"{argument} is a MaskedArray, whose mask would be ignored; give {allowed}")
    if is_lazy(value):
        raise InputTypeError(f"{argument} is a lazy {type(value).__name__}; give {argument}.compute()")
    if value is None:
        raise InputTypeError(f"{argument} is None; give {allowed}")
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as cause:
        raise InputTypeError(f"{argument} is {type(value).__name__}; give {allowed}") from cause
    if given.dtype.kind not in kinds and not (given.dtype == object and all(map(is_number, given.flat))):
        raise InputTypeError(f"{argument} is {type(value).__name__} of {given.dtype}; give {allowed}")
    try:
        with np.errstate(over="ignore"):  # of a long double, which becomes infinite
            return np.array(given, dtype=np.float64)
    except OverflowError as cause:
        raise InputError(f"{argument} holds an integer beyond float64; give {allowed}") from cause
