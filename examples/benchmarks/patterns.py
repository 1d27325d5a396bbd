"""Exact leverage of a ReLU network's dual rows, by activation pattern and from formed rows: CPU time and digits.

\b
python examples/benchmarks/patterns.py            p = 1010, 400,000 rows, float64: about four minutes, 2 GB
python examples/benchmarks/patterns.py --quick    seconds; no demand on the ratio, which comes with the width
python examples/benchmarks/patterns.py --blend    what `run` does by default, on an eighth of the rows: a minute

The rival forms the rows (sub-blocks of about a megabyte, the same checks of the input) and takes their Gram matrix in
pass 1, forms them again and multiplies by the whitener in pass 2: the library's own path for other models, so that
the ratio is that of the algorithms. "all" adds what both need between the passes: factor, rank and whitener, p x p. In
truth the Gram matrix of all formed columns answers nothing, since those of the outer weights depend on the others;
the QR tree that follows is left out, in the rival's favour, and has a line of its own: method="tsqr" end to end, measured once.

Process CPU time, one BLAS thread everywhere, interleaved, medians. The error is that of the scores against R-only QR
of the formed rows without the dependent columns and a triangular solve, or the dense SVD for few rows.

The trained network is that of fish and bicycles, 6,000 images of 10 x 10: some 7 rows a pattern, and columns that depend
on each other, so that method="auto" ends in the QR tree after one Gram matrix by pattern.

With --blend, the pass that factorises dual and tangent matrix at once, and the pass that mixes leverage, influence |W'psi|
and a constant in one task a block; the rival forms the rows of both. The error is relative, and that of the mixture
against the definitions of its parts.

The command fails below 10 times for both passes (not with --quick), or above an error of 1e-12.
"""

import platform
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time

import click
import dask
import numpy as np
import scipy
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

import dask_nlis as nlis
from dask_nlis.factor.gram import gram_block, grams_block
from dask_nlis.matrix import TallMatrix
from dask_nlis.matrix.patterns import Units, units_of
from dask_nlis.scores import Share
from dask_nlis.scores.blend import mixture_block
from dask_nlis.scores.influence import influence_block
from dask_nlis.scores.leverage import leverage_block
from dask_nlis.scores.patterns import form_of, forms_of

THETA = Path(__file__).parents[2] / "tests" / "data" / "quickdraw_theta.npy"
IMAGES = Path(__file__).parents[1] / "data" / "quickdraw_fish_bicycle_10x10.npz"


def random_network(rows: int, columns: int, hidden: int) -> TallMatrix:
    rng = np.random.default_rng(0)
    model = nlis.ReluNetwork(hidden)
    X, theta = rng.normal(size=(rows, columns)), 0.3 * rng.normal(size=model.n_parameters(columns))
    y = (rng.random(rows) < 0.5).astype(np.float64)
    return nlis.dual_matrix(nlis.Problem(model, nlis.LogisticLoss()), X, y, theta=theta, device="cpu")


def beside(A: TallMatrix) -> TallMatrix:
    """The tangent matrix of the same rows at the same theta."""
    return nlis.tangent_matrix(A.problem, A.source.x, A.source.y, theta=A.theta, device="cpu")


def trained_network(every: int) -> TallMatrix:
    with np.load(IMAGES, allow_pickle=False) as file:
        X, y = file["images"].reshape(len(file["labels"]), -1) / 255.0, file["labels"].astype(np.float64)
    theta = np.load(THETA, allow_pickle=False).astype(np.float64)
    problem = nlis.Problem(nlis.ReluNetwork(10), nlis.LogisticLoss())
    return nlis.dual_matrix(problem, X[::every], y[::every], theta=theta, device="cpu")


def units(A: TallMatrix) -> Units:
    found = units_of(A.rule, A.has_labels)
    assert found is not None
    return found


def blocks(A: TallMatrix) -> list[tuple[np.ndarray, np.ndarray, None, int]]:
    """The blocks of a matrix in memory, as its tasks get them."""
    x, y = (np.asarray(array.compute()) for array in (A.source.x, A.source.y))
    edges = np.cumsum((0, *A.source.chunks))
    return [(x[a:b], y[a:b], None, int(a)) for a, b in pairwise(edges)]


def passes(A: TallMatrix, factor: nlis.Factor, by_pattern: bool) -> list[Callable[[], np.ndarray]]:
    """Pass 1 and pass 2 of one path over all blocks, without what lies between them."""
    data, job = blocks(A), A.job
    pair = (factor.whitener, factor.correction)

    def first() -> np.ndarray:
        return sum(gram_block(*block, job=job, narrow=by_pattern)[0, 0].values for block in data)

    def second() -> np.ndarray:
        form = form_of(units(A), factor.whitener) if by_pattern else None
        options = {"job": job, "whitener": pair, "tolerance": factor.score_tolerance, "form": form}
        return np.concatenate([leverage_block(*block, by_pattern=by_pattern, **options) for block in data])

    return [first, second]


def end_to_end(A: TallMatrix, method: str) -> Callable[[], np.ndarray]:
    return lambda: nlis.leverage_scores(A, nlis.factorize(A, method=method))


def seconds(function: Callable[[], np.ndarray]) -> float:
    start = process_time()
    function()
    return process_time() - start


def exact(A: TallMatrix) -> tuple[np.ndarray, float]:
    """Leverage from formed rows by definition, and the condition of the columns (norm 1) that it is the leverage of."""
    basis = units(A).basis

    def formed() -> Iterator[np.ndarray]:
        for x, y, _, _ in blocks(A):
            for a in range(0, len(x), 5_000):
                yield A.rule.rows(x[a : a + 5_000], y[a : a + 5_000])[:, basis]

    if A.shape[0] <= 20_000:
        F = np.concatenate(list(formed()))
        left, s, _ = np.linalg.svd(F / np.maximum(np.linalg.norm(F, axis=0), 1e-300), full_matrices=False)
        kept = s > 1e-10 * s[0]
        return (left[:, kept] ** 2).sum(axis=1), float(s[0] / s[kept][-1])
    r = np.zeros((0, len(basis)))
    for rows in formed():
        r = np.linalg.qr(np.vstack([r, rows]), mode="r")
    s = np.linalg.svd(r / np.linalg.norm(r, axis=0), compute_uv=False)
    solved = (solve_triangular(r, rows.T, trans="T") for rows in formed())
    return np.concatenate([np.einsum("ij,ij->j", z, z) for z in solved]), float(s[0] / s[-1])


def table(name: str, A: TallMatrix, repeats: int) -> tuple[float, float]:
    """Print the lines of one matrix; the ratio of both passes where one Gram matrix was enough, and the error."""
    factor = nlis.factorize(A)
    gram = factor.method == "patterns"
    paths: dict[str, Callable[[], np.ndarray]] = {"end to end": end_to_end(A, "auto")}
    for label, by_pattern in (("patterns", True), ("formed", False)):
        parts = passes(A, factor, by_pattern)
        paths |= {f"{label} 1": parts[0]} | ({f"{label} 2": parts[1]} if gram else {})
    times: dict[str, list[float]] = {key: [] for key in paths}
    for _ in range(repeats):
        for key, path in paths.items():
            times[key].append(seconds(path))
    t = {key: median(values) for key, values in times.items()}
    rows = [("pass 1", t["patterns 1"], t["formed 1"])]
    ratio = np.inf
    if gram:
        ours, dense = t["patterns 1"] + t["patterns 2"], t["formed 1"] + t["formed 2"]
        ratio = dense / ours
        rows += [("pass 2", t["patterns 2"], t["formed 2"]), ("both passes", ours, dense)]
        rows += [("all", t["end to end"], t["end to end"] - ours + dense)]
    rows += [("end to end, auto against tsqr", t["end to end"], seconds(end_to_end(A, "tsqr")))]
    h, kappa = exact(A)
    error = float(np.abs(np.asarray(nlis.leverage_scores(A, factor)) - h).max())
    x = np.concatenate([block[0] for block in blocks(A)])
    patterns = len(np.unique(np.packbits(x @ units(A).b.T > 0, axis=1), axis=0))
    print(f"\n{name}: {A.shape[0]:,} x {A.shape[1]:,}, {patterns:,} patterns, kappa {kappa:.3g}")
    print(f"auto: method {factor.method}, {factor.reads} read(s), rank {factor.rank:,}, error {error:.1e}\n")
    print("| CPU seconds | by pattern | formed rows | ratio |\n|---|---|---|---|")
    for what, a, b in rows:
        print(f"| {what} | {a:.2f} | {b:.2f} | {b / a:.1f} |")
    return ratio, error


def defined(T: TallMatrix) -> np.ndarray:
    """Influence by definition: R of the formed rows and a triangular solve for the formed gradients, of the basis alone."""
    basis, data = units(T).basis, blocks(T)
    pieces = [(x[a : a + 5_000], y[a : a + 5_000]) for x, y, _, _ in data for a in range(0, len(x), 5_000)]
    r = np.zeros((0, len(basis)))
    for x, y in pieces:
        r = np.linalg.qr(np.vstack([r, T.rule.rows(x, y)[:, basis]]), mode="r")
    solved = (solve_triangular(r, T.rule.gradients(x, y)[:, basis].T, trans="T") for x, y in pieces)
    return np.concatenate([np.linalg.norm(z, axis=0) for z in solved])


def blend_table(A: TallMatrix, repeats: int) -> tuple[float, float]:
    """Print the lines of the joint factor and the mixture; the ratio of both passes, and the largest relative error."""
    T = beside(A)
    both = (A, T)
    factors = [nlis.factorize(M) for M in both]
    assert [factor.method for factor in factors] == ["patterns", "patterns"]
    pairs = [(factor.whitener, factor.correction) for factor in factors]
    share = Share(0.4 / factors[0].rank, 0.4 / A.shape[0], 0.2 / A.shape[0])
    mixed: dict[str, Callable[[], np.ndarray]] = {}

    def passes_of(by_pattern: bool) -> list[Callable[[], np.ndarray]]:
        serves = [by_pattern] * 2

        def forms() -> list:
            wanted = [(units(M), pair[0]) if by_pattern else None for M, pair in zip(both, pairs, strict=True)]
            return forms_of(wanted)

        def gram() -> np.ndarray:
            jobs = {"job": A.job, "jobs": (A.job, T.job), "whiteners": [None, None], "narrow": tuple(serves)}
            return sum(grams_block(*block, **jobs)[0, 0].parts[0].values for block in blocks(A))

        def mixture() -> np.ndarray:
            given = {"job": A.job, "tangent": T.rule, "whiteners": pairs, "share": share, "forms": forms()}
            given |= {"tolerance": factors[0].score_tolerance, "by_pattern": serves}
            return np.concatenate([mixture_block(*block, **given) for block in blocks(A)])

        def influence() -> np.ndarray:
            given = {"job": T.job, "whitener": pairs[1], "by_pattern": by_pattern, "form": forms()[1]}
            return np.concatenate([influence_block(*block, **given) for block in blocks(T)])

        return [gram, mixture, influence]

    names = ("pass 1, two factors", "pass 2, the mixture", "pass 2, influence alone")
    for label, by_pattern in (("patterns", True), ("formed", False)):
        mixed |= {f"{label} {name}": path for name, path in zip(names, passes_of(by_pattern), strict=True)}
    times: dict[str, list[float]] = {key: [] for key in mixed}
    for _ in range(repeats):
        for key, path in mixed.items():
            times[key].append(seconds(path))
    t = {key: median(values) for key, values in times.items()}
    rows = [(name, t[f"patterns {name}"], t[f"formed {name}"]) for name in names]
    rows.insert(2, ("both passes", rows[0][1] + rows[1][1], rows[0][2] + rows[1][2]))
    expected = share.leverage * exact(A)[0] + share.influence * defined(T) + share.uniform
    error = float(np.abs(mixed[f"patterns {names[1]}"]() / expected - 1).max())
    print(f"\ndual and tangent matrix of a random network: {A.shape[0]:,} x {A.shape[1]:,} and {T.shape[1]:,}")
    print(f"relative error of the mixture {error:.1e}\n")
    print("| CPU seconds | by pattern | formed rows | ratio |\n|---|---|---|---|")
    for what, a, b in rows:
        print(f"| {what} | {a:.2f} | {b:.2f} | {b / a:.1f} |")
    return rows[2][2] / rows[2][1], error


@click.command(help=__doc__)
@click.option("--rows", default=400_000, show_default=True, help="Rows of the random network's data.")
@click.option("--columns", default=100, show_default=True, help="Features.")
@click.option("--hidden", default=10, show_default=True, help="Units.")
@click.option("--repeats", default=3, show_default=True, help="Repeats of which the median counts.")
@click.option("--quick", is_flag=True, help="6,000 rows, 20 features, 4 units, one repeat, every fifth image.")
@click.option("--blend", is_flag=True, help="Two factors at once and the mixture of leverage and influence alone.")
def main(rows: int, columns: int, hidden: int, repeats: int, quick: bool, blend: bool) -> None:
    if quick:
        rows, columns, hidden, repeats = 6_000, 20, 4, 1
    print(
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    print("process CPU time, one BLAS thread on both sides, float64")
    with threadpool_limits(1, user_api="blas"), dask.config.set(scheduler="synchronous"):
        if blend:
            rows = rows if quick else rows // 8
            found = [blend_table(random_network(rows, columns, hidden), repeats)]
        else:
            found = [table("random network", random_network(rows, columns, hidden), repeats)]
        if THETA.exists() and not blend:
            found.append(table("trained network", trained_network(5 if quick else 1), repeats))
    ratio, error = found[0][0], max(error for _, error in found)
    bad = [f"both passes are {ratio:.1f} times as fast, not 10"] if not quick and ratio < 10 else []
    bad += [f"the error {error:.1e} is above 1e-12"] if not error <= 1e-12 else []
    print("\n" + ("\n".join(bad) or "as fast and as exact as promised"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
