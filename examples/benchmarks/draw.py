"""A million draws from a hundred million scores in memory: CPU seconds and memory, against NumPy and Dask.

\b
python examples/benchmarks/draw.py                   two minutes; 3 GB of memory
python examples/benchmarks/draw.py --quick           seconds; 10,000 draws from a million scores

Scores lie in memory as a Dask array of 100 blocks; each scheme of `draw` goes through them two to five times, one block
at a time on one thread. Rivals: `numpy.random.Generator.choice` with p, whole in memory, and `dask.array.random.choice`
with p, of which ten output chunks are asked (it gathers p for each, and draws without replacement from one chunk
only). CPU seconds of the process, minimum and median of several interleaved rounds, since other work on a machine
adds and never takes away; memory is what NumPy and Python allocate beyond the scores, by tracemalloc.

The command fails at full size where a scheme with replacement or poisson takes more than 1.5 s at its best, or the
memory exceeds a tenth of the scores.
"""

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import click
import dask
import dask.array as da
import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
BLOCKS = 100
MOST_SECONDS = {"multinomial": 1.5, "poisson": 1.5}


def scores_of(n: int) -> np.ndarray:
    """Skewed scores, as leverages are."""
    rng = np.random.default_rng(0)
    scores = rng.standard_exponential(n)
    scores *= rng.random(n)
    return scores


def rivals(values: np.ndarray, lazy: da.Array, size: int) -> dict[str, Callable[[], Any]]:
    def choice() -> Any:
        return np.random.default_rng(0).choice(len(values), size, p=values / values.sum())

    def dask_choice() -> Any:
        p = lazy / float(values.sum())
        return da.random.default_rng(0).choice(len(values), size, p=p, chunks=size // 10).compute()

    return {"numpy Generator.choice": choice, "da.random.choice": dask_choice}


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float, float]]:
    """Least and median CPU seconds of each call, and MiB allocated on the way."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            call()
            seconds[name].append(time.process_time() - began)
    memory = {}
    for name, call in calls.items():
        tracemalloc.start()
        call()
        memory[name] = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return {name: (min(taken), statistics.median(taken), memory[name]) for name, taken in seconds.items()}


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="10,000 draws from a million scores.")
@click.option("--rounds", default=5, show_default=True, help="Times each is measured.")
def main(quick: bool, rounds: int) -> None:
    n, size = (10**6, 10**4) if quick else (10**8, 10**6)
    values = scores_of(n)
    lazy = da.from_array(values, chunks=n // BLOCKS, name="scores", asarray=False)

    def ours(scheme: str) -> Callable[[], Any]:
        return lambda: nlis.draw(lazy, size, scheme=scheme, seed=0)

    with threadpool_limits(1, user_api="blas"), dask.config.set(scheduler="synchronous"):
        found = measured({scheme: ours(scheme) for scheme in SCHEMES} | rivals(values, lazy, size), rounds)
    console = Console(width=100)
    console.print(
        f"{size:,} draws from {n:,} scores in {BLOCKS} blocks; one thread; dask {dask.__version__}, NumPy {np.__version__}"
    )
    base = found["numpy Generator.choice"]
    table = Table("", "CPU s, least", "median", "Generator.choice / it", "MiB allocated")
    for name, (least, median, memory) in found.items():
        table.add_row(name, f"{least:.3f}", f"{median:.3f}", f"{base[1] / median:.2f}", f"{memory:.0f}")
    console.print(table)
    bad = [f"{k}: {found[k][0]:.2f} s is above {most}" for k, most in MOST_SECONDS.items() if found[k][0] > most]
    bad += [f"{k}: {found[k][2]:.0f} MiB" for k in SCHEMES if found[k][2] * 2**20 > 0.1 * values.nbytes + 100 * size]
    console.print("\n".join(bad) or "multinomial and poisson draws take at most 1.5 s, and memory by block and size")
    sys.exit(1 if bad and not quick else 0)


if __name__ == "__main__":
    main()
