"""The same small job by four hands: the paper's formulas, statsmodels, optimal subsampling, and dask_nlis; results and times.

\b
python examples/side_by_side.py                         500 of 20,640 rows, 100 samples each; half a minute
python examples/side_by_side.py --seeds 5 --size 300

Logistic regression, for which optimal subsampling was made: whether a district of California is dearer than the median
one. All hands minimise the same sum of losses.

\b
statsmodels         a GLM on all rows
the paper           its formulas in NumPy: rows of the adjoint, leverage by an SVD, draws with replacement, weights
                    1 / (s tau); linear leverage, and nonlinear leverage at the fit on all rows, as in its experiments:
                    an oracle
optimal subsampling Wang, Zhu & Ma (2018), Algorithm 2: a fifth of the rows at chance, a fit, the rest in proportion to
                    |y - p| |x| there (mVc, L-optimal) or |y - p| |M^-1 x|, M the Hessian (mMSE, A-optimal); a fit to both
dask_nlis           one draw by leverage of the reference matrix, which needs no fit; and `run`, in two stages

Each has the same budget of rows. Uniform samples, those of the paper and of optimal subsampling are fitted by Newton
steps written here, with the sandwich of Wang, Zhu & Ma for standard errors; statsmodels has the same one (HC0). Shown is
log((L - L*) / L*), the loss on all rows above the smallest one, how often 95 % intervals cover the coefficients of the
fit on all rows, and seconds a sample; those of the oracle leave out its fit on all rows.

Needs statsmodels and matplotlib: pip install 'dask-nlis[plot]' statsmodels.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
from drawing import free_path, picture_options, save
from medians import median, standard_error
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from statsmodels.stats.outliers_influence import OLSInfluence

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
FIRST = 0.2  # share of the budget that optimal subsampling takes at chance
ORACLE = "the paper: nonlinear leverage, an oracle"
LINEAR = "the paper: linear leverage"
UNIFORM = "at chance: uniform rows"
OURS = "dask_nlis: run, in two stages"


class Fitted(NamedTuple):
    """Coefficients and their standard errors, (p,) each; the intercept last."""

    theta: np.ndarray
    errors: np.ndarray


class Data(NamedTuple):
    """Columns without and with a 1, (n, d) and (n, d + 1), and labels 0 or 1 (n,)."""

    X: np.ndarray
    X1: np.ndarray
    y: np.ndarray


def load() -> Data:
    """Standardised columns of California housing, and whether a price is above the median."""
    X, prices = (part.compute() for part in nlis.datasets.california_housing(standardized=True))
    return Data(X, np.column_stack([X, np.ones(len(X))]), (prices > np.median(prices)).astype(np.float64))


def by_statsmodels(X1: np.ndarray, y: np.ndarray) -> Fitted:
    """Unweighted fit of the GLM, with its sandwich."""
    with np.errstate(divide="ignore"):  # at rows whose chance is 0 or 1 in every digit
        found = sm.GLM(y, X1, family=sm.families.Binomial()).fit(cov_type="HC0")
    return Fitted(np.asarray(found.params), np.asarray(found.bse))


def weighted(X1: np.ndarray, y: np.ndarray, weights: np.ndarray, start: np.ndarray | None = None) -> Fitted:
    """Weighted logistic regression by Newton steps that are halved until the loss falls, and its sandwich.

    The steps of statsmodels are not: on small samples of these rows, weighted or uniform, it diverges now and then.
    """
    theta = np.zeros(X1.shape[1]) if start is None else start

    def loss(at: np.ndarray) -> float:
        return float(weights @ np.logaddexp(0, (1 - 2 * y) * (X1 @ at)))

    for _ in range(100):
        p = expit(X1 @ theta)
        hessian = (X1 * (weights * p * (1 - p))[:, None]).T @ X1
        gradient = X1.T @ (weights * (p - y))
        step = -np.linalg.pinv(hessian, hermitian=True) @ gradient
        while loss(theta + step) > loss(theta) and np.abs(step).max() > 1e-12:
            step = step / 2
        theta = theta + step
        if np.abs(step).max() < 1e-9:
            break
    p = expit(X1 @ theta)
    bread = np.linalg.pinv((X1 * (weights * p * (1 - p))[:, None]).T @ X1, hermitian=True)
    scores = X1 * (weights * (p - y))[:, None]
    return Fitted(theta, np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread)))


def with_replacement(tau: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn by probabilities tau (n,), and their weights 1 / (size tau)."""
    rows = rng.choice(len(tau), size=size, p=tau / tau.sum())
    return rows, tau.sum() / (size * tau[rows])


def leverage_by_svd(F: np.ndarray) -> np.ndarray:
    """Leverage of the rows of F (n, k), as the paper defines it: diagonal of F F^+, over the rank."""
    U, values, _ = np.linalg.svd(F, full_matrices=False)
    kept = values > values[0] * max(F.shape) * np.finfo(float).eps
    return (U[:, kept] ** 2).sum(axis=1) / kept.sum()


def adjoint_rows(data: Data, theta: np.ndarray) -> np.ndarray:
    """The paper's dual matrix, (n, p + 1): rows [(f(t) - f(0)) / t times (x, 1) ; f(0)] at t = <theta, (x, 1)>.

    f is the root of the loss, log(1 + exp(-t)) where y = 1 and log(1 + exp(t)) where y = 0, with the sign of t's error.
    """
    t, s = data.X1 @ theta, 2 * data.y - 1
    at, zero = (-s * np.sqrt(np.logaddexp(0, -s * u)) for u in (t, np.zeros_like(t)))
    slope = np.full_like(t, 0.25 / np.sqrt(np.log(2)))  # f'(0), where t = 0
    secant = np.divide(at - zero, t, out=slope, where=t != 0)
    return np.column_stack([secant[:, None] * data.X1, zero])


def the_paper(F: np.ndarray) -> Callable[[Data, int, int], Fitted]:
    """Leverage of F, which is made anew for each sample, then a draw with replacement and a weighted fit."""

    def made(data: Data, size: int, seed: int) -> Fitted:
        rows, weights = with_replacement(leverage_by_svd(F), size, np.random.default_rng(seed))
        return weighted(data.X1[rows], data.y[rows], weights)

    return made


def optimal(kind: str) -> Callable[[Data, int, int], Fitted]:
    """Two-step optimal subsampling: kind "L" by the length of gradients, "A" after the inverse Hessian."""

    def made(data: Data, size: int, seed: int) -> Fitted:
        rng = np.random.default_rng(seed)
        n, before = len(data.y), round(FIRST * size)
        first = rng.integers(n, size=before)
        rough = weighted(data.X1[first], data.y[first], np.ones(before)).theta
        p = expit(data.X1 @ rough)
        gradients = (data.y - p)[:, None] * data.X1
        if kind == "A":
            hessian = (data.X1[first] * (p * (1 - p))[first, None]).T @ data.X1[first]  # of the first step's rows
            gradients = gradients @ np.linalg.pinv(hessian)
        lengths = np.linalg.norm(gradients, axis=1)
        second, weights = with_replacement(lengths, size - before, rng)
        rows = np.append(first, second)
        # Each part estimates the sum over all rows; together they do so by their shares of the draws.
        weights = np.append(np.full(before, n / size), weights * (size - before) / size)
        return weighted(data.X1[rows], data.y[rows], weights, rough)

    return made


def uniform(data: Data, size: int, seed: int) -> Fitted:
    """Rows at chance, without replacement."""
    rows = np.random.default_rng(seed).choice(len(data.y), size, replace=False)
    return weighted(data.X1[rows], data.y[rows], np.full(size, len(data.y) / size))


def ours_once(data: Data, size: int, seed: int) -> Fitted:
    """One draw of dask_nlis, by scores that need no fit."""
    A = nlis.reference_matrix(PROBLEM, data.X, data.y)
    sample = nlis.draw(nlis.leverage_scores(A, nlis.factorize(A)), size, scheme="poisson", seed=seed)
    fit = nlis.refit(PROBLEM, *sample.take(data.X, data.y), sample, n_starts=1)
    return Fitted(fit.theta, fit.standard_errors)


def ours(data: Data, size: int, seed: int) -> Fitted:
    """The job of dask_nlis."""
    fit = nlis.run(PROBLEM, data.X, data.y, size=size, seed=seed).fit
    return Fitted(fit.theta, fit.standard_errors)


def ways(data: Data, best: np.ndarray) -> dict[str, Callable[[Data, int, int], Fitted]]:
    """All hands."""
    return {
        UNIFORM: uniform,
        LINEAR: the_paper(data.X1),
        ORACLE: the_paper(adjoint_rows(data, best)),
        "optimal subsampling: L-optimal, in two steps": optimal("L"),
        "optimal subsampling: A-optimal, in two steps": optimal("A"),
        "dask_nlis: one draw, no fit needed": ours_once,
        OURS: ours,
    }


class Found(NamedTuple):
    """Of one hand, over the seeds: log excess (k,); covered (k, p); seconds (k,)."""

    excess: np.ndarray
    covered: np.ndarray
    seconds: np.ndarray


def repeated(way: Callable[[Data, int, int], Fitted], data: Data, size: int, seeds: int, best: nlis.Fit) -> Found:
    """Draw and fit again and again; the losses over all rows in one read."""
    fits, seconds = [], []
    for seed in range(seeds):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.NlisWarning)
            fits.append(way(data, size, seed))
        seconds.append(time.perf_counter() - start)
    thetas = np.array([fit.theta for fit in fits])
    covered = np.abs(thetas - best.theta) <= 1.959963984540054 * np.array([fit.errors for fit in fits])
    losses = nlis.total_loss(PROBLEM, data.X, data.y, thetas)
    return Found(np.log(np.maximum(losses / best.loss - 1, 1e-12)), covered, np.array(seconds))


def agreements(data: Data, best: nlis.Fit, everything: Fitted) -> list[str]:
    """Where two hands compute the same thing: how far they are apart."""
    A = nlis.dual_matrix(PROBLEM, data.X, data.y, theta=best.theta)
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor) / factor.rank
    by_paper = leverage_by_svd(adjoint_rows(data, best.theta))
    hat = OLSInfluence(sm.OLS(data.y, data.X1).fit()).hat_matrix_diag
    straight = nlis.leverage_scores(data.X1, nlis.factorize(data.X1))
    return [
        f"fit on all rows, statsmodels and dask_nlis: coefficients at most {np.abs(everything.theta - best.theta).max():.0e} apart",
        f"nonlinear leverage, the paper's formulas and dask_nlis: at most {np.abs(by_paper / scores - 1).max():.0e} apart, relative",
        f"linear leverage, statsmodels' hat matrix and dask_nlis: at most {np.abs(hat / straight - 1).max():.0e} apart, relative",
    ]


def table(size: int, seeds: int, n: int, found: dict[str, Found], seconds: float) -> Table:
    """A line a hand."""
    shown = Table(title=f"{size:,} of {n:,} rows, {seeds} samples: medians and their standard errors")
    for heading in ("by whom", "log excess loss", "excess", "intervals cover (least)", "seconds"):
        shown.add_column(heading, justify="left" if heading == "by whom" else "right")
    for name, each in found.items():
        covered = each.covered.mean(axis=0)
        shown.add_row(
            name,
            median(each.excess),
            f"{np.exp(np.median(each.excess)):.1%}",
            f"{covered.mean():.0%} ({covered.min():.0%})",
            f"{np.median(each.seconds):.3f}",
        )
    shown.add_row("statsmodels: all rows", "", "0.0%", "", f"{seconds:.3f}")
    return shown


def words(found: dict[str, Found], seconds: float) -> str:
    """The paper's claim, and who is ahead."""

    def gap(a: str, b: str) -> str:
        by = np.median(found[a].excess) - np.median(found[b].excess)
        error = np.hypot(*(standard_error(found[each].excess) for each in (a, b)))
        how = "less than" if by < -3 * error else "more than" if by > 3 * error else "not to be told from"
        return f"{how} ({by:+.2f}, s.e. {error:.2f})"

    rivals = {name: each for name, each in found.items() if not name.startswith("dask_nlis") and name != ORACLE}
    nearest = min(rivals, key=lambda name: np.median(rivals[name].excess))
    slower = np.median(found[OURS].seconds) / seconds
    return (
        "The paper's claim, log excess loss: nonlinear leverage at the best fit is "
        f"{gap(ORACLE, LINEAR)} that of linear leverage, and {gap(ORACLE, UNIFORM)} that of uniform rows. "
        f"`run` of dask_nlis, which knows no fit, is {gap(OURS, ORACLE)} that oracle's, and {gap(OURS, nearest)} that of the "
        f"best of the others without an oracle, {nearest}.\n"
        f"Time: rows that fit into memory like these need no sampling: statsmodels fits all of them in {seconds:.2f} s, and `run` "
        f"takes {slower:.1f} times that. What it is for is data that do not fit (examples/out_of_core.py)."
    )


def picture(found: dict[str, Found], seconds: float, title: str, path: Path) -> None:
    """Losses on the left, a box a hand; seconds on the right."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 4.6), sharey=True, layout="constrained", width_ratios=[2, 1]
    )
    names, places = list(found), np.arange(len(found))[::-1]
    colours = {"at chance": "C7", "the paper": "C0", "optimal subsampling": "C1", "dask_nlis": "C3"}
    for place, name in zip(places, names, strict=True):
        colour = colours[name.partition(":")[0]]
        box = left.boxplot(
            found[name].excess, orientation="horizontal", positions=[place], widths=0.6, patch_artist=True, sym="."
        )
        box["boxes"][0].set(facecolor=colour, alpha=0.5)
        box["medians"][0].set(color="black")
        right.plot(np.median(found[name].seconds), place, "o", color=colour, markersize=9)
    right.axvline(seconds, color="black", linestyle=":", label="statsmodels, all rows")
    right.legend(fontsize=8, loc="upper right")
    left.set_yticks(places, [name.replace(": ", ":\n") for name in names], fontsize=9)
    left.set(xlabel="log((L - L*) / L*): less is better; boxes are quartiles")
    right.set(xlabel="seconds a sample: scores, draw, fit", xscale="log", xlim=(1e-3, 1))
    right.set_xticks([1e-3, 1e-2, 1e-1, 1], ["0.001", "0.01", "0.1", "1"])
    right.minorticks_off()
    for panel in (left, right):
        panel.grid(axis="x", alpha=0.3)
    figure.suptitle(title)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--size", default=500, show_default=True, type=click.IntRange(100, 10_000), help="Rows to draw.")
@click.option("--seeds", default=100, show_default=True, type=click.IntRange(2), help="Samples of each hand.")
@picture_options
def main(size: int, seeds: int, folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "side_by_side.png", overwrite)
    mpl.use("Agg")
    data = load()
    n = len(data.y)
    start = time.perf_counter()
    everything = by_statsmodels(data.X1, data.y)
    seconds = time.perf_counter() - start
    best = nlis.refit(PROBLEM, data.X, data.y, np.ones(n), n_starts=1)
    print("\n".join(agreements(data, best, everything)))
    found = {name: repeated(way, data, size, seeds, best) for name, way in ways(data, best.theta).items()}
    Console(width=120).print(table(size, seeds, n, found, seconds))
    picture(found, seconds, f"California housing, {size:,} of {n:,} rows, {seeds} samples", path)
    print(words(found, seconds))


if __name__ == "__main__":
    main()
