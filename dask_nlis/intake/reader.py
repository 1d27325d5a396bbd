"""Stored arrays of any kind, read inside a task with retries; and what is known of how they are stored.

Blocks are whole shards, or whole chunks where there are no shards, so that no stored object is read twice.
"""

import math
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.base import tokenize
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential
from zarr.storage import LocalStore

from dask_nlis.errors import InputError, NlisError
from dask_nlis.intake.hdf5_files import Hdf5Array
from dask_nlis.intake.plain_chunks import read_plainly
from dask_nlis.redact import without_secrets


def _read_or_refused(read: Callable[["Reader", Any], np.ndarray]) -> Callable[["Reader", Any], np.ndarray]:
    """Make what codecs raise for damaged chunks an error of ours."""

    @wraps(read)
    def wrapped(self: "Reader", index: Any) -> np.ndarray:
        try:
            return read(self, index)
        except (IsADirectoryError, NotADirectoryError) as cause:
            raise InputError(
                f"rows cannot be read ({cause.strerror}): a file of theirs is none; write them anew"
            ) from cause
        except (OSError, NlisError, MemoryError):
            raise
        except Exception as cause:
            if type(getattr(self.array, "store", None)) is not LocalStore:  # a store of the user, whose errors may pass
                raise
            raise InputError(
                f"rows cannot be decoded ({str(cause)[:100]}): they were altered; write them anew"
            ) from cause

    return wrapped


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
    @without_secrets
    @_read_or_refused
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
    size = math.prod(map(int, unit)) * np.dtype(array.dtype).itemsize
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
