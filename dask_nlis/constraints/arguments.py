"""What sets are given by, checked, and the rounding that they allow."""

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import as_float, is_number, real_array

Vector = np.ndarray


def vector(name: str, value: object) -> Vector:
    """Return a read-only float64 copy of a number or a 1-D sequence, or raise naming the argument."""
    array = real_array(name, value, "a number or a 1-D sequence of numbers", "iuf")
    if array.ndim > 1 or np.isnan(array).any():
        raise InputError(f"{name} has shape {array.shape} or holds NaN; give a number or a 1-D sequence of numbers")
    array.setflags(write=False)
    return array


def positive(name: str, value: object) -> float:
    """Return a positive finite number as float, or raise naming the argument."""
    if not is_number(value):
        raise InputTypeError(f"{name}={value!r} is {type(value).__name__}; give a positive number")
    if not 0 < as_float(value) < np.inf:
        raise InputError(f"{name}={value!r} is not allowed; give a positive finite number")
    return float(value)


def spacing(theta: Vector) -> float:
    """Distance between neighbouring floats at the size of theta."""
    return float(np.spacing(np.abs(theta).max(initial=0.0)))
