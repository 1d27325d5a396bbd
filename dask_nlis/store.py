"""The run store: one Zarr v3 group a run, complete only once its marker is there.

Layout::

    RUN/                 attributes: the manifest
      factor/ sample/ fit/ pilot/ certificate/   a noun each: arrays with checksums, the rest in the attribute "noun"
      scores             float64 (n,), NaN-filled, one chunk a task
      blocks/            one record a score chunk: start, rows, checksum, smallest, largest, total
      data/              the drawn rows, X and y: a refit needs no other data
      complete.json      written last, synced to disk: hash and number of the records

No pickle: JSON attributes and arrays only.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from dask_nlis.errors import IncompleteRunError, InputError, InputTypeError, MissingDataError, StoreExistsError
from dask_nlis.intake import ScoreRecord

Group = zarr.Group

FORMAT = 1
MARKER = "complete.json"

#: A marker or manifest larger than this is not read.
_LARGEST_JSON = 16 * 2**20


_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")


def check_free(path: str | os.PathLike[str]) -> Path:
    """Return the path of a new store; raise when something is there, or its folder is missing or read-only."""
    where = _path("store", path)
    if "://" in os.fspath(path):
        raise InputError("store is a URL; give a local path (or store=None to keep the run in memory)")
    if where.exists() or where.is_symlink():
        finished = (where / MARKER).is_file()
        remedy = (
            "open_run() reads the finished run there; give a new path for another" if finished else "give a new path"
        )
        raise StoreExistsError(f"store={os.fspath(path)!r} exists; {remedy}")
    parent = where.absolute().parent
    inside = next((p for p in (parent, *parent.parents) if any((p / name).exists() for name in _ZARR_FILES)), None)
    if inside is not None:
        raise InputError(
            f"store={os.fspath(path)!r} lies inside the Zarr store {str(inside)!r}; give a path outside it"
        )
    if not parent.is_dir():
        raise MissingDataError(f"store={os.fspath(path)!r}: the folder {str(parent)!r} does not exist; make it first")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"store={os.fspath(path)!r}: the folder {str(parent)!r} is not writable")
    return where


def _path(argument: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give a path")
    return Path(value)


def create(path: Path, manifest: Mapping[str, Any]) -> zarr.Group:
    """Create the group of a run, manifest first, in state "running"."""
    group = zarr.create_group(LocalStore(path.absolute()), zarr_format=3, overwrite=False)
    group.update_attributes({"manifest": dict(manifest)})
    return group


def write_noun(group: zarr.Group, name: str, found: Mapping[str, Any]) -> None:
    """Write a noun's dictionary form as a sub-group: arrays as arrays, everything else as JSON."""
    target = group.create_group(name)
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


def write_records(group: zarr.Group, records: Sequence[ScoreRecord]) -> None:
    """Write one record a score chunk, column by column."""
    target = group.create_group("blocks")
    for field, column in zip(ScoreRecord._fields, _columns(records), strict=True):
        write_array(target, field, column)


def _columns(records: Sequence[ScoreRecord]) -> list[np.ndarray]:
    dtypes = ("int64", "int64", "uint32", "float64", "float64", "float64")
    return [
        np.array([getattr(r, field) for r in records], dtype=dtype)
        for field, dtype in zip(ScoreRecord._fields, dtypes, strict=True)
    ]


def _digest(columns: Sequence[np.ndarray]) -> str:
    """Hash of the records, which hold a checksum of every score chunk."""
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def finish(group: zarr.Group, path: Path, manifest: Mapping[str, Any], records: Sequence[ScoreRecord]) -> None:
    """Write the final manifest and then, last and synced to disk, the completion marker."""
    group.update_attributes({"manifest": dict(manifest)})
    temporary = path / f".{MARKER}.{uuid.uuid4().hex}.partial"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "records": _digest(_columns(records)), "n_blocks": len(records)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path / MARKER)
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_complete(path: str | os.PathLike[str]) -> tuple[zarr.Group, dict[str, Any]]:
    """Open a finished run for reading; return its group and manifest, or raise saying what is missing."""
    where = _path("path", path)
    text = os.fspath(path)
    if not where.is_dir():
        raise MissingDataError(f"path={text!r} holds no run; check the path")
    try:
        group = zarr.open_group(LocalStore(where.absolute(), read_only=True), mode="r", use_consolidated=False)
        manifest = group.attrs["manifest"]
    except (FileNotFoundError, KeyError, ValueError) as cause:
        raise MissingDataError(
            f"path={text!r} is no run store: it has no manifest; give a path written by run()"
        ) from cause
    marker = where / MARKER
    if not marker.is_file() or marker.stat().st_size > _LARGEST_JSON:
        written = len(list((where / "scores").glob("c/*"))) if (where / "scores").is_dir() else 0
        raise IncompleteRunError(
            f"path={text!r} was never finished ({written} score chunks written); run it again under a new path"
        )
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"path={text!r} has another store format; open it with the version that wrote it")
    _check_records(group, marker, text)
    return group, manifest


def _check_records(group: zarr.Group, marker: Path, text: str) -> None:
    """Compare the records of the score chunks with the hash in the marker."""
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
        columns = [np.asarray(stored_array(group, f"blocks/{field}")[...]) for field in ScoreRecord._fields]
        intact = found["records"] == _digest(columns) and found["n_blocks"] == len(columns[0])
    except (KeyError, TypeError, ValueError, RecursionError) as cause:
        raise InputError(f"path={text!r} is damaged: its marker or its records cannot be read; run again") from cause
    if not intact:
        raise InputError(f"path={text!r} is damaged: its records are not those it was finished with; run again")
