"""One-shot active learning: which rows to ask labels for, before any label is known, on two data sets and a control.

\b
python examples/active_learning.py                          a table each, and active_learning.png; a minute
python examples/active_learning.py --seeds 50 --folder out --data diamonds

Leverage without labels -> a systematic draw, which has exactly as many rows as there is money for -> labels of those
rows -> a weighted fit in a ball of radius 2. Shown is the excess of its loss over all rows, against the fit that knows
all labels: medians, and quartiles as bands. Rivals of the same budget are uniform rows and three oracles, which know
the best parameters, all labels, or both. For the activation here, 0 at 0, the label-free reference rows are [x, 1, 0]:
this is the leverage of [x, 1], nothing else. The control is California housing with each column replaced by the normal
scores of its ranks, which leaves no row far out. Needs matplotlib and pandas (the extras `plot` and `dataframe`).
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import dask
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from drawing import free_path, picture_options, save
from paper_figure1 import load
from rich.console import Console
from rich.table import Table
from scipy.stats import norm, rankdata
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(2.0))
DATA = ("california", "diamonds", "california, ranked")
PER_PARAMETER = (5, 10, 20, 50, 100)
DECISIVE = 20  # labels a parameter, where the comparison in words is made
COLOURS = {
    "uniform": "C7",
    "label-free": "C3",
    "label-free, best theta": "C1",
    "all labels": "C0",
    "all labels, best theta": "C2",
}
MEANING = {
    "uniform": "uniform rows",
    "label-free": "leverage without labels, no theta",
    "label-free, best theta": "without labels, at theta* (oracle)",
    "all labels": "with all labels, no theta (oracle)",
    "all labels, best theta": "with all labels, at theta* (oracle)",
}


class Experiment(NamedTuple):
    """Rows, the fit that knows all labels, and what was found at every score, budget and seed."""

    X: np.ndarray
    y: np.ndarray
    best: nlis.Fit
    found: nlis.Comparison


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) and y (n,), standardised; of the control each column by the normal scores of its ranks."""
    X, y = load(name.partition(",")[0])
    if name.endswith("ranked"):
        X = norm.ppf((rankdata(X, axis=0) - 0.5) / len(X))
    return X, y


def leverage(A: nlis.TallMatrix) -> np.ndarray:
    """Leverage of every row, in memory."""
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


def learn(X: np.ndarray, ask: Callable[[np.ndarray], np.ndarray], budget: int, seed: int) -> nlis.Fit:
    """One round: scores that need no label, one draw, the labels of its rows and a weighted fit to them."""
    scores = leverage(nlis.reference_matrix(PROBLEM, X))
    sample = nlis.draw(scores, budget, scheme="systematic", seed=seed)
    return nlis.refit(PROBLEM, sample.take(X), ask(sample.indices), sample, n_starts=1)


def budgets(n_parameters: int) -> list[int]:
    """Numbers of labels that are tried."""
    return [k * n_parameters for k in PER_PARAMETER]


def experiment(name: str, seeds: int, sizes: list[int] | None = None, names: tuple[str, ...] = ()) -> Experiment:
    """Fit to all labels, score all rows, and fit to samples of each budget; all losses in one read."""
    X, y = rows(name)
    with dask.config.set(scheduler="synchronous"), threadpool_limits(1, user_api="blas"):
        best = nlis.refit(PROBLEM, X, y, np.ones(len(y)), n_starts=1)
        scores = {
            "uniform": np.ones(len(y)),
            "label-free": leverage(nlis.reference_matrix(PROBLEM, X)),
            "label-free, best theta": leverage(nlis.dual_matrix(PROBLEM, X, theta=best.theta)),
            "all labels": leverage(nlis.reference_matrix(PROBLEM, X, y)),
            "all labels, best theta": leverage(nlis.dual_matrix(PROBLEM, X, y, theta=best.theta)),
        }
        scores = {key: scores[key] for key in names or scores}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.ConvergenceWarning)  # counted in Comparison.ok, told by main
            found = nlis.compare(
                PROBLEM,
                X,
                y,
                scores,
                sizes=sizes or budgets(len(best.theta)),
                seeds=seeds,
                scheme="systematic",
                theta=best.theta,
                n_starts=1,
            )
    return Experiment(X, y, best, found)


def log_excess(found: nlis.Comparison, name: str, size: int) -> np.ndarray:
    """Logarithm of the excess of each seed."""
    return np.log(found.excess[(found.name == found.names.index(name)) & (found.size == size)])


def difference(found: nlis.Comparison, a: str, b: str, size: int) -> tuple[float, float]:
    """Mean log excess of a less that of b, and its standard error; below 0 where a is better."""
    apart = log_excess(found, a, size) - log_excess(found, b, size)  # of one seed: draws of equal seeds may be alike
    return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))


def verdict(mean: float, error: float) -> str:
    """In words, at three standard errors."""
    factor = f"{np.exp(abs(mean)):.2g} times"
    if mean < -3 * error:
        return f"{factor} less"
    return f"{factor} more" if mean > 3 * error else "no difference to be seen"


def table(name: str, of: Experiment) -> Table:
    """Median excess over the seeds, quartiles below it."""
    quartiles = of.found.quartiles()
    sizes = np.unique(of.found.size).tolist()
    shown = Table(title=f"{name}: excess loss over all {len(of.y):,} rows, median and quartiles", show_lines=True)
    shown.add_column("rows chosen by")
    for size in sizes:
        shown.add_column(f"{size:,} labels", justify="right")
    for score in of.found.names:
        cells = [quartiles[score, size] for size in sizes]
        shown.add_row(MEANING[score], *("{1:.2g}\n{0:.2g} - {2:.2g}".format(*cell) for cell in cells))
    return shown


def promised(name: str, of: Experiment) -> Table:
    """The error in the terms of the theorems on active learning, and the labels they ask for that error."""
    slope = nlis.lipschitz_bound(PROBLEM, 1.0)
    index = np.column_stack([of.X, np.ones(len(of.y))]) @ of.best.theta
    shown = Table(title=f"{name}: labels paid, and what the theorems ask for the same error (constants taken as 1)")
    for heading in ("labels", "epsilon", "Gajjar et al. 2024", "Gajjar et al. 2023"):
        shown.add_column(heading, justify="right")
    for size in np.unique(of.found.size).tolist():
        excess = of.found.quartiles()["label-free", size][1] * of.found.reference_loss
        epsilon = excess / (slope * slope * float(index @ index))
        asked = (
            nlis.active_learning_size(len(of.best.theta), epsilon, paper=paper, n_rows=len(of.y))
            for paper in ("gajjar-2024", "gajjar-2023")
        )
        cells = (f"{each.size:.3g}{' (all rows)' if each.vacuous else ''}" for each in asked)
        shown.add_row(f"{size:,}", f"{epsilon:.2g}", *cells)
    return shown


def words(name: str, of: Experiment) -> str:
    """The comparison at one budget: against uniform rows, and against what labels would have told."""
    size = DECISIVE * len(of.best.theta)
    against, against_error = difference(of.found, "label-free", "uniform", size)
    missing, missing_error = difference(of.found, "label-free", "all labels", size)
    failed = int((~of.found.ok).sum())
    return (
        f"{name}, {size} labels: the excess of label-free leverage against uniform rows: {verdict(against, against_error)} "
        f"(log {against:+.2f}, s.e. {against_error:.2f}); against leverage that knew all labels: "
        f"{verdict(missing, missing_error)} (log {missing:+.2f}, s.e. {missing_error:.2f}). "
        f"{failed} of {len(of.found)} fits did not pass their checks."
    )


def claim(experiments: dict[str, Experiment]) -> str:
    """Beside the paper: what its nonlinear scores would add, which need the labels that are asked for."""
    lines = []
    for name, of in experiments.items():
        size = DECISIVE * len(of.best.theta)
        mean, error = difference(of.found, "all labels, best theta", "label-free", size)
        lines.append(f"on {name} {verdict(mean, error)} (log {mean:+.2f}, s.e. {error:.2f})")
    return (
        "The paper's experiments score with labels and at the best parameters, which nobody has before asking; its bound "
        "by linear leverage needs neither, and is what is drawn by here. Its nonlinear scores, an oracle, leave an excess "
        f"against that: {'; '.join(lines)}."
    )


def picture(experiments: dict[str, Experiment], path: Path) -> None:
    """A panel for each data set, a line for each score."""
    width = max(6.4, 4.4 * len(experiments))
    figure, panels = plt.subplots(
        1, len(experiments), figsize=(width, 5), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, (name, of) in zip(panels.flat, experiments.items(), strict=True):
        quartiles, sizes = of.found.quartiles(), np.unique(of.found.size).tolist()
        for score in of.found.names:
            low, middle, high = np.array([quartiles[score, size] for size in sizes]).T
            line, shade = ("--", 0.07) if "oracle" in MEANING[score] else ("-", 0.15)
            panel.plot(sizes, middle, line, marker="o", markersize=4, color=COLOURS[score], label=MEANING[score])
            panel.fill_between(sizes, low, high, color=COLOURS[score], alpha=shade, linewidth=0)
        panel.axhline(0.1, color="black", linewidth=0.8, linestyle=":")
        panel.set(title=f"{name}, {len(of.y):,} rows", xscale="log", yscale="log", xlabel="labels asked for")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("excess loss over all rows, (L - L*) / L*")
    panels[0, 0].annotate(
        "10 %", (0.99, 0.105), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
    )
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3 if len(experiments) > 1 else 2, frameon=False)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(2), help="Samples a score and budget.")
@click.option("--data", multiple=True, type=click.Choice(DATA), help="One data set; all without.")
@picture_options
def main(seeds: int, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "active_learning.png", overwrite)
    mpl.use("Agg")
    console = Console(width=110)
    experiments = {name: experiment(name, seeds) for name in data or DATA}
    for name, of in experiments.items():
        console.print(table(name, of))
        console.print(promised(name, of))

    for name, of in experiments.items():
        print(words(name, of))
    name, of = next(iter(experiments.items()))
    asked: list[int] = []

    def ask(indices: np.ndarray) -> np.ndarray:
        asked.extend(indices.tolist())
        return of.y[indices]

    fit = learn(of.X, ask, DECISIVE * len(of.best.theta), seed=0)
    excess = nlis.total_loss(PROBLEM, of.X, of.y, fit.theta) / of.best.loss - 1
    print(
        f"{name}, once by hand: {len(asked)} of {len(of.y):,} labels asked for; {excess:.1%} above the fit that knows all"
    )
    picture(experiments, path)
    print(claim(experiments))


if __name__ == "__main__":
    main()
