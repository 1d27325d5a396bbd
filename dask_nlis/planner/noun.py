"""The nouns Pass and Plan: what a job would read, compute and hold."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dask.utils import format_bytes

from dask_nlis.nouns import noun, to_dict


@noun
class Pass:
    """One pass of a job: over all rows, over scores that are held, or over the blocks of drawn rows."""

    label: str
    kind: str
    reads: int  # full reads of X
    blocks: int
    tasks: int
    exact: bool  # whether `tasks` is their number, or the most there can be
    n_bytes: int  # read, of X, y and weights; at most, for drawn rows
    flops: float
    seconds: float | None = None


@noun
class Plan:
    """What `run` would do with these arguments: passes, tasks, bytes, memory and time. Made by `plan`.

    Attributes
    ----------
    passes : tuple of Pass
        In order; `label`, `reads` of all X, `blocks`, `tasks` (`exact`, or at most so many), `n_bytes` read,
        `flops` to leading order, `seconds` or None.
    n_rows, n_columns, n_parameters : int
        Rows and columns of X, parameters of the model.
    size : int
        Rows to draw.
    scheme, scores : str
        How.
    blocks : int
        Blocks of rows of X.
    block_rows, block_bytes : int
        Of the largest block of X, y and weights, as stored.
    worker_memory, client_memory : dict
        Bytes of the fullest worker process and of this process, part by part. With a scheduler of threads both are
        one process.
    memory_limit : int or None
        Bytes that a worker process may use; None where nothing limits it.
    processes, threads : int
        That would work.
    note : str
        What the numbers take for granted.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> plan = nlis.plan(nlis.Problem(nlis.Linear()), X, X[:, 0], size=100, calibrate=False)
    >>> plan.reads, plan.blocks, plan.passes[0].label
    (5, 1, 'pilot factor')
    >>> plan.tasks >= plan.reads, plan.n_bytes >= 5 * X.nbytes, plan.flops > 0, plan.seconds
    (True, True, True, None)
    >>> plan.peak_worker_memory > 0, plan.peak_client_memory > 0, plan.to_dict()["reads"]
    (True, True, 5)
    """

    passes: tuple[Pass, ...]
    n_rows: int
    n_columns: int
    n_parameters: int
    size: int
    scheme: str
    scores: str
    blocks: int
    block_rows: int
    block_bytes: int
    worker_memory: Mapping[str, int]
    client_memory: Mapping[str, int]
    memory_limit: int | None
    processes: int
    threads: int
    note: str

    @property
    def reads(self) -> int:
        """Full reads of X; the blocks of drawn rows come on top where they are read again."""
        return sum(each.reads for each in self.passes)

    @property
    def tasks(self) -> int:
        """Tasks in all, at most."""
        return sum(each.tasks for each in self.passes)

    @property
    def n_bytes(self) -> int:
        """Bytes read in all, at most."""
        return sum(each.n_bytes for each in self.passes)

    @property
    def flops(self) -> float:
        """Floating-point operations in all, to leading order."""
        return sum(each.flops for each in self.passes)

    @property
    def seconds(self) -> float | None:
        """Time of the passes in all; None without calibration."""
        known = [each.seconds for each in self.passes if each.seconds is not None]
        return sum(known) if known else None

    @property
    def peak_worker_memory(self) -> int:
        """Bytes of the fullest worker process."""
        return sum(self.worker_memory.values())

    @property
    def peak_client_memory(self) -> int:
        """Bytes of this process."""
        return sum(self.client_memory.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, the sums with it.

        Returns
        -------
        dict
            Fields and sums by name, passes as a list of such.
        """
        sums = ("reads", "tasks", "n_bytes", "flops", "seconds", "peak_worker_memory", "peak_client_memory")
        found = to_dict(self) | {name: getattr(self, name) for name in sums}
        return found | {name: dict(getattr(self, name)) for name in ("worker_memory", "client_memory")}

    def lines(self) -> tuple[str, ...]:
        """What is said above the table of passes."""
        limit = "" if self.memory_limit is None else f" of {format_bytes(self.memory_limit)}"
        time = "" if self.seconds is None else f", about {_time(self.seconds)}"
        return (
            (
                f"{self.n_rows:,} rows x {self.n_columns:,} columns, {self.n_parameters:,} parameters, "
                f"{self.size:,} rows to draw ({self.scores}, {self.scheme})"
            ),
            (
                f"{self.blocks:,} block{'s' if self.blocks > 1 else ''} of up to {self.block_rows:,} rows, "
                f"{format_bytes(self.block_bytes)}; {self.processes:,} process{'es' if self.processes > 1 else ''}, "
                f"{self.threads:,} thread{'s' if self.threads > 1 else ''}"
            ),
            f"{self.reads} reads of X, up to {self.tasks:,} tasks, {format_bytes(self.n_bytes)}, {self.flops:.2g} flops{time}",
            f"worker {format_bytes(self.peak_worker_memory)}{limit} ({_parts(self.worker_memory)})",
            f"client {format_bytes(self.peak_client_memory)} ({_parts(self.client_memory)})",
        )

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Head and rows of the table of passes."""
        head = ("pass", "reads", "tasks", "bytes", "flops", "time")
        return (head, *(_cells(each) for each in self.passes))

    def __repr__(self) -> str:
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join((*self.lines(), "", *(_aligned(row, widths) for row in rows), "", self.note))

    def _repr_html_(self) -> str:
        def cells(row: Sequence[str], tag: str) -> str:
            sides = ("left", *["right"] * (len(row) - 1))
            pairs = zip(row, sides, strict=True)
            return "".join(f"<{tag} style='text-align:{side}'>{html.escape(c)}</{tag}>" for c, side in pairs)

        head, *rows = self.table()
        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        above = "<br>".join(map(html.escape, self.lines()))
        return f"<p>{above}</p><table><tr>{cells(head, 'th')}</tr>{body}</table><p>{html.escape(self.note)}</p>"


def _cells(each: Pass) -> tuple[str, ...]:
    return (
        each.label,
        str(each.reads) if each.reads else "-",
        f"{'' if each.exact else '<= '}{each.tasks:,}",
        f"{'' if each.reads else '<= '}{format_bytes(each.n_bytes)}" if each.n_bytes else "-",
        f"{each.flops:.2g}" if each.flops else "-",
        _time(each.seconds) if each.seconds is not None else "-",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()


def _parts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size)


def _time(seconds: float) -> str:
    return (
        f"{seconds:.2g} s"
        if seconds < 100
        else f"{seconds / 60:,.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:,.1f} h"
    )
