"""Norm scores of a ReLU network: CPU time against the bare forward pass, against formed rows and against torch.func.

\b
python examples/benchmarks/norms.py            some minutes
python examples/benchmarks/norms.py --quick    seconds; too small to judge by

The matrix: dual rows with labels of a network of m rectified units on d features under a logistic output, float64, X of
64 MB; p = m (d + 1) + 1 columns, which norm scores never form. "scores" is the kernel of a block, input checked;
"public" is norm_scores, one block, synchronous scheduler. "forward" is relu(X B') a in NumPy and nothing else, in the
sub-blocks the scores take. "rows" forms the dual rows and takes their norms.

torch.func takes per-sample gradients by vmap(grad) at 8 Gauss-Legendre nodes along the ray, weighted and added up, and
their norms: what one writes who has no closed form. "rows" and "torch" run on 256 rows and count for each row.
Process CPU time, one BLAS thread and one thread of torch, medians of repeats in turn. Norms agree, or the command fails.

It fails too where the scores take more than 1.25 times the forward pass at d = 784, m = 64, 1.5 times at d = 100,
m = 10, or torch less than 15 times as long as the scores (not with --quick). Without torch its column stays empty.
"""

import sys
from collections.abc import Callable
from typing import Any

import click
import dask
import dask.array as da
import numpy as np
from threadpoolctl import threadpool_limits
from turns import in_turn, machine, markdown

import dask_nlis as nlis
from dask_nlis.device import sub_block_rows
from dask_nlis.problem import dual_rows
from dask_nlis.scores.norms import norm_block

try:
    import torch
except ImportError:
    torch = None

NODES = 8

#: Times the forward pass at most, by (d, m); times as long as the scores torch takes at least.
AT_MOST = {(784, 64): 1.25, (100, 10): 1.5}
TORCH_AT_LEAST = 15.0


def torch_norms(a: np.ndarray, B: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared norms of the dual rows by per-sample gradients at the nodes along the ray."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    theta = (torch.from_numpy(a), torch.from_numpy(B))

    def prediction(a: Any, b: Any, x: Any) -> Any:
        return torch.sigmoid(torch.relu(b @ x) @ a)

    gradients = torch.func.vmap(torch.func.grad(prediction, argnums=(0, 1)), in_dims=(None, None, 0))
    rows, total = torch.from_numpy(X), None
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        parts = [weight * part for part in gradients(*(t * part for part in theta), rows)]
        total = parts if total is None else [one + other for one, other in zip(total, parts, strict=True)]
    squares = sum((part.reshape(len(X), -1) ** 2).sum(dim=1) for part in total)
    return squares.numpy() + (0.5 - y) ** 2


def measured(d: int, units: int, megabytes: int, repeats: int) -> tuple[dict[str, float], float]:
    """Median CPU seconds a row of each work, and the largest relative difference from the norms of formed rows."""
    rng = np.random.default_rng(d)
    n = megabytes * 2**20 // (8 * d)
    X, y = rng.normal(size=(n, d)), rng.random(n)
    a, B = rng.normal(size=units), rng.normal(size=(units, d)) / np.sqrt(d)
    model = nlis.ReluNetwork(units, nlis.Logistic())
    problem, theta = nlis.Problem(model), model.pack(a=a, b=B)
    A = nlis.dual_matrix(problem, da.from_array(X, chunks=(n, d)), y, theta=theta, device="cpu")
    job = A.job
    step, few = sub_block_rows("cpu", max(d, units)), sub_block_rows("cpu", len(A.columns))
    some, some_y = X[:few], y[:few]

    def scores() -> np.ndarray:
        # Not as the block of row 0, which also forms a few rows to see whether one column outweighs all others.
        return norm_block(X, y, None, 1, job=job, log2_scale=0)

    def public() -> np.ndarray:
        return np.asarray(nlis.norm_scores(A).compute())

    def forward() -> None:
        for first in range(0, n, step):
            np.maximum(X[first : first + step] @ B.T, 0.0) @ a

    def rows() -> np.ndarray:
        made = dual_rows(problem, theta, some, some_y)
        return np.vecdot(made, made)

    works: dict[str, Callable[[], Any]] = {"scores": scores, "public": public, "forward": forward}
    seconds = {name: taken / n for name, taken in in_turn(works, 5 * repeats).items()}
    slow: dict[str, Callable[[], Any]] = {"rows": rows}
    expected = rows()
    apart = max(float(np.abs(found()[: len(some)] / expected - 1).max()) for found in (scores, public))
    if torch is not None:
        torch.set_num_threads(1)
        slow["torch"] = lambda: torch_norms(a, B, some, some_y)
        # Eight nodes leave 1e-3 or so where the index is large: near enough to know that it is the same integral.
        if not np.median(np.abs(slow["torch"]() / expected - 1)) <= 1e-3:
            apart = np.inf
    return seconds | {name: taken / len(some) for name, taken in in_turn(slow, repeats).items()}, apart


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="A small X, one repeat, no demands.")
@click.option("--megabytes", default=64, show_default=True, help="Size of X.")
@click.option(
    "--repeats", default=3, show_default=True, help="Repeats of the slow works; the others run 5 times as often."
)
def main(quick: bool, megabytes: int, repeats: int) -> None:
    megabytes, repeats = (1, 1) if quick else (megabytes, repeats)
    sizes = {(100, 10): AT_MOST[100, 10]} if quick else AT_MOST
    lines, bad = [], []
    with threadpool_limits(1, user_api="blas"), dask.config.set(scheduler="synchronous"):
        for (d, units), most in sizes.items():
            seconds, apart = measured(d, units, megabytes, repeats)
            ours = seconds["scores"]
            ratio = ours / seconds["forward"]
            times = {name: seconds[name] / ours for name in ("rows", "torch") if name in seconds}
            rates = [f"{1e-6 / seconds[name]:.3g}" for name in ("scores", "public", "forward")]
            against = [f"{times[name]:.1f}" if name in times else "" for name in ("rows", "torch")]
            lines.append(
                [str(d), str(units), str(units * (d + 1) + 1), *rates, f"{ratio:.2f}", *against, f"{apart:.0e}"]
            )
            if not apart <= 1e-11:
                bad.append(f"d={d}, m={units}: norms are {apart:.1e} apart")
            if not quick and ratio > most:
                bad.append(f"d={d}, m={units}: {ratio:.2f} times the forward pass, {most:g} wanted")
            if not quick and times.get("torch", np.inf) < TORCH_AT_LEAST:
                bad.append(
                    f"d={d}, m={units}: torch takes {times['torch']:.1f} times as long, {TORCH_AT_LEAST:g} wanted"
                )
        known = machine() if torch is None else machine("torch")
    print(f"{megabytes} MB of float64, medians of {5 * repeats} and {repeats}; {known}; one thread everywhere\n")
    print("Million rows per CPU second; times the forward pass; times as long as the scores take\n")
    columns = ["d", "m", "p", "scores", "public", "forward", "scores / forward", "rows", "torch", "apart"]
    print(markdown(columns, lines), "\n")
    print("\n".join(bad) or ("too small to judge by" if quick else "all demands are met"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
