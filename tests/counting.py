"""Instruments: what was read, how often, and what a scheduler was asked to do.

An array-like and a Zarr store that count their reads, a record of executed tasks, a scheduler that
refuses to run, and a GPU that is none.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import DataNode, convert_legacy_graph
from dask.callbacks import Callback
from dask.utils import key_split
from zarr.storage import LocalStore

from dask_nlis.device import Device, Kept, Memory, opened as real_opened

_living: dict[int, "CountingArray"] = {}


def _living_array(number: int) -> "CountingArray":
    return _living[number]


class CountingArray:
    """An array-like of rows that counts how often each row is read; safe under threads and in-process clusters."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.ndim = values.ndim
        self.rows = np.zeros(len(values), dtype=int)
        self.lock = threading.Lock()

    def __getitem__(self, index: Any) -> np.ndarray:
        with self.lock:
            self.rows[index[0] if isinstance(index, tuple) else index] += 1
        return self.values[index]

    def __reduce__(self) -> Any:
        # Pickled and unpickled within one process it stays itself, so that nothing goes uncounted.
        _living[id(self)] = self
        return _living_array, (id(self),)

    def reads(self) -> int:
        """How often every row was read since the last call; raises when rows differ."""
        with self.lock:
            found = set(self.rows.tolist())
            self.rows[:] = 0
        assert len(found) == 1, f"some rows were read {min(found)} times, others {max(found)} times"
        return found.pop()

    def dask(self, chunks: int) -> da.Array:
        """A Dask array over this one in row chunks."""
        sizes = (chunks, *self.shape[1:])
        meta = np.empty((0,) * self.ndim, dtype=self.dtype)
        return da.from_array(self, chunks=sizes, name=f"counted-{id(self)}-{chunks}", asarray=False, meta=meta)


class CountingStore(LocalStore):
    """A local Zarr store that counts how often each stored chunk or shard is fetched."""

    def __init__(self, root: Any, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=read_only)
        self.gets: Counter[str] = Counter()
        self.lock = threading.Lock()

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        if not key.endswith(("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")):
            with self.lock:
                self.gets[key] += 1
        return await super().get(key, *args, **kwargs)

    def reads(self) -> set[int]:
        """The numbers of fetches of the stored objects since the last call; {1} for one clean pass."""
        with self.lock:
            found = set(self.gets.values())
            self.gets.clear()
        return found


class Tasks(Callback):
    """Context that records each compute on a local scheduler and the key of each executed task."""

    def __init__(self) -> None:
        self.phases: list[list[Any]] = []
        super().__init__(start=self._started, pretask=self._seen)

    def _started(self, dsk: Any) -> None:
        self.phases.append([])

    def _seen(self, key: Any, dsk: Any, state: Any) -> None:
        self.phases[-1].append(key)

    @property
    def computes(self) -> int:
        """How many times a scheduler was called."""
        return len(self.phases)

    @property
    def keys(self) -> list[Any]:
        """Keys of all executed tasks."""
        return [key for keys in self.phases for key in keys]

    @property
    def labels(self) -> Counter[str]:
        """How many tasks ran under each label of the dashboard."""
        return Counter(key_split(key) for key in self.keys)


def executed(array: Any) -> int:
    """Tasks that computing a Dask array would run; constants of its graph are not run."""
    graph = convert_legacy_graph(dict(array.__dask_optimize__(array.dask, array.__dask_keys__())))
    return sum(not isinstance(node, DataNode) for node in graph.values())


@contextmanager
def no_compute() -> Iterator[None]:
    """Any compute inside fails the test."""

    def refuse(graph: Any, keys: Any, **_: Any) -> Any:
        raise AssertionError("a compute was started where none is allowed")

    with dask.config.set(scheduler=refuse):
        yield


class FakeOutOfMemory(MemoryError):
    """What the fake GPU raises in place of CuPy's OutOfMemoryError."""


class FakeGPU:
    """A device whose arrays are array_api_strict's: any NumPy call on them fails. Counts its transfers.

    `ships` are data of blocks, `puts` arrays that blocks share, `fetches` results. It is out of memory for data above
    `limit` bytes, and for what `refuses` says so; `free` and `total` are the bytes that it says it has.
    """

    def __init__(
        self,
        limit: float = np.inf,
        free: int = 2**33,
        total: int = 2**34,
        refuses: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        import array_api_strict

        self.namespace = array_api_strict
        self.limit, self.free, self.total, self.refuses = limit, free, total, refuses
        self.ships = self.puts = self.fetches = self.releases = 0
        self.kept = Kept(self._put)

    def opened(self, name: str) -> Device:
        """Stand-in for `dask_nlis.device.opened`, which leaves the CPU to those who ask for it."""
        if name == "cpu":
            return real_opened(name)
        assert name in ("auto", "cuda")
        return Device(
            "cuda",
            self.kept.get,
            self._ship,
            self._fetch,
            self.kept,
            lambda: Memory(self.free, self.total),
            self._release,
            lambda error: isinstance(error, FakeOutOfMemory),
        )

    def transfers(self) -> tuple[int, int, int]:
        """Data over, shared arrays over and results back since the last call."""
        found = self.ships, self.puts, self.fetches
        self.ships = self.puts = self.fetches = 0
        return found

    def _put(self, array: Any) -> Any:
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float64
        self.puts += 1
        return self.namespace.asarray(np.array(array))

    def _ship(self, block: Any) -> Any:
        assert isinstance(block, np.ndarray)
        self.ships += 1
        if block.nbytes > self.limit or self.refuses(block):
            raise FakeOutOfMemory
        return self.namespace.asarray(np.array(block))

    def _fetch(self, array: Any) -> np.ndarray:
        assert not isinstance(array, np.ndarray)
        self.fetches += 1
        return np.asarray(array)

    def _release(self) -> None:
        self.releases += 1


def rows_of(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Random X (n, d) and y (n,) of the usual size of features."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays of float64 hold the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def cut(n: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Row chunks of the given sizes, repeated until n rows are used up."""
    chunks: list[int] = []
    while sum(chunks) < n:
        chunks.append(min(sizes[len(chunks) % len(sizes)], n - sum(chunks)))
    return tuple(chunks)
