"""How long a compute may take, and threads that are no longer waited for when that time is over."""

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, Timer
from typing import Any

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_timedelta

from dask_nlis.errors import DeadlineError, InputError


def seconds(name: str) -> float:
    """Seconds of the Dask config key `dask-nlis.<name>`; infinity for None, which is no limit.

    Examples
    --------
    >>> with dask.config.set({"dask-nlis.timeout": "2 minutes"}):
    ...     seconds("timeout")
    120.0
    """
    given = dask.config.get(f"dask-nlis.{name}", None)
    if given is None:
        return math.inf
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        found = float("nan") if isinstance(given, bool) else float(parse_timedelta(given))
        if found > 0:
            return found
    raise InputError(
        f"dask-nlis.{name}={given!r} is not allowed; give a number of seconds above 0, such as 600 or '10 minutes'"
    )


class Deadline:
    """The time by which a compute must be done."""

    def __init__(self, label: str) -> None:
        self.label, self.seconds = label, seconds("timeout")
        self._end = time.monotonic() + self.seconds

    @property
    def limited(self) -> bool:
        """Whether there is one."""
        return self.seconds < math.inf

    def left(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self._end - time.monotonic())

    def error(self) -> DeadlineError:
        """What to raise when it has passed."""
        return DeadlineError(
            f"{self.label} was not done after {self.seconds:g} s, the Dask config key dask-nlis.timeout; look for workers or "
            "reads that hang, or give more time"
        )

    def check(self) -> None:
        """Raise when it has passed."""
        if not self.left():
            raise self.error()


class BoundedPool(Executor):
    """Threads as a local scheduler wants them, whose answers are not waited for beyond a deadline.

    A thread cannot be stopped: one that hangs in a read keeps the process from ending until that returns.
    """

    def __init__(self, deadline: Deadline) -> None:
        given = dask.config.get("pool", None)
        workers = getattr(given, "_max_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT
        self._max_workers = int(workers)  # Dask reads it
        self._pool = ThreadPoolExecutor(self._max_workers)
        self._deadline, self._lock = deadline, Lock()
        self._waiting: set[Future[Any]] = set()
        self._timer = Timer(deadline.left(), self._expire)
        self._timer.daemon = True

    def __enter__(self) -> "BoundedPool":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call on a thread, and give what is done when it is, or when the deadline passes."""
        outer: Future[Any] = Future()
        with self._lock:
            self._waiting.add(outer)
        inner = self._pool.submit(copy_context().run, fn, *args, **kwargs)
        inner.add_done_callback(lambda done: self._hand_on(done, outer))
        return outer

    def _hand_on(self, inner: Future[Any], outer: Future[Any]) -> None:
        with self._lock:
            self._waiting.discard(outer)
        with suppress(InvalidStateError):  # the deadline has passed
            if inner.cancelled():
                outer.set_exception(self._deadline.error())
            elif (error := inner.exception()) is not None:
                outer.set_exception(error)
            else:
                outer.set_result(inner.result())

    def _expire(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for each in waiting:
            with suppress(InvalidStateError):
                each.set_exception(self._deadline.error())
