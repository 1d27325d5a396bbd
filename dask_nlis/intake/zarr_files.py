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
from dask_nlis.intake.by_url import by_url
from dask_nlis.intake.limits import check_metadata
from dask_nlis.intake.links import inner_stat
from dask_nlis.intake.names import column_names
from dask_nlis.intake.reader import Reader
from dask_nlis.redact import redacted, scrubbed


def content_token(array: Any) -> str:
    """Return a token of what the array holds now: file sizes and times on disk, otherwise unique to this object."""
    if not isinstance(array, zarr.Array) or type(array.store) is not LocalStore:
        return object_token(array)
    root = Path(array.store.root) / array.path
    root_of_store = os.fspath(array.store.root)
    digest = hashlib.blake2b(str(root.resolve()).encode(), digest_size=16)
    for name in _stored(array, root):
        try:
            stat = inner_stat(name, root_of_store)
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
    """Return the path as text; a URL that carries a user name, a password or a query is refused, unprinted."""
    text = os.fspath(path)
    # Also in chained URLs such as simplecache::s3://... Zarr appends names to a URL, which no query or fragment outlives:
    # what stands there is a signature or another secret.
    if "://" in text and (re.search(r"://[^/]*@", text) or redacted(text) != text):
        raise InputError(
            f"{argument} is a URL with credentials or a query in it; give the URL without, and the credentials by environment"
        )
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
        return zarr.open(by_url(text) if "://" in text else os.path.abspath(text), mode="r")
    except ImportError as cause:
        raise InputError(
            f"{argument}={text!r} is a URL that needs a package which is not installed ({cause}); install it"
        ) from scrubbed(cause)
    except (FileNotFoundError, KeyError, ValueError) as cause:
        kind = "a folder" if os.path.isdir(text) else "a file"
        what = kind if "://" not in text else "a URL"
        raise MissingDataError(
            f"{argument}={text.partition('?')[0]!r} is {what} without a Zarr array or group; check the path"
        ) from scrubbed(cause)
    except OSError:
        raise
    except Exception as cause:  # what metadata that were altered make of Zarr is not documented
        raise _damaged(argument, text, cause) from scrubbed(cause)


def _damaged(argument: str, name: str, cause: Exception) -> InputError:
    return InputError(f"{argument}={name!r} has metadata that Zarr cannot read ({str(cause)[:100]}); write it anew")


def list_arrays(group: zarr.Group) -> str:
    """Name the arrays of a group with their shapes, for messages."""
    try:
        found = [f"{name} {array.shape}" for name, array in sorted(group.arrays())]
    except Exception:  # one that cannot be read must not hide what is wrong with the one asked for
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
        found = group.get(name)
    except OSError:
        raise
    except Exception as cause:
        raise _damaged(argument, name, cause) from scrubbed(cause)
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
