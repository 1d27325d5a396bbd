"""Rows of a source for a model that is used on a target: what leverage beside the target finds, and what it does not.

\b
python examples/transfer.py                          a table each, and transfer.png; a minute
python examples/transfer.py --seeds 40 --folder out --data "clear diamonds"

300 target rows are known, without labels; the source is large and labelled. The factor of the target rows scores every
source row: `cross_leverage_scores`, how much the row would pull were it added to them, and `factor.outside`, the share of
it in directions that they never take. Rows are drawn from the source, the model is refitted on them with their weights,
and its loss on further target rows compared with the best fit to these. Three real splits; a third of the target rows
is in the source in the first two, and none in the third:

\b
clear diamonds       clarity IF or VVS1; cut, colour and clarity are indicator columns: other clarities lie outside
rich districts       California, median income above 50,000 dollars
northern districts   California, north of 38 degrees

Where indicator columns draw a border, `factor.outside` finds it without being told. Where nothing does, many rows are
alike and few of them of the target, and where the source has none of these no choice of rows makes up for it.

"Alike" are source rows that lie inside (a share outside below 1e-8) and whose cross leverage is no larger than that of 99 %
of the known target rows. An oracle has labels of target rows. In every seed the rows are split and drawn anew. Columns of
California housing that are skewed enter as logarithms. Needs matplotlib and pandas (the extras `plot` and `dataframe`).
"""

import warnings
from pathlib import Path
from typing import NamedTuple

import click
import dask
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from drawing import free_path, picture_options, save
from paper_figure1 import DATA as FOLDER
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(4.0))
SPLITS = ("clear diamonds", "rich districts", "northern districts")
KNOWN = 300
SIZES = (100, 300, 900)
WAYS = {
    "uniform": ("uniform rows of the source", "C7", "-"),
    "source": ("leverage within the source", "C0", "-"),
    "cross": ("cross leverage, all of the source", "C1", "-"),
    "alike": ("uniform rows alike", "C4", "-"),
    "cross, alike": ("cross leverage, rows alike", "C3", "-"),
    "target": ("uniform rows of the target (oracle)", "C2", "--"),
}


class Split(NamedTuple):
    """Source rows and which of them are of the target; target rows without labels, for the oracle, and for losses."""

    source: tuple[np.ndarray, np.ndarray]
    given: np.ndarray
    known: np.ndarray
    pool: tuple[np.ndarray, np.ndarray]
    judged: tuple[np.ndarray, np.ndarray]


class Found(NamedTuple):
    """Excess loss on the target and rows of each kind, a value a seed: (seeds,), NaN where there were too few rows."""

    excess: dict[tuple[str, int], np.ndarray]
    all_source: np.ndarray
    all_alike: np.ndarray
    counts: dict[str, np.ndarray]


def standard(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1."""
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """X (n, d), y (n,), which rows are of the target (n,), and whether the source has some of them."""
    if name == "clear diamonds":
        table = pd.read_csv(FOLDER / "diamonds.csv.gz")
        kinds = [pd.get_dummies(table[c], drop_first=True).to_numpy(float) for c in ("cut", "color", "clarity")]
        numbers = table[["carat", "depth", "table", "x", "y", "z"]].to_numpy(float)
        target = table["clarity"].isin(["IF", "VVS1"]).to_numpy()
        return np.hstack([standard(numbers), *kinds]), standard(table["price"].to_numpy(float)), target, True
    X, y = (part.compute() for part in nlis.datasets.california_housing())
    target = X[:, 0] > 5 if name == "rich districts" else X[:, 6] > 38
    skewed = [0, 2, 3, 4, 5]
    X[:, skewed] = np.log(X[:, skewed])
    return standard(X), standard(y), target, name == "rich districts"


def split(X: np.ndarray, y: np.ndarray, target: np.ndarray, shared: bool, rng: np.random.Generator) -> Split:
    """A third of the target rows to the source, or none; half of the others known or for the oracle, half for losses."""
    rows = rng.permutation(np.flatnonzero(target))
    given, rest = np.split(rows, [len(rows) // 3 if shared else 0])
    pool, judged = np.split(rest, [len(rest) // 2])
    source = np.sort(np.concatenate([np.flatnonzero(~target), given]))
    return Split((X[source], y[source]), target[source], X[pool[:KNOWN]], (X[pool], y[pool]), (X[judged], y[judged]))


def fit(X: np.ndarray, y: np.ndarray, sample: nlis.Sample | None = None) -> np.ndarray:
    """Theta of a fit to a sample, or to all rows given."""
    theta: np.ndarray = nlis.refit(PROBLEM, X, y, np.ones(len(y)) if sample is None else sample, n_starts=1).theta
    return theta


def scored(of: Split) -> tuple[dict[str, np.ndarray], dict[tuple[str, int], float]]:
    """Scores of the source rows by way, zero for rows that are not to be drawn; and rows of each kind."""
    A, B = nlis.reference_matrix(PROBLEM, of.source[0]), nlis.reference_matrix(PROBLEM, of.known)
    factor = nlis.factorize(B)
    cross = np.asarray(nlis.cross_leverage_scores(A, factor))
    inside = np.asarray(factor.outside(A)) < 1e-8
    alike = inside & (cross <= np.quantile(nlis.leverage_scores(B, factor), 0.99))
    scores = {
        "uniform": np.ones(len(cross)),
        "source": np.asarray(nlis.leverage_scores(A, nlis.factorize(A))),
        "cross": cross,
        "alike": alike.astype(float),
        "cross, alike": np.where(alike, cross, 0.0),
    }
    kinds = {
        "source": np.ones_like(alike),
        "inside": inside,
        "alike": alike,
        "given": of.given,
        "found": alike & of.given,
    }
    return scores, {(kind, 0): float(np.count_nonzero(rows)) for kind, rows in kinds.items()}


def once(of: Split, sizes: tuple[int, ...], seed: int) -> dict[tuple[str, int], float]:
    """Excess loss on the target of a refit by each way and size, and counts of rows; all losses in one read."""
    scores, counts = scored(of)
    alike = scores["alike"] > 0
    thetas = {("best", 0): fit(*of.judged), ("all source", 0): fit(*of.source)}
    if alike.any():
        thetas["all alike", 0] = fit(*(part[alike] for part in of.source))
    for size in sizes:
        for way in WAYS:
            X, y = of.pool if way == "target" else of.source
            by = np.ones(len(y)) if way == "target" else scores[way]
            if np.count_nonzero(by) >= size:
                sample = nlis.draw(by, size, scheme="systematic", seed=seed)
                thetas[way, size] = fit(*sample.take(X, y), sample)
    losses = nlis.total_loss(PROBLEM, *of.judged, np.array(list(thetas.values())))
    return dict(zip(thetas, losses / losses[0] - 1, strict=True)) | counts


def experiment(name: str, seeds: int, sizes: tuple[int, ...] = SIZES) -> Found:
    """Split, score, draw and refit with every seed."""
    X, y, target, shared = load(name)
    lines = []
    with dask.config.set(scheduler="synchronous"), threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)  # of fits that end on the edge of the ball
        for seed in range(seeds):
            of = split(X, y, target, shared, np.random.default_rng([seed, SPLITS.index(name)]))
            lines.append(once(of, sizes, seed))

    def column(key: tuple[str, int]) -> np.ndarray:
        return np.array([line.get(key, np.nan) for line in lines])

    return Found(
        {(way, size): column((way, size)) for way in WAYS for size in sizes},
        column(("all source", 0)),
        column(("all alike", 0)),
        {kind: column((kind, 0)) for kind in ("source", "inside", "alike", "given", "found")},
    )


def quartiles(values: np.ndarray) -> np.ndarray:
    """Of what is known: lower quartile, median, upper quartile."""
    return np.nanquantile(values, (0.25, 0.5, 0.75)) if np.isfinite(values).any() else np.full(3, np.nan)


def difference(found: Found, a: str, b: str, size: int) -> tuple[float, float]:
    """Mean log excess of a less that of b over the seeds, and its standard error; below 0 where a is better."""
    apart = np.log(found.excess[a, size]) - np.log(found.excess[b, size])
    apart = apart[np.isfinite(apart)]
    return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))


def cells(values: np.ndarray) -> str:
    """Median, and quartiles below it."""
    low, middle, high = quartiles(values)
    return f"{middle:.2g}\n{low:.2g} - {high:.2g}" if np.isfinite(middle) else "too few rows"


def table(name: str, found: Found) -> Table:
    """A line for each way to draw, then fits to many labels."""
    sizes = sorted({size for _, size in found.excess})
    shown = Table(title=f"{name}: excess loss on the target, median and quartiles", show_lines=True)
    shown.add_column("rows drawn")
    for size in sizes:
        shown.add_column(f"{size:,} labels", justify="right")
    for way, (meaning, _, _) in WAYS.items():
        shown.add_row(meaning, *(cells(found.excess[way, size]) for size in sizes))
    for meaning, kind, values in (("source", "source", found.all_source), ("alike", "alike", found.all_alike)):
        count = np.median(found.counts[kind])
        shown.add_row(f"all {count:,.0f} rows {'of the source' if kind == 'source' else meaning}", cells(values))
    return shown


def words(name: str, found: Found) -> str:
    """Who lies where, and whether cross leverage helped at the middle size, at three standard errors."""
    counts = {kind: np.median(values) for kind, values in found.counts.items()}
    size = sorted({size for _, size in found.excess})[1]
    text = (
        f"{name}: of {counts['source']:,.0f} source rows {counts['inside']:,.0f} lie inside the span of the target, "
        f"{counts['alike']:,.0f} are alike; {counts['given']:,.0f} are of the target, of which {counts['found']:,.0f} alike. "
        f"With {size} labels:"
    )
    for a, b in (
        ("cross, alike", "source"),
        ("cross, alike", "alike"),
        ("cross", "source"),
        ("cross, alike", "target"),
    ):
        mean, error = difference(found, a, b, size)
        how = "better than" if mean < -3 * error else "worse than" if mean > 3 * error else "not to be told from"
        text += f"\n  {WAYS[a][0]}: {how} {WAYS[b][0]}, {np.exp(mean):.2f} times its excess (log {mean:+.2f}, s.e. {error:.2f})"
    return text


def helped(found: Found) -> bool:
    """Whether cross leverage of rows alike is ahead of leverage within the source at the middle size, by three errors."""
    mean, error = difference(found, "cross, alike", "source", sorted({size for _, size in found.excess})[1])
    return mean < -3 * error


def picture(founds: dict[str, Found], path: Path) -> None:
    """A panel for each split, a line for each way to draw, level lines for fits to many rows."""
    figure, panels = plt.subplots(
        1, len(founds), figsize=(max(6.4, 4.4 * len(founds)), 5.2), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, (name, found) in zip(panels.flat, founds.items(), strict=True):
        sizes = sorted({size for _, size in found.excess})
        for way, (meaning, colour, line) in WAYS.items():
            low, middle, high = np.array([quartiles(found.excess[way, size]) for size in sizes]).T
            panel.plot(sizes, middle, line, marker="o", markersize=4, color=colour, label=meaning)
            panel.fill_between(sizes, low, high, color=colour, alpha=0.1, linewidth=0)
        for values, line, meaning in (
            (found.all_source, ":", "all labels of the source"),
            (found.all_alike, "-.", "all labels of rows alike"),
        ):
            panel.axhline(quartiles(values)[1], color="black", linewidth=1, linestyle=line, label=meaning)
        source, given = (np.median(found.counts[kind]) for kind in ("source", "given"))
        panel.set_title(f"{name}\nsource: {source:,.0f} rows, {given:,.0f} of the target", fontsize=11)
        panel.set(xscale="log", yscale="log", xlabel="labels asked for")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("excess loss on the target, (L - L*) / L*")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3 if len(founds) > 1 else 2,
        frameon=False,
    )
    save(figure, path)


@click.command(help=__doc__)
@click.option(
    "--seeds", default=12, show_default=True, type=click.IntRange(2), help="Splits, a sample a way and size each."
)
@click.option("--data", multiple=True, type=click.Choice(SPLITS), help="One split; all without.")
@picture_options
def main(seeds: int, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "transfer.png", overwrite)
    mpl.use("Agg")
    console = Console(width=110)
    founds = {name: experiment(name, seeds) for name in data or SPLITS}
    for name, found in founds.items():
        console.print(table(name, found))
    picture(founds, path)
    for name, found in founds.items():
        print(words(name, found))
    better = [name for name, found in founds.items() if helped(found)]
    print(
        "The paper's regressions draw rows for the data they are of, where its claim is that leverage beats uniform rows; for "
        f"another set of rows there is none to reproduce. Here cross leverage of rows alike beats leverage within the source on {len(better)} of {len(founds)} splits"
        f"{': ' + ', '.join(better) if better else ''}; on the others it does not show, or does harm, as said above."
    )


if __name__ == "__main__":
    main()
