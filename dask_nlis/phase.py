"""The only compute of the library: one call, one span, one label on the dashboard.

A phase hands an optimised graph and its keys to whichever scheduler is in force. On a cluster the tasks
are retried three times, the wait for workers ends after 300 s (`dask-nlis.no-workers-timeout`), and results are fetched
and released one by one; locally BLAS is held to one thread for the length of the call, on workers once per process.
Progress shows on a terminal and is silent elsewhere. The Dask config key `dask-nlis.timeout` bounds each compute, on any
scheduler. What a cluster or short memory does to a task is raised in our words, and what still runs is cancelled, as
when the user interrupts.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import dask.base
import dask.local
import dask.multiprocessing
import distributed
import distributed.system
import numpy as np
from dask._task_spec import DataNode
from dask.callbacks import Callback

from dask_nlis import failures, tally, workers
from dask_nlis.deadline import BoundedPool, Deadline
from dask_nlis.errors import MemoryLimitError
from dask_nlis.failures import Work, raise_in_place
from dask_nlis.graph import Asked, Graph, Key, Wave, flat_keys, on_top, optimised, waves
from dask_nlis.kernels.aligned import aligned
from dask_nlis.on_cluster import Collect, devices_of_workers, kind_here, run_on_cluster
from dask_nlis.prepared import blas, one_blas_thread
from dask_nlis.watch import Advance, Compute, watched

#: Blocks of 64 MB keep scheduler cost near 3 % and memory at a few blocks a thread.
DEFAULTS = {
    "device": "auto",
    "block-bytes": 64 * 2**20,
    "progress": "auto",
    "allow-missing": False,  # chunks of stored arrays
    "timeout": None,  # seconds that a compute may take
    "no-workers-timeout": 300,  # seconds without any worker
}
dask.config.update_defaults({"dask-nlis": DEFAULTS})

#: Tasks handed to a scheduler at a time. More cost it no less each, and fewer hold less.
CLUSTER_WAVE, LOCAL_WAVE = 20_000, 2_000


def setting(name: str, given: Any) -> Any:
    """Return the argument when given, else the value of the Dask config key `dask-nlis.<name>`."""
    return dask.config.get(f"dask-nlis.{name}") if given is None else given


def blocks_of(array: da.Array, label: str, *, n_rows: int = 0, n_bytes: int = 0) -> list[Any]:
    """Compute every block of `array` and return the blocks in C order, as `each_block` does."""
    blocks: list[Any] = []
    each_block(array, label, blocks.append, n_rows=n_rows, n_bytes=n_bytes)
    return blocks


def each_block(
    array: da.Array,
    label: str,
    collect: Collect,
    *,
    only: Sequence[int] | None = None,
    n_rows: int = 0,
    n_bytes: int = 0,
) -> None:
    """Compute every block of `array`, or some, and hand the blocks to `collect` in C order; none is kept besides.

    On a cluster a block is handed on as soon as those before it have been, while others are still computed.

    Parameters
    ----------
    array : dask.array.Array
        What to compute.
    label : str
        Name of the phase, the span ("nlis", label) on a cluster.
    collect : callable
        Takes one block.
    only : sequence of int, optional
        The blocks that are wanted, by their place in C order, ascending; all by default.
    n_rows, n_bytes : int
        Size of the data read, for the rates on the progress bar.
    """
    keys = flat_keys(array)
    wanted = keys if only is None else [keys[k] for k in only]
    _run(optimised(array, wanted), wanted, label, n_rows, n_bytes, collect)


def computed(array: da.Array, label: str) -> np.ndarray:
    """Compute a 1-D array and return it whole."""
    return np.concatenate(blocks_of(array, label))


def held(array: da.Array, label: str, *, n_rows: int = 0, n_bytes: int = 0) -> da.Array:
    """Compute every block and keep it where it was computed, spillable on a cluster."""
    keys = flat_keys(array)
    results: list[Any] = []
    _run(optimised(array), keys, label, n_rows, n_bytes, results.append, hold=True)
    return da.Array(dict(zip(keys, results, strict=True)), array.name, chunks=array.chunks, meta=array._meta)


def on_blocks(
    array: da.Array,
    label: str,
    task: Callable[..., Any],
    arguments: Mapping[int, tuple[Any, ...]],
    collect: Collect | None = None,
) -> list[Any]:
    """Run `task(block, *arguments[k])` on the row blocks k of an array and return what each gives, in order.

    Blocks without arguments are not computed; what comes back may be any small object, and a block itself a tuple. With
    `collect` each is handed on as `each_block` does, and nothing is returned.
    """
    name, rest = f"{label}-{uuid4().hex}", (0,) * (array.ndim - 1)
    made = {(name, k): Asked((array.name, k, *rest), _called, (task, arguments[k])) for k in sorted(arguments)}
    answers: list[Any] = []
    _run(on_top(array, made), list(made), label, 0, 0, answers.append if collect is None else collect)
    return answers


def _called(block: Any, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return task(aligned(block if block is None or isinstance(block, tuple) else np.asarray(block)), *aligned(arguments))


def warn(message: str, category: type[Warning]) -> None:
    """Warn the user, also from inside a task on a worker."""
    if _on_worker():
        distributed.warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=outside())


def out_of_memory(
    what: str, first: int, last: int, n_bytes: int, cause: BaseException | None = None
) -> MemoryLimitError:
    """What to raise, from inside a task, where memory ran out at the rows from `first` to before `last`."""
    return failures.out_of_memory(what, (first, last), n_bytes / max(1, last - first), cause)


def ran(task: str, kind: str, why: str) -> None:
    """Tell, from inside a task, that the block function `task` ran on a kind of device, and why on no other."""
    try:
        worker = distributed.get_worker()
    except ValueError:
        tally.add_here(kind, why)
        return
    key = worker.get_current_task()
    topic = (worker.state.tasks[key].annotations or {}).get(tally.ANNOTATION)
    if topic is not None:
        # On the stream on which the result is announced, and so known to the scheduler before it.
        worker.log_event(topic, (str(key), task, kind, why))


def devices_in_force(label: str) -> list[str]:
    """Kinds of devices that the tasks of a compute would take by themselves now, "cpu" or "cuda" or both."""
    client = workers.client_in_force()
    return [kind_here()] if client is None else sorted(devices_of_workers(client, label))


def outside() -> int:
    """Stack level of the first caller outside the library, so that a warning points at the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dask_nlis":
        frame, level = frame.f_back, level + 1
    return level


def _on_worker() -> bool:
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def _run(
    graph: Graph,
    keys: Sequence[Key],
    label: str,
    n_rows: int,
    n_bytes: int,
    collect: Collect,
    hold: bool = False,
) -> None:
    client = workers.client_in_force()
    deadline = Deadline(label)
    parts = waves(graph, keys, LOCAL_WAVE if client is None else CLUSTER_WAVE)
    # Locally every task counts, on a cluster the results that come back (one for 16 blocks of a factor).
    total = (
        len(keys) if client else sum(not isinstance(node, DataNode) for part in parts for node in part.graph.values())
    )
    with (
        nullcontext() if client is None else distributed.span("nlis", label) as span,
        watched(Compute(label, total, n_rows, n_bytes, workers.scheduler_name(), client, span)) as advance,
        blas().limit(limits=1, user_api="blas"),
    ):
        while parts:
            part = parts.pop(0)
            work = Work(label, part.graph, n_bytes / n_rows if n_rows else 0.0)
            if client is None:
                _run_local(part, work, deadline, advance, collect)
            else:
                run_on_cluster(client, part, work, deadline, advance, collect, hold)


def _run_local(part: Wave, work: Work, deadline: Deadline, advance: Advance, collect: Collect) -> None:
    get = dask.base.get_scheduler() or dask.threaded.get
    if get not in (dask.threaded.get, dask.local.get_sync):
        tally.missing()
    own_pool = get is dask.multiprocessing.get and dask.config.get("pool", None) is None
    options: dict[str, Any] = {"initializer": one_blas_thread} if own_pool else {}

    def done(*_: Any) -> None:
        deadline.check()
        advance(1)

    # Threads are left behind at the deadline; elsewhere it is looked at between tasks.
    threads = BoundedPool(deadline) if deadline.limited and get is dask.threaded.get else nullcontext()
    try:
        with threads as pool, Callback(posttask=done):
            results = get(part.graph, part.keys, **options, **({} if pool is None else {"pool": pool}))
    except Exception as error:
        raise_in_place(error, failures.translated(error, work, None))
    for result in results:
        collect(result)
