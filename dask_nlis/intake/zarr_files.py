"""Zarr arrays by path: opening them, what tells whether they changed, and writing rows to a new one."""

import hashlib
import math
import os
import re
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from zarr.storage import LocalStore

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.errors import InputError, InputTypeError, MissingDataError
from dask_nlis.intake.names import column_names
from dask_nlis.intake.reader import Reader
from dask_nlis.intake.remote_tokens import remote, remote_token
from dask_nlis.objects import check_url


def content_token(array: Any) -> str:
    """Return a token of what the array holds now: sizes and times or ETags of its objects, else unique to this object."""
    if not isinstance(array, zarr.Array) or type(array.store) is not LocalStore:
        return remote_token(array) or object_token(array)
    root = Path(array.store.root) / array.path
    digest = hashlib.blake2b(str(root.resolve()).encode(), digest_size=16)
    for name in _stored(array, root):
        try:
            stat = os.stat(name)
        except FileNotFoundError:  # a chunk of fill values alone need not exist
            continue
        digest.update(f"{name}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino};".encode())
    return digest.hexdigest()


def _stored(array: "zarr.Array[Any]", root: Path) -> Iterator[str]:
    """Paths of the files of an array, by the keys of its chunks: listing their folders takes five times as long."""
    unit = array.shards or array.chunks
    grid = [-(-length // size) for length, size in zip(array.shape, unit, strict=True)]
    if math.prod(grid) <= _MOST_KEYS:
        yield from (f"{root}/{name}" for name in ("zarr.json", ".zarray", ".zattrs"))
        yield from (f"{root}/{array.metadata.encode_chunk_key(place)}" for place in np.ndindex(*grid))
        return
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(files) if not name.endswith(".partial"))


#: Chunks up to which their keys are gone through; beyond, in what may be a sparse array, the files that exist are.
_MOST_KEYS = 10**6

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
    """Open a 1-D stored array lazily in the given row chunks."""
    return Reader(array, content_token(array)).to_dask((tuple(chunks),))


def check_path(argument: str, path: str | os.PathLike[str]) -> str:
    """Return the path as text; a URL that carries a user name or a password is refused, unprinted."""
    text = os.fspath(path)
    check_url(argument, text)
    return text


def open_zarr(argument: str, path: str | os.PathLike[str]) -> "zarr.Array[Any] | zarr.Group":
    """Open a Zarr array or group (version 2 or 3) for reading, or raise naming the argument."""
    text = check_path(argument, path)
    if "://" not in text and not os.path.exists(text):
        raise MissingDataError(f"{argument}={text!r} does not exist; check the path")
    try:
        # A local path is opened as LocalStore by zarr itself; consolidated metadata could hide newer arrays.
        # Absolute, since a relative store would follow the working directory of this process or a worker's.
        return zarr.open(remote(argument, text) if "://" in text else os.path.abspath(text), mode="r")
    except ImportError as cause:
        raise InputError(
            f"{argument} is a URL of {text.partition('://')[0][:20]!r}, for which nothing is installed; for object storage: "
            "pip install 'dask-nlis[cloud]'"
        ) from cause
    except (FileNotFoundError, KeyError, ValueError) as cause:
        kind = "a folder" if os.path.isdir(text) else "a file"
        what = kind if "://" not in text else "a URL"
        raise MissingDataError(
            f"{argument}={text.partition('?')[0]!r} is {what} without a Zarr array or group; check the path"
        ) from cause


def list_arrays(group: zarr.Group) -> str:
    """Name the arrays of a group with their shapes, for messages."""
    found = [f"{name} {array.shape}" for name, array in sorted(group.arrays())]
    return ", ".join(found[:8]) or "none"


def member(argument: str, group: zarr.Group, name: str) -> "zarr.Array[Any]":
    """Return an array of a group by name, or raise listing what is there."""
    if not isinstance(name, str):
        raise InputTypeError(f"{argument} is {type(name).__name__}; give the name of an array in the group")
    if not name or {".", ".."} & set(re.split(r"[/\\]", name)):
        raise InputError(f"{argument}={name!r} names no array of this group; it holds: {list_arrays(group)}")
    found = group.get(name)
    if not isinstance(found, zarr.Array):
        raise InputError(f"{argument}={name!r} is no array of this group; it holds: {list_arrays(group)}")
    return found


def write_rows(path: str | os.PathLike[str], X: da.Array, y: da.Array) -> None:
    """Write X (n, d) and y (n,) to a new Zarr group, one chunk a block, feature names as an attribute of X."""
    group = zarr.create_group(LocalStore(os.path.abspath(path)), zarr_format=3)
    for name, array in (("X", X), ("y", y)):
        rows = array.chunks[0][0]
        target = group.create_array(name, shape=array.shape, chunks=(rows, *array.shape[1:]), dtype=array.dtype)
        names = column_names(array)
        if names is not None:
            target.update_attributes({"feature_names": list(names)})
        for start, block in zip(starts(array.chunks[0]), phase.blocks_of(array, "nlis-write"), strict=True):
            target[int(start) : int(start) + len(block)] = block
