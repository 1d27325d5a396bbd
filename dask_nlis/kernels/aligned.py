"""Arrays where memory puts them, and not where a message had them.

distributed leaves arrays that came over a socket in the bytes of the message, at any address. NumPy hands those that do not
lie at a multiple of their item size to no BLAS, and adds them up in buffers: the same numbers in another order, of which
the last bits differ from those of an array that was made here.
"""

import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

#: Bytes at whose multiples float64 lies, also as a field of records.
_WORD = 8

_PLAIN = frozenset({str, bytes, bool, int, float})


def aligned(value: Any) -> Any:
    """The value itself, or the same with copies of the arrays in it that lie at odd addresses.

    Arrays are looked for in tuples, lists, dicts, dataclasses and arrays of objects.

    >>> raw = np.zeros(17, dtype=np.uint8)[1:].view(np.float64)
    >>> raw.flags.aligned, aligned(raw).flags.aligned, aligned((3, {"a": raw}))[1]["a"].flags.aligned
    (False, True, True)
    """
    if value is None or type(value) in _PLAIN:  # first, since names of features may be many
        return value
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, tuple | list):
        parts = [aligned(part) for part in value]
        if all(part is given for part, given in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value) is dict:
        made = {key: aligned(part) for key, part in value.items()}
        return value if all(made[key] is part for key, part in value.items()) else made
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value)
    return value


def _array(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        parts = [aligned(part) for part in array.flat]
        if all(part is given for part, given in zip(parts, array.flat, strict=True)):
            return array
        made = np.empty(array.shape, dtype=object)
        for place, part in zip(np.ndindex(array.shape), parts, strict=True):
            made[place] = part
        return made
    at = max(array.dtype.alignment, _WORD if array.dtype.names else 1)
    return array if array.ctypes.data % at == 0 else array.copy(order="K")


def _dataclass(value: Any) -> Any:
    parts = {each.name: getattr(value, each.name) for each in fields(value) if hasattr(value, each.name)}
    made = {name: aligned(part) for name, part in parts.items()}
    if all(made[name] is part for name, part in parts.items()):
        return value
    new = copy.copy(value)  # it was checked where it was made
    for name, part in made.items():
        if part is not parts[name]:
            object.__setattr__(new, name, part)
    return new
