"""How a job grows with the rows and with the workers: leverage of 10^5 to 10^8 rows, by one worker and by two.

\b
python examples/benchmarks/scaling.py                ten minutes
python examples/benchmarks/scaling.py --quick        seconds; 10^4 and 10^5 rows
python examples/benchmarks/scaling.py --most 7       10^7 rows at most

Float64 rows of 10 columns are made when they are read (`datasets.generated_rows`), in blocks of 10^6 rows (80 MB), or
of an eighth of all where there are fewer; making them is part of every read and of every time shown, and is shown by
itself: a plain loop that makes every block twice and sums it. Workers are processes of one thread. The job is factorize, leverage, a
Poisson draw of 1,000 rows and their take: X is made twice, and in the blocks of the rows once more.

Wall seconds are the median of the rounds, CPU seconds those of all workers and of this process with the scheduler
in it. The speed-up of two workers needs two idle cores; the load of the machine is printed.
"""

import os
import statistics
import time
from typing import Any

import click
import dask
import numpy as np
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

COLUMNS = 10


def rows(n: int) -> tuple[Any, Any]:
    return nlis.datasets.generated_rows(n, COLUMNS, block_rows=min(10**6, max(1, n // 8)))


def loop(n: int) -> None:
    """Make every block twice in a plain loop."""
    X, _ = rows(n)
    for _ in range(2):
        for k in range(X.numblocks[0]):
            X.blocks[k].compute(scheduler="synchronous").sum()


def job(n: int) -> None:
    X, _ = rows(n)
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), X)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    nlis.draw(scores, 1_000, scheme="poisson", seed=0).take(X)


def timed(work: Any, n: int, rounds: int, client: Client | None = None) -> tuple[float, float]:
    """Median wall and CPU seconds, the workers' included."""

    def used() -> float:
        return time.process_time() + (sum(client.run(time.process_time).values()) if client else 0.0)

    wall, cpu = [], []
    for _ in range(rounds):
        began, before = time.perf_counter(), used()
        work(n)
        wall.append(time.perf_counter() - began)
        cpu.append(used() - before)
    return statistics.median(wall), statistics.median(cpu)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="10^4 and 10^5 rows, once.")
@click.option("--most", default=8, show_default=True, help="Largest power of ten.")
@click.option("--rounds", default=3, show_default=True, help="Times each is measured; 10^8 rows once.")
def main(quick: bool, most: int, rounds: int) -> None:
    powers = [4, 5] if quick else range(5, most + 1)
    console = Console(width=100)
    versions = f"dask {dask.__version__}, NumPy {np.__version__}"
    console.print(
        f"leverage, draw and take; d = {COLUMNS}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {versions}"
    )
    table = Table("rows", "blocks", "workers", "wall s", "CPU s", "CPU us a row", "wall of 1 / it", "loop CPU s")
    with threadpool_limits(1, user_api="blas"):
        times = {k: 1 if quick or k == 8 else rounds for k in powers}
        plain = {k: timed(loop, 10**k, times[k])[1] for k in powers}
        single: dict[int, float] = {}
        for workers in (1, 2):
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
            with cluster, Client(cluster) as client:
                job(10**4)  # workers import what they need
                for k in powers:
                    wall, cpu = timed(job, 10**k, times[k], client)
                    single.setdefault(k, wall)
                    blocks = str(rows(10**k)[0].numblocks[0])
                    cells = (f"{wall:.2f}", f"{cpu:.2f}", f"{1e6 * cpu / 10**k:.3f}", f"{single[k] / wall:.2f}")
                    table.add_row(f"1e{k}", blocks, str(workers), *cells, f"{plain[k]:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
