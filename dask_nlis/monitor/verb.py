"""`monitor`: one context manager for every scheduler."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import dask

from dask_nlis import tally
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.monitor.page import page_of
from dask_nlis.monitor.recorder import Recorder
from dask_nlis.monitor.records import Execution, Phase, Told
from dask_nlis.pages import check_page, write_page
from dask_nlis.redact import redacted
from dask_nlis.tally import Tally
from dask_nlis.watch import outcome, told, watched_by

#: Warnings that are kept: the same may come from each of a hundred thousand blocks.
_MOST_WARNINGS = 100


def monitor(report: str | os.PathLike[str] | None = None, *, progress: bool = True) -> "Monitor":
    """Watch all that is computed in a `with` block, on any scheduler; at its end write a page of it, (phases) -> HTML.

    Each phase shows a bar with rows/s, MB/s and the time left, or where there is no terminal a line now and then. The
    page is one file that loads nothing: phases with wall time, tasks, rows, bytes and rates, seconds of tasks by activity,
    workers, memory, warnings, and blocks by device. It is written also when the job inside fails, whose error goes on
    its way. Computes nothing itself, and reads no data.

    Parameters
    ----------
    report : str or path-like, optional
        File of the page, replaced where it exists; none by default.
    progress : bool, optional
        Whether progress is shown; True by default.

    Returns
    -------
    Monitor
        A context manager; `Monitor.execution` tells what was seen so far.

    Raises
    ------
    InputTypeError, InputError
        If `report` is no path of a file, or `progress` neither True nor False.
    MissingDataError
        If the folder of `report` does not exist.
    NotWritableError
        If the report cannot be written, when called: before anything is computed.

    Notes
    -----
    All computes of the library in this process are seen, whichever thread asks for them; blocks by device are those of
    computes of this thread. Dask's scheduler of processes tells tasks and time, but not what tasks spend it on; nor does a
    cluster that still holds results of the same tasks from before.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> with nlis.monitor(progress=False) as seen:
    ...     scores = nlis.norm_scores(np.eye(3))
    >>> [(phase.label, phase.n_rows, phase.outcome) for phase in seen.execution.phases]
    [('nlis-score', 0, 'done')]
    """
    if not isinstance(progress, bool):
        raise InputTypeError(f"progress={progress!r} is {type(progress).__name__}; give True or False")
    return Monitor(None if report is None else check_page("report", report), progress)


class Monitor:
    """Watches what is computed inside a `with`; made by `monitor`, good for one."""

    def __init__(self, report: str | None, progress: bool) -> None:
        self._report, self._progress = report, progress
        self._recorder: Recorder | None = None
        self._stack = ExitStack()
        self._began = ""
        self._ended: float | None = None
        self._error: BaseException | None = None
        self._warnings: list[Told] = []
        self._devices = Tally()

    def __enter__(self) -> Self:
        if self._recorder is not None:
            raise InputError("this monitor was used before; make another with monitor()")
        self._began = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
        self._recorder = Recorder()
        if self._progress:
            self._stack.enter_context(dask.config.set({"dask-nlis.progress": True}))
        self._stack.enter_context(tally.counted(self._devices))
        self._stack.enter_context(self._hearing_warnings())
        self._stack.enter_context(watched_by(self._recorder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        assert self._recorder is not None
        self._ended, self._error = self._recorder.since(time.monotonic()), error
        if self._report is None:
            return
        try:
            write_page("report", self._report, page_of(self.execution))
        except Exception as cause:
            if error is None:
                raise
            error.add_note(f"the report was not written either: {cause}")  # what ailed the job comes first

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that have ended, in that order."""
        return () if self._recorder is None else tuple(self._recorder.phases)

    @property
    def execution(self) -> Execution:
        """All that was seen so far."""
        recorder = self._recorder
        now = 0.0 if recorder is None else recorder.since(time.monotonic())
        return Execution(
            self._began,
            now if self._ended is None else self._ended,
            "running" if self._ended is None else outcome(self._error),
            told(self._error),
            self.phases,
            tuple(self._warnings),
            () if recorder is None else tuple(recorder.memory),
            self._devices.devices(),
        )

    def __repr__(self) -> str:
        return f"Monitor({self.execution!r})"

    @contextmanager
    def _hearing_warnings(self) -> Iterator[None]:
        """Keep the warnings that are shown, and show them as before; those from workers come this way as well."""
        shown = warnings.showwarning

        def hear(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if len(self._warnings) < _MOST_WARNINGS:
                assert self._recorder is not None
                at = self._recorder.since(time.monotonic())
                self._warnings.append(Told(category.__name__, redacted(str(message)), at))
            shown(message, category, *where, **options)

        warnings.showwarning = hear
        try:
            yield
        finally:
            if warnings.showwarning is hear:
                warnings.showwarning = shown
