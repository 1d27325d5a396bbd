"""Whether the fields of a noun that was stored have the types they are declared with."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from dask_nlis.errors import InputError

_PLAIN = (bool, int, float, str)

#: Integers that no field has, and that no float can take much above.
_LARGEST = 2**1000


def fitting(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with lists of numbers as arrays where arrays are declared; raise naming one of another type.

    Parameters
    ----------
    cls : type
        A noun whose fields are declared as numbers, text, arrays, tuples, nouns, or one of several of these.
    given : mapping
        A value for each field.

    Raises
    ------
    InputError
        If a value is of another type: a bool for a number, a float for an integer, text for an array, say.
    """
    declared = _declared(cls)
    made = {name: _as_array(value) if _takes_array(declared[name]) else value for name, value in given.items()}
    for name, value in made.items():
        if not _fits(value, declared[name]):
            raise InputError(
                f"{cls.__name__} is stored with {name} of {_kind(value)}, which is no {_called(declared[name])}; "
                "write it anew with this version"
            )
    return made


@cache
def _declared(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _takes_array(kind: Any) -> bool:
    return np.ndarray in _members(kind)


def _as_array(value: Any) -> Any:
    """Numbers in tuples or lists, as JSON gives them, as the array they were."""
    if not isinstance(value, tuple | list):
        return value
    try:
        return np.array(value) if value else np.empty(0)
    except (ValueError, OverflowError):  # rows of unequal length
        return value


def _fits(value: Any, kind: Any) -> bool:
    if len(_members(kind)) > 1:
        return any(_fits(value, one) for one in _members(kind))
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    if get_origin(kind) is tuple:
        inside = get_args(kind)
        if not isinstance(value, tuple):
            return False
        if len(inside) == 2 and inside[1] is ...:
            return all(_fits(one, inside[0]) for one in value)
        return len(value) == len(inside) and all(map(_fits, value, inside))
    if kind is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if kind in _PLAIN:
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
        return whole if kind is int else whole or isinstance(value, float) if kind is float else isinstance(value, kind)
    return isinstance(value, kind) if isinstance(kind, type) and is_dataclass(kind) else True


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _called(kind: Any) -> str:
    names = {type(None): "None", np.ndarray: "array of numbers"}
    return " or ".join(names.get(one, getattr(one, "__name__", str(one))) for one in _members(kind))
