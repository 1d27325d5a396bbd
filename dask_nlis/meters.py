"""What a task spends its time on, told to Dask's fine performance metrics: reading, adjoints, linear algebra, transfer.

On a worker they appear in the metrics of the span and on the page "Fine Performance Metrics" of the dashboard, under the
names of `ACTIVITIES` with seconds, beside the rows that were worked on and the bytes that were read; what is left of a
task Dask shows as `thread-cpu` and `thread-noncpu`. Elsewhere they are told to those who `listen`. Inside a task seconds
are added up by a stop watch that costs well below a microsecond, and told once, at the end of the task.
"""

from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType

from distributed.metrics import context_meter

#: Reading and decoding stored arrays; rows of the matrix by model and loss; linear algebra of pass 1, of pass 2, of
#: diagnostics and of the draw; to a device and back.
ACTIVITIES = ("read", "adjoint", "factor", "score", "check", "draw", "transfer")

#: Takes an activity or "rows", a value, and its unit: "seconds", "count" or "bytes".
Listener = Callable[[str, float, str], None]

_LISTENERS: list[Listener] = []


class _Watch:
    """A stop watch that runs on one activity at a time."""

    __slots__ = ("activity", "seconds", "since")

    def __init__(self, activity: str) -> None:
        self.activity, self.since = activity, perf_counter()
        self.seconds: dict[str, float] = {}

    def turn(self, activity: str) -> str:
        """Run on another activity from now on; which it ran on until now."""
        before, now = self.activity, perf_counter()
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self.since
        self.activity, self.since = activity, now
        return before


_WATCH: ContextVar[_Watch | None] = ContextVar("dask_nlis_watch", default=None)


@contextmanager
def task(activity: str) -> Iterator[None]:
    """Meter a task: time that no `metered` takes for another activity is that of this one; told when it has ended well.

    Examples
    --------
    >>> told = []
    >>> with listening(lambda *one: told.append(one)), task("factor"):
    ...     with metered("adjoint"):
    ...         pass
    ...     count("rows", 5)
    >>> sorted((activity, unit) for activity, _, unit in told)
    [('adjoint', 'seconds'), ('factor', 'seconds'), ('rows', 'count')]
    """
    watch = _Watch(activity)
    before = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(before)
    watch.turn(activity)
    for each, seconds in watch.seconds.items():
        count(each, seconds, "seconds")


class metered(ContextDecorator):
    """Time inside is that of an activity of the task; nothing where no task is metered."""

    __slots__ = ("_activity", "_before")

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._before = ""

    def _recreate_cm(self) -> "metered":
        return metered(self._activity)

    def __enter__(self) -> None:
        watch = _WATCH.get()
        if watch is not None:
            self._before = watch.turn(self._activity)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch = _WATCH.get()
        if watch is not None:
            watch.turn(self._before)


def count(what: str, value: float, unit: str = "count") -> None:
    """Tell a number: of rows, of bytes."""
    context_meter.digest_metric(f"nlis-{what}", value, unit)
    for listener in tuple(_LISTENERS):
        listener(what, value, unit)


@contextmanager
def reading() -> Iterator[None]:
    """Meter a read, which comes before the task that it is for has begun, or inside one."""
    if _WATCH.get() is not None:
        with metered("read"):
            yield
    else:
        with task("read"):
            yield


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener what tasks of this process spend their time on; it is called from the threads that they run in."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
