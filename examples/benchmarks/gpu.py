"""Rows a second of leverage on a GPU: against the CPU, and against what the card and its bus can do at most.

\b
python examples/benchmarks/gpu.py            minutes; 1 GB of rows for each line
python examples/benchmarks/gpu.py --quick    seconds; too small to judge a card by

Two passes over a single-index matrix of d features held in memory as float32 or float64, in blocks of 64 MB: the Gram
matrix (factorize, method="gram") and the scores (leverage_scores). Ceilings, of the same blocks: "copy" takes each over
to the card as it is stored, through CuPy as the passes do; "pinned" does so from page-locked memory, which data rarely
lie in; "product" is the faster of CuPy's matrix product and symmetric product (syrk) of the float64 columns in the first
pass, and their product with a d x d matrix in the second, on data that are there already. The slower of copy and product
binds; of it 70 % at d = 500 is the target. Medians of the repeats. The CPU path has one BLAS thread a task, as many
tasks as cores. Scores of both must agree to 1e-10.

Without a GPU one line says so, and nothing else is printed.
"""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any

import click
import dask
import dask.array as da
import numpy as np

import dask_nlis as nlis
from dask_nlis.device import probe

TARGET = 0.70
COLUMNS = ("type", "d", "pass", "GPU", "CPU", "GPU/CPU", "copy", "pinned", "product", "of the binding one", "apart")


def data(n: int, d: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (n, d) and labels (n,), and a theta (d + 1,) at which the index has a size of about 1."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d), dtype=np.float32).astype(dtype)
    return X, rng.standard_normal(n), rng.standard_normal(d + 1) / np.sqrt(d + 1)


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median over the repeats, after one more that warms up."""
    work()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return median(found)


def passes(
    where: str, X: np.ndarray, y: np.ndarray, theta: np.ndarray, block: int, repeats: int, threads: int
) -> tuple[float, float, np.ndarray]:
    """Seconds of the two passes on a device, and the scores."""
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
    with dask.config.set(scheduler="threads", num_workers=threads):
        lazy = da.from_array(X, (block, X.shape[1]))
        A = nlis.dual_matrix(problem, lazy, y, theta=theta, device=where)
        factor = nlis.factorize(A, method="gram")
        scores = nlis.leverage_scores(A, factor)
        first = median_seconds(lambda: nlis.factorize(A, method="gram"), repeats)
        return first, median_seconds(lambda: np.asarray(scores), repeats), np.asarray(scores)


def ceilings(cupy: Any, X: np.ndarray, block: int, repeats: int) -> dict[str, float]:
    """Seconds that all blocks take at least: to be copied, and to be multiplied in float64."""
    from cupy.cublas import syrk
    from cupyx import empty_like_pinned

    blocks = [X[k : k + block] for k in range(0, len(X), block)]
    locked = empty_like_pinned(blocks[0])
    locked[...] = blocks[0]
    there = cupy.asarray(blocks[0]).astype(cupy.float64)
    square, stream = cupy.eye(X.shape[1]), cupy.cuda.get_current_stream()

    def done(work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            work()
            stream.synchronize()

        return run

    share = len(X) / len(blocks[0])
    gram = min(median_seconds(done(work), repeats) for work in (lambda: there.T @ there, lambda: syrk("T", there)))
    return {
        "copy": median_seconds(done(lambda: [cupy.asarray(part) for part in blocks]), repeats),
        "pinned": share * median_seconds(done(lambda: cupy.asarray(locked)), repeats),
        "Gram": share * gram,
        "scores": share * median_seconds(done(lambda: there @ square), repeats),
    }


def line(cupy: Any, dtype: str, d: int, megabytes: float, block_bytes: int, repeats: int, threads: int) -> list[Any]:
    """Lines of the table for one type and width, and the shares of the binding ceiling."""
    row_bytes = d * np.dtype(dtype).itemsize
    X, y, theta = data(max(1000, int(megabytes * 2**20) // row_bytes), d, dtype)
    block = max(500, block_bytes // row_bytes)
    *gpu, scores = passes("cuda", X, y, theta, block, repeats, threads)
    *cpu, expected = passes("cpu", X, y, theta, block, repeats, os.cpu_count() or 1)
    most = ceilings(cupy, X, block, repeats)
    apart = float(np.abs(scores - expected).max())
    found = []
    for k, name in enumerate(("Gram", "scores")):
        share = max(most["copy"], most[name]) / gpu[k]
        rates = [f"{len(X) / seconds:.3g}" for seconds in (gpu[k], cpu[k], most["copy"], most["pinned"], most[name])]
        shown = [dtype, d, name, *rates[:2], f"{cpu[k] / gpu[k]:.1f}", *rates[2:], f"{share:.0%}", f"{apart:.1e}"]
        found.append((shown, share))
    return found


@click.command(help=__doc__)
@click.option("--megabytes", default=1024.0, show_default=True, help="Size of X.")
@click.option("--block-megabytes", default=64.0, show_default=True, help="Size of a block.")
@click.option("--repeats", default=5, show_default=True, help="Repeats, of which the median counts.")
@click.option("--threads", default=2, show_default=True, help="Tasks on the GPU at a time: one copies, one computes.")
@click.option("--quick", is_flag=True, help="A size that takes seconds.")
def main(megabytes: float, block_megabytes: float, repeats: int, threads: int, quick: bool) -> None:
    cupy = probe()
    if isinstance(cupy, str):
        print(f"no GPU found ({cupy}), so nothing was measured")
        return
    if quick:
        megabytes, block_megabytes, repeats = 8.0, 2.0, 1
    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    versions = ", ".join(f"{name} {version(name)}" for name in ("dask-nlis", "dask", "numpy"))
    print(
        f"{card}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores; {versions}, cupy {cupy.__version__}"
    )
    print(f"rows a second; X of {megabytes:g} MB in blocks of {block_megabytes:g} MB, median of {repeats}\n")
    print("|", " | ".join(COLUMNS), "|")
    print("|" + "---|" * len(COLUMNS))
    at_500, apart = [], 0.0
    for dtype in ("float32", "float64"):
        for d in (20, 100, 500):
            for shown, share in line(cupy, dtype, d, megabytes, int(block_megabytes * 2**20), repeats, threads):
                print("|", " | ".join(map(str, shown)), "|", flush=True)
                at_500 += [share] if d == 500 else []
                apart = max(apart, float(shown[-1]))
    print(f"\nat d = 500 between {min(at_500):.0%} and {max(at_500):.0%} of the binding ceiling; target {TARGET:.0%}")
    print(f"scores of GPU and CPU are at most {apart:.1e} apart; allowed 1e-10")


if __name__ == "__main__":
    main()
