"""Nouns in a run store: a sub-group each, arrays with checksums, the rest as JSON in the attribute "noun"."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from dask_nlis.errors import InputError


def write_noun(group: zarr.Group, name: str, found: Mapping[str, Any]) -> None:
    """Write a noun's dictionary form as a sub-group: arrays as arrays, everything else as JSON."""
    target = group.create_group(name, overwrite=True)  # one that was cut off in the middle may be there
    arrays: dict[str, np.ndarray] = {}
    plain = _without_arrays(found, "", arrays)
    for key, array in arrays.items():
        write_array(target, key, array)
    target.update_attributes({"noun": plain})


def read_noun(group: zarr.Group, name: str) -> dict[str, Any]:
    """Read back what `write_noun` wrote."""
    try:
        source = group.get(name)
        if not isinstance(source, zarr.Group) or not isinstance(source.attrs.get("noun"), dict):
            raise InputError(f"the run store has no noun {name!r}; it was damaged or is of another version")
    except ValueError as cause:
        if isinstance(cause, InputError):
            raise
        raise InputError(
            f"the run store cannot read {name!r} ({str(cause).splitlines()[0]}); it was damaged"
        ) from cause
    found: dict[str, Any] = _with_arrays(source.attrs["noun"], source)
    return found


def _without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if isinstance(value, Mapping):
        return {key: _without_arrays(v, f"{path}.{key}".strip("."), arrays) for key, v in value.items()}
    if isinstance(value, list):
        return [_without_arrays(v, f"{path}.{k}".strip("."), arrays) for k, v in enumerate(value)]
    return value


def stored_array(group: zarr.Group, name: str) -> "zarr.Array[Any]":
    """Return an array of a run store, or raise when it is missing or no array."""
    found = group.get(name)
    if not isinstance(found, zarr.Array):
        raise InputError(f"the run store has no array {name!r}; it was damaged or is of another version")
    return found


def _with_arrays(value: Any, source: zarr.Group) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"array"}:
            return np.asarray(stored_array(source, value["array"])[...])
        return {key: _with_arrays(v, source) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_arrays(v, source) for v in value]
    return value


def write_array(group: zarr.Group, name: str, values: np.ndarray) -> None:
    """Write a small array in one chunk with a checksum."""
    group.create_array(
        name,
        shape=values.shape,
        chunks=tuple(max(1, size) for size in values.shape),
        dtype=values.dtype,
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        config={"write_empty_chunks": True},
    )[...] = values
