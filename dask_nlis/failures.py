"""What went wrong in a compute, in our words: the work and its rows, what happened, one remedy."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import distributed
import numpy as np
from dask._task_spec import DataNode, GraphNode
from dask.utils import key_split
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from dask_nlis import workers
from dask_nlis.errors import ClusterError, MemoryLimitError, NlisError, StoreWriteError

#: Arrays of the size of a block that a task holds at a time, at most, and the share of a worker's memory that tasks may
#: take: what is suggested stays below.
_COPIES, _SHARE = 8, 0.5


class Work(NamedTuple):
    """What a compute was about, for messages."""

    label: str
    graph: Mapping[Any, Any]
    row_bytes: float  # of the data read; 0 where it is not known


def translated(
    error: BaseException,
    work: Work,
    client: distributed.Client | None,
    key: Any = None,
    suspects: Sequence[Any] = (),
) -> BaseException:
    """The error to raise in place of one that a scheduler gave; itself where it says what it should.

    `suspects` are all tasks that were handed to each of the workers that died, where that is known.
    """
    # The scheduler of processes wraps errors, in many lines.
    error = getattr(error, "exception", error) if type(error).__module__ == "dask.multiprocessing" else error
    if isinstance(error, NlisError):
        return error
    if isinstance(error, KilledWorker):
        return _killed(error, work, suspects)
    if isinstance(error, MemoryError):
        return out_of_memory(work.label, rows_of(work.graph, key), work.row_bytes, error)
    # Without its scheduler a client fails in many ways.
    if client is not None and (_of_connection(error) or client.status != "running"):
        return lost(work.label, client)
    return error


def raise_in_place(error: BaseException, said: BaseException) -> NoReturn:
    """Raise what is to be said of an error, which stays its cause."""
    if said is error or said.__cause__ is not None:
        raise said
    raise said from (error if isinstance(error, Exception) else None)


def _of_connection(error: BaseException) -> bool:
    name = type(error).__name__
    return isinstance(error, CancelledError | CommClosedError) or name == "ClosedClientError"


def lost(label: str, client: distributed.Client) -> ClusterError:
    """What to say when the client no longer speaks with a scheduler."""
    if client.status in ("closed", "closing"):
        return ClusterError(
            f"{label}: the client was closed, or gave up a scheduler that is gone, before all was computed; make a Client and "
            "run again"
        )
    return ClusterError(
        f"{label}: lost the scheduler before all was computed, or the work was cancelled there; start a cluster and run again"
    )


#: Tasks that a message names.
_NAMED = 3


def _killed(error: KilledWorker, work: Work, suspects: Sequence[Any]) -> ClusterError:
    # The scheduler blames one task of those that were handed to every worker that died: it cannot tell them apart.
    keys = [*dict.fromkeys([*suspects, error.task])]
    known = sorted(rows for rows in (rows_of(work.graph, key) for key in keys) if rows is not None)
    where = (
        " or ".join(f"rows {first} to {end - 1}" for first, end in known[:_NAMED]) or f"task {key_split(error.task)!r}"
    )
    where += (
        f" or {len(known) - _NAMED} other blocks"
        if len(known) > _NAMED
        else ""
        if suspects
        else " or a block beside them"
    )
    what = f"{work.label}: {error.allowed_failures + 1} workers died, one after the other, at {where}"
    size = max((round(work.row_bytes * (end - first)) for first, end in known), default=0)
    last = error.last_worker
    force = workers.Workforce(1, last.nthreads, last.nthreads, last.memory_limit or None, on_cluster=True)
    if not size or force.memory is None:
        return ClusterError(f"{what}; look at these rows, at what is computed of them, and at the logs of the workers")
    return ClusterError(
        f"{what}: {size:,} bytes where a worker of {force.threads_of_one} threads may use {force.memory:,}; if memory "
        f"ran out give block_bytes={_suggested(size, force):,}, else look at these rows and the logs of the workers"
    )


def _suggested(size: int, force: workers.Workforce) -> int:
    """Bytes of a block of which copies enough for each thread take a share of the memory, and fewer than now."""
    most = int(_SHARE * (force.memory or 0)) // (_COPIES * force.threads_of_one)
    return max(1, min(size // 2, most))


def out_of_memory(
    label: str, rows: tuple[int, int] | None, row_bytes: float, cause: BaseException | None = None
) -> MemoryLimitError:
    """What to say where memory ran out in a task."""
    force = workers.workforce()
    where = "" if rows is None else f" at rows {rows[0]} to {rows[1] - 1}"
    size = 0 if rows is None else round(row_bytes * (rows[1] - rows[0]))
    block = f", a block of {size:,} bytes" if size else ""
    limit = (
        "" if force.memory is None else f" where a process of {force.threads_of_one} threads may use {force.memory:,}"
    )
    remedy = f"give block_bytes={_suggested(size, force):,}" if size else "give a smaller block_bytes"
    why = f" ({' '.join(str(cause).split())[:60]})" if cause is not None and str(cause) else ""
    return MemoryLimitError(f"{label}: memory ran out{where}{why}{block}{limit}; {remedy}, or fewer threads")


def rows_of(graph: Mapping[Any, Any], key: Any) -> tuple[int, int] | None:
    """First row that the task of a key reads, and the one behind the last; None where it reads none."""
    node = graph.get(key)
    if not isinstance(node, GraphNode):
        return None
    for part in _parts(node):
        if isinstance(part, tuple) and part and isinstance(part[0], slice):
            rows = part[0]
            if isinstance(rows.start, int | np.integer) and isinstance(rows.stop, int | np.integer):
                return int(rows.start), int(rows.stop)
    return _in_memory(node)


def _in_memory(node: GraphNode) -> tuple[int, int] | None:
    """Rows of a task that is given its block, and behind all blocks the number of its first row."""
    args = [_value(each) for each in getattr(node, "args", ())]
    block = next((each for each in args if isinstance(each, np.ndarray) and each.ndim == 2), None)
    if block is None or not isinstance(args[-1], int):
        return None
    return args[-1], args[-1] + len(block)


def _value(node: Any) -> Any:
    return node.value if isinstance(node, DataNode) else node


def _parts(node: Any) -> Iterator[Any]:
    """A task, what it is called with, and what those hold."""
    yield node
    value = _value(node)
    if isinstance(value, GraphNode):
        inside: Any = (*getattr(value, "args", ()), *getattr(value, "kwargs", {}).values())
    elif type(value) in (tuple, list):
        if value is not node:
            yield value
        inside = value
    elif type(value) is dict:
        inside = value.values()
    else:
        return
    for each in inside:
        yield from _parts(each)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Say what could not be written to the store, and what to do, where the system refuses it inside."""
    try:
        yield
    except NlisError:
        raise
    except OSError as cause:
        raise StoreWriteError(
            f"store: {what} could not be written ({cause.strerror or type(cause).__name__}); what was finished is kept: make "
            "room and run again with resume=True"
        ) from cause
