"""Stored arrays of any kind, read inside a task with retries; and what is known of how they are stored.

Blocks are whole shards, or whole chunks where there are no shards, so that no stored object is read twice. What is
missing, damaged, removed or written anew raises in the task, naming the array and its rows, whatever the scheduler.
"""

import math
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.base import tokenize
from zarr.storage import LocalStore

from dask_nlis import meters, phase
from dask_nlis.errors import DamagedDataError, MissingDataError, MissingDataWarning, NlisError
from dask_nlis.intake.chunk_watch import Absent, Watched, grid_of, rows_at
from dask_nlis.intake.hdf5_files import Hdf5Array
from dask_nlis.intake.plain_chunks import read_plainly
from dask_nlis.intake.retrying import brief, failed, of_transport, patiently
from dask_nlis.intake.stamps import Stamp
from dask_nlis.redact import without_secrets


class Reader:
    """A stored array, read slice by slice inside tasks; errors by chance are retried three times with back-off.

    `name` is what messages call it. `stamp`, of local files, tells whether they are still those that were opened. With
    `allow_missing`, chunks that are not there read as the fill value, with one warning in a process.
    """

    __slots__ = ("allow_missing", "array", "dtype", "name", "ndim", "shape", "slab", "stamp", "token")

    def __init__(
        self, array: Any, token: str, name: str = "array", stamp: Stamp | None = None, *, allow_missing: bool = False
    ) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.ndim = len(self.shape)
        self.token = token
        self.name = name
        self.stamp = stamp
        self.allow_missing = allow_missing
        self.slab = _slab(array)  # rows that are read at a time

    @without_secrets
    def __getitem__(self, index: Any) -> np.ndarray:
        try:
            with meters.reading():
                found = patiently(lambda: self._read(index))
            meters.count("read", found.nbytes, "bytes")
            return found
        except NlisError:
            raise
        except MemoryError as cause:
            first, last = self._rows(index)
            size = (last - first) * math.prod(self.shape[1:]) * self.dtype.itemsize
            raise phase.out_of_memory(f"reading {self.name}", first, last, size) from cause
        except Exception as cause:
            raise self._told(cause, index) from cause

    def _read(self, index: Any) -> np.ndarray:
        plain = read_plainly(self.array, index, self._check_file)
        if plain is not None:
            if self.stamp is not None:
                self.stamp.check_metadata(self.name)
            return plain
        rows, rest = (index[0], index[1:]) if isinstance(index, tuple) and index else (index, ())
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return self._part(index)
        first, last, _ = rows.indices(self.shape[0])
        if last - first <= self.slab:
            return self._part(index)
        parts = (
            (k - first, self._part((slice(k, min(k + self.slab, last)), *rest))) for k in range(first, last, self.slab)
        )
        _, head = next(parts)
        out = np.empty((last - first, *head.shape[1:]), dtype=head.dtype)
        out[: len(head)] = head
        for place, part in parts:
            out[place : place + len(part)] = part
        return out

    def _part(self, index: Any) -> np.ndarray:
        if not isinstance(self.array, zarr.Array):
            return np.asarray(self.array[index])
        watched = Watched(self.array)
        part = np.asarray(watched.view()[index])
        if watched.cut:
            raise self._damaged(*min(watched.cut.items()))
        # Looked at after reading: what is still old now was old when it was read.
        if self.stamp is not None:
            self.stamp.check_metadata(self.name)
            root = file_root(self.array)
            for place in self._places(index):
                path = f"{root}/{self.array.metadata.encode_chunk_key(place)}"
                try:
                    self._check_file(path, os.stat(path))
                except FileNotFoundError:  # it was there, and was removed meanwhile, or it is noted already
                    watched.gone.add(place)
        if watched.gone or watched.inner:
            self._missing(watched)
        return part

    def _check_file(self, path: str, stat: os.stat_result) -> None:
        if self.stamp is not None:
            self.stamp.check(self.name, path, stat)

    def _missing(self, watched: Watched) -> None:
        if not self.allow_missing:
            absent = watched.absent()
            assert absent is not None
            raise MissingDataError(missing(self.name, absent))
        if watched.gone and not watched.inner and self.stamp is not None:
            return  # whole files of a local array, of which opening has told
        with _TOLD_LOCK:
            if self.token in _TOLD:
                return
            _TOLD.add(self.token)
        absent = watched.absent()
        assert absent is not None
        phase.warn(allowed(self.name, absent), MissingDataWarning)

    def _rows(self, index: Any) -> tuple[int, int]:
        """First row asked for, and the one behind the last; all rows where they are not consecutive."""
        rows = index[0] if isinstance(index, tuple) and index else index
        first, last, _ = (rows if isinstance(rows, slice) else slice(None)).indices(self.shape[0] if self.shape else 0)
        return first, max(first, last)

    def _places(self, index: Any) -> Iterator[tuple[int, ...]]:
        """Places of the stored objects that hold these rows, in any columns."""
        first, last = self._rows(index)
        unit = write_unit(self.array)
        for place in range(first // unit, -(-last // unit)):
            yield from ((place, *others) for others in np.ndindex(*grid_of(self.array)[1:]))

    def _told(self, cause: Exception, index: Any) -> NlisError:
        first, last = self._rows(index)
        rows = f"rows {first} to {max(first, last - 1)}"
        if of_transport(cause) or not isinstance(self.array, zarr.Array):
            return failed(self.name, rows, cause)
        # Which of many chunks cannot be decoded is found by reading them one by one.
        for place in self._places(index):
            unit = self.array.shards or self.array.chunks
            region = tuple(
                slice(k * size, min((k + 1) * size, length))
                for k, size, length in zip(place, unit, self.shape, strict=True)
            )
            try:
                self.array[region]
            except Exception as own:
                return self._damaged(place, brief(own))
        return DamagedDataError(f"{self.name}, {rows} cannot be decoded ({brief(cause)}); write them anew")

    def _damaged(self, place: tuple[int, ...], why: str) -> DamagedDataError:
        first, last = rows_at(self.array, place[0])
        return DamagedDataError(
            f"{self.name}: chunk {self.array.metadata.encode_chunk_key(place)!r} with rows {first} to {last} cannot be "
            f"decoded ({why}): it was cut short or altered; write it anew"
        )

    def __reduce__(self) -> Any:
        return _reader, (self.array, self.token, self.name, self.stamp, self.allow_missing)

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
        layer.collection_annotations = {**(layer.collection_annotations or {}), **told_of(storage_of(self.array), self)}
        return lazy


def _reader(array: Any, token: str, name: str, stamp: Stamp | None, allow_missing: bool) -> Reader:
    return Reader(array, token, name, stamp, allow_missing=allow_missing)


#: Tokens of arrays of which this process has told that chunks are missing.
_TOLD: set[str] = set()
_TOLD_LOCK = threading.Lock()


def missing(name: str, absent: Absent) -> str:
    """The error where chunks are missing and must not be."""
    return (
        f"{absent.told(name)}; restore them, or, where only the fill value is meant, which Zarr leaves out, give "
        "open_rows(allow_missing=True) or set dask-nlis.allow-missing"
    )


def allowed(name: str, absent: Absent) -> str:
    """The warning where chunks are missing and may be."""
    return f"{absent.told(name)}; they are read as the fill value, since allow_missing is True"


def file_root(array: "zarr.Array[Any]") -> str:
    """Folder of an array in a LocalStore."""
    store = array.store
    assert isinstance(store, LocalStore)
    return os.path.join(os.fspath(store.root), array.path)


class Storage(NamedTuple):
    """What reading costs besides the block: pieces decoded one by one, and whether reads wait for one another."""

    piece_bytes: int  # of a shard, or of a chunk where there are no shards; 0 where rows are read as they lie
    piece_rows: int
    compressed: bool
    alone: bool  # one read at a time in a process


# On the graph layer that makes the array, as names are: what an array is read from is not otherwise known of it.
_KEY = "nlis-storage"


_READER = "nlis-reader"


def told_of(storage: Storage, reader: Reader) -> dict[str, Any]:
    """What is noted on the graph layer of an array that is read."""
    return {_KEY: storage, _READER: reader}


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


def read_by(array: da.Array) -> Reader | None:
    """What reads a stored array somewhere below this Dask array; None where nothing of ours does."""
    layers = getattr(array.dask, "layers", {}).values()
    notes = (getattr(layer, "collection_annotations", None) or {} for layer in layers)
    return next((each[_READER] for each in notes if _READER in each), None)


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
