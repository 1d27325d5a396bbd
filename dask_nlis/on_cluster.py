"""A part of a graph computed by a cluster: workers waited for and made ready, results taken as they come, faults told."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import dask
import distributed
from distributed.scheduler import KilledWorker
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_incrementing

from dask_nlis import device, failures, tally
from dask_nlis.deadline import Deadline, seconds
from dask_nlis.errors import ClusterError, NlisError
from dask_nlis.failures import Work, raise_in_place
from dask_nlis.graph import Key, Wave
from dask_nlis.kernels.aligned import aligned
from dask_nlis.prepared import Prepared
from dask_nlis.versions import check_versions
from dask_nlis.watch import Advance
from dask_nlis.zarr_settings import send_settings

_log = logging.getLogger("dask_nlis")

Collect = Callable[[Any], None]

RETRIES = 3

#: Seconds to wait for a scheduler to hear that work is cancelled.
_PARTING = 5.0

#: Times that workers are told to make themselves ready.
_TELLINGS = 5


def run_on_cluster(
    client: distributed.Client,
    part: Wave,
    work: Work,
    deadline: Deadline,
    advance: Advance,
    collect: Collect,
    hold: bool,
) -> None:
    """Compute the keys of a part of a graph and hand them to `collect` in order; or, held, their futures.

    Whatever ends it early, an error, the deadline or the user, cancels what is not done.
    """
    topic = tally.topic()
    notes = {} if topic is None else {tally.ANNOTATION: topic}
    try:
        _wait_for_workers(client, deadline)
        _prepare(client, deadline)
        with dask.annotate(retries=RETRIES, **notes):
            futures = client.get(part.graph, part.keys, sync=False)
    except Exception as error:
        raise_in_place(error, failures.translated(error, work, client))
    pending = distributed.as_completed(futures, client.loop, with_results=not hold, raise_errors=False)
    del futures  # so that each result leaves the cluster once it has been fetched
    early: dict[Key, Any] = {}
    waiting = iter(part.keys)
    key = next(waiting, None)
    try:
        with _thread_left_to_others():
            while key is not None:
                _until_ready(client, pending, work.label, deadline)
                future = value = next(pending)
                if not hold:
                    future, value = value
                if future.status in (
                    "error",
                    "cancelled",
                ):  # others may be lost again by now, and are made anew where needed
                    _fail(future, work, client)
                early[future.key] = value
                advance(1)
                while key in early:
                    collect(aligned(early.pop(key)))
                    key = next(waiting, None)
    except BaseException:  # also when the user interrupts
        _give_up(client, pending)
        raise
    if topic is not None:
        tally.add_events(event for _, event in _ask(client, lambda: client.get_events(topic), deadline))


@contextmanager
def _thread_left_to_others() -> Iterator[None]:
    """Where this is called inside a task, leave its thread to the tasks it waits for, as a compute of Dask's does."""
    try:
        distributed.secede()
        left = True
    except Exception:  # no task, or one that has left its thread already
        left = False
    try:
        yield
    finally:
        if left:
            distributed.rejoin()


def _fail(future: distributed.Future, work: Work, client: distributed.Client) -> NoReturn:
    """Raise what a task raised, or what became of it."""
    if future.status != "error":
        raise failures.lost(work.label, client)
    error = future.exception(timeout=_PARTING).with_traceback(future.traceback(timeout=_PARTING))
    suspects = _handed_to_the_dead(client) if isinstance(error, KilledWorker) else []
    raise_in_place(error, failures.translated(error, work, client, future.key, suspects))


def _handed_to_the_dead(client: distributed.Client) -> list[Key]:
    """Tasks that were handed to every worker that died, by what the scheduler holds; none where it does not answer."""
    try:
        found: list[Key] = asked(client, lambda: client.run_on_scheduler(_blamed), _PARTING)
    except Exception:  # the error itself names one of them
        _log.debug("the scheduler does not tell which tasks were handed to the workers that died", exc_info=True)
        return []
    return found


def _blamed(dask_scheduler: distributed.Scheduler) -> list[Key]:
    most = dask_scheduler.allowed_failures
    return [task.key for task in dask_scheduler.tasks.values() if task.state == "erred" and task.suspicious > most]


def _give_up(client: distributed.Client, pending: distributed.as_completed) -> None:
    """Cancel what is not done yet: the client itself would wait for it as long as it lives."""
    futures = list(pending.futures)
    if futures and client.status == "running":
        with suppress(Exception):
            asked(client, lambda: client.cancel(futures), _PARTING)


def _prepare(client: distributed.Client, deadline: Deadline) -> None:
    """Make workers ready, those that join later too; one that dies while it is told is no reason to fail."""

    def ask(call: Callable[[], Any]) -> Any:
        return _ask(client, call, deadline)

    def tell() -> None:
        check_versions(client, ask)
        ask(lambda: client.register_plugin(Prepared()))
        send_settings(client, ask)

    def may_pass(error: BaseException) -> bool:
        return isinstance(error, OSError) and not isinstance(error, NlisError) and client.status == "running"

    tellings = Retrying(
        retry=retry_if_exception(may_pass),
        stop=stop_after_attempt(_TELLINGS),
        wait=wait_incrementing(0, 0.1),
        reraise=True,
    )
    tellings(tell)


def devices_of_workers(client: distributed.Client, label: str) -> set[str]:
    """Kinds of devices that workers would take by themselves; waits for one worker, as a compute does."""
    deadline = Deadline(label)
    _wait_for_workers(client, deadline)
    return set(_ask(client, lambda: client.run(kind_here, on_error="ignore"), deadline).values())


def kind_here() -> str:
    """Kind of device that this process takes by itself."""
    return device.opened("auto").kind


def _ask(client: distributed.Client, call: Callable[[], Any], deadline: Deadline) -> Any:
    """What a call of the client gives, waited for until the deadline: a worker that hangs answers no question."""
    try:
        return asked(client, call, deadline.left() if deadline.limited else None)
    except TimeoutError as cause:
        raise deadline.error() from cause


def asked(client: distributed.Client, call: Callable[[], Any], patience: float | None) -> Any:
    """What a call of the client gives within so many seconds, or else TimeoutError."""
    return client.sync(_awaited, call, callback_timeout=patience)


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()  # in the loop of the client, where its calls are awaited


def _until_ready(client: distributed.Client, pending: distributed.as_completed, label: str, deadline: Deadline) -> None:
    """Return when a future is done; raise when all workers have been gone for too long, or the scheduler is lost."""
    asked, lonely, most = time.monotonic(), 0.0, seconds("no-workers-timeout")
    while not pending.has_ready():
        deadline.check()
        if client.status != "running":
            raise failures.lost(label, client)
        time.sleep(0.005)
        now = time.monotonic()
        if now - asked > min(10, most):
            alone = not client.scheduler_info(n_workers=0).get("n_workers", 1)
            lonely, asked = (lonely + now - asked if alone else 0.0), now
            if lonely > most:
                raise ClusterError(f"all workers have been gone for {most:g} s; start workers and run again")


def _wait_for_workers(client: distributed.Client, deadline: Deadline) -> None:
    if client.status in ("newly-created", "connecting"):
        raise ClusterError(
            "the distributed.Client in force never reached its scheduler; close it, or make one that connects, and run again"
        )
    most = seconds("no-workers-timeout")
    limit = min(most, deadline.left())
    try:
        client.wait_for_workers(1, timeout=None if limit == float("inf") else limit)
    except TimeoutError as cause:
        if limit < most:
            raise deadline.error() from cause
        raise ClusterError(f"no workers joined within {most:g} s; start workers or check addresses") from cause
