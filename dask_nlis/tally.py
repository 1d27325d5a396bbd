"""Where the blocks of a job ran: how many on each device, and why some did not run where they might have.

A task tells `phase`, which knows whether it is on a cluster: there it becomes an event that the client asks for when the
compute is done, elsewhere it is counted at once. No task is added, and nothing travels unless a job counts.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Name of the annotation by which a task on a cluster knows the topic of its events.
ANNOTATION = "nlis_devices"

#: Task key, block function, device, and why it is not another one.
Event = tuple[str, str, str, str]


class Tally:
    """Counts of blocks by device and reason over the computes of one job; `known` is False where some are missing."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.known = True

    def devices(self) -> dict[str, Any] | None:
        """Blocks by device, once for each read; those that fell back to the CPU, by reason; None where not known."""
        if not self.known:
            return None
        found: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for (kind, why), count in sorted(self.counts.items()):
            found[kind] += count
            if why:
                reasons[why] += count
        return dict(found) | ({"fell back": dict(reasons)} if reasons else {})


_LOCK = threading.Lock()
_OPEN: dict[int, list[Tally]] = {}  # by the thread whose job counts


@contextmanager
def counted(tally: Tally | None = None) -> Iterator[Tally]:
    """Count the blocks of the computes inside, on top of what a tally holds already.

    Computes on Dask's scheduler of processes tell nothing, and locally those of two threads cannot be told apart: such a
    tally is not `known`. On a cluster it is right whoever computes beside it.
    """
    tally = Tally() if tally is None else tally
    mine = threading.get_ident()
    with _LOCK:
        _OPEN.setdefault(mine, []).append(tally)
    try:
        yield tally
    finally:
        with _LOCK:
            _OPEN[mine].remove(tally)
            if not _OPEN[mine]:
                del _OPEN[mine]


@contextmanager
def apart() -> Iterator[None]:
    """Leave the computes of this thread inside out of all counts, as of rows that are in memory already."""
    mine = threading.get_ident()
    with _LOCK:
        waiting = _OPEN.pop(mine, [])
    try:
        yield
    finally:
        with _LOCK:
            if waiting:
                _OPEN[mine] = waiting


def topic() -> str | None:
    """A new topic for the events of a compute of this thread; None where it does not count."""
    return f"nlis-devices-{uuid.uuid4().hex}" if threading.get_ident() in _OPEN else None


def add_events(events: Iterable[Event]) -> None:
    """Count the events of a compute on a cluster for this thread; a task that ran twice counts as it ran last."""
    last = {(key, task): (kind, why) for key, task, kind, why in events}
    with _LOCK:
        for tally in _OPEN.get(threading.get_ident(), []):
            tally.counts.update(last.values())


def add_here(kind: str, why: str) -> None:
    """Count a block of a compute in this process."""
    with _LOCK:
        for tallies in _OPEN.values():
            for tally in tallies:
                tally.counts[kind, why] += 1
                tally.known &= len(_OPEN) == 1


def missing() -> None:
    """Say that blocks of a compute of this thread cannot be counted."""
    with _LOCK:
        for tally in _OPEN.get(threading.get_ident(), []):
            tally.known = False
