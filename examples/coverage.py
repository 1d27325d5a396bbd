"""What standard errors are worth: how often 95 % intervals cover the fit to all rows, by leverage and by chance alone.

\b
python examples/coverage.py                          California housing, 400 samples a cell; about two minutes
python examples/coverage.py --data heavy-tailed --samples 100

A sample is drawn and fitted again and again. "error" is the root mean square of the estimated standard errors over that
of the true errors, "mean" the coverage over all coefficients, "least" that of the coefficient with the least.
Samples by leverage at the fit to all rows, by each scheme; by the job in two stages, which knows no fit; and uniform samples
of the same size. The picture needs matplotlib (the extra `plot`).
"""

import functools
from pathlib import Path
from typing import NamedTuple

import click
import dask
import numpy as np
from drawing import free_path, picture_options, pyplot, save
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


def claim(founds: dict[tuple[str, str], Coverage], samples: int) -> str:
    """What was found, beside what the paper says of errors: nothing."""
    error = 100 * np.sqrt(0.95 * 0.05 / samples)
    lines = []
    for model in MODELS:
        ours = [
            100 * found.covered.mean() for (of, name), found in founds.items() if of == model and "uniform" not in name
        ]
        chance = founds[model, "uniform, multinomial"].covered
        lines.append(
            f"{model}: {min(ours):.1f} to {max(ours):.1f} % by leverage, {100 * chance.mean():.1f} % by uniform rows, where the worst "
            f"coefficient has {100 * chance.min():.1f} %"
        )
    return (
        f"{'; '.join(lines)}; 95 % are meant, and a coefficient's share has a standard error of {error:.1f}. The paper bounds losses "
        "and gives no standard errors: these intervals are no claim of its. Where rows are heavy-tailed, uniform samples do "
        "not know what they have missed, and neither do their intervals."
    )


def picture(founds: dict[tuple[str, str], Coverage], title: str, path: Path) -> None:
    """A line a design: a dot for each coefficient, a bar for their mean."""
    plt = pyplot()
    if plt is None:
        return
    figure, panels = plt.subplots(1, len(MODELS), figsize=(11, 4), sharey=True, layout="constrained")
    for panel, model in zip(panels, MODELS, strict=True):
        names = [name for of, name in founds if of == model]
        for place, name in enumerate(names):
            covered = 100 * founds[model, name].covered
            colour = "C7" if "uniform" in name else "C3"
            panel.plot(covered, np.full(len(covered), place), "o", color=colour, alpha=0.5)
            panel.plot([covered.mean()] * 2, [place - 0.3, place + 0.3], color="black")
        panel.axvline(95, color="black", linestyle=":")
        panel.set_yticks(range(len(names)), names)
        panel.set(title=model, xlabel="intervals that cover, %: a dot a coefficient")
        panel.grid(axis="x", alpha=0.3)
    panels[0].invert_yaxis()
    figure.suptitle(title)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--samples", default=400, show_default=True, help="Samples a cell.")
@click.option("--data", default="california", show_default=True, type=click.Choice(ROWS))
@click.option("--per-parameter", default=50, show_default=True, help="Draws a parameter of the model.")
@picture_options
def main(samples: int, data: str, per_parameter: int, folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "coverage.png", overwrite)
    table = Table(title=f"{data}: 95 % intervals, {samples} samples of {per_parameter} draws a parameter")
    for heading in ("model", "drawn by", "error", "mean", "least"):
        table.add_column(heading, justify="left" if heading in ("model", "drawn by") else "right")
    founds: dict[tuple[str, str], Coverage] = {}
    for model in MODELS:
        of = population(data, model)
        size = per_parameter * len(of.full.theta)
        cells = [(f"leverage, {scheme}", scheme, None) for scheme in SCHEMES]
        cells.append(("two stages, poisson", "two stages", None))
        for name, scheme, scores in [*cells, ("uniform, multinomial", "multinomial", np.ones(len(of.y)))]:
            founds[model, name] = found = simulated(of, scheme, size, samples, scores)
            covered = 100 * found.covered
            table.add_row(model, name, f"{found.ratio.mean():.2f}", f"{covered.mean():.1f} %", f"{covered.min():.1f} %")
    Console().print(table)
    picture(founds, f"{data}: 95 % intervals, {samples} samples", path)
    print(claim(founds, samples))


if __name__ == "__main__":
    main()
