"""Exact leverage of a single-index model: CPU time against other libraries and against what BLAS can do at most.

\b
python examples/benchmarks/leverage.py            ten minutes or more, 2 GB
python examples/benchmarks/leverage.py --quick    seconds; too small to judge by

The matrix: dual rows of a logistic single-index model with labels, d features, an intercept and f(0), float64, 256 MB.
Rivals get these rows formed beforehand, at no charge: dask tsqr (explicit Q, blocks of 64 MB, synchronous scheduler),
numpy.linalg.qr and pinv, and hat_matrix_diag of statsmodels. Ours forms them on the way, in both passes. "public" is
factorize and leverage_scores with their default method, on blocks of 64 MB, synchronous; "kernels" the same work a
block without Dask. The ceiling is dsyrk, then dtrmm and the row norms, on the formed rows in the sub-blocks ours takes.

From Zarr (chunks of 40 MB) the measure is two reads of X as they are, plus the ceiling. Making the matrix from arrays in
memory (a private copy and a hash) has a line of its own. Process CPU time, one BLAS thread everywhere, medians of
repeats in turn. Scores agree with those of numpy.linalg.qr, or the command fails.

It fails too where d = 100 does not reach: dask 6 times, numpy 12, statsmodels 20, the ceiling by a factor of 1.3, from
Zarr 1.5 (not with --quick).
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import dask
import dask.array as da
import numpy as np
import statsmodels.api as sm
import zarr
from scipy.linalg.blas import dsyrk, dtrmm
from threadpoolctl import threadpool_limits
from turns import in_turn, machine, markdown

import dask_nlis as nlis
from dask_nlis.device import sub_block_rows
from dask_nlis.factor.gram import gram_block
from dask_nlis.scores.leverage import leverage_block

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Logistic()))
BLOCK = 64 * 2**20
CHUNK = 40 * 2**20

#: How many times as long a rival takes at least, and how many times its measure ours takes at most, at d = 100.
AT_LEAST = {"dask tsqr": 6.0, "numpy qr": 12.0, "numpy pinv": 12.0, "statsmodels": 20.0}
AT_MOST = {"ceiling": 1.3, "zarr": 1.5}

Works = dict[str, Callable[[], Any]]


class Data(NamedTuple):
    """Features, labels and a theta."""

    X: np.ndarray
    y: np.ndarray
    theta: np.ndarray

    def matrix(self, X: Any = None) -> Any:
        """The dual matrix, of the rows here in blocks or of `X` in their place."""
        X = da.from_array(self.X, chunks=(self.rows(BLOCK), -1)) if X is None else X
        return nlis.dual_matrix(PROBLEM, X, self.y, theta=self.theta, device="cpu")

    def rows(self, size: int) -> int:
        """Rows of X in this many bytes."""
        return min(len(self.X), size // (8 * self.X.shape[1]))

    def blocks(self) -> Iterator[slice]:
        """The rows of each block."""
        step = self.rows(BLOCK)
        return (slice(a, min(a + step, len(self.X))) for a in range(0, len(self.X), step))


def data(megabytes: int, d: int) -> Data:
    rng = np.random.default_rng(d)
    n = megabytes * 2**20 // (8 * d)
    X = rng.normal(size=(n, d))
    return Data(X, (rng.random(n) < 0.5).astype(np.float64), rng.normal(size=d + 1) / np.sqrt(d))


def public(A: Any) -> np.ndarray:
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


def kernels(made: Data, A: Any, factor: Any) -> np.ndarray:
    """Both passes block by block; the factor, p x p, is given."""
    whitener, parts = (factor.whitener, factor.correction), []
    for some in made.blocks():
        gram_block(made.X[some], made.y[some], None, some.start, job=A.job)
    for some in made.blocks():
        given = (made.X[some], made.y[some], None, some.start)
        parts.append(leverage_block(*given, job=A.job, whitener=whitener, tolerance=factor.score_tolerance))
    return np.concatenate(parts)


def ceiling(F: np.ndarray, whitener: np.ndarray) -> np.ndarray:
    """BLAS alone: dsyrk of all sub-blocks, then dtrmm and row norms, on rows that are there."""
    n, p = F.shape
    total, h = np.zeros((p, p), order="F"), np.empty(n)
    step = sub_block_rows("cpu", p, reducing=True)
    for a in range(0, n, step):
        total = dsyrk(1.0, F[a : a + step].T, beta=1.0, c=total, overwrite_c=True)
    step = sub_block_rows("cpu", p)
    for a in range(0, n, step):
        white = dtrmm(1.0, whitener, F[a : a + step].T, trans_a=True).T
        np.vecdot(white, white, out=h[a : a + step])
    return h


def dask_tsqr(F: da.Array) -> np.ndarray:
    return (da.linalg.tsqr(F)[0] ** 2).sum(axis=1).compute()


def numpy_qr(F: np.ndarray) -> np.ndarray:
    return (np.linalg.qr(F)[0] ** 2).sum(axis=1)


def numpy_pinv(F: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ji->i", F, np.linalg.pinv(F))


def statsmodels_ols(F: np.ndarray, y: np.ndarray) -> np.ndarray:
    return sm.OLS(y, F).fit().get_influence().hat_matrix_diag


def in_memory(made: Data, repeats: int) -> tuple[dict[str, float], float]:
    """Median seconds of each work, and the largest difference of our scores from those of QR."""
    A = made.matrix()
    factor = nlis.factorize(A)
    F = np.concatenate([np.asarray(block) for block in dask.compute(*A.to_dask_array().to_delayed().ravel())])
    lazy = da.from_array(F, chunks=(made.rows(BLOCK), -1))
    whitener = np.asfortranarray(factor.whitener)
    works: Works = {
        "matrix": lambda: made.matrix(made.X),
        "public": lambda: public(A),
        "kernels": lambda: kernels(made, A, factor),
        "ceiling": lambda: ceiling(F, whitener),
    }
    slow: Works = {
        "dask tsqr": lambda: dask_tsqr(lazy),
        "numpy qr": lambda: numpy_qr(F),
        "numpy pinv": lambda: numpy_pinv(F),
        "statsmodels": lambda: statsmodels_ols(F, made.y),
    }
    h = numpy_qr(F)
    apart = max(
        float(np.abs(found - h).max() / h.max()) for found in (public(A), works["kernels"](), works["ceiling"]())
    )
    return in_turn(works, 3 * repeats) | in_turn(slow, repeats, warm=False), apart


def from_zarr(made: Data, folder: Path, repeats: int) -> dict[str, tuple[float, float]]:
    """For each way of storing: median seconds of ours, and of two reads of X."""
    found = {}
    for name, how in (("uncompressed", {"compressors": None}), ("default", {})):
        chunks = (made.rows(CHUNK), made.X.shape[1])
        stored = zarr.create_array(folder / name, shape=made.X.shape, chunks=chunks, dtype="float64", **how)
        stored[:] = made.X
        A = made.matrix(stored)

        def reads(stored: zarr.Array = stored, step: int = chunks[0]) -> None:
            for _ in range(2):
                for a in range(0, stored.shape[0], step):
                    stored[a : a + step]

        def ours(A: Any = A) -> np.ndarray:
            return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)).compute())

        seconds = in_turn({"ours": ours, "reads": reads}, 3 * repeats)
        found[name] = seconds["ours"], seconds["reads"]
    return found


def complaints(d: int, seconds: dict[str, float], stored: dict[str, tuple[float, float]]) -> list[str]:
    """What is not reached."""
    ours = seconds["public"]
    found = [
        f"d={d}: {name} takes {seconds[name] / ours:.1f} times as long, {least:g} wanted"
        for name, least in AT_LEAST.items()
        if seconds[name] < least * ours
    ]
    for name in ("public", "kernels"):
        times = seconds[name] / seconds["ceiling"]
        if times > AT_MOST["ceiling"]:
            found.append(f"d={d}: {name} takes {times:.2f} times the ceiling, {AT_MOST['ceiling']:g} wanted")
    for how, (taken, reads) in stored.items():
        times = taken / (reads + seconds["ceiling"])
        if times > AT_MOST["zarr"]:
            found.append(
                f"d={d}: from Zarr, {how}, {times:.2f} times two reads + the ceiling, {AT_MOST['zarr']:g} wanted"
            )
    return found


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small matrices, one repeat, no demands.")
@click.option(
    "--features", type=int, multiple=True, default=(20, 100, 500), show_default=True, help="d, any number of times."
)
@click.option("--megabytes", default=256, show_default=True, help="Size of X.")
@click.option(
    "--repeats", default=3, show_default=True, help="Repeats of the rivals; ours and the ceiling run 3 times as often."
)
def main(quick: bool, features: tuple[int, ...], megabytes: int, repeats: int) -> None:
    megabytes, repeats = (2, 1) if quick else (megabytes, repeats)
    ram, store, bad = [], [], []
    with threadpool_limits(1, user_api="blas"), dask.config.set(scheduler="synchronous"):
        for d in (20,) if quick else features:
            made = data(megabytes, d)
            seconds, apart = in_memory(made, repeats)
            if not apart <= 1e-11:
                bad.append(f"d={d}: scores are {apart:.1e} apart")
            with tempfile.TemporaryDirectory() as folder:
                stored = from_zarr(made, Path(folder), repeats)
            ours, mega = seconds["public"], len(made.X) / 1e6
            ratios = [f"{seconds[name] / ours:.1f}" for name in AT_LEAST]
            ceilings = [f"{seconds[name] / seconds['ceiling']:.2f}" for name in ("public", "kernels")]
            rates = [f"{mega / seconds[name]:.3g}" for name in ("public", "kernels", "ceiling")]
            ram.append([str(d), *rates, *ceilings, *ratios, f"{seconds['matrix'] / ours:.2f}", f"{apart:.0e}"])
            for how, (taken, reads) in stored.items():
                measure = reads + seconds["ceiling"]
                store.append([str(d), how, f"{mega / taken:.3g}", f"{mega / measure:.3g}", f"{taken / measure:.2f}"])
            bad += complaints(d, seconds, stored) if d == 100 and not quick else []
        print(
            f"{megabytes} MB of float64, medians of {3 * repeats} (rivals {repeats}); {machine('statsmodels', 'zarr')}; one BLAS thread\n"
        )
    print("In memory: million rows per CPU second; time over that of the ceiling; times as long as public takes\n")
    names = ["d", "public", "kernels", "ceiling", "public / ceiling", "kernels / ceiling", *AT_LEAST, "matrix", "apart"]
    print(markdown(names, ram))
    print("\nFrom Zarr: million rows per CPU second, ours and of two reads + ceiling; time over that of the latter\n")
    print(markdown(["d", "chunks", "public", "reads + ceiling", "ratio"], store), "\n")
    print("\n".join(bad) or ("too small to judge by" if quick else "nothing is missed at d = 100"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
