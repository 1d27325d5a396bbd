"""Memory of a GPU: how many rows of a block lie there at a time, and the small arrays that its blocks share.

What is added up is cut by `sub_block_rows`, in smaller parts on a card (or in a pool with a limit) that one such
sub-block would fill; what is free decides how many of them go over in one piece. So the bits of a result do not depend
on what is free, unless memory runs out.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any

#: Bytes of float64 rows worked on at a time: fits a core's cache; a GPU wants larger pieces.
_SUB_BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}

#: Rows below which a product with a p x p matrix is bound by reading that matrix; and the bytes of rows, too wide for
#: any such matrix, above which there are fewer.
_FEWEST_ROWS, _LARGEST_BYTES = 256, 2**28

#: Share of the free memory of a GPU that a block takes (tasks of one process beside each other take theirs of the rest),
#: and the share of all its memory that the work on one sub-block takes at most.
_SHARE, _SUB_BLOCK_SHARE = 0.25, 0.5

#: Arrays of the size of a sub-block that work on it holds at a time: its rows, their parts and products.
_WORK = 8

#: Shared arrays that stay on a device, the bytes they may take, and the blocks after which an unused one goes.
_MOST, _MOST_BYTES, _IDLE = 32, 2**30, 16


def sub_block_rows(kind: str, p: int, *, reducing: bool = False) -> int:
    """Rows worked on at a time, for p float64 columns: cache sized, at least 2p where they are reduced to p x p; 256 MB at most where not."""
    fewest = 2 * p if reducing else max(1, min(_FEWEST_ROWS, _LARGEST_BYTES // (8 * max(p, 1))))
    return max(fewest, _SUB_BLOCK_BYTES[kind] // (8 * max(p, 1)))


class Memory(NamedTuple):
    """Bytes of a device that are free now, and all that there are for this process."""

    free: int
    total: int


class Fit(NamedTuple):
    """Rows of a sub-block, and of the piece of a block, so many sub-blocks, that lies on the device at a time."""

    rows: int
    piece: int


def fit(n: int, row_bytes: int, p: int, rows: int, memory: Memory, halvings: int) -> Fit:
    """How a block of n rows, of `row_bytes` as stored and p float64 columns to work with, goes to a device.

    In one piece where a share of the free memory holds it beside the work on one sub-block of `rows`; else in as few as
    fit. Each time that memory ran out the room is half of what was tried before. Sub-blocks are halved where they are
    large for the device, and when memory ran out and one of them no longer fits; never for what is free.
    """
    rows = min(rows, max(n, 1))

    def work(rows: int) -> int:
        return _WORK * 8 * rows * max(p, 1)

    def halved(rows: int, room: float) -> int:
        while rows > _FEWEST_ROWS and rows * row_bytes + work(rows) > room:
            rows = max(_FEWEST_ROWS, rows // 2)
        return rows

    rows = halved(rows, _SUB_BLOCK_SHARE * memory.total)
    room = min(n * row_bytes + work(rows), max(int(_SHARE * memory.free), rows * row_bytes + work(rows))) >> halvings
    rows = halved(rows, room)
    if n * row_bytes + work(rows) <= room:
        return Fit(rows, max(n, 1))
    return Fit(rows, rows * max(1, (room - work(rows)) // (rows * row_bytes)))


class _Entry:
    """A host array, where it lies on the device, and the block that last asked for it."""

    def __init__(self, host: np.ndarray, there: Array, used: int) -> None:
        self.host, self.there, self.used = host, there, used

    def holds(self, array: np.ndarray) -> bool:
        # What nobody writes into is the same as long as it is the same object.
        if array is self.host and not array.flags.writeable:
            return True
        return array.shape == self.host.shape and np.array_equal(array, self.host)


class Kept:
    """Small arrays on a device that many blocks share, such as theta and the whitener: put there once a process.

    Found by their content, since tasks on a cluster unpickle theirs. At most 32 arrays and 1 GiB; those that no block
    has asked for in 16 blocks are dropped, so that what a run has done with goes.
    """

    def __init__(self, put: Callable[[np.ndarray], Array]) -> None:
        self._put = put
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []  # least recently used first
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, array: np.ndarray) -> Array:
        """Return the array as float64 on the device."""
        with self._lock:  # held while putting, so that two tasks do not put the same array
            entry = next((each for each in reversed(self._entries) if each.holds(array)), None)
            if entry is None:
                host = array.copy() if array.flags.writeable else array
                entry = _Entry(host, self._put(np.ascontiguousarray(array, dtype=np.float64)), self._blocks)
            else:
                self._entries.remove(entry)
            entry.used = self._blocks
            self._entries.append(entry)
            while len(self._entries) > 1 and (len(self._entries) > _MOST or self._bytes() > _MOST_BYTES):
                del self._entries[0]
            return entry.there

    def _bytes(self) -> int:
        return sum(8 * entry.host.size for entry in self._entries)

    def block_done(self) -> None:
        """Count a block and drop what none has asked for lately."""
        with self._lock:
            self._blocks += 1
            self._entries = [entry for entry in self._entries if self._blocks - entry.used <= _IDLE]

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
