"""Zarr arrays: opening by path, reading inside a task with retries, score arrays in a file.

Blocks are whole shards, or whole chunks where there are no shards, so that no stored object is read twice.
"""

import hashlib
import math
import os
import re
import sys
import tempfile
import uuid
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.base import tokenize
from dask.layers import ArrayValuesDep
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from dask_nlis import phase
from dask_nlis.blocks import is_regular, starts
from dask_nlis.errors import InputError, InputTypeError, MissingDataError
from dask_nlis.intake.hdf5_files import Hdf5Array
from dask_nlis.intake.names import column_names
from dask_nlis.intake.plain_chunks import read_plainly


class Reader:
    """A stored array, read slice by slice inside tasks; OSErrors are retried three times with back-off.

    Threads have no retries of their own, and a cluster's retries would recompute the whole task.
    """

    __slots__ = ("array", "dtype", "ndim", "shape", "slab", "token")

    def __init__(self, array: Any, token: str) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.ndim = len(self.shape)
        self.token = token
        self.slab = _slab(array)  # rows that are read at a time

    @retry(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_attempt(4),
        wait=wait_exponential(multiplier=0.05, max=2),
        reraise=True,
    )
    def __getitem__(self, index: Any) -> np.ndarray:
        plain = read_plainly(self.array, index)
        if plain is not None:
            return plain
        rows, rest = (index[0], index[1:]) if isinstance(index, tuple) and index else (index, ())
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return np.asarray(self.array[index])
        first, last, _ = rows.indices(self.shape[0])
        if last - first <= self.slab:
            return np.asarray(self.array[index])
        parts = (
            (k - first, np.asarray(self.array[(slice(k, min(k + self.slab, last)), *rest)]))
            for k in range(first, last, self.slab)
        )
        _, head = next(parts)
        out = np.empty((last - first, *head.shape[1:]), dtype=head.dtype)
        out[: len(head)] = head
        for place, part in parts:
            out[place : place + len(part)] = part
        return out

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "nlis-reader", self.token

    def to_dask(self, chunks: tuple[Any, ...]) -> da.Array:
        """Wrap the array lazily, one task a block, read and use fused into one."""
        lazy: da.Array = da.from_array(
            self,
            chunks=chunks,
            name=f"nlis-read-{tokenize(self.token, chunks)}",
            inline_array=True,
            asarray=False,
            meta=np.empty((0,) * self.ndim, dtype=self.dtype),
        )
        layer = lazy.dask.layers[lazy.name]
        layer.collection_annotations = {**(layer.collection_annotations or {}), _KEY: storage_of(self.array)}
        return lazy


class Storage(NamedTuple):
    """What reading costs besides the block: pieces decoded one by one, and whether reads wait for one another."""

    piece_bytes: int  # of a shard, or of a chunk where there are no shards; 0 where rows are read as they lie
    piece_rows: int
    compressed: bool
    alone: bool  # one read at a time in a process


# On the graph layer that makes the array, as names are: what an array is read from is not otherwise known of it.
_KEY = "nlis-storage"


def storage_of(array: Any) -> Storage:
    """How an array is stored: in which pieces, and whether they are compressed."""
    unit = getattr(array, "shards", None) or getattr(array, "chunks", None)
    if not unit or not all(isinstance(rows, int | np.integer) for rows in unit):
        return Storage(0, 1, False, isinstance(array, Hdf5Array))
    size = int(np.prod(unit, dtype=np.int64)) * np.dtype(array.dtype).itemsize
    return Storage(size, int(unit[0]), bool(getattr(array, "compressors", True)), isinstance(array, Hdf5Array))


def stored_as(array: da.Array) -> Storage | None:
    """How exactly this Dask array is stored; None for arrays that are no plain reads."""
    layer = getattr(array.dask, "layers", {}).get(array.name)
    found: Storage | None = ((layer.collection_annotations if layer is not None else None) or {}).get(_KEY)
    return found


#: Pieces of a Zarr array asked for in one call: with many thousands the bookkeeping of a call costs more than they do.
_PIECES = 512


def _slab(array: Any) -> int:
    """Rows of so many whole pieces, small ones; all rows where that is no Zarr array."""
    if not isinstance(array, zarr.Array) or not array.shape:
        return sys.maxsize
    unit = array.shards or array.chunks
    across = math.prod(-(-length // size) for length, size in zip(array.shape[1:], unit[1:], strict=True))
    return max(1, _PIECES // max(1, across)) * unit[0]


def write_unit(array: Any) -> int:
    """Rows of a shard, or of a chunk where there are no shards; 1 for arrays without chunks."""
    unit = getattr(array, "shards", None) or getattr(array, "chunks", None)
    return int(unit[0]) if unit and isinstance(unit[0], int | np.integer) and unit[0] > 0 else 1


def content_token(array: Any) -> str:
    """Return a token of what the array holds now: file sizes and times on disk, otherwise unique to this object."""
    if not isinstance(array, zarr.Array) or type(array.store) is not LocalStore:
        return object_token(array)
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
    if re.search(r"://[^/]*@", text):  # also in chained URLs such as simplecache::s3://...
        raise InputError(
            f"{argument} is a URL with credentials in it; give the URL without, and the credentials by environment"
        )
    return text


def open_zarr(argument: str, path: str | os.PathLike[str]) -> "zarr.Array[Any] | zarr.Group":
    """Open a Zarr array or group (version 2 or 3) for reading, or raise naming the argument."""
    text = check_path(argument, path)
    if "://" not in text and not os.path.exists(text):
        raise MissingDataError(f"{argument}={text!r} does not exist; check the path")
    try:
        # A local path is opened as LocalStore by zarr itself; consolidated metadata could hide newer arrays.
        # Absolute, since a relative store would follow the working directory of this process or a worker's.
        return zarr.open(text if "://" in text else os.path.abspath(text), mode="r")
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


def create_scores(store: Any, name: str, chunks: Sequence[int], overwrite: bool = False) -> "zarr.Array[Any]":
    """Create a float64 score array, NaN-filled, one chunk a task, with a checksum in every chunk.

    `chunks` are the row chunks of the scores; they must be regular, for a task must write whole chunks:
    misaligned writes lose rows silently.
    """
    if not is_regular(chunks):
        raise InputError(f"scores come in irregular chunks {tuple(chunks[:4])}...; rechunk them before writing")
    return zarr.create_array(
        store,
        name=name,
        shape=(sum(chunks),),
        chunks=(chunks[0],),
        dtype="float64",
        fill_value=float("nan"),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        config={"write_empty_chunks": True},
        overwrite=overwrite,
    )


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


class ScoreRecord(NamedTuple):
    """What is known of one written score chunk."""

    start: int
    rows: int
    checksum: int  # CRC-32 of the little-endian float64 bytes
    smallest: float
    largest: float
    total: float


def write_scores(scores: da.Array, target: "zarr.Array[Any]", label: str) -> da.Array:
    """Return a lazy array of one ScoreRecord a block; computing it writes the scores to `target`.

    Each task writes whole chunks of its own, so a repeated task rewrites the same bytes.
    """
    if target.chunks[0] != scores.chunks[0][0] or not is_regular(scores.chunks[0]):
        raise InputError(f"score blocks {scores.chunks[0][:3]} do not match stored chunks of {target.chunks[0]} rows")
    written: da.Array = da.blockwise(
        _write_block,
        "i",
        scores,
        "i",
        ArrayValuesDep(scores.chunks, starts(scores.chunks[0])),
        "i",
        target=target,
        adjust_chunks={"i": 1},
        dtype=object,
        meta=np.empty((0,), dtype=object),
        token=label,
        align_arrays=False,
    )
    return written


def _write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]") -> np.ndarray:
    out = np.empty(1, dtype=object)
    out[0] = write_block(block, int(start), target)
    return out


def write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]") -> ScoreRecord:
    """Write a block of scores, which are whole chunks, and describe it."""
    target[start : start + len(block)] = block
    return score_record(block, start)


def score_record(block: np.ndarray, start: int) -> ScoreRecord:
    """Describe a block of scores: place, checksum, extremes and total."""
    checksum = zlib.crc32(np.ascontiguousarray(block, dtype="<f8").tobytes())
    smallest, largest = float(block.min(initial=np.inf)), float(block.max(initial=0.0))
    return ScoreRecord(start, len(block), checksum, smallest, largest, float(block.sum()))


def regular(scores: da.Array) -> da.Array:
    """Rechunk 1-D scores to one regular chunk length where they are irregular; X itself is never rechunked."""
    chunks = scores.chunks[0]
    if is_regular(chunks):
        return scores
    return scores.rechunk((max(chunks),), method="tasks")


def scratch_scores(scores: da.Array, label: str) -> tuple[da.Array, da.Array, tempfile.TemporaryDirectory[str]]:
    """Prepare a temporary Zarr array for scores that do not fit in memory.

    Returns the lazy write (one task a block), the lazy read of the same scores, and the folder, whose
    life ends with the object.
    """
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="nlis-scores-")
    scores = regular(scores)
    target = create_scores(LocalStore(folder.name), "scores", scores.chunks[0])
    read = Reader(target, uuid.uuid4().hex).to_dask(scores.chunks)
    return write_scores(scores, target, label), read, folder
