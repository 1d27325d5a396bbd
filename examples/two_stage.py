"""The two-stage default against every score it could be replaced by, at the same budget of rows.

\b
python examples/two_stage.py                                  the table with Poisson samples, and a PNG; two minutes
python examples/two_stage.py --seeds 20 --data california     quicker
python examples/two_stage.py --variant stratified --variant shuffled --variant free --variant steep --variant network

Columns that need no theta: uniform rows, leverage of X, leverage of [x, 1, y] (the reference matrix), and the job in two
stages with shares 0.45/0.45/0.10 and 0/0.90/0.10 of leverage, influence and a constant; "default" is what `nlis.run`
takes. Oracles, scored at the unknown fit on all rows: the paper's nonlinear leverage, and influence. The same set (a ball of
1.1 times the length of the fit on all rows) and the same scheme for all; budgets are expected distinct rows.
Shown is log((L - L*) / L*): medians over seeds, and their standard errors. Variants: stratified draws; rows shuffled first, a
control where the order of rows carries nothing; free of the ball; a steeper activation; a ReLU network on drawings.
Needs pandas and matplotlib (the extras `dataframe` and `plot`).
"""

import functools
import os
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import click
import dask
import distributed
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis

sys.path.insert(0, str(Path(__file__).parent))
from drawing import free_path, picture_options, save
from medians import standard_error
from paper_figure1 import load

SHARES = {"0.45/0.45/0.10": (0.45, 0.45, 0.10), "0/0.90/0.10": (0.0, 0.90, 0.10)}
ONCE = ("uniform", "linear leverage", "x, 1, y leverage")
ORACLES = ("leverage, oracle", "influence, oracle")
COLUMNS = (*ONCE, *ORACLES, *SHARES, "default")
BUDGETS = {
    "california": (0.002, 0.005, 0.02, 0.1),
    "diamonds": (0.001, 0.005, 0.02),
    "insurance": (0.03, 0.05, 0.1, 0.3),
}
#: A single index has one minimum in practice; a network has many.
STARTS = {nlis.SingleIndex: 1, nlis.ReluNetwork: 5}
VARIANTS = ("poisson", "stratified", "shuffled", "free", "steep", "network")


class Experiment(NamedTuple):
    """Rows, the problem with its set, the fit on all rows and the scores that are drawn by once, by name."""

    X: np.ndarray
    y: np.ndarray
    problem: nlis.Problem
    best: float
    scores: dict[str, np.ndarray]
    scheme: str


def prepare(name: str, variant: str) -> Experiment:
    """Fit on all rows, and score them at that fit."""
    if variant == "network":
        return drawings()
    X, y = load(name)
    if variant == "shuffled":
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    model = nlis.SingleIndex(nlis.Swish(0.04, 2, 3) if variant == "steep" else nlis.Swish(1, 2))
    full = nlis.refit(nlis.Problem(model), X, y, np.ones(len(y)), n_starts=1)
    ball = None if variant == "free" else nlis.Ball(1.1 * float(np.linalg.norm(full.theta)))
    scheme = "stratified" if variant in ("stratified", "shuffled") else "poisson"
    return scored(X, y, nlis.Problem(model, constraint=ball), full, scheme)


def drawings() -> Experiment:
    """Quick Draw, fish against bicycles, in 5 x 5 pixels, and a small ReLU network trained on all of them."""
    with np.load(Path(__file__).parent / "data" / "quickdraw_fish_bicycle_10x10.npz", allow_pickle=False) as found:
        images, y = found["images"].reshape(-1, 5, 2, 5, 2).mean(axis=(2, 4)) / 255, found["labels"].astype(float)
    X = images.reshape(len(images), -1)
    problem = nlis.Problem(nlis.ReluNetwork(2), nlis.LogisticLoss(), constraint=nlis.Ball(30.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)
        full = nlis.refit(problem, X, y, np.ones(len(y)), n_starts=10)
    return scored(X, y, problem, full, "poisson")


def scored(X: np.ndarray, y: np.ndarray, problem: nlis.Problem, full: nlis.Fit, scheme: str) -> Experiment:
    """Scores of every column that draws once."""
    dual = nlis.dual_matrix(problem, X, y, theta=full.theta)
    tangent = nlis.tangent_matrix(problem, X, y, theta=full.theta)
    reference = nlis.reference_matrix(problem, X, y)
    scores = {
        "uniform": np.ones(len(y)),
        "linear leverage": nlis.leverage_scores(X, nlis.factorize(X)),
        "x, 1, y leverage": nlis.leverage_scores(reference, nlis.factorize(reference)),
        "leverage, oracle": nlis.leverage_scores(dual, nlis.factorize(dual)),
        "influence, oracle": nlis.influence_scores(tangent, nlis.factorize(tangent)),
    }
    best = float(nlis.total_loss(problem, X, y, full.theta))
    return Experiment(X, y, problem, best, scores, scheme)


def cell(of: Experiment, column: str, size: int, seeds: int) -> np.ndarray:
    """Log excess loss of each seed, (seeds,)."""
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)
        fits = [fitted(of, column, size, seed) for seed in range(seeds)]
        losses = nlis.total_loss(of.problem, of.X, of.y, np.stack([fit.theta for fit in fits]))
    return np.log(np.maximum(losses / of.best - 1, 1e-12))


def fitted(of: Experiment, column: str, size: int, seed: int) -> nlis.Fit:
    """One sample by a column's design and the fit to it."""
    if column in of.scores:
        sample = nlis.draw(of.scores[column], size, scheme=of.scheme, seed=seed)
        return nlis.refit(of.problem, *sample.take(of.X, of.y), sample, n_starts=STARTS[type(of.problem.model)])
    return nlis.run(of.problem, of.X, of.y, size=size, seed=seed, scheme=of.scheme, shares=SHARES.get(column)).fit


@click.command(help=__doc__)
@click.option("--seeds", default=40, show_default=True, help="Samples a cell.")
@click.option("--data", multiple=True, type=click.Choice(list(BUDGETS)), help="One data set; all without.")
@click.option("--variant", multiple=True, default=("poisson",), show_default=True, type=click.Choice(VARIANTS))
@picture_options
def main(seeds: int, data: tuple[str, ...], variant: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    paths = {kind: free_path(folder, f"two_stage_{kind}.png", overwrite) for kind in variant}
    mpl.use("Agg")
    console = Console(width=160)
    with distributed.Client(n_workers=os.cpu_count(), threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        for kind, path in paths.items():
            budgets = (
                {"drawings": (0.05, 0.2)} if kind == "network" else {name: BUDGETS[name] for name in data or BUDGETS}
            )
            cells = {}
            for name, shares in budgets.items():
                of = client.scatter(prepare(name, kind), broadcast=True)
                n = client.submit(lambda each: len(each.y), of).result()
                for share in shares:
                    size = round(share * n)
                    for column in COLUMNS:
                        cells[name, share, column] = client.submit(cell, of, column, size, seeds)
            found = dict(zip(cells, client.gather(list(cells.values())), strict=True))
            console.print(table(kind, budgets, found, seeds))
            picture(kind, budgets, found, path)
            verdicts(found)
            print(claim(found))


def table(
    kind: str, budgets: dict[str, tuple[float, ...]], found: dict[tuple[str, float, str], np.ndarray], seeds: int
) -> Table:
    """Medians and their standard errors."""
    shown = Table(title=f"{kind}: median log excess loss (standard error), {seeds} samples a cell")
    for heading in ("data", "budget", *COLUMNS):
        shown.add_column(heading, justify="right")
    for name, shares in budgets.items():
        for share in shares:
            cells = (found[name, share, column] for column in COLUMNS)
            shown.add_row(
                name, f"{share:.1%}", *(f"{np.median(values):.2f} ({standard_error(values):.2f})" for values in cells)
            )
    return shown


def verdicts(found: dict[tuple[str, float, str], np.ndarray]) -> None:
    """How the default does against the best column without an oracle, and against the oracles, over the rows."""
    rows = list(dict.fromkeys(key[:2] for key in found))
    median = functools.partial(np.median)
    for column in (*ONCE, *SHARES, *ORACLES):
        gaps = [median(found[*row, "default"]) - median(found[*row, column]) for row in rows]
        errors = [np.hypot(standard_error(found[*row, "default"]), standard_error(found[*row, column])) for row in rows]
        worst = max(range(len(rows)), key=lambda k: gaps[k] / max(errors[k], 1e-9))
        print(
            f"default less {column}: {np.mean(gaps):+.2f} on average; at worst {gaps[worst]:+.2f} "
            f"({gaps[worst] / max(errors[worst], 1e-9):+.1f} standard errors, {rows[worst][0]} {rows[worst][1]:.1%})"
        )


def claim(found: dict[tuple[str, float, str], np.ndarray]) -> str:
    """The paper's claim over the rows of the table: its nonlinear scores, an oracle, against the others."""
    rows = list(dict.fromkeys(key[:2] for key in found))

    def against(other: str, mine: str = "leverage, oracle") -> str:
        pairs = [(found[*row, mine], found[*row, other]) for row in rows]
        gaps = np.array([np.median(a) - np.median(b) for a, b in pairs])
        error = np.sqrt(sum(standard_error(a) ** 2 + standard_error(b) ** 2 for a, b in pairs)) / len(rows)
        return f"{other} {gaps.mean():+.2f} (s.e. {error:.2f}), less in {(gaps < 0).sum()} of {len(rows)} rows"

    return (
        "The paper's claim, nonlinear leverage at the fit on all rows (an oracle) less "
        f"{'; less '.join(against(each) for each in ONCE)}. The default, which knows no fit, less that oracle: "
        f"{against('leverage, oracle', 'default').removeprefix('leverage, oracle ')}. Where x, 1, y leverage is as good as the "
        "oracle, the gain is due to the label column and not to the model."
    )


def picture(
    kind: str, budgets: dict[str, tuple[float, ...]], found: dict[tuple[str, float, str], np.ndarray], path: Path
) -> None:
    """A panel a data set, a line a column: medians and their standard errors."""
    figure, panels = plt.subplots(
        1, len(budgets), figsize=(max(7, 4.6 * len(budgets)), 5.2), squeeze=False, layout="constrained"
    )
    styles = dict(zip(COLUMNS, ("C7-", "C0-", "C4-", "C1--", "C5--", "C2:", "C8:", "C3-"), strict=True))
    for panel, (name, shares) in zip(panels.flat, budgets.items(), strict=True):
        for column, style in styles.items():
            cells = [found[name, share, column] for share in shares]
            panel.errorbar(
                shares,
                [np.median(cell) for cell in cells],
                [standard_error(cell) for cell in cells],
                color=style[:2],
                linestyle=style[2:],
                linewidth=2.5 if column == "default" else 1.2,
                marker="o",
                markersize=4,
                label=column,
            )
        panel.set(title=f"{name}, {kind}", xscale="log", xlabel="rows, share of all")
        panel.set_xticks(shares, [f"{share:.1%}" for share in shares])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("log((L - L*) / L*), median and its standard error")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, path)


if __name__ == "__main__":
    main()
