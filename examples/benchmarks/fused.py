"""What it saves to score, draw and take in one read: reads of X, tasks and CPU time of `run`, against the steps by hand.

\b
python examples/benchmarks/fused.py            a few minutes
python examples/benchmarks/fused.py --quick    seconds

At a theta that is given the rival is the public words: `leverage_scores`, `draw` (poisson), `take`, `refit`,
`total_loss`, `certificate`. For two stages, whose second is drawn beside the first, it is `run` itself made to hold the
scores of each stage, go over them to draw, and read the blocks of the drawn rows again. Both give the same sample, rows
and fit in every bit, or the command fails; it also fails when the rival does not read more.

Reads are rows of X that were asked for, over all rows: blocks of drawn rows count as far as they are read. X lies in a
Zarr store of uncompressed chunks. One thread, one BLAS thread on both sides; CPU time of the process, medians of repeats
in turn.
"""

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import click
import dask
import numpy as np
import zarr
from dask.callbacks import Callback
from rich import box
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))


class Counted:
    """A Zarr array that counts the rows it is asked for."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.chunks, self.rows = array, array.shape, array.dtype, array.chunks, 0

    def __getitem__(self, index: Any) -> Any:
        self.rows += len(range(*index[0].indices(self.shape[0])))
        return self.array[index]


class Cost(NamedTuple):
    """What a job took."""

    reads: float
    tasks: int
    seconds: float  # of CPU


Outcome = tuple[nlis.Sample, np.ndarray, np.ndarray, nlis.Fit, float]


def written(folder: Path, rows: int, columns: int, blocks: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=columns) / np.sqrt(columns)
    group = zarr.open_group(folder, mode="w")
    step = -(-rows // blocks)
    x, y = (
        group.create_array(name, shape=shape, chunks=(step, *shape[1:]), dtype="f8", compressors=None)
        for name, shape in (("X", (rows, columns)), ("y", (rows,)))
    )
    for start in range(0, rows, step):
        block = rng.standard_t(5, size=(min(step, rows - start), columns))
        x[start : start + step] = block
        y[start : start + step] = PROBLEM.model.activation.value(block @ theta) + rng.normal(size=len(block))
    return x, y


def parts(job: nlis.Run) -> Outcome:
    return job.sample, job.sample_X, job.sample_y, job.fit, job.total_loss


def at_theta(x: Any, y: Any, size: int, theta: np.ndarray, **options: Any) -> Outcome:
    return parts(nlis.run(PROBLEM, x, y, size=size, seed=1, theta=theta, keep_scores=False, **options))


def words(x: Any, y: Any, size: int, theta: np.ndarray, **options: Any) -> Outcome:
    A = nlis.dual_matrix(PROBLEM, x, y, theta=theta, **options)
    factor = nlis.factorize(A)
    sample = nlis.draw(nlis.leverage_scores(A, factor), size, scheme="poisson", seed=1)
    taken = sample.take(x, y)
    fit = nlis.refit(PROBLEM, *taken, sample, start=theta)
    loss = nlis.total_loss(PROBLEM, x, y, fit.theta, **options)
    nlis.certificate(nlis.dual_matrix(PROBLEM, *taken, theta=theta), factor, sample, theta=fit.theta)
    return sample, *taken, fit, loss


def two_stages(x: Any, y: Any, size: int, _: np.ndarray, **options: Any) -> Outcome:
    return parts(nlis.run(PROBLEM, x, y, size=size, seed=1, keep_scores=False, **options))


def two_stages_in_turn(x: Any, y: Any, size: int, theta: np.ndarray, **options: Any) -> Outcome:
    room, held = (import_module(f"dask_nlis.pipeline.{name}") for name in ("job", "held"))
    with mock.patch.object(room, "way_of", return_value=held.score_held):
        return two_stages(x, y, size, theta, **options)


RIVALS: dict[str, tuple[Callable[..., Outcome], Callable[..., Outcome]]] = {
    "leverage at theta": (at_theta, words),
    "two stages": (two_stages, two_stages_in_turn),
}


class Tasks(Callback):
    """Counts the tasks that run."""

    def __init__(self) -> None:
        self.n = 0
        super().__init__(pretask=lambda *_: setattr(self, "n", self.n + 1))


def measured(job: Callable[..., Outcome], x: Any, y: Any, size: int, theta: np.ndarray, **options: Any) -> Any:
    counted = Counted(x)
    began = time.process_time()
    with Tasks() as tasks:
        found = job(counted, y, size, theta, **options)
    return found, Cost(counted.rows / x.shape[0], tasks.n, time.process_time() - began)


def same(one: Outcome, two: Outcome) -> bool:
    arrays = all(a.tobytes() == b.tobytes() for a, b in zip(one[1:3], two[1:3], strict=True))
    return arrays and (one[0], one[3], one[4]) == (two[0], two[3], two[4])


@click.command(help=__doc__)
@click.option("--rows", default=2_000_000, show_default=True, help="Rows of X.")
@click.option("--columns", default=20, show_default=True, help="Columns of X.")
@click.option("--blocks", default=20, show_default=True, help="Blocks it is read in.")
@click.option("--size", default=4000, show_default=True, help="Rows to draw.")
@click.option("--repeats", default=5, show_default=True, help="Repeats, of which the median counts.")
@click.option("--quick", is_flag=True, help="20,000 rows, 400 drawn, once.")
def main(rows: int, columns: int, blocks: int, size: int, repeats: int, quick: bool) -> None:
    if quick:
        rows, size, repeats = 20_000, 400, 1
    table = Table(box=box.MARKDOWN)
    for name in ("job", "how", "reads of X", "tasks", "CPU s", "ratio of CPU"):
        table.add_column(name, justify="left" if name in ("job", "how") else "right")
    bad: list[str] = []
    theta = np.full(columns + 1, 0.1)
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(scheduler="synchronous"),
        threadpool_limits(1, user_api="blas"),
    ):
        x, y = written(Path(folder) / "data", rows, columns, blocks)
        options = {"block_bytes": 8 * columns * -(-rows // blocks)}
        for name, rivals in RIVALS.items():
            costs: list[list[Cost]] = [[], []]
            for _ in range(repeats):
                found = []
                for k, job in enumerate(rivals):
                    outcome, cost = measured(job, x, y, size, theta, **options)
                    found.append(outcome)
                    costs[k].append(cost)
                if not same(*found):
                    bad.append(f"{name}: samples or fits differ")
            ours, theirs = (statistics.median(cost.seconds for cost in each) for each in costs)
            for how, each, seconds in (("run", costs[0], ours), ("score, draw, take", costs[1], theirs)):
                table.add_row(
                    name, how, f"{each[0].reads:.2f}", str(each[0].tasks), f"{seconds:.2f}", f"{seconds / ours:.2f}"
                )
            if not costs[0][0].reads < costs[1][0].reads:
                bad.append(f"{name}: run reads {costs[0][0].reads} times, the rival {costs[1][0].reads}")
    print(f"{rows:,} x {columns} float64 in {blocks} blocks, {size:,} rows drawn, median of {repeats}")
    Console(width=120).print(table)
    versions = ", ".join(f"{module.__name__} {module.__version__}" for module in (nlis, dask, np, zarr))
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}, {versions}; one thread")
    print("\n".join(bad) or "the same samples, rows and fits in every bit")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
