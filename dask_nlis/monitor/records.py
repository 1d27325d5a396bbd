"""What was seen of a job: its phases, and what there is to say of it as a whole."""

from typing import Any

from dask_nlis.nouns import noun


@noun
class Phase:
    """One compute: where, when, how much, how it ended, and the seconds of its tasks by activity.

    `seconds_by` and `rows_done` are None where the scheduler does not tell: that of processes does not.
    """

    label: str
    scheduler: str
    began: float  # seconds after the monitor began
    seconds: float
    n_tasks: int
    tasks_done: int
    n_rows: int
    n_bytes: int
    outcome: str  # "done", "failed" or "interrupted"
    error: str = ""
    workers: int = 1
    threads: int = 1
    rows_done: int | None = None
    seconds_by: dict[str, float] | None = None

    @property
    def rows_per_second(self) -> float | None:
        """Rows read a second; None for phases that read none, or did not end well."""
        return self.n_rows / max(self.seconds, 1e-9) if self.n_rows and self.outcome == "done" else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read a second; None for phases that read none, or did not end well."""
        return self.n_bytes / max(self.seconds, 1e-9) if self.n_bytes and self.outcome == "done" else None


@noun
class Told:
    """A warning: its class, its message without secrets, and seconds after the monitor began."""

    category: str
    message: str
    at: float


@noun
class Execution:
    """A job as a monitor saw it."""

    began: str  # date and time, with the offset to UTC
    seconds: float
    outcome: str
    error: str
    phases: tuple[Phase, ...]
    warnings: tuple[Told, ...]
    memory: tuple[tuple[float, int], ...]  # (seconds after the monitor began, bytes in use), ascending
    devices: dict[str, Any] | None  # blocks by device; None where not known

    @property
    def memory_peak(self) -> int | None:
        """Most bytes in use at a sample; None without one."""
        return max((size for _, size in self.memory), default=None)

    def seconds_by_activity(self) -> dict[str, float]:
        """Seconds of tasks by activity, over the phases that tell."""
        total: dict[str, float] = {}
        for phase in self.phases:
            for activity, seconds in (phase.seconds_by or {}).items():
                total[activity] = total.get(activity, 0.0) + seconds
        return dict(sorted(total.items(), key=lambda pair: -pair[1]))

    def _summary(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "seconds": self.seconds,
            "phases": len(self.phases),
            "rows read": sum(phase.n_rows for phase in self.phases),
            "memory peak": self.memory_peak,
            "warnings": len(self.warnings),
            "devices": self.devices,
        }
