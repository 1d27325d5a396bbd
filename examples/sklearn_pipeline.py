"""A scikit-learn pipeline whose last step is fitted on drawn rows: what it loses against all rows, and against uniform ones.

\b
python examples/sklearn_pipeline.py                     500 of 15,480 rows, 20 splits; a minute
python examples/sklearn_pipeline.py --seeds 2 --size 200 --estimator logistic

California housing is split into training and test rows, anew for each seed. Each pipeline is fitted on the training rows
three times: on rows drawn by leverage, on as many uniform ones (`mix=1.0`), and on all. The table shows the error on the
test rows, the median over the seeds (and the largest). Leverage belongs to a model: least squares, Poisson and logistic
regression are fitted on rows drawn for them. Boosted trees are not; they are fitted on the rows of least squares, to show
what that is worth.

Needs scikit-learn: pip install 'dask-nlis[sklearn]'; the picture matplotlib (the extra `plot`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from drawing import free_path, picture_options, pyplot, save
from medians import apart
from rich.console import Console
from rich.table import Table
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import dask_nlis as nlis

WAYS = ("drawn by leverage", "uniform", "all rows")


class Case(NamedTuple):
    """An estimator, the problem its rows are drawn for (None: chosen by y), and the error on test rows."""

    estimator: Any
    problem: nlis.Problem | None
    name: str
    error: Callable[[Pipeline, np.ndarray, np.ndarray], float]


def predicted(metric: Callable[[Any, Any], float]) -> Callable[[Pipeline, np.ndarray, np.ndarray], float]:
    """The error of predictions."""
    return lambda fitted, X, y: metric(y, fitted.predict(X))


CASES = {
    "least squares": Case(LinearRegression(), None, "root mean square", predicted(root_mean_squared_error)),
    "poisson": Case(
        PoissonRegressor(alpha=0, solver="newton-cholesky"),
        nlis.Problem(nlis.Linear(), nlis.PoissonDeviance()),
        "Poisson deviance",
        predicted(mean_poisson_deviance),
    ),
    "logistic": Case(
        LogisticRegression(solver="newton-cholesky"),
        None,
        "log loss",
        lambda fitted, X, y: log_loss(y, fitted.predict_proba(X)),
    ),
    "boosted trees": Case(
        HistGradientBoostingRegressor(random_state=0), None, "root mean square", predicted(root_mean_squared_error)
    ),
}


def pipeline(case: Case, way: str, size: int, seed: int) -> Pipeline:
    """Standardised on all rows, then fitted on some."""
    estimator = clone(case.estimator)
    if way == "all rows":
        return make_pipeline(StandardScaler(), estimator)
    mix = 1.0 if way == "uniform" else 0.0
    sampler = nlis.NonlinearLeverageSampler(case.problem, size=size, mix=mix, estimator=estimator, random_state=seed)
    return make_pipeline(StandardScaler(), sampler)


def errors(case: Case, X: np.ndarray, y: np.ndarray, size: int, seeds: int) -> dict[str, np.ndarray]:
    """Errors on test rows by each way, one a seed."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
        for way in WAYS:
            fitted = pipeline(case, way, size, seed).fit(X_train, y_train)
            found[way].append(case.error(fitted, X_test, y_test))
    return {way: np.array(values) for way, values in found.items()}


def worse(errors: np.ndarray, of_all: np.ndarray) -> str:
    """How much larger errors are than those of all rows, in the median and at most."""
    ratios = errors / of_all
    return f"{np.median(ratios):.3f} times (at most {ratios.max():.2f})"


def claim(founds: dict[str, dict[str, np.ndarray]]) -> str:
    """The paper's claim for each estimator, by pairs of the same split."""
    lines = []
    for name, found in founds.items():
        mean, error, how = apart(np.log(found["drawn by leverage"]), np.log(found["uniform"]))
        lines.append(f"{name}: {how} uniform rows (log {mean:+.3f}, s.e. {error:.3f})")
    return (
        f"The paper's claim that rows by leverage leave a smaller error, on test rows: {'; '.join(lines)}. It is made for the "
        "model that the scores are of, and for its loss on the rows drawn from: boosted trees have no part in it."
    )


def picture(founds: dict[str, dict[str, np.ndarray]], title: str, path: Path) -> None:
    """Errors over those of all rows, a dot a split, a line for the median."""
    plt = pyplot()
    if plt is None:
        return
    figure, panel = plt.subplots(figsize=(9, 1.4 + 0.9 * len(founds)), layout="constrained")
    rng = np.random.default_rng(0)
    for place, found in enumerate(founds.values()):
        for shift, colour, way in ((-0.2, "C3", "drawn by leverage"), (0.2, "C7", "uniform")):
            ratio = found[way] / found["all rows"]
            where = place + shift
            panel.plot(
                ratio,
                where + rng.uniform(-0.1, 0.1, len(ratio)),
                "o",
                color=colour,
                alpha=0.45,
                markersize=5,
                label=way if place == 0 else None,
            )
            panel.plot([np.median(ratio)] * 2, [where - 0.17, where + 0.17], color="black")
    panel.axvline(1, color="black", linestyle=":")
    panel.set_yticks(range(len(founds)), list(founds))
    panel.invert_yaxis()
    panel.set(xscale="log", xlabel="error on test rows over that of a fit to all rows", title=title)
    most = panel.get_xlim()[1]
    ticks = [tick for tick in (0.8, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if tick < max(most, 1.3)]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.legend(fontsize=9)
    panel.grid(axis="x", alpha=0.3)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--size", default=500, show_default=True, type=click.IntRange(50), help="Rows to draw.")
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(1), help="Splits.")
@click.option("--estimator", "names", multiple=True, type=click.Choice(list(CASES)), help="One of them; all without.")
@picture_options
def main(size: int, seeds: int, names: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "sklearn_pipeline.png", overwrite)
    X, prices = (part.compute() for part in nlis.datasets.california_housing())
    prices = prices / 100_000
    table = Table(title=f"{size:,} of {len(X) * 3 // 4:,} rows, {seeds} splits: error on test rows, median (largest)")
    for heading in ("estimator", "error", *WAYS):
        table.add_column(heading, justify="left" if heading in ("estimator", "error") else "right")
    lines, founds = [], {}
    for name in names or CASES:
        case = CASES[name]
        founds[name] = found = errors(
            case, X, (prices > np.median(prices)).astype(int) if name == "logistic" else prices, size, seeds
        )
        table.add_row(name, case.name, *(f"{np.median(each):.4g} ({each.max():.4g})" for each in found.values()))
        drawn, uniform, of_all = found.values()
        lines.append(
            f"{name}: {worse(drawn, of_all)} the error of all rows by leverage, {worse(uniform, of_all)} by uniform rows; "
            f"leverage is ahead in {(drawn < uniform).sum()} of {seeds} splits"
        )
    console = Console(width=110)
    console.print(table)
    picture(founds, f"{size:,} of {len(X) * 3 // 4:,} rows, {seeds} splits", path)
    print("\n".join(lines))
    print(claim(founds))


if __name__ == "__main__":
    main()
