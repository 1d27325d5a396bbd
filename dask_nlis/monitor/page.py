"""The page of an execution: one HTML file that loads nothing, all text escaped, pictures inline."""

import platform
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import dask
import jinja2
import numpy as np
import zarr

from dask_nlis.monitor.pictures import Line, Timeline, memory_line, timeline
from dask_nlis.monitor.records import Execution, Phase
from dask_nlis.pages import STYLE, big, bytes_text, policy, seconds_text, template

#: What activities mean, ours first; others are Dask's own.
MEANINGS = {
    "read": "reading and decoding stored arrays",
    "adjoint": "rows of the matrix, by model and loss",
    "factor": "linear algebra of the factor",
    "score": "linear algebra of the scores",
    "check": "losses, certificates, drift",
    "draw": "choosing rows",
    "transfer": "to the device and back",
    "thread-cpu": "the rest of the tasks, on the CPU",
    "thread-noncpu": "the rest of the tasks, waiting",
    "rest": "the rest of the tasks",
    "executor": "waiting for a thread",
    "other": "the worker between tasks",
}


class Row(NamedTuple):
    """Phases of one label together."""

    label: str
    times: int
    seconds: float
    n_tasks: int
    n_rows: int
    n_bytes: int
    reading: float  # seconds of phases that read

    @property
    def rows_per_second(self) -> float | None:
        """Rows read a second, while rows were read."""
        return self.n_rows / max(self.reading, 1e-9) if self.n_rows else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read a second, while rows were read."""
        return self.n_bytes / max(self.reading, 1e-9) if self.n_bytes else None


class Activity(NamedTuple):
    """Seconds of tasks that went to an activity."""

    name: str
    seconds: float
    share: float
    meaning: str


def page_of(execution: Execution) -> str:
    """The HTML of the page."""
    phases = execution.phases
    reads = sum((row.reading for row in by_label(phases)), 0.0)
    n_rows = sum(phase.n_rows for phase in phases)
    pictures: dict[str, Timeline | Line | None] = {
        "timeline": timeline(execution) if phases else None,
        "memory": memory_line(execution) if len(execution.memory) > 1 else None,
    }
    return _template().render(
        seen=execution,
        rows=by_label(phases),
        activities=activities(execution),
        n_untold=sum(phase.seconds_by is None for phase in phases),
        schedulers=sorted({phase.scheduler for phase in phases}),
        workers=max((phase.workers for phase in phases), default=0),
        threads=max((phase.threads for phase in phases), default=0),
        n_rows=n_rows,
        rate=n_rows / reads if reads else None,
        versions=_versions(),
        style=STYLE,
        policy=policy(STYLE),
        **pictures,
    )


def by_label(phases: tuple[Phase, ...]) -> list[Row]:
    """Phases of one label added up, in the order of their first."""
    rows: dict[str, Row] = {}
    for phase in phases:
        old = rows.get(phase.label, Row(phase.label, 0, 0.0, 0, 0, 0, 0.0))
        rows[phase.label] = Row(
            phase.label,
            old.times + 1,
            old.seconds + phase.seconds,
            old.n_tasks + phase.tasks_done,
            old.n_rows + phase.n_rows,
            old.n_bytes + phase.n_bytes,
            old.reading + (phase.seconds if phase.n_rows else 0.0),
        )
    return list(rows.values())


def activities(execution: Execution) -> list[Activity]:
    """Where the seconds of tasks went, most first."""
    found = execution.seconds_by_activity()
    total = sum(found.values()) or 1.0
    return [
        Activity(name, seconds, seconds / total, MEANINGS.get(name, "Dask's own")) for name, seconds in found.items()
    ]


@cache
def _template() -> jinja2.Template:
    return template("dask_nlis.monitor", "page.html.jinja", {"big": big, "size": bytes_text, "duration": seconds_text})


def _versions() -> dict[str, Any]:
    return {
        "dask-nlis": version("dask-nlis"),
        "Dask": dask.__version__,
        "NumPy": np.__version__,
        "Zarr": zarr.__version__,
        "Python": platform.python_version(),
    }
