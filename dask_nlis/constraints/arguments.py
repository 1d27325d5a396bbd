"""What sets are given by, checked, and the rounding that they allow."""

import numpy as np

from dask_nlis.errors import InputError, InputTypeError

Vector = np.ndarray


def vector(name: str, value: object) -> Vector:
    """Return a read-only float64 copy of a number or a 1-D sequence, or raise naming the argument."""
    array = numbers(name, value, "a number or a 1-D sequence of numbers")
    if array.ndim > 1 or np.isnan(array).any():
        raise InputError(f"{name} has shape {array.shape} or holds NaN; give a number or a 1-D sequence of numbers")
    array.setflags(write=False)
    return array


def numbers(name: str, value: object, wanted: str) -> Vector:
    """Return a float64 copy of real numbers in any shape, or raise for text, complex numbers and other objects."""
    try:
        given = np.asarray(value)
        if given.dtype.kind in "biufO":
            return np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise InputTypeError(f"{name} is {type(value).__name__}; give {wanted}") from cause
    raise InputTypeError(f"{name} is {type(value).__name__} of {given.dtype}; give {wanted}")


def positive(name: str, value: object) -> float:
    """Return a positive finite number as float, or raise naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputTypeError(f"{name}={value!r} is {type(value).__name__}; give a positive number")
    if not 0 < value < np.inf:
        raise InputError(f"{name}={value!r} is not allowed; give a positive finite number")
    return float(value)


def spacing(theta: Vector) -> float:
    """Distance between neighbouring floats at the size of theta."""
    return float(np.spacing(np.abs(theta).max(initial=0.0)))
