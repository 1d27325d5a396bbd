"""What standard errors are worth: how often 95 % intervals cover the fit to all rows, by leverage and by chance alone.

\b
python examples/coverage.py                          California housing, 400 samples a cell; about four minutes
python examples/coverage.py --data heavy-tailed --samples 100

A sample is drawn and fitted again and again. "error" is the root mean square of the estimated standard errors over that
of the true errors, "mean" the coverage over all coefficients, "least" that of the coefficient with the least.
Samples by leverage at the fit to all rows, by each scheme; by the job in two stages, which knows no fit; and uniform samples
of the same size.
"""

import functools
from typing import NamedTuple

import click
import dask
import numpy as np
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis

ROWS = ("synthetic", "heavy-tailed", "california")
MODELS = ("single index", "logistic")
SCHEMES = ("multinomial", "poisson", "stratified", "systematic")


class Population(NamedTuple):
    """Rows, the fit to all of them, and leverage scores there."""

    X: np.ndarray
    y: np.ndarray
    full: nlis.Fit
    scores: np.ndarray


class Coverage(NamedTuple):
    """For each coefficient: estimated over true error, and the share of intervals that cover it."""

    ratio: np.ndarray
    covered: np.ndarray


@functools.cache
def population(rows: str, model: str, n: int = 20_000, d: int = 9) -> Population:
    """Make or load the rows, fit the model to all of them and score them."""
    rng = np.random.default_rng(7)
    X, y = features(rows, n, d, rng)
    theta = np.append(np.linspace(0.6, -0.6, X.shape[1]), 0.2)
    if model == "single index":
        problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
        y = problem.model.predict(theta, X) + 0.5 * rng.normal(size=len(X)) if y is None else y
    else:
        problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
        chance = 1 / (1 + np.exp(-X @ theta[:-1] - theta[-1]))
        y = (rng.random(len(X)) < chance if y is None else y > np.median(y)).astype(float)
    full = nlis.refit(problem, X, y, np.ones(len(y)), n_starts=1)
    A = nlis.dual_matrix(problem, X, y, theta=full.theta)
    return Population(X, y, full, np.asarray(nlis.leverage_scores(A, nlis.factorize(A))))


def features(rows: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
    """Features (n, d), and labels where the data have their own."""
    if rows == "california":
        X, y = nlis.datasets.california_housing(standardized=True)
        return X.compute(), y.compute()
    if rows == "synthetic":
        return rng.normal(size=(n, d)), None
    heavy, rare = rng.standard_t(4, size=(n, 4)), rng.random((n, 2)) < 0.05
    return np.column_stack([heavy, np.exp(rng.normal(size=(n, 3))) - np.exp(0.5), rare]), None


def simulated(of: Population, scheme: str, size: int, times: int, scores: np.ndarray | None = None) -> Coverage:
    """Draw and fit again and again, by leverage or by the scores given; or run the job in two stages, which knows neither."""
    away, errors = [], []
    with dask.config.set(scheduler="synchronous"):
        for seed in range(times):
            if scheme == "two stages":
                fit = nlis.run(of.full.problem, of.X, of.y, size=size, seed=seed).fit
            else:
                sample = nlis.draw(of.scores if scores is None else scores, size, scheme=scheme, seed=seed)
                fit = nlis.refit(of.full.problem, *sample.take(of.X, of.y), sample, start=of.full.theta, n_starts=1)
            away.append(fit.theta - of.full.theta)
            errors.append(fit.standard_errors)
    squares = np.square(away), np.square(errors)
    ratio = np.sqrt(squares[1].mean(axis=0) / squares[0].mean(axis=0))
    return Coverage(ratio, (np.abs(away) <= 1.959963984540054 * np.array(errors)).mean(axis=0))


@click.command(help=__doc__)
@click.option("--samples", default=400, show_default=True, help="Samples a cell.")
@click.option("--data", default="california", show_default=True, type=click.Choice(ROWS))
@click.option("--per-parameter", default=50, show_default=True, help="Draws a parameter of the model.")
def main(samples: int, data: str, per_parameter: int) -> None:
    table = Table(title=f"{data}: 95 % intervals, {samples} samples of {per_parameter} draws a parameter")
    for heading in ("model", "drawn by", "error", "mean", "least"):
        table.add_column(heading, justify="left" if heading in ("model", "drawn by") else "right")
    for model in MODELS:
        of = population(data, model)
        size = per_parameter * len(of.full.theta)
        cells = [(f"leverage, {scheme}", scheme, None) for scheme in SCHEMES]
        cells.append(("two stages, poisson", "two stages", None))
        for name, scheme, scores in [*cells, ("uniform, multinomial", "multinomial", np.ones(len(of.y)))]:
            found = simulated(of, scheme, size, samples, scores)
            covered = 100 * found.covered
            table.add_row(model, name, f"{found.ratio.mean():.2f}", f"{covered.mean():.1f} %", f"{covered.min():.1f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
