"""Where a task computes: probe for a GPU, to and from the host, rows per sub-block.

Blocks go in and come out as NumPy; the device is chosen inside the task, so pools of unequal workers never
mix array types. `import cupy` succeeds on machines without a GPU, hence the allocation in the probe.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import DeviceError, InputError

Array = Any

DEVICES = ("auto", "cpu", "cuda")

#: Bytes of float64 rows worked on at a time: fits a core's cache; a GPU wants larger pieces.
_SUB_BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}

#: Rows below which a product with a p x p matrix is bound by reading that matrix.
_FEWEST_ROWS = 256


class Device(NamedTuple):
    """A place to compute: kind, and how arrays get there and back."""

    kind: str
    put: Callable[[np.ndarray], Array]  # host array of any real dtype -> float64 on the device
    fetch: Callable[[Array], np.ndarray]


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


def choose(device: str) -> Device:
    """Open the device of this process: "auto" takes a GPU where there is one, "cuda" insists on it."""
    found = "not asked for" if device == "cpu" else probe()
    if isinstance(found, str):
        if device == "cuda":
            raise DeviceError(
                f"device='cuda', but {found} on this worker; install dask-nlis[gpu12] or [gpu13] on a machine "
                "with an NVIDIA GPU, or give device='auto'"
            )
        return Device("cpu", lambda block: np.asarray(block, dtype=np.float64), np.asarray)
    return Device("cuda", lambda block: found.asarray(block, dtype=found.float64), found.asnumpy)


def sub_block_rows(kind: str, p: int, *, reducing: bool = False) -> int:
    """Rows worked on at a time, for p float64 columns: cache sized, at least 2p where they are reduced to p x p."""
    return max(2 * p if reducing else _FEWEST_ROWS, _SUB_BLOCK_BYTES[kind] // (8 * max(p, 1)))
