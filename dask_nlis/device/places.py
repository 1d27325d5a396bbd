"""The places there are: the host, and a GPU where CuPy can allocate on one; how arrays get there and back.

Blocks go in and come out as NumPy; the device is chosen inside the task, so pools of unequal workers never
mix array types. `import cupy` succeeds on machines without a GPU, hence the allocation in the probe.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.device.memory import Kept, Memory
from dask_nlis.errors import DeviceError, InputError
from dask_nlis.meters import metered

Array = Any

_log = logging.getLogger("dask_nlis")

DEVICES = ("auto", "cpu", "cuda")


class AtWork:
    """What a device knows of the block at work on it: how often memory ran out, and what lies there of its data."""

    def __init__(self, halvings: int = 0) -> None:
        self.halvings = halvings
        self.data: dict[Any, tuple[np.ndarray, Array]] = {}  # host arrays and where they lie on the device
        self.rows = 0  # worked on at a time


class Device(NamedTuple):
    """A place to compute: kind, how arrays get there and back, and what there is to know of its memory.

    Data of a block go by `ship`, which keeps their type, and small arrays that many blocks share by `put`, once.
    """

    kind: str
    put: Callable[[np.ndarray], Array]  # -> float64
    ship: Callable[[np.ndarray], Array]
    fetch: Callable[[Array], np.ndarray]
    kept: Kept | None = None
    memory: Callable[[], Memory] = lambda: Memory(0, 0)
    release: Callable[[], None] = lambda: None  # gives back to others what is not in use
    ran_out: Callable[[BaseException], bool] = lambda error: False  # whether an error says that memory ran out
    at_work: AtWork | None = None  # None outside `working_on`


def check_device(device: object) -> str:
    """Return the device name, or raise naming the three that exist."""
    if not isinstance(device, str) or device not in DEVICES:
        raise InputError(f"device={device!r} is not known; give one of {', '.join(map(repr, DEVICES))}")
    return device


@cache
def probe() -> ModuleType | str:
    """Return CuPy where this process can allocate on a GPU, otherwise the reason why not."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        if not cupy.cuda.is_available():
            return "CuPy finds no GPU"
        cupy.zeros(1).sum()
    except Exception as cause:  # the CUDA runtime has many ways to say no
        return f"CuPy cannot allocate on the GPU ({type(cause).__name__})"
    found: ModuleType = cupy
    return found


_HERE: ContextVar[Device | None] = ContextVar("dask_nlis_device", default=None)


def here() -> Device | None:
    """Return the device that the block at work in this thread is on; None outside of one."""
    return _HERE.get()


def choose(device: str) -> Device:
    """Return the device that the block at work is on, else open the one of this process."""
    at_work = here()
    return opened(device) if at_work is None else at_work


@contextmanager
def working_on(device: Device) -> Iterator[None]:
    """Make a device the one that `choose` gives, for a block; then give back what the block took on it."""
    before = _HERE.set(device)
    try:
        yield
    finally:
        _HERE.reset(before)
        if device.at_work is not None:
            device.at_work.data.clear()
        if device.kept is not None:
            device.kept.block_done()
        device.release()


def opened(device: str) -> Device:
    """Open the device of this process: "auto" takes a GPU where there is one, "cuda" insists on it."""
    found = "not asked for" if device == "cpu" else probe()
    if isinstance(found, str):
        if device == "cuda":
            raise DeviceError(
                f"device='cuda', but {found} on this worker; install dask-nlis[gpu12] or [gpu13] on a machine "
                "with an NVIDIA GPU, or give device='auto'"
            )
        if device == "auto":
            _say_once(found)
        return Device("cpu", _float64, _float64, np.asarray)
    kept, pool = _kept(), found.get_default_memory_pool()

    def memory() -> Memory:
        free, total = found.cuda.Device().mem_info
        free, limit = free + pool.free_bytes(), pool.get_limit()
        return Memory(min(free, limit - pool.used_bytes()), min(total, limit)) if limit else Memory(free, total)

    ship = metered("transfer")(found.asarray)

    def fetch(array: Array) -> np.ndarray:
        found.cuda.get_current_stream().synchronize()  # work that is not done yet is no transfer
        with metered("transfer"):
            return found.asnumpy(array)

    return Device("cuda", kept.get, ship, fetch, kept, memory, pool.free_all_blocks, _ran_out)


@cache
def _say_once(reason: str) -> None:
    """Tell, once a process, why tasks that take any device take the CPU."""
    _log.info("device='auto' takes the CPU: %s", reason)


def _float64(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)


@cache
def _kept() -> Kept:
    found = probe()
    assert not isinstance(found, str)  # asked for where there is a GPU

    @metered("transfer")
    def put(array: np.ndarray) -> Array:
        there = found.asarray(array)
        found.cuda.get_current_stream().synchronize()  # other threads may use it from streams of their own
        return there

    return Kept(put)


def _ran_out(error: BaseException) -> bool:
    """Whether CuPy says that GPU memory ran out: its own allocator, the CUDA runtime or one of its libraries."""
    kind = type(error)
    if not kind.__module__.partition(".")[0].startswith("cupy"):
        return False
    return kind.__name__ == "OutOfMemoryError" or any(
        word in str(error) for word in ("cudaErrorMemoryAllocation", "ALLOC_FAILED")
    )


def like(array: np.ndarray, x: Array) -> Array:
    """A small host array, such as theta, where x lies: array_api_strict takes no NumPy array in a product."""
    if is_numpy_array(x):
        return np.asarray(array)
    at_work = here()
    return array_namespace(x).asarray(np.array(array)) if at_work is None else at_work.put(np.asarray(array))
