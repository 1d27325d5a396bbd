"""Peak memory of two workers of 1 GiB over data that does not fit them: 1, 2 and 4 GB on disk.

\b
python examples/benchmarks/memory.py                 minutes; up to 4.1 GB in a temporary folder
python examples/benchmarks/memory.py --quick         seconds; 0.05 and 0.1 GB, shows that it runs

Float64 rows of 100 columns in uncompressed Zarr chunks of 64 MB. Two jobs, each on a fresh cluster of two processes of
one thread and 1 GiB: factorize, leverage, draw, take; and `run` in two stages with a store. The peak is the high-water
mark of a worker's resident memory as the kernel keeps it, beside what a worker took before the job.

The command fails where a worker of the full size goes above 350 MiB, or the peak grows by more than a tenth from the
smallest data to the largest.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import dask
import distributed
import numpy as np
import zarr
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis

COLUMNS = 100
CHUNK_ROWS = 64_000_000 // (8 * COLUMNS)
MOST = 350
GROWTH = 1.1


def write(folder: Path, gigabytes: float) -> tuple[Any, Any]:
    """Write rows chunk by chunk and open them."""
    n_rows = round(gigabytes * 1e9 / (8 * COLUMNS))
    made = nlis.datasets.generated_rows(n_rows, COLUMNS, block_rows=CHUNK_ROWS)
    group = zarr.open_group(folder, mode="w")
    for name, array in zip(("X", "y"), made, strict=True):
        chunks = (CHUNK_ROWS, *array.shape[1:])
        stored = group.create_array(name, shape=array.shape, chunks=chunks, dtype="f8", compressors=None)
        for k in range(array.numblocks[0]):
            block = array.blocks[k].compute(scheduler="synchronous")
            stored[k * CHUNK_ROWS : k * CHUNK_ROWS + len(block)] = block
    return nlis.open_rows(folder, X="X", y="y")


def problem() -> nlis.Problem:
    return nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Ball(10.0))


def five_words(X: Any, y: Any, folder: Path) -> None:
    theta = np.zeros(COLUMNS + 1)
    A = nlis.dual_matrix(problem(), X, y, theta=theta)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    nlis.draw(scores, 2_000, seed=0).take(X, y)


def job(X: Any, y: Any, folder: Path) -> None:
    nlis.run(problem(), X, y, size=4_000, seed=0, store=folder / "run.zarr")


JOBS: dict[str, Callable[[Any, Any, Path], None]] = {"factor, leverage, draw, take": five_words, "run": job}


def high_water() -> float:
    """Largest resident memory of this process so far, MiB; Linux. `ru_maxrss` would begin with that of its parent."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def peak(work: Callable[[Any, Any, Path], None], X: Any, y: Any, folder: Path) -> tuple[float, float]:
    """MiB of the larger worker before the job and at its peak, on a cluster of its own."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1GiB", dashboard_address="127.0.0.1:0")
    with cluster, Client(cluster) as client:
        before = max(client.run(high_water).values())
        work(X, y, folder)
        return before, max(client.run(high_water).values())


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="0.05 and 0.1 GB.")
@click.option("--sizes", default="1,2,4", show_default=True, help="Gigabytes, separated by commas.")
def main(quick: bool, sizes: str) -> None:
    gigabytes = [0.05, 0.1] if quick else [float(size) for size in sizes.split(",")]
    console = Console(width=100)
    versions = f"dask {dask.__version__}, distributed {distributed.__version__}, zarr {zarr.__version__}"
    console.print(f"peak resident memory of the larger of two 1 GiB workers, MiB; {versions}, NumPy {np.__version__}")
    table = Table("job", "GB", "before", "peak")
    found: dict[str, list[float]] = {name: [] for name in JOBS}
    for size in gigabytes:
        with tempfile.TemporaryDirectory(prefix="nlis-memory-") as name:
            X, y = write(Path(name) / "data.zarr", size)
            for label, work in JOBS.items():
                before, most = peak(work, X, y, Path(name))
                found[label].append(most)
                table.add_row(label, f"{size:g}", f"{before:.0f}", f"{most:.0f}")
    console.print(table)
    bad = [f"{label}: {max(peaks):.0f} MiB is above {MOST}" for label, peaks in found.items() if max(peaks) > MOST]
    bad += [f"{k}: grows from {p[0]:.0f} to {p[-1]:.0f} MiB" for k, p in found.items() if p[-1] > GROWTH * p[0]]
    console.print("\n".join(bad) or f"no worker goes above {MOST} MiB, and none grows with the data")
    sys.exit(1 if bad and not quick else 0)


if __name__ == "__main__":
    main()
