"""Who looks on while a phase computes: the bar on a terminal, the events of a cluster, and whoever watches besides.

A watcher is a function of the compute that gives a context manager, entered when the phase begins and left when it ends,
also by an error; what it gives is called with the number of tasks that are done anew.
"""

import datetime
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

import dask
import distributed
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dask_nlis.redact import redacted

#: Topic of the events of phases, on the page "Events" of the dashboard and for `client.get_events`.
TOPIC = "nlis"

#: Seconds between two lines of progress where there is no terminal.
_LINES = 10

#: Seconds to wait for a scheduler to take an event, and characters of an error that it holds.
_PATIENCE, _BRIEF = 5, 300

_log = logging.getLogger("dask_nlis")

Advance = Callable[[int], None]


class Compute(NamedTuple):
    """What a phase is about to compute: label, tasks that will be told of, size of what is read, and where."""

    label: str
    n_tasks: int
    n_rows: int
    n_bytes: int
    scheduler: str  # "distributed", "threads", "synchronous", "processes", or the name of another one
    client: distributed.Client | None
    span: str | None  # id of the span on a cluster


Watcher = Callable[[Compute], AbstractContextManager[Advance]]

#: Who watches all computes of this process besides the progress bar; see `watched_by`.
_WATCHERS: list[Watcher] = []


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Have a watcher look at the computes of this process, whichever thread they are asked for in."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


@contextmanager
def watched(compute: Compute) -> Iterator[Advance]:
    """Let all that watch look at a compute; what is given tells them that tasks are done."""
    with ExitStack() as stack:
        advances = [stack.enter_context(watcher(compute)) for watcher in (_events, *_WATCHERS, _bar)]

        def advance(tasks: int) -> None:
            for each in advances:
                each(tasks)

        yield advance


def outcome(error: BaseException | None) -> str:
    """How a phase ended: "done", "failed", or "interrupted" by the user."""
    return "done" if error is None else "failed" if isinstance(error, Exception) else "interrupted"


def told(error: BaseException | None) -> str:
    """The first line of an error with its type, without secrets; empty where there was none."""
    if error is None:
        return ""
    lines = str(error).splitlines()
    return redacted(f"{type(error).__name__}: {lines[0] if lines else ''}")[:_BRIEF]


@contextmanager
def _events(compute: Compute) -> Iterator[Advance]:
    """Tell a cluster of the phase: an event when it begins, and one when it ends."""
    client = compute.client
    if client is None:
        yield lambda _: None
        return
    facts = {
        "phase": compute.label,
        "span": compute.span,
        "tasks": compute.n_tasks,
        "rows": compute.n_rows,
        "bytes": compute.n_bytes,
    }

    def tell(event: dict[str, object]) -> None:
        try:
            if client.status == "running":
                message = facts | event
                client.sync(client.scheduler.log_event, topic=TOPIC, msg=message, callback_timeout=_PATIENCE)
        except Exception:  # no event is worth a job, and what ails a cluster is told by the phase
            _log.debug("an event of %s was not taken", compute.label, exc_info=True)

    tell({"state": "began"})
    began, error = time.monotonic(), None
    try:
        yield lambda _: None
    except BaseException as raised:
        error = raised
        raise
    finally:
        seconds = round(time.monotonic() - began, 6)
        tell({"state": "ended", "outcome": outcome(error), "error": told(error), "seconds": seconds})


def rates(share: float, n_rows: int, n_bytes: int, seconds: float) -> str:
    """Rows and megabytes a second of what is read, once a share of it has been."""
    parts = [
        f"{size * share / max(seconds, 1e-9):.3g} {unit}"
        for size, unit in ((n_rows, "rows/s"), (n_bytes / 1e6, "MB/s"))
        if size
    ]
    return "".join(f", {part}" for part in parts)


@contextmanager
def _bar(compute: Compute) -> Iterator[Advance]:
    """The bar on a terminal, with rates and time left, or lines of a log; `dask-nlis.progress` tells whether there are any."""
    wanted = dask.config.get("dask-nlis.progress")
    if not (sys.stderr.isatty() if wanted == "auto" else wanted):
        yield lambda _: None
        return
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield _lines(compute)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    # Reads of X leave their line behind; the small steps between them show only while they run.
    with Progress(*columns, console=console, transient=not compute.n_rows) as bar:
        task = bar.add_task(compute.label, total=compute.n_tasks, rate="")

        def advance(tasks: int) -> None:
            share = (bar.tasks[0].completed + tasks) / max(compute.n_tasks, 1)
            seconds = time.monotonic() - began
            bar.update(task, advance=tasks, rate=rates(share, compute.n_rows, compute.n_bytes, seconds))

        yield advance


def _lines(compute: Compute) -> Advance:
    """Where no bar can move: a line for a read of X when it is done, and one now and then of whatever takes long."""
    began = said = time.monotonic()
    done = 0

    def advance(tasks: int) -> None:
        nonlocal done, said
        done += tasks
        now, over = time.monotonic(), done >= compute.n_tasks
        if now - said < _LINES and not (over and compute.n_rows):
            return
        said, seconds = now, now - began
        share = done / max(compute.n_tasks, 1)
        left = "" if over else f", {datetime.timedelta(seconds=round(seconds * (1 - share) / share))} left"
        rate = rates(share, compute.n_rows, compute.n_bytes, seconds)
        print(f"{compute.label} {done}/{compute.n_tasks} tasks{rate}{left}", file=sys.stderr, flush=True)

    return advance
