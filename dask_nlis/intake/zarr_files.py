"""Zarr arrays by path: opening them, what tells whether they changed, and writing rows to a new one."""

import hashlib
import json
import math
import os
import re
import uuid
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from zarr.storage import LocalStore

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.errors import (
    DamagedDataError,
    InputError,
    InputTypeError,
    MissingDataError,
    MissingDataWarning,
    MissingExtraError,
    NlisError,
    ReadError,
)
from dask_nlis.intake.chunk_watch import Absent, grid_of, rows_at
from dask_nlis.intake.limits import check_metadata
from dask_nlis.intake.links import inner_stat
from dask_nlis.intake.names import column_names
from dask_nlis.intake.reader import Reader, allowed, file_root, missing
from dask_nlis.intake.remote_tokens import remote, remote_token
from dask_nlis.intake.retrying import brief, patiently
from dask_nlis.intake.stamps import Stamp, stamp_of
from dask_nlis.objects import check_url
from dask_nlis.redact import scrubbed


class Survey(NamedTuple):
    """What opening an array of Zarr finds without reading any of its chunks."""

    token: str  # of what the array holds now: sizes and times or ETags of its objects, else unique to this object
    stamp: Stamp | None = None  # of files on disk
    absent: Absent | None = None  # chunks without a file


def survey(array: "zarr.Array[Any]") -> Survey:
    """Look at the files of an array in a local store, one `stat` each; of another the objects are listed."""
    if type(array.store) is not LocalStore:
        return Survey(remote_token(array) or object_token(array))
    root, outer = file_root(array), os.fspath(array.store.root)
    digest = hashlib.blake2b(os.path.realpath(root).encode(), digest_size=16)
    metadata = []
    for name in _METADATA:
        with suppress(FileNotFoundError):
            metadata.append((f"{root}/{name}", inner_stat(f"{root}/{name}", outer)))
    for name, stat in metadata:
        digest.update(_line(name, stat))
    newest = found = 0
    first: tuple[int, ...] | None = None
    for name, place in stored_files(array, root):
        try:
            stat = inner_stat(name, outer)
        except FileNotFoundError:
            first = place if first is None else first
            continue
        found += 1
        newest = max(newest, stat.st_mtime_ns)
        digest.update(_line(name, stat))
    total = math.prod(grid_of(array))
    absent = None
    if found < total:
        first = _first_absent(array, root) if first is None else first
        absent = Absent(total - found, total, *rows_at(array, first[0]), "")
    return Survey(digest.hexdigest(), stamp_of(metadata, newest), absent)


_METADATA = ("zarr.json", ".zarray", ".zattrs")


def _line(name: str, stat: os.stat_result) -> bytes:
    return f"{name}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino};".encode()


def stored_files(array: "zarr.Array[Any]", root: str) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Paths of the chunks of an array, by their keys: listing their folders takes five times as long."""
    grid = grid_of(array)
    if math.prod(grid) <= _MOST_KEYS:
        yield from ((f"{root}/{array.metadata.encode_chunk_key(place)}", place) for place in np.ndindex(*grid))
        return
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            if name not in _METADATA and not name.endswith(".partial"):
                yield os.path.join(folder, name), None


#: Chunks up to which their keys are gone through; beyond, in what may be a sparse array, the files that exist are.
_MOST_KEYS = 10**6


def _first_absent(array: "zarr.Array[Any]", root: str) -> tuple[int, ...]:
    grid = grid_of(array)
    places = (_place(k, grid) for k in range(math.prod(grid)))
    return next((p for p in places if not os.path.exists(f"{root}/{array.metadata.encode_chunk_key(p)}")), (0,))


def check_missing(name: str, absent: Absent | None, allow_missing: bool) -> None:
    """Raise where chunks are missing, or warn where they may be."""
    if absent is None:
        return
    if not allow_missing:
        raise MissingDataError(missing(name, absent))
    phase.warn(allowed(name, absent), MissingDataWarning)


def _place(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    """Place of the chunk of this number in C order: `np.ndindex` holds all numbers of an axis."""
    place: list[int] = []
    for size in reversed(grid):
        number, k = divmod(number, size)
        place.append(k)
    return tuple(reversed(place))


_object_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}


def object_token(array: Any) -> str:
    """Return the same token for the same object while it lives: opening again gives a new one, so nothing goes stale."""
    known = _object_tokens.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    token = uuid.uuid4().hex
    with suppress(TypeError):  # objects that take no weak reference get a new token every time
        number = id(array)
        _object_tokens[number] = weakref.ref(array, lambda _: _object_tokens.pop(number, None)), token
    return token


def open_stored(array: "zarr.Array[Any]", chunks: Sequence[int]) -> da.Array:
    """Open a 1-D stored array of our own lazily in the given row chunks; all its chunks must be there.

    Without a stamp: a task that runs again, its worker having died, writes the same bytes in a file of another time.
    """
    found, name = survey(array), name_of("scores", array)
    if found.absent is not None:
        raise MissingDataError(f"{found.absent.told(name)}; they were lost since they were written: make them again")
    return Reader(array, found.token, name).to_dask((tuple(chunks),))


def name_of(argument: str, array: Any) -> str:
    """What messages call an array: the argument with the path, or with its name in the store, which shows no URL."""
    if not isinstance(array, zarr.Array):
        where = getattr(array, "path", None)
        return f"{argument}={_short(where)!r}" if isinstance(where, str) else f"{argument} ({type(array).__name__})"
    return f"{argument}={_short(file_root(array) if isinstance(array.store, LocalStore) else array.name)!r}"


def _short(path: str) -> str:
    return path if len(path) <= 80 else f"...{path[-77:]}"


def check_path(argument: str, path: str | os.PathLike[str]) -> str:
    """Return the path as text; a URL that carries a user name, a password or a query is refused, unprinted."""
    text = os.fspath(path)
    check_url(argument, text)
    return text


def open_zarr(argument: str, path: str | os.PathLike[str]) -> "zarr.Array[Any] | zarr.Group":
    """Open a Zarr array or group (version 2 or 3) for reading, or raise naming the argument."""
    text = check_path(argument, path)
    if "://" not in text and not os.path.exists(text):
        raise MissingDataError(f"{argument}={text!r} does not exist; check the path")
    check_metadata(argument, text)
    try:
        # A local path is opened as LocalStore by zarr itself; consolidated metadata could hide newer arrays.
        # Absolute, since a relative store would follow the working directory of this process or a worker's.
        return patiently(
            lambda: zarr.open(remote(argument, text) if "://" in text else os.path.abspath(text), mode="r")
        )
    except NlisError:
        raise
    except ImportError as cause:
        raise MissingExtraError(
            f"{argument} is a URL of {text.partition('://')[0][:20]!r}, for which nothing is installed; for object storage: "
            "pip install 'dask-nlis[cloud]'"
        ) from scrubbed(cause)
    except FileNotFoundError as cause:
        kind = "a folder" if os.path.isdir(text) else "a file"
        what = kind if "://" not in text else "a URL"
        raise MissingDataError(
            f"{argument}={text.partition('?')[0]!r} is {what} without a Zarr array or group; check the path"
        ) from scrubbed(cause)
    except OSError as cause:
        raise ReadError(f"{argument}={text.partition('?')[0]!r} cannot be opened ({brief(cause)})") from scrubbed(cause)
    except Exception as cause:
        raise _damaged(argument, text, cause) from scrubbed(cause)


def _damaged(argument: str, path: str, cause: Exception) -> DamagedDataError:
    """Metadata that Zarr cannot make sense of: the file is named where it is a local one."""
    shown = path.partition("?")[0]
    for name in (*_METADATA, ".zgroup"):
        file = os.path.join(path, name)
        if "://" in path or not os.path.isfile(file):
            continue
        try:
            with open(file, encoding="utf-8") as opened:
                json.load(opened)
        except (ValueError, RecursionError) as own:
            return DamagedDataError(f"{argument}: {file!r} is no JSON ({brief(own)}): it was cut short; write it anew")
    return DamagedDataError(f"{argument}={shown!r} has metadata that Zarr cannot read ({brief(cause)}); write it anew")


def list_arrays(group: zarr.Group) -> str:
    """Name the arrays of a group with their shapes, for messages."""
    try:
        with warnings.catch_warnings():  # of other files in the folder
            warnings.simplefilter("ignore")
            found = [f"{name} {array.shape}" for name, array in sorted(group.arrays())]
    except Exception:  # one with damaged metadata must not hide what is wrong with the one asked for
        return "arrays that cannot all be read"
    return ", ".join(found[:8]) or "none"


#: Characters of a name that a folder can have.
_LONGEST_NAME = 255


def member(argument: str, group: zarr.Group, name: str) -> "zarr.Array[Any]":
    """Return an array of a group by name, or raise listing what is there."""
    if not isinstance(name, str):
        raise InputTypeError(f"{argument} is {type(name).__name__}; give the name of an array in the group")
    parts = re.split(r"[/\\]", name)
    if not name or {".", ".."} & set(parts) or max(map(len, parts)) > _LONGEST_NAME:
        raise InputError(f"{argument}={name!r} names no array of this group; it holds: {list_arrays(group)}")
    if isinstance(group.store, LocalStore):
        check_metadata(argument, os.path.join(group.store.root, group.path, name))
    try:
        found = patiently(lambda: group.get(name))
    except NlisError:
        raise
    except OSError as cause:
        raise ReadError(f"{argument}={name!r} cannot be opened ({brief(cause)}); check the store") from scrubbed(cause)
    except Exception as cause:
        where = os.path.join(group.store.root, group.path, name) if isinstance(group.store, LocalStore) else name
        raise _damaged(argument, where, cause) from scrubbed(cause)
    if not isinstance(found, zarr.Array):
        raise InputError(f"{argument}={name!r} is no array of this group; it holds: {list_arrays(group)}")
    return found


def write_rows(path: str | os.PathLike[str], X: da.Array, y: da.Array) -> None:
    """Write X (n, d) and y (n,) to a new Zarr group, one chunk a block, feature names as an attribute of X."""
    group = zarr.create_group(LocalStore(os.path.abspath(path)), zarr_format=3)
    for name, array in (("X", X), ("y", y)):
        rows = array.chunks[0][0]
        # Chunks of zeros are written too: one that is not there is taken for lost.
        target = group.create_array(
            name,
            shape=array.shape,
            chunks=(rows, *array.shape[1:]),
            dtype=array.dtype,
            config={"write_empty_chunks": True},
        )
        names = column_names(array)
        if names is not None:
            target.update_attributes({"feature_names": list(names)})
        for start, block in zip(starts(array.chunks[0]), phase.blocks_of(array, "nlis-write"), strict=True):
            target[int(start) : int(start) + len(block)] = block
