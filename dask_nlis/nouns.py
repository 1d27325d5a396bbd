"""What every noun of the library shares: frozen, with repr, HTML, equality and a dictionary form.

`noun` is a class decorator on top of `dataclasses.dataclass`. A noun shows its fields, or what its
method `_summary` returns; arrays show as dtype and shape. Pickling and the Dask token come with
frozen dataclasses and need nothing here.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from dask_nlis.documents import check_levels
from dask_nlis.errors import InputError, InputTypeError, NlisError
from dask_nlis.fields import fitting
from dask_nlis.redact import redacted

T = TypeVar("T")

#: Entries of a tuple that a repr shows.
_SHOWN = 6


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def noun(cls: type[T]) -> type[T]:
    """Make a frozen, slotted dataclass with the shared repr, HTML, equality and hash."""
    made = dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    for name, method in (("__repr__", _repr), ("_repr_html_", _html), ("__eq__", same), ("__hash__", _hash)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


def items(noun: Any) -> dict[str, Any]:
    """Field names and values, in order of declaration."""
    return {f.name: getattr(noun, f.name) for f in fields(noun)}


def _shown(noun: Any) -> dict[str, str]:
    summary = noun._summary() if hasattr(noun, "_summary") else items(noun)
    return {name: _text(value) for name, value in summary.items()}


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", "_")
    if isinstance(value, str):
        return repr(redacted(value))
    if isinstance(value, tuple) and len(value) > _SHOWN:
        return f"({', '.join(map(repr, value[:_SHOWN]))}, ... {len(value):_} in all)"
    return repr(value)


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in _shown(self).items())})"


def _html(self: Any) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>"
        for k, v in _shown(self).items()
    )
    return f"<table><caption>{html.escape(type(self).__name__)}</caption>{cells}</table>"


def same(self: Any, other: object) -> bool:
    """Equal type and equal fields; arrays are equal by dtype, shape and value (NaN equals NaN)."""
    if type(self) is not type(other):
        return NotImplemented
    return all(_equal(a, b) for a, b in zip(items(self).values(), items(other).values(), strict=True))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if _is_lazy(a) or _is_lazy(b):
        return type(a) is type(b) and _is_lazy(b) and bool(a.__dask_keys__() == b.__dask_keys__())
    if hasattr(a, "equals") and hasattr(b, "equals"):  # a Series, or a DataArray in memory
        return type(a) is type(b) and bool(a.equals(b))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, partial) and isinstance(b, partial):  # functions of the user; Python compares them by identity
        return _parts(a) == _parts(b)
    return type(a) is type(b) and bool(a == b)


def _is_lazy(value: Any) -> bool:
    """Whether a value has a graph; that of an xarray array in memory is None."""
    return hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None


def _parts(function: "partial[Any]") -> tuple[Any, ...]:
    return function.func, function.args, tuple(sorted(function.keywords.items()))


def _hash(self: Any) -> int:
    return hash((type(self), *map(_hashable, items(self).values())))


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Adding 0 makes 0.0 of -0.0, which is equal to it.
        return value.shape, value.dtype.str, (value + 0.0 if value.dtype.kind == "f" else value).tobytes()
    if isinstance(value, Mapping):
        return repr(value)
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, partial):
        return _parts(value)
    if _is_lazy(value):
        return getattr(value, "name", None)
    return _hashable(np.asarray(value)) if hasattr(value, "equals") else value


def to_dict(noun: Any) -> dict[str, Any]:
    """Return a noun as a dictionary of JSON values and NumPy arrays, nested nouns included."""
    return {"noun": type(noun).__name__} | {name: _plain(value) for name, value in items(noun).items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.copy()  # what is done to the dictionary is not done to the noun
    return value.item() if isinstance(value, np.generic) else value


def from_dict(found: Mapping[str, Any], known: Mapping[str, type], *, typed: bool = False) -> Any:
    """Rebuild a noun from `to_dict`'s form; its name must be in the table `known`.

    With `typed`, fields must have the types they are declared with, for nouns whose constructors take them as they come.
    """
    if not isinstance(found, Mapping):
        raise InputTypeError(f"found is {type(found).__name__}; give the dictionary that to_dict() returned")
    name = found.get("noun")
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, 1)
        remedy = f"did you mean {near[0]!r}?" if near else "give what to_dict() returned"
        raise InputError(f"found: noun={name!r} is not known; allowed: {', '.join(sorted(known))}; {remedy}")
    cls = known[name]
    wanted = {f.name for f in fields(cls) if f.init}
    if set(found) - {"noun"} != wanted:
        differ = ", ".join(sorted(map(str, wanted ^ (set(found) - {"noun"}))))
        raise InputError(f"{name} is stored with other fields ({differ}); write it anew with this version")
    check_levels(name, {key: value for key, value in found.items() if not hasattr(value, "__dataclass_fields__")})
    given = {key: _rebuilt(value, known, typed) for key, value in found.items() if key != "noun"}
    make = getattr(cls, "_from_fields", cls)  # where the constructor takes its fields in another way
    try:
        return make(**(fitting(cls, given) if typed else given))
    except NlisError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as cause:
        raise InputError(
            f"{name} is stored with fields that make none ({type(cause).__name__}: {str(cause)[:80]}); write it anew"
        ) from cause


def _rebuilt(value: Any, known: Mapping[str, type], typed: bool) -> Any:
    if isinstance(value, Mapping) and "noun" in value:
        return from_dict(value, known, typed=typed)
    return tuple(_rebuilt(v, known, typed) for v in value) if isinstance(value, list) else value
