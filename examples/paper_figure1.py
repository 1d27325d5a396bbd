"""Figure 1 of "Importance Sampling for Nonlinear Models" (ICML 2025): five scores, three data sets, four refits.

\b
python examples/paper_figure1.py                        a PNG for each data set, in this folder; two minutes
python examples/paper_figure1.py --seeds 20 --folder out --data insurance

Rows are drawn with replacement by uniform, linear and nonlinear scores, at the parameters of the fit on all rows;
the model is refitted on the drawn rows with and without their weights, with and without a ball around the origin.
Shown is log((L - L*) / L*), the loss on all rows in excess of the smallest one: medians, and quartiles as bands.
Needs matplotlib and pandas (the extras `plot` and `dataframe`).
"""

import os
from pathlib import Path
from typing import NamedTuple

import click
import dask
import distributed
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from drawing import free_path, picture_options, save
from medians import standard_error
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis

DATA = Path(__file__).parent / "data"
SIZES = {
    "insurance": (20, 27, 40, 67, 134, 268, 401),
    "california": (21, 41, 103, 206, 413, 1032, 2064),
    "diamonds": (27, 54, 108, 270, 539, 1079, 2697),
}
ORDERS = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("JIHGFED"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}
SCORES = {
    "UN": "uniform",
    "LS-L": "linear leverage",
    "RN-L": "linear row norms",
    "LS-A": "nonlinear leverage",
    "RN-A": "nonlinear row norms",
}
REFITS = ("weighted", "weighted, in a ball", "unweighted", "unweighted, in a ball")


class Experiment(NamedTuple):
    """A data set, the problem without and with the ball, the fit on all rows, and the scores (n,) by name."""

    X: np.ndarray
    y: np.ndarray
    problems: tuple[nlis.Problem, nlis.Problem]
    best: nlis.Fit
    scores: dict[str, np.ndarray]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns as numbers, categories by order (the alphabet where they have none), standardised: X (n, d), y (n,)."""
    if name == "california":
        X, y = nlis.datasets.california_housing(standardized=True)
        return X.compute(), y.compute()
    table = pd.read_csv(DATA / f"{name}.csv.gz")
    label = {"insurance": "charges", "diamonds": "price"}[name]
    for column in table.select_dtypes(exclude="number"):
        kinds = pd.Categorical(table[column], ORDERS.get(column), ordered=column in ORDERS)
        table[column] = kinds.codes
    table = (table - table.mean()) / table.std(ddof=0)
    return table.drop(columns=label).to_numpy(), table[label].to_numpy()


def prepare(name: str, activation: nlis.Swish | None = None) -> Experiment:
    """Fit on all rows, from 0, and score every row at that fit."""
    X, y = load(name)
    model = nlis.SingleIndex(activation or nlis.Swish(c1=1, c2=2, zeta=1))
    free = nlis.Problem(model)
    best = nlis.refit(free, X, y, np.ones(len(y)), start=np.zeros(model.n_parameters(X.shape[1])), n_starts=1)
    ball = nlis.Problem(model, constraint=nlis.Ball(1.1 * float(np.linalg.norm(best.theta))))
    dual = nlis.dual_matrix(free, X, y, theta=best.theta)
    scores = {
        "UN": np.ones(len(y)),
        "LS-L": nlis.leverage_scores(X, nlis.factorize(X)),
        "RN-L": nlis.norm_scores(X),
        "LS-A": nlis.leverage_scores(dual, nlis.factorize(dual)),
        "RN-A": nlis.norm_scores(dual),
    }
    return Experiment(X, y, (free, ball), best, scores)


def cell(of: Experiment, score: str, size: int, seeds: int, scheme: str = "multinomial") -> np.ndarray:
    """Log excess loss of each seed and each of the four refits, (seeds, 4)."""
    start = np.zeros_like(of.best.theta)
    thetas = []
    with dask.config.set(scheduler="synchronous"):
        for seed in range(seeds):
            sample = nlis.draw(of.scores[score], size, scheme=scheme, seed=seed)
            X, y = sample.take(of.X, of.y)
            # Without its weights a row still counts as often as it was drawn.
            for weights in (sample.weights, sample.counts):
                for problem in of.problems:
                    thetas.append(nlis.refit(problem, X, y, weights, start=start, n_starts=1).theta)
        losses = nlis.total_loss(of.problems[0], of.X, of.y, np.array(thetas)).reshape(seeds, len(REFITS))
    return np.log(losses / of.best.loss - 1)


def picture(name: str, n_rows: int, found: dict[tuple[str, int], np.ndarray], path: Path) -> None:
    """Draw the four refits side by side, a line a score."""
    sizes = SIZES[name]
    figure, panels = plt.subplots(2, 2, figsize=(10, 8), sharex=True, sharey=True, layout="constrained")
    for k, (panel, refit) in enumerate(zip(panels.flat, REFITS, strict=True)):
        for colour, (score, meaning) in enumerate(SCORES.items()):
            values = np.array([found[score, size][:, k] for size in sizes])
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=1)
            panel.plot(sizes, middle, marker="o", markersize=3, color=f"C{colour}", label=f"{score}, {meaning}")
            panel.fill_between(sizes, low, high, color=f"C{colour}", alpha=0.15, linewidth=0)
        panel.set(title=refit, xscale="log")
        panel.set_xticks(sizes, [f"{size}\n{size / n_rows:.2%}" for size in sizes], fontsize=8)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    figure.supxlabel("rows drawn, and their share of all rows")
    figure.supylabel("log((L - L*) / L*)")
    figure.suptitle(f"{name}, {n_rows:,} rows")
    panels[0, 0].legend(fontsize=8)
    save(figure, path)


def table(name: str, found: dict[tuple[str, int], np.ndarray]) -> Table:
    """Medians of the first and third refit: weighted and unweighted."""
    shown = Table(title=f"{name}: median log excess loss, weighted (unweighted)")
    for heading in ("score", *map(str, SIZES[name])):
        shown.add_column(heading, justify="right")
    for score in SCORES:
        medians = [np.median(found[score, size], axis=0) for size in SIZES[name]]
        shown.add_row(score, *(f"{m[0]:.2f} ({m[2]:.2f})" for m in medians))
    return shown


def words(name: str, found: dict[tuple[str, int], np.ndarray]) -> str:
    """The paper's claim, that nonlinear scores beat all others, with weights and without."""
    sizes = SIZES[name]

    def ahead(a: str, b: str, refit: str) -> str:
        k = REFITS.index(refit)
        pairs = [(found[a, size][:, k], found[b, size][:, k]) for size in sizes]
        gaps = np.array([np.median(x) - np.median(y) for x, y in pairs])
        errors = np.array([np.hypot(standard_error(x), standard_error(y)) for x, y in pairs])
        count = f"below at {(gaps < 0).sum()} of {len(sizes)} sizes"
        return (
            f"{SCORES[b]}: {count}, {gaps.mean():+.2f} on average (s.e. {np.sqrt((errors**2).sum()) / len(sizes):.2f})"
        )

    return (
        f"{name}, log excess loss of nonlinear leverage with weights against {ahead('LS-A', 'LS-L', 'weighted')}; "
        f"{ahead('LS-A', 'UN', 'weighted')}; nonlinear row norms against {ahead('RN-A', 'LS-L', 'weighted')}. "
        f"Without weights, nonlinear leverage against {ahead('LS-A', 'LS-L', 'unweighted')}: the paper's claim holds for "
        "weighted refits only where these are below."
    )


@click.command(help=__doc__)
@click.option("--seeds", default=40, show_default=True, help="Samples a score and size.")
@click.option("--data", multiple=True, type=click.Choice(list(SIZES)), help="One data set; all without.")
@picture_options
def main(seeds: int, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    paths = {name: free_path(folder, f"figure1_{name}.png", overwrite) for name in data or SIZES}
    mpl.use("Agg")
    closing = []
    with distributed.Client(n_workers=os.cpu_count(), threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        for name, path in paths.items():
            experiment = prepare(name)
            everywhere = client.scatter(experiment, broadcast=True)
            cells = [(score, size) for score in SCORES for size in SIZES[name]]
            scores, drawn = zip(*cells, strict=True)
            futures = client.map(cell, [everywhere] * len(cells), scores, drawn, seeds=seeds)
            found = dict(zip(cells, client.gather(futures), strict=True))
            Console().print(table(name, found))
            picture(name, len(experiment.y), found, path)
            closing.append(words(name, found))
    print("\n".join(closing))


if __name__ == "__main__":
    main()
