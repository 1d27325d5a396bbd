"""The watcher of a monitor: notes each phase, the seconds of its tasks by activity, and the memory in use."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from dask.callbacks import Callback

from dask_nlis import meters, workers
from dask_nlis.monitor.asking import activities_of
from dask_nlis.monitor.memory import Memory, MemoryOf
from dask_nlis.monitor.records import Phase
from dask_nlis.watch import Advance, Compute, outcome, told


class Recorder:
    """Notes what is computed from now on; used by one job at a time, whatever its threads."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.phases: list[Phase] = []
        self.memory: list[Memory] = []

    def since(self, moment: float) -> float:
        """Seconds from the beginning to a moment of the monotonic clock."""
        return round(moment - self.began, 6)

    @contextmanager
    def __call__(self, compute: Compute) -> Iterator[Advance]:
        """Watch one compute."""
        done = 0

        def advance(tasks: int) -> None:
            nonlocal done
            done += tasks

        heard, seen = _Heard(), MemoryOf(compute.client)
        local = nullcontext() if compute.client is not None else Callback(pretask=heard.begin, posttask=heard.end)
        began, error = time.monotonic(), None
        try:
            with seen, local, meters.listening(heard):
                yield advance
        except BaseException as raised:
            error = raised
            raise
        finally:
            seconds = time.monotonic() - began
            self.memory += [(self.since(moment), size) for moment, size in seen.samples]
            self.phases.append(self._phase(compute, began, seconds, done, error, heard))

    def _phase(
        self, compute: Compute, began: float, seconds: float, done: int, error: BaseException | None, heard: "_Heard"
    ) -> Phase:
        found: dict[tuple[str, str], float] | None = dict(heard.totals)
        n_workers = threads = 1
        if compute.client is not None:
            assert compute.span is not None
            found, n_workers, threads = activities_of(compute.client, compute.span)
        elif compute.scheduler not in ("threads", "synchronous"):
            found = None  # what happens in other processes is not told
        if compute.client is None:
            force = workers.workforce()
            n_workers, threads = force.processes, force.threads
        seconds_by = None if found is None else {name: s for (name, unit), s in found.items() if unit == "seconds"}
        if compute.client is None and seconds_by is not None:
            seconds_by["rest"] = max(0.0, heard.tasks - sum(seconds_by.values()))
        return Phase(
            compute.label,
            compute.scheduler,
            self.since(began),
            round(seconds, 6),
            compute.n_tasks,
            done,
            compute.n_rows,
            compute.n_bytes,
            outcome(error),
            told(error),
            n_workers,
            threads,
            None if found is None else int(found.get(("rows", "count"), 0)),
            seconds_by,
        )


class _Heard:
    """Adds up what tasks of this process tell, whichever threads they run in."""

    def __init__(self) -> None:
        self.totals: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.tasks = 0.0  # seconds of tasks of a local scheduler, from their start to their end
        self._begun: dict[Any, float] = {}
        self._lock = threading.Lock()

    def begin(self, key: Any, *_: Any) -> None:
        """A task begins; called by the scheduler, in one thread."""
        self._begun[key] = time.monotonic()

    def end(self, key: Any, *_: Any) -> None:
        """A task has ended."""
        self.tasks += time.monotonic() - self._begun.pop(key, time.monotonic())

    def __call__(self, what: str, value: float, unit: str) -> None:
        with self._lock:
            self.totals[what, unit] += value
