"""A process made ready for tasks: BLAS on one thread, memory that is worked on kept, no profiler where it deadlocks."""

import ctypes
import os
import platform
import sys
from functools import cache

import distributed
from distributed.diagnostics.plugin import WorkerPlugin
from threadpoolctl import ThreadpoolController, threadpool_limits


@cache
def blas() -> ThreadpoolController:
    """Return the thread pools of this process; looking for them reads the memory map, so it is done once."""
    return ThreadpoolController()


def one_blas_thread() -> None:
    """Hold BLAS to one thread in this process from now on."""
    threadpool_limits(1, user_api="blas")


#: Arguments of glibc's mallopt, and bytes from which memory is asked of and returned to the system at once: above what
#: is worked on at a time, below a block; and how much that is free at the end of the heap is kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_AT_ONCE, _KEPT = 4 * 2**20, 4 * 2**20


def _keep_small_memory() -> None:
    """Have a worker keep the megabytes it works in between uses, where it runs on glibc.

    Nannies start workers with a trim threshold of 64 kB, which also pins the threshold for asking the system: every
    array of a sub-block would come as fresh pages, to be zeroed by the kernel, and take twice the time of its product.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:  # somebody chose
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _AT_ONCE)
        mallopt(_TRIM_THRESHOLD, _KEPT)


#: Before this version `sys._current_frames`, which Dask's profiler of tasks calls all the time, can deadlock with a
#: thread that starts meanwhile, such as those Zarr reads with: the job would stand still (CPython issue 106883).
_SAFE_TO_PROFILE = (3, 11, 9)


def process_here() -> tuple[str, int]:
    """What tells this process from all others of a cluster: in containers numbers alone repeat."""
    return platform.node(), os.getpid()


class Prepared(WorkerPlugin):
    """Make a worker ready: BLAS on one thread unless in the client's own process, no profiler where it deadlocks."""

    name = "nlis-prepared"
    idempotent = True

    def __init__(self) -> None:
        self.made_in = process_here()

    def setup(self, worker: distributed.Worker) -> None:
        """Called by distributed where a worker begins, or has begun already."""
        if process_here() != self.made_in:
            one_blas_thread()
            _keep_small_memory()
        if sys.version_info < _SAFE_TO_PROFILE and "profile" in worker.periodic_callbacks:
            worker.periodic_callbacks.pop("profile").stop()
