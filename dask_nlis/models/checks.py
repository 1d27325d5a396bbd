"""What the models ask of their arguments, once: bools, activations, parts of theta."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError


def check_activation(model: str, activation: Any, argument: str = "activation") -> None:
    """Raise unless the activation is an instance of one."""
    if isinstance(activation, type) or not hasattr(activation, "secant"):
        raise InputTypeError(
            f"{model} {argument}={activation!r} is no activation; give one such as Logistic() or Tanh()"
        )


def flag(model: str, name: str, value: object) -> bool:
    """Return a bool of Python or NumPy, or raise."""
    if not isinstance(value, bool | np.bool_):
        raise InputTypeError(f"{model} {name}={value!r} is {type(value).__name__}; give True or False")
    return bool(value)


def vector(theta: Any) -> np.ndarray:
    """Theta as an array (p,), or raise."""
    array = np.asarray(theta)
    if array.ndim != 1 or not len(array):
        raise InputError(f"theta has shape {array.shape}; give (p,)")
    return array


def check_parts(given: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise unless `pack` got exactly the wanted parts."""
    if set(given) != set(wanted):
        raise InputError(f"pack got {', '.join(sorted(given)) or 'nothing'}; give {' and '.join(wanted)}")
