"""Functions given by a user: called on copies of our arrays, and what they return is looked at before it is used.

A function that writes into its arguments would otherwise change the data behind the matrix, without a word.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.errors import InputError

Array = Any


def called(label: str, function: Callable[..., Array], *arguments: Array, shape: tuple[int, ...]) -> Array:
    """Return `function(*arguments)` as an array of `shape`, in the namespace and precision of the last argument.

    Integers and bools become floats; everything else that is no such array is an InputError naming the function.
    """
    like = arguments[-1]
    xp = array_namespace(like)
    found = function(*(xp.asarray(argument, copy=True) for argument in arguments))
    is_array = isinstance(found, type(like)) and not isinstance(found, np.ma.MaskedArray)
    if not is_array or tuple(found.shape) != shape:
        came = f"shape {tuple(found.shape)}" if is_array else f"a {type(found).__name__}"
        given = ", ".join(str(tuple(argument.shape)) for argument in arguments)
        raise InputError(
            f"{label} {name_of(function)} returned {came} for arguments of shapes {given}; return an array of shape {shape}"
            + (", one number a row" if len(shape) == 1 else "")
        )
    if found.dtype == like.dtype:
        return found
    kinds = np if is_numpy_array(found) else xp
    if kinds.isdtype(found.dtype, ("bool", "integral")):
        return xp.astype(found, like.dtype)
    floating = kinds.isdtype(found.dtype, "real floating")
    if not floating or kinds.finfo(found.dtype).bits < kinds.finfo(like.dtype).bits:
        why = ", which has not its digits" if floating else ""
        raise InputError(
            f"{label} {name_of(function)} returned {found.dtype} for {like.dtype} arguments{why}; return {like.dtype}"
        )
    return xp.astype(found, like.dtype)


def name_of(function: Any) -> str:
    """Name of a function for a message, short enough for one line."""
    return str(getattr(function, "__qualname__", None) or repr(function))[:80]
