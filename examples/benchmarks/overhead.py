"""What Dask costs: the CPU of a job beyond that of a plain loop over the same reads and the same arithmetic.

\b
python examples/benchmarks/overhead.py               minutes; 2 GB in a temporary folder
python examples/benchmarks/overhead.py --quick       seconds; 32 MB in blocks of 4 MB

Float64 rows of 100 columns in uncompressed Zarr chunks of 64 MB, which lie in the page cache. Two jobs: squared norms
(one read, light arithmetic) and leverage (two reads, a Gram matrix and a triangular product). The loop opens the same
Zarr arrays, reads block by block with the library's reader and calls the library's task functions; the others are
`factorize` and `leverage_scores` or `norm_scores` on the synchronous scheduler, on two threads, and on a cluster of
two processes of one thread. One BLAS thread everywhere. CPU seconds of all processes, interleaved, minimum and median.

share = 1 - CPU of the loop / CPU of the job. For the cluster the excess is told apart: the client and scheduler (one
process here), and the workers' beyond the loop. At the end, what it takes to make graphs of 100,000 blocks, before any
task runs.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import dask
import dask.array as da
import distributed
import numpy as np
import zarr
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis
from dask_nlis.factor.gram import gram_block
from dask_nlis.intake.reader import Reader
from dask_nlis.sampling.verb import draw_held
from dask_nlis.scores.leverage import leverage_block
from dask_nlis.scores.norms import norm_block

COLUMNS = 100


def write(folder: Path, n_blocks: int, rows: int) -> tuple[Any, Any]:
    X, y = nlis.datasets.generated_rows(n_blocks * rows, COLUMNS, block_rows=rows)
    group = zarr.open_group(folder, mode="w")
    for name, array in (("X", X), ("y", y)):
        chunks = (rows, *array.shape[1:])
        stored = group.create_array(name, shape=array.shape, chunks=chunks, dtype="f8", compressors=None)
        for k in range(n_blocks):
            stored[k * rows : (k + 1) * rows] = array.blocks[k].compute(scheduler="synchronous")
    return nlis.open_rows(folder, X="X", y="y", block_bytes=8 * rows * COLUMNS)


class Jobs:
    """Both jobs, by the library and by a plain loop."""

    def __init__(self, X: Any, y: Any, folder: Path) -> None:
        group = zarr.open_group(folder, mode="r")
        self.stored = Reader(group["X"], "X"), Reader(group["y"], "y")
        self.rows = X.chunks[0][0]
        theta = np.linspace(-0.1, 0.1, COLUMNS + 1)
        problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
        self.A = nlis.dual_matrix(problem, X, y, theta=theta, device="cpu")
        self.factor = nlis.factorize(self.A)

    def _blocks(self) -> Any:
        x, y = self.stored
        for start in range(0, x.shape[0], self.rows):
            place = slice(start, start + self.rows)
            yield x[place], y[place], None, start

    def loop(self, job: str) -> None:
        """Read and work block by block."""
        if job == "norm":
            for block in self._blocks():
                norm_block(*block, job=self.A.job, log2_scale=0)
            return
        total = None
        for block in self._blocks():
            part = gram_block(*block, job=self.A.job)[0, 0]
            total = part if total is None else total.plus(part)
        pair = self.factor.whitener, self.factor.correction
        for block in self._blocks():
            leverage_block(*block, job=self.A.job, whitener=pair, tolerance=self.factor.score_tolerance)

    def library(self, job: str) -> None:
        """The same by the scheduler in force."""
        scores = (
            nlis.norm_scores(self.A)
            if job == "norm"
            else nlis.leverage_scores(self.A, nlis.factorize(self.A, method="gram"))
        )
        nlis.top_rows(scores, 1)  # the least there is to be done with scores: nothing of their length comes back


class Stopped(Exception):
    """A graph is made, and nothing is run."""


def graphs(n_blocks: int) -> dict[str, float]:
    """CPU seconds it takes to make the graphs of a job over so many blocks, until a scheduler has the first wave."""

    def stop(graph: Any, keys: Any, **_: Any) -> Any:
        raise Stopped

    X, y = nlis.datasets.generated_rows(4 * n_blocks, 3, block_rows=4)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
    A = nlis.dual_matrix(problem, X, y, theta=np.zeros(4))
    chunks = ((4,) * n_blocks,)
    held = da.Array({("held", k): np.ones(4) for k in range(n_blocks)}, "held", chunks=chunks, meta=np.empty(0))
    calls: dict[str, Callable[[], Any]] = {
        "factor": lambda: nlis.factorize(A),
        "scores": lambda: nlis.norm_scores(A),
        "pass of a draw": lambda: draw_held(held, 10, "poisson", 0, 0),
    }
    taken = {}
    with dask.config.set(scheduler=stop):
        for name, call in calls.items():
            began = time.process_time()
            with suppress(Stopped):
                call()
            taken[name] = time.process_time() - began
    return taken


def interleaved(
    calls: dict[str, Callable[[], tuple[float, float]]], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """CPU seconds of each call, of this process and of workers."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
    return found


def cpu(work: Callable[[], None], scheduler: str | Client) -> tuple[float, float]:
    """CPU seconds of this process and of the workers."""
    client = scheduler if isinstance(scheduler, Client) else None

    def workers() -> float:
        return sum(client.run(time.process_time).values()) if client else 0.0

    before, began = workers(), time.process_time()
    if client:
        work()
    else:
        with dask.config.set(scheduler=scheduler, num_workers=2):
            work()
    return time.process_time() - began, workers() - before


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="8 blocks of 4 MB.")
@click.option("--rounds", default=5, show_default=True, help="Times each is measured.")
def main(quick: bool, rounds: int) -> None:
    n_blocks, megabytes = (8, 4) if quick else (32, 64)
    console = Console(width=110)
    versions = f"dask {dask.__version__}, distributed {distributed.__version__}, zarr {zarr.__version__}, NumPy {np.__version__}"
    console.print(f"{n_blocks} blocks of {megabytes} MB, d = {COLUMNS}, float64; one BLAS thread; {versions}")
    table = Table(
        "job", "how", "CPU s, least", "median", "MB/CPU s", "share of Dask", "client, scheduler", "workers - loop"
    )
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with threadpool_limits(1, user_api="blas"), tempfile.TemporaryDirectory(prefix="nlis-overhead-") as name:
        X, y = write(Path(name), n_blocks, megabytes * 10**6 // (8 * COLUMNS))
        jobs = Jobs(X, y, Path(name))
        with cluster, Client(cluster, set_as_default=False) as client:
            for job, reads in (("norm", 1), ("leverage", 2)):
                # A client that is no default takes part only where it is asked to.
                def on_cluster(job: str = job) -> None:
                    with client.as_current(), dask.config.set(scheduler=client.get):
                        jobs.library(job)

                found = interleaved(
                    {
                        "plain loop": lambda job=job: cpu(lambda: jobs.loop(job), "synchronous"),
                        "synchronous": lambda job=job: cpu(lambda: jobs.library(job), "synchronous"),
                        "threads": lambda job=job: cpu(lambda: jobs.library(job), "threads"),
                        "cluster 2 x 1": lambda: cpu(on_cluster, client),
                    },
                    rounds,
                )
                base = statistics.median(here for here, _ in found["plain loop"])
                for how, taken in found.items():
                    here, there = (statistics.median(each) for each in zip(*taken, strict=True))
                    median, least = statistics.median(map(sum, taken)), min(map(sum, taken))
                    rate = reads * n_blocks * megabytes / median
                    apart = (f"{here:.2f}", f"{there - base:+.2f}") if there else ("", "")
                    table.add_row(
                        job, how, f"{least:.2f}", f"{median:.2f}", f"{rate:.0f}", f"{1 - base / median:.0%}", *apart
                    )
    console.print(table)
    n_graph = 2_000 if quick else 100_000
    seconds = ", ".join(f"{name} {taken:.1f}" for name, taken in graphs(n_graph).items())
    console.print(f"CPU s to make the graphs of {n_graph:,} blocks: {seconds}")


if __name__ == "__main__":
    main()
