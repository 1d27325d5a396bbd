"""Workers, memory, tasks and time of jobs of 10^8 to 10^12 rows, by the planner, and the planner against runs made here.

\b
python examples/benchmarks/sizing.py                 minutes: the tables of deploy/SIZING.md, and the check
python examples/benchmarks/sizing.py --quick         seconds: one table, and a check on few rows
python examples/benchmarks/sizing.py --no-check      the tables alone

Rates are measured as `plan` measures them: one block is read from Zarr, and the kernels are timed on its rows, one BLAS
thread. In the tables a thread reads and decodes what --read says instead; everything else follows from the shape of
the data. Times are of threads that work all the time, or of the scheduler where that takes longer. The check runs jobs on
uncompressed Zarr in a temporary folder (3 GB), on two processes, and prints what was planned beside what was measured.
"""

import math
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
import psutil
import zarr
from dask.utils import format_bytes, parse_bytes
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from threadpoolctl import threadpool_limits

import dask_nlis as nlis
from dask_nlis.planner import calibrated

COLUMNS = 100

#: Rows of a job, and bytes of its blocks: 64 MB as `open_rows` chooses, larger where there would be millions.
ROWS = {10**8: 2**26, 10**9: 2**26, 10**10: 2**26, 10**12: 2**30}

#: Rows of a block of 64 MB.
BLOCK_ROWS = 2**26 // (8 * COLUMNS)

#: CPU of the scheduler for a task, in seconds: 1 to 2.4 ms where cores are shared, less elsewhere.
SCHEDULER = 1e-3

#: Tasks that a cluster finishes for each that the planner counts: candidates are handed on by tasks of their own.
ON_A_CLUSTER = 2

GLM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))
NET = nlis.Problem(nlis.ReluNetwork(5))


@dataclass(frozen=True)
class Case:
    """A job of the tables."""

    title: str
    problem: nlis.Problem
    size: int
    blocks: tuple[int, ...]  # of the jobs it is checked by

    def plan(self, n_rows: int, block_bytes: int, threads: int) -> nlis.Plan:
        """What the planner says of it, on threads of one process, from the shape of the data alone."""
        X, y = nlis.datasets.generated_rows(n_rows, COLUMNS, block_rows=block_bytes // (8 * COLUMNS))
        with dask.config.set(scheduler="threads", num_workers=threads):
            return nlis.plan(self.problem, X, y, size=self.size, memory_limit="1 PiB", calibrate=False)


CASES = (
    Case("Single index, d = 100, 10,000 rows drawn", GLM, 10_000, (10, 40)),
    Case("ReLU network of 5 units, d = 100, 50,000 rows drawn", NET, 50_000, (10,)),
)


@dataclass(frozen=True)
class Rates:
    """Seconds of a thread: to read a block of 64 MB, and in the kernels for a row of each pass that reads all rows."""

    block: float
    rows: dict[str, float]

    def seconds(self, plan: nlis.Plan, block: float) -> float:
        """Of one thread for all reading passes, at `block` seconds to read a block."""
        reading = [each for each in plan.passes if each.reads]
        return sum(each.reads * (plan.blocks * block + plan.n_rows * self.rows[each.label]) for each in reading)


def write(folder: Path, n_rows: int) -> tuple[Any, Any]:
    """Write rows as Zarr in chunks of 64 MB, uncompressed, and open them."""
    X, y = nlis.datasets.generated_rows(n_rows, COLUMNS, block_rows=BLOCK_ROWS)
    group = zarr.open_group(folder, mode="w")
    for name, array in (("X", X), ("y", y)):
        chunks = (BLOCK_ROWS, *array.shape[1:])
        stored = group.create_array(name, shape=array.shape, chunks=chunks, dtype="f8", compressors=None)
        for k in range(array.numblocks[0]):
            rows = slice(k * BLOCK_ROWS, min((k + 1) * BLOCK_ROWS, n_rows))
            stored[rows] = array.blocks[k].compute(scheduler="synchronous")
    return nlis.open_rows(folder, X="X", y="y")


def rates_of(case: Case, X: Any, y: Any, repeats: int) -> Rates:
    """Rates of a thread here: least of several calibrations on a block that is stored, as `plan` makes one."""
    theta = 0.01 * np.random.default_rng(0).standard_normal(case.problem.model.n_parameters(COLUMNS))
    matrices = {
        "reference": nlis.reference_matrix(case.problem, X, y),
        "dual": nlis.dual_matrix(case.problem, X, y, theta=theta),
        "tangent": nlis.tangent_matrix(case.problem, X, y, theta=theta),
    }
    with dask.config.set(scheduler="synchronous"):
        found = [calibrated(matrices) for _ in range(repeats)]
    factor, score = (
        {name: min(getattr(f, kind)[name] for f in found) for name in matrices} for kind in ("factor", "score")
    )
    # What two-stage scores take of each matrix: chances of the first stage are found again in the second.
    rows = {
        "pilot factor": factor["reference"],
        "pilot scores": score["reference"],
        "factor": factor["dual"] + factor["tangent"],
        "scores": sum(score.values()),
        "total loss": min(f.norm["dual"] for f in found),
    }
    return Rates(min(f.block for f in found), rows)


def table(case: Case, rates: Rates, read: float, hours: float) -> Iterator[Sequence[str]]:
    """Head and rows: what a job of each length takes, and the workers that do it in so many hours."""
    yield "rows", "data", "blocks of", "tasks", "thread hours", "workers of 4", "memory of one", "client", "time"
    for n_rows, block_bytes in ROWS.items():
        plan = case.plan(n_rows, block_bytes, threads=4)
        seconds = rates.seconds(plan, plan.block_bytes / read)
        workers = max(2, math.ceil(seconds / (4 * 3600 * hours)))
        # Scores go to the store; candidates lie spread over the workers.
        held = plan.worker_memory["scores held"]
        candidates = held - 8 * n_rows
        busy, handing = seconds / (4 * workers), SCHEDULER * ON_A_CLUSTER * plan.tasks
        yield (
            f"10^{round(math.log10(n_rows))}",
            format_bytes(plan.n_rows * 8 * (COLUMNS + 1)),
            f"{plan.blocks:,} x {format_bytes(plan.block_bytes)}",
            f"{plan.tasks:,}",
            f"{seconds / 3600:,.1f}",
            f"{workers:,}",
            format_bytes(plan.peak_worker_memory - held + candidates // workers),
            format_bytes(plan.peak_client_memory),
            shown(max(busy, handing)) + (", by the scheduler" if handing > busy else ""),
        )


def shown(seconds: float) -> str:
    """A time in words."""
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


class Tasks(SchedulerPlugin):
    """Counts the tasks that workers finish."""

    name = "tasks"
    n = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """See a task change its state."""
        self.n += (start, finish) == ("processing", "memory")


def used() -> float:
    """CPU seconds of this process so far."""
    times = psutil.Process().cpu_times()
    return times.user + times.system


def peak() -> int:
    """Bytes this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check(case: Case, X: Any, y: Any, rates: Rates) -> Sequence[str]:
    """A run on a cluster of two processes beside what the planner says of it."""
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "4 GiB"}
    with LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        client.register_plugin(Tasks())
        plan = nlis.plan(case.problem, X, y, size=case.size, calibrate=False)
        before, began = sum(client.run(used).values()), time.perf_counter()
        job = nlis.run(case.problem, X, y, size=case.size, seed=0)
        wall, after = time.perf_counter() - began, sum(client.run(used).values())
        held = max(client.run(peak).values())
        n_tasks = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins["tasks"].n)
    told = rates.seconds(plan, rates.block)
    return (
        f"{plan.n_rows:,}",
        f"{plan.reads} / {sum(job.reads.values())}",
        f"{plan.tasks:,} / {n_tasks:,}",
        f"{told:,.0f} s / {after - before:,.0f} s",
        f"{(after - before) / told:.2f}",
        f"{format_bytes(plan.peak_worker_memory)} / {format_bytes(held)}",
        shown(wall) if wall > 600 else f"{wall:,.0f} s",
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table, numbers to the right."""
    head, *rest = rows
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in (head, *rest)]
    lines.insert(1, ["-" * (width - 1) + ":" for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="One table and a check on few rows.")
@click.option("--check/--no-check", "checked", default=True, help="Run jobs and compare.")
@click.option("--read", default="200 MB", show_default=True, help="Bytes a second that one thread reads and decodes.")
@click.option("--hours", default=8.0, show_default=True, help="What a job may take.")
def main(quick: bool, checked: bool, read: str, hours: float) -> None:
    """Print tables and checks."""
    cases = CASES[:1] if quick else CASES
    lengths = {1, 5} if quick else {1, *(n for case in cases for n in case.blocks)}
    with tempfile.TemporaryDirectory(prefix="nlis-sizing-") as folder:
        data = {n: write(Path(folder) / f"{n}.zarr", n * BLOCK_ROWS) for n in lengths}
        with threadpool_limits(1):
            rates = [rates_of(case, *data[1], 3 if quick else 40) for case in cases]
        for case, found in zip(cases, rates, strict=True):
            told = ", ".join(f"{label} {1e6 * seconds:.2f}" for label, seconds in found.rows.items())
            print(f"\n## {case.title}\n\nMicroseconds of a thread for a row: {told}.\n")
            print(markdown(list(table(case, found, parse_bytes(read), hours))))
        if not checked:
            return
        print("\n## Planned / measured, on two processes of one thread\n")
        head = ("rows", "reads", "tasks", "CPU", "measured / planned", "worker", "wall")
        for case, found in zip(cases, rates, strict=True):
            print(f"{case.title}; a block is read in {found.block:.3f} s:\n")
            print(markdown([head, *(check(case, *data[n], found) for n in ((5,) if quick else case.blocks))]) + "\n")


if __name__ == "__main__":
    main()
