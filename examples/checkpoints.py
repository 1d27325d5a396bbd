"""Scores along a training: from which checkpoint on do they serve the end of it, and what does `drift` tell beforehand?

\b
python examples/checkpoints.py                          two trainings, 400 samples a checkpoint; a minute
python examples/checkpoints.py --seeds 20 --data "Quick Draw" --folder out

A network of 5 ReLU units is trained on Quick Draw, and a single index with a steep activation on California housing; some
iterations are kept. `drift` compares the scores at each with those at the last one, in two reads of the data for all of
them: rank correlation, share of the 100 highest, affinity of the sampling probabilities, and beta, such that a sample by
the earlier scores is at least as good as one of beta times its size by the last ones.

The paper's guarantee is for the theta at which scores are made: samples estimate the loss there. Here rows are drawn by the
scores of every checkpoint, and the loss at the last one is estimated with each. Shown is the relative error: medians over
samples and their standard errors, beside uniform rows and linear leverage, which know no checkpoint.

Needs matplotlib and pandas: pip install 'dask-nlis[plot,dataframe]'.
"""

from pathlib import Path
from typing import NamedTuple

import click
import dask
import detection
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import paper_figure1
from drawing import free_path, picture_options, save
from medians import median, standard_error
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

KEPT = {"Quick Draw": (0, 1, 3, 10, 30, 100, 400), "california": (0, 1, 2, 4, 8, 16, 60)}
ELSE = ("uniform", "linear leverage")
SIZE = 500


class Training(NamedTuple):
    """Rows, the problem, the iterations that were kept and their parameters (k, p), earliest first."""

    X: np.ndarray
    y: np.ndarray
    problem: nlis.Problem
    iterations: list[int]
    thetas: np.ndarray


class Found(NamedTuple):
    """What `drift` says of each checkpoint and the last, (k,), and relative errors of estimated losses by scores."""

    losses: np.ndarray
    rank_correlation: np.ndarray
    top_overlap: np.ndarray
    affinity: np.ndarray
    beta: np.ndarray
    errors: dict[str, np.ndarray]


def trained(name: str, size: int | None = None) -> Training:
    """Minimise by L-BFGS and keep some iterations; of fewer than `KEPT` says, the last one is the last."""
    if name == "Quick Draw":
        X, y = detection.load(name, size)
        problem = detection.network(leak=0)
        rng, d = np.random.default_rng(0), X.shape[1]
        a, b = rng.uniform(-1, 1, detection.UNITS), rng.uniform(-1, 1, (detection.UNITS, d))
        start = problem.model.pack(a=a / np.sqrt(detection.UNITS), b=b / np.sqrt(d))

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            return detection.objective(theta, problem, X, y)
    else:
        X, y = (part[:size] for part in paper_figure1.load(name))
        problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(0.04, 2, 3)))
        X1, phi = np.column_stack([X, np.ones(len(X))]), problem.model.activation
        start = np.zeros(X1.shape[1])

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            u = X1 @ theta
            error = phi.value(u) - y
            return float(error @ error / len(y)), 2 * (error * phi.derivative(u)) @ X1 / len(y)

    path = [start]
    minimize(
        objective,
        start,
        method="L-BFGS-B",
        jac=True,
        callback=lambda theta: path.append(theta.copy()),
        options={"maxiter": KEPT[name][-1], "ftol": 0, "gtol": 1e-10},
    )
    kept = sorted({min(k, len(path) - 1) for k in KEPT[name]})
    return Training(X, y, problem, kept, np.array([path[k] for k in kept]))


def leverage(of: Training, theta: np.ndarray) -> np.ndarray:
    """Leverage of every row at one checkpoint."""
    A = nlis.dual_matrix(of.problem, of.X, of.y, theta=theta)
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


def estimated(scores: np.ndarray, losses: np.ndarray, size: int, seeds: int) -> np.ndarray:
    """Relative errors of the sum of losses (n,) as samples by these scores estimate it, (seeds,)."""
    samples = (nlis.draw(scores, size, seed=seed) for seed in range(seeds))
    sums = np.array([sample.weights @ losses[sample.indices] for sample in samples])
    return np.abs(sums / losses.sum() - 1)


def compared(of: Training, size: int, seeds: int) -> Found:
    """`drift` of all checkpoints, and samples by the scores of each."""
    found = nlis.drift(of.problem, of.X, of.y, of.thetas)
    last = len(of.thetas) - 1
    # Each pair with the last one; the last is itself in everything.
    places = [int(np.flatnonzero((found.pairs == (k, last)).all(axis=1))[0]) for k in range(last)]
    series = (
        np.append(getattr(found, what)[places], 1.0) for what in ("rank_correlation", "top_overlap", "affinity", "beta")
    )
    losses = np.asarray(nlis.loss_scores(nlis.dual_matrix(of.problem, of.X, of.y, theta=of.thetas[-1])))
    scores = {f"{k}": leverage(of, theta) for k, theta in zip(of.iterations, of.thetas, strict=True)}
    scores |= {"uniform": np.ones(len(of.y)), "linear leverage": nlis.leverage_scores(of.X, nlis.factorize(of.X))}
    errors = {name: estimated(each, losses, size, seeds) for name, each in scores.items()}
    return Found(found.losses, *series, errors)


def table(name: str, of: Training, found: Found, seeds: int) -> Table:
    """A line a checkpoint, then the scores that know none."""
    shown = Table(title=f"{name}, {len(of.y):,} rows: leverage at checkpoints beside leverage at the last one")
    columns = ("loss", "rank correlation", "same of 100 highest", "affinity", "beta")
    for heading in ("scores of iteration", *columns, f"error of the last loss, {SIZE} rows, {seeds} samples"):
        shown.add_column(heading, justify="right")
    for k, iteration in enumerate(of.iterations):
        numbers = (found.rank_correlation[k], found.top_overlap[k], found.affinity[k], found.beta[k])
        shown.add_row(
            f"{iteration}",
            f"{found.losses[k]:.4g}",
            *(f"{number:.2g}" for number in numbers),
            median(100 * found.errors[f"{iteration}"]) + " %",
        )
    for other in ELSE:
        shown.add_row(other, *[""] * len(columns), median(100 * found.errors[other]) + " %")
    return shown


def words(name: str, of: Training, found: Found) -> str:
    """From when on scores are as good as the last ones, and what of that the theory promised."""
    last = found.errors[f"{of.iterations[-1]}"]

    def behind(scores: str) -> float:
        """Standard errors by which the median error is above that of the last scores."""
        errors = found.errors[scores]
        return float((np.median(errors) - np.median(last)) / np.hypot(standard_error(errors), standard_error(last)))

    good = next(k for k in of.iterations if all(behind(f"{later}") < 3 for later in of.iterations if later >= k))
    k = of.iterations.index(good)
    others = ", ".join(f"{each} {np.median(found.errors[each]):.1%}" for each in ELSE)
    ahead = [each for each in ELSE if behind(each) > 3]
    claim = (
        f"better than {' and '.join(ahead)}"
        if ahead
        else "no better than scores that know no theta, at three standard errors"
    )
    return (
        f"{name}: the scores of iteration {good} (loss {found.losses[k]:.4g}, at the end {found.losses[-1]:.4g}) and of all later "
        f"ones estimate the last loss as well as the last scores do: to {np.median(found.errors[f'{good}']):.1%}, against "
        f"{np.median(last):.1%}; {others}. The paper's nonlinear scores at the theta that is asked about are {claim}. What theory "
        f"promises of iteration {good} is less: beta {found.beta[k]:.2g}, a sample {1 / max(found.beta[k], 1e-300):.3g} times as "
        f"large; its affinity with the last is {found.affinity[k]:.2f}."
    )


def picture(shown: dict[str, tuple[Training, Found]], path: Path) -> None:
    """Above what `drift` says, below what the scores are worth; a column a data set."""
    figure, panels = plt.subplots(
        2, len(shown), figsize=(max(7, 5.6 * len(shown)), 7.4), squeeze=False, layout="constrained"
    )
    for (name, (of, found)), above, below in zip(shown.items(), *panels, strict=True):
        places = np.arange(len(of.iterations))
        for what, label in (
            ("rank_correlation", "rank correlation"),
            ("top_overlap", "same of the 100 highest"),
            ("affinity", "affinity"),
            ("beta", "beta"),
        ):
            above.plot(places, getattr(found, what), marker="o", label=label)
        above.set(
            title=f"{name}: leverage at a checkpoint and at the last", ylim=(-0.05, 1.35), yticks=np.arange(6) / 5
        )
        above.legend(fontsize=8, loc="upper center", ncols=4)
        errors = [100 * found.errors[f"{k}"] for k in of.iterations]
        bars = [standard_error(each) for each in errors]
        below.errorbar(
            places,
            [np.median(each) for each in errors],
            bars,
            marker="o",
            color="C3",
            label="leverage at the checkpoint",
        )
        for other, line in zip(ELSE, (":", "--"), strict=True):
            value, bar = np.median(100 * found.errors[other]), standard_error(100 * found.errors[other])
            below.axhline(value, color="black", linestyle=line, label=other)
            below.axhspan(value - bar, value + bar, color="black", alpha=0.08, linewidth=0)
        below.set(ylim=(0, None), xlabel="iteration that the scores are of; below it the loss there")
        below.set_title(f"error of the loss at the last, {SIZE} of {len(of.y):,} rows", fontsize=11)
        below.legend(fontsize=8)
        ticks = [f"{k}\n{loss:,.0f}" for k, loss in zip(of.iterations, found.losses, strict=True)]
        for panel in (above, below):
            panel.set_xticks(places, ticks, fontsize=8)
            panel.grid(alpha=0.3)
    panels[1, 0].set_ylabel("median error, %, and its standard error")
    save(figure, path)


@click.command(help=__doc__)
@click.option("--seeds", default=400, show_default=True, type=click.IntRange(5), help="Samples a checkpoint.")
@click.option("--size", type=click.IntRange(1_000), help="Rows of each data set; all without.")
@click.option("--data", multiple=True, type=click.Choice(list(KEPT)), help="One data set; all without.")
@picture_options
def main(seeds: int, size: int | None, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "checkpoints.png", overwrite)
    mpl.use("Agg")
    shown = {}
    for name in data or KEPT:
        with dask.config.set(scheduler="synchronous"), threadpool_limits(1, user_api="blas"):
            of = trained(name, size)
            shown[name] = of, compared(of, SIZE, seeds)
        Console(width=120).print(table(name, *shown[name], seeds))
    picture(shown, path)
    print("\n".join(words(name, *each) for name, each in shown.items()))


if __name__ == "__main__":
    main()
