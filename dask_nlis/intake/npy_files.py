"""Arrays in plain binary files, read block by block inside the task: NPY files, and memory maps of any file.

Nothing is mapped, so that no page of the file counts as memory of the process, and no task carries data: what travels is
the path, where the array begins and its strides.
"""

import math
import mmap
import os
from io import FileIO
from tokenize import TokenError
from typing import Any

import numpy as np
from dask.base import tokenize
from numpy.lib import format as npy

from dask_nlis.errors import InputError, MissingDataError
from dask_nlis.intake.limits import MOST_DIMENSIONS, MOST_ROWS
from dask_nlis.intake.stamps import Stamp, stamp_of
from dask_nlis.nouns import noun

#: Bytes of a file that are read at a time where entries are not side by side.
_PIECE = 2**20


@noun
class FileArray:
    """An array at fixed places of a file; `[...]` opens the file and reads the rows asked for."""

    path: str
    start: int  # byte of the first entry
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, positive
    dtype: np.dtype[Any]
    token: str
    head: bytes = b""  # what the file begins with, up to the first entry, where that tells shape and dtype
    stamp: Stamp | None = None  # None for a map that may be written to

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        index = index if isinstance(index, tuple) else (index,)
        rows, rest = index[0], index[1:]
        if isinstance(rows, slice) and rows.indices(self.shape[0])[2] > 0:
            first, last, step = rows.indices(self.shape[0])
            inside: Any = slice(None, None, step)
        else:  # positions: all rows between the first and the last
            inside = np.arange(self.shape[0])[rows]
            first, last = int(np.min(inside, initial=self.shape[0])), int(np.max(inside, initial=-1)) + 1
            inside = inside - first
        return self._rows(first, max(first, last))[(inside, *rest)]

    def _rows(self, first: int, last: int) -> np.ndarray:
        shape = (last - first, *self.shape[1:])
        if not np.prod(shape):
            return np.empty(shape, dtype=self.dtype)
        try:
            opened = FileIO(self.path)
        except FileNotFoundError as cause:
            raise MissingDataError(
                f"{self.path!r} is not there: it was removed since it was opened, or workers do not see it; put it back"
            ) from cause
        with opened as file:
            if self.head and file.read(len(self.head)) != self.head:
                raise InputError(
                    f"{self.path!r} was written anew, in another shape or dtype, since it was opened; open it anew"
                )
            rows = self._part(file, self.start + first * self.strides[0], shape, self.strides)
            if self.stamp is not None:
                self.stamp.check(repr(self.path), self.path, os.fstat(file.fileno()))
            return rows

    def _part(self, file: FileIO, begin: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """Entries from a byte on: in one stretch of the file, one for each column where these lie one by one, or in pieces."""
        widest = int(np.argmax(strides))
        if widest:
            out = np.empty(shape, dtype=self.dtype, order="F")
            for k in range(shape[widest]):
                inner = (*shape[:widest], *shape[widest + 1 :]), (*strides[:widest], *strides[widest + 1 :])
                out[(slice(None),) * widest + (k,)] = self._part(file, begin + k * strides[widest], *inner)
            return out
        if _span(shape, strides, self.dtype.itemsize) == math.prod(shape) * self.dtype.itemsize:
            return self._stretch(file, begin, shape, strides)
        # What lies between the entries, of which there may be much more, is held for a piece at a time.
        out, step = np.empty(shape, dtype=self.dtype), max(1, _PIECE // strides[0])
        for k in range(0, len(out), step):
            place = out[k : k + step]
            place[...] = self._stretch(file, begin + k * strides[0], place.shape, strides)
        return out

    def _stretch(self, file: FileIO, begin: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        size = _span(shape, strides, self.dtype.itemsize)
        raw = np.empty(size, dtype=np.uint8)
        if not filled(raw.data, file, begin):
            raise InputError(
                f"{self.path!r} ends before byte {begin + size:,}: it was cut short since it was opened; write it anew"
            )
        return np.ndarray(shape, self.dtype, raw, strides=strides)


def filled(place: memoryview, file: FileIO, start: int) -> bool:
    """Fill the place from a file, beginning at a byte; False where the file ends before."""
    file.seek(start)
    done = 0
    while done < len(place) and (count := file.readinto(place[done:])):  # one call may read less, 2 GB at most
        done += count
    return done == len(place)


def _span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes from the first entry to the end of the last."""
    return sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + itemsize


def open_npy(argument: str, path: str) -> FileArray:
    """Open an NPY file by its header; reads nothing else, and no pickle whatever it holds."""
    where = os.path.abspath(path)
    if not os.path.exists(where):
        raise MissingDataError(f"{argument}={path!r} does not exist; check the path")
    if os.path.isdir(where):
        raise MissingDataError(f"{argument}={path!r} is a folder, not an NPY file; check the path")
    with open(where, "rb") as file:
        stat = os.fstat(file.fileno())
        stamp = _stamp(stat)
        try:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, by_columns, dtype = read(file)
            if min(shape, default=0) < 0 or max(shape, default=0) > MOST_ROWS or len(shape) > MOST_DIMENSIONS:
                raise ValueError(shape)
        # What the parser of Python's literals raises for what is none, or is nested too deep for it.
        except (ValueError, SyntaxError, EOFError, TokenError, TypeError, RecursionError, MemoryError) as cause:
            raise InputError(f"{argument}={path!r} holds no NPY header; write it with numpy.save") from cause
        start, size = file.tell(), stamp[0]
        file.seek(0)
        head = file.read(start)
    if dtype.hasobject:
        raise InputError(
            f"{argument}={path!r} holds Python objects, which only unpickling would read; save an array of numbers"
        )
    needed = start + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size < needed:
        raise InputError(
            f"{argument}={path!r} has {size:,} bytes where its header asks for {needed:,}: it was cut short; write it anew"
        )
    strides, step = [0] * len(shape), dtype.itemsize
    for axis in range(len(shape)) if by_columns else reversed(range(len(shape))):
        strides[axis], step = step, step * shape[axis]
    place = tuple(shape), tuple(strides), dtype
    token = tokenize(where, stamp, start, place[0], place[1], str(dtype))
    return FileArray(where, start, *place, token, head, stamp_of((), stat.st_mtime_ns))


def of_memmap(array: np.memmap) -> FileArray | None:
    """Where the entries of a map lie in its file, also of a part of it; None where the file does not tell."""
    path = os.fspath(array.filename) if array.filename is not None else ""
    if not os.path.exists(path) or not array.ndim or min(array.strides) <= 0 or array.mode == "c":
        return None  # the changes of a copy-on-write map are not in the file
    if array.mode in ("r+", "w+"):
        array.flush()
    whole: Any = array
    while isinstance(whole, np.ndarray):  # parts stand on arrays, the first of these on the map itself
        whole = whole.base
    # The offset of a part of a map is that of the whole: only the address says where the part begins.
    view = np.frombuffer(whole, dtype=np.uint8)
    beyond = array.__array_interface__["data"][0] - view.__array_interface__["data"][0]
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + beyond
    where = os.path.abspath(path)
    place = tuple(array.shape), tuple(array.strides), array.dtype
    stat = os.stat(where)
    token = tokenize(where, _stamp(stat), start, place[0], place[1], str(array.dtype))
    stamp = stamp_of((), stat.st_mtime_ns) if array.mode == "r" else None
    return FileArray(where, start, *place, token, stamp=stamp)


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
