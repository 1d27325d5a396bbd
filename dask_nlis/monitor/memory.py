"""Memory in use while a phase computes: of this process and those it started, or of the workers of a cluster."""

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import psutil

from dask_nlis.monitor.asking import sampled_memory

#: Moment by the monotonic clock, and bytes.
Memory = tuple[float, int]

#: Seconds between two samples.
_EVERY = 0.25


class MemoryOf:
    """Samples memory inside the `with`: one when it begins, then four a second, and one when it ends."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nlis-memory", daemon=True)
        self._on_cluster: Any = None
        self.samples: list[Memory] = []

    def __enter__(self) -> Self:
        if self._client is None:
            self._thread.start()
        else:
            self._on_cluster = sampled_memory(self._client, _EVERY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is None:
            self._over.set()
            self._thread.join()
        else:
            moved = time.time() - time.monotonic()
            self.samples = [(moment - moved, size) for moment, size in self._on_cluster()]

    def _watch(self) -> None:
        me = psutil.Process()
        while True:
            self.samples.append((time.monotonic(), _of(me)))
            if self._over.wait(_EVERY):
                self.samples.append((time.monotonic(), _of(me)))
                return


def _of(process: psutil.Process) -> int:
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it may be gone by now
            total += one.memory_info().rss
    return total
