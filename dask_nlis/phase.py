"""The only compute of the library: one call, one span, one label on the dashboard.

A phase hands an optimised graph and its keys to whichever scheduler is in force. On a cluster the tasks
are retried three times, the wait for workers ends after 300 s, and results are fetched and released one by
one; locally BLAS is held to one thread for the length of the call, on workers once per process. Progress
shows on a terminal and is silent elsewhere.
"""

import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import dask
import dask.array as da
import dask.base
import dask.local
import dask.multiprocessing
import distributed
import distributed.system
import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef, convert_legacy_graph
from dask.base import tokenize
from dask.callbacks import Callback
from dask.highlevelgraph import HighLevelGraph
from distributed.diagnostics.plugin import WorkerPlugin
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import ThreadpoolController, threadpool_limits

from dask_nlis import tally
from dask_nlis.errors import ClusterError

Graph = Any
Advance = Callable[[int], None]

#: Blocks of 64 MB keep scheduler cost near 3 % and memory at a few blocks a thread.
DEFAULTS = {"device": "auto", "block-bytes": 64 * 2**20, "progress": "auto"}
dask.config.update_defaults({"dask-nlis": DEFAULTS})

RETRIES = 3
NO_WORKERS_SECONDS = 300.0


def setting(name: str, given: Any) -> Any:
    """Return the argument when given, else the value of the Dask config key `dask-nlis.<name>`."""
    return dask.config.get(f"dask-nlis.{name}") if given is None else given


def flat_keys(array: da.Array) -> list[Any]:
    """Return the keys of the blocks in C order."""
    return list(dask.core.flatten(array.__dask_keys__()))


def optimised(array: da.Array) -> dict[Any, Any]:
    """Optimise the graph of an array with Dask's own passes, then give fused tasks the key they are wanted under.

    Low-level fusion renames a fused task and leaves an alias behind it, a second task a block.
    """
    keys = set(flat_keys(array))
    graph = dict(convert_legacy_graph(dict(array.__dask_optimize__(array.dask, array.__dask_keys__()))))
    users = Counter(key for node in graph.values() for key in node.dependencies)
    for key in list(graph):
        # An alias may lead to another one, as where an array is joined from delayed parts.
        while isinstance(node := graph.get(key), Alias) and _only_behind(node, graph, keys, users):
            graph[key] = graph.pop(node.target).substitute({}, key=key)
    # Dask leaves out what is on the cluster already; asked for itself, it is its own future.
    return graph | {key: array.dask[key] for key in keys if key not in graph}


def _only_behind(alias: Alias, graph: dict[Any, Any], keys: set[Any], users: Counter[Any]) -> bool:
    """Whether what an alias names is in the graph for the sake of that alias alone."""
    return alias.target in graph and alias.target not in keys and users[alias.target] == 1


def blocks_of(array: da.Array, label: str, *, n_rows: int = 0, n_bytes: int = 0) -> list[Any]:
    """Compute every block of `array` and return the blocks in C order.

    Parameters
    ----------
    array : dask.array.Array
        What to compute.
    label : str
        Name of the phase, the span ("nlis", label) on a cluster.
    n_rows, n_bytes : int
        Size of the data read, for the rates on the progress bar.
    """
    return _run(optimised(array), flat_keys(array), label, n_rows, n_bytes, hold=False)


def computed(array: da.Array, label: str, *, n_rows: int = 0, n_bytes: int = 0) -> np.ndarray:
    """Compute a 1-D array and return it whole."""
    return np.concatenate(blocks_of(array, label, n_rows=n_rows, n_bytes=n_bytes))


def held(array: da.Array, label: str, *, n_rows: int = 0, n_bytes: int = 0) -> da.Array:
    """Compute every block and keep it where it was computed, spillable on a cluster."""
    keys = flat_keys(array)
    results = _run(optimised(array), keys, label, n_rows, n_bytes, hold=True)
    return da.Array(dict(zip(keys, results, strict=True)), array.name, chunks=array.chunks, meta=array._meta)


def on_blocks(
    array: da.Array, label: str, task: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]
) -> list[Any]:
    """Run `task(block, *arguments[k])` on the blocks k of a 1-D array and return what each gives, in order.

    Blocks without arguments are not computed; what comes back may be any small object.
    """
    name = f"{label}-{tokenize(array.name, task, arguments)}"
    graph = {
        (name, k): Task((name, k), _boxed, TaskRef((array.name, block)), task, arguments[block])
        for k, block in enumerate(sorted(arguments))
    }
    lazy = da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[array]),
        name,
        chunks=((1,) * len(graph),),
        meta=np.empty((0,), dtype=object),
    )
    return [box[0] for box in blocks_of(lazy, label)]


def _boxed(block: np.ndarray, task: Callable[..., Any], arguments: tuple[Any, ...]) -> np.ndarray:
    out = np.empty(1, dtype=object)
    out[0] = task(np.asarray(block), *arguments)
    return out


def fits_in_memory(n_bytes: int) -> bool:
    """Whether results of this size may be held: spillable on a cluster, a quarter of memory locally."""
    return client_in_force() is not None or n_bytes <= distributed.system.MEMORY_LIMIT // 4


def client_in_force() -> distributed.Client | None:
    """Return the client that would run a compute now, or None for a local scheduler."""
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, distributed.Client) else None


def warn(message: str, category: type[Warning]) -> None:
    """Warn the user, also from inside a task on a worker."""
    if _on_worker():
        distributed.warn(message, category)
    else:
        warnings.warn(message, category, stacklevel=outside())


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


def _run(graph: Graph, keys: list[Any], label: str, n_rows: int, n_bytes: int, hold: bool) -> list[Any]:
    client = client_in_force()
    # Locally every task counts, on a cluster the results that come back (one for 16 blocks of a factor).
    total = len(keys) if client else sum(not isinstance(node, DataNode) for node in graph.values())
    with _progress(label, total, n_rows, n_bytes) as advance, _blas().limit(limits=1, user_api="blas"):
        if client is None:
            return _run_local(graph, keys, advance)
        return _run_cluster(client, graph, keys, label, advance, hold)


def _run_local(graph: Graph, keys: list[Any], advance: Advance) -> list[Any]:
    get = dask.base.get_scheduler() or dask.threaded.get
    if get not in (dask.threaded.get, dask.local.get_sync):
        tally.missing()
    own_pool = get is dask.multiprocessing.get and dask.config.get("pool", None) is None
    options = {"initializer": _one_blas_thread} if own_pool else {}
    with Callback(posttask=lambda *_: advance(1)):
        return list(get(graph, keys, **options))


def _run_cluster(
    client: distributed.Client, graph: Graph, keys: list[Any], label: str, advance: Advance, hold: bool
) -> list[Any]:
    _wait_for_workers(client)
    client.register_plugin(_Prepared(os.getpid()))
    topic = tally.topic()
    notes = {} if topic is None else {tally.ANNOTATION: topic}
    with distributed.span("nlis", label), dask.annotate(retries=RETRIES, **notes):
        futures = client.get(graph, keys, sync=False)
    pending = distributed.as_completed(futures, with_results=not hold, raise_errors=True)
    del futures  # so that each result leaves the cluster once it has been fetched
    results: dict[Any, Any] = {}
    while len(results) < len(keys):
        _until_ready(client, pending)
        if hold:
            future = value = next(pending)
            if future.status == "error":
                future.result()
        else:
            future, value = next(pending)
        results[future.key] = value
        advance(1)
    if topic is not None:
        tally.add_events(event for _, event in client.get_events(topic))
    return [results[key] for key in keys]


def _until_ready(client: distributed.Client, pending: distributed.as_completed) -> None:
    """Return when a future is done; raise when all workers have been gone for too long."""
    asked, lonely = time.monotonic(), 0.0
    while not pending.has_ready():
        time.sleep(0.005)
        now = time.monotonic()
        if now - asked > 10:
            alone = not client.scheduler_info(n_workers=0).get("n_workers", 1)
            lonely, asked = (lonely + now - asked if alone else 0.0), now
            if lonely > NO_WORKERS_SECONDS:
                raise ClusterError(
                    f"all workers have been gone for {NO_WORKERS_SECONDS:g} s; start workers and run again"
                )


def _wait_for_workers(client: distributed.Client) -> None:
    try:
        client.wait_for_workers(1, timeout=NO_WORKERS_SECONDS)
    except TimeoutError as cause:
        raise ClusterError(
            f"no workers joined within {NO_WORKERS_SECONDS:g} s; start workers or check addresses"
        ) from cause


@cache
def _blas() -> ThreadpoolController:
    """Return the thread pools of this process; looking for them reads the memory map, so it is done once."""
    return ThreadpoolController()


def _one_blas_thread() -> None:
    threadpool_limits(1, user_api="blas")


#: Before this version `sys._current_frames`, which Dask's profiler of tasks calls all the time, can deadlock with a
#: thread that starts meanwhile, such as those Zarr reads with: the job would stand still (CPython issue 106883).
_SAFE_TO_PROFILE = (3, 11, 9)


class _Prepared(WorkerPlugin):
    """Make a worker ready: BLAS on one thread unless in the client's own process, no profiler where it deadlocks."""

    name = "nlis-prepared"
    idempotent = True

    def __init__(self, client_pid: int) -> None:
        self.client_pid = client_pid

    def setup(self, worker: distributed.Worker) -> None:
        if os.getpid() != self.client_pid:
            _one_blas_thread()
        if sys.version_info < _SAFE_TO_PROFILE and "profile" in worker.periodic_callbacks:
            worker.periodic_callbacks.pop("profile").stop()


@contextmanager
def _progress(label: str, total: int, n_rows: int, n_bytes: int) -> Iterator[Advance]:
    wanted = dask.config.get("dask-nlis.progress")
    if not (sys.stderr.isatty() if wanted == "auto" else wanted):
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    # Reads of X leave their line behind; the small steps between them show only while they run.
    with Progress(*columns, console=Console(stderr=True), transient=not n_rows) as bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(tasks: int) -> None:
            share = (bar.tasks[0].completed + tasks) / max(total, 1)
            bar.update(task, advance=tasks, rate=_rate(share, n_rows, n_bytes, time.monotonic() - began))

        yield advance


def _rate(share: float, n_rows: int, n_bytes: int, seconds: float) -> str:
    parts = [
        f"{size * share / max(seconds, 1e-9):.3g} {unit}"
        for size, unit in ((n_rows, "rows/s"), (n_bytes / 1e6, "MB/s"))
        if size
    ]
    return "".join(f", {part}" for part in parts)
