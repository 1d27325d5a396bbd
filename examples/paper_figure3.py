"""Do wrong labels and spoiled images come first? The claim behind the paper's figures of images, counted.

\b
python examples/paper_figure3.py                                    six seeds each; a minute or two
python examples/paper_figure3.py --seeds 2 --size 500 --data digits

The paper shows images of the highest and lowest nonlinear scores and says of the highest that they are mislabelled or
noisy, as the eye judges. Its images are not here to be had. On these, which `paper_figure2.py` shows as they are, it is known
which are wrong, because they are made so: 5 % of the labels are flipped and 1 % of the images spoiled, by noise, by
shuffling their pixels, by inverting or blanking them. A network of 5 ReLU units is trained on all of it.

Shown is the area under the ROC curve, the chance that a wrong image scores higher than one left as it was (0.5 is a guess,
below it wrong ones score lower): means over the seeds and their standard errors, by nonlinear leverage after 15 iterations
and at the end, nonlinear norms, the loss, and linear leverage, for which nothing is trained. The strips show the highest by
nonlinear leverage of one seed. Where training switches all units off for noise, it leaves no trace and no leverage: that is
why noise is at 0.9 on Quick Draw, a mean of five seeds near 1 and one below a half.

Needs matplotlib: pip install 'dask-nlis[plot]'.
"""

from pathlib import Path
from typing import Any, NamedTuple

import click
import dask
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from detection import NAMES, UNITS, WAYS, Spoiled, area, load, network, objective, spoil
from drawing import free_path, picture_options, save
from medians import apart, mean_error
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

EARLY, LATE = 15, 200
SCORES = {
    "early": (f"nonlinear leverage, {EARLY} iterations", "C1"),
    "leverage": ("nonlinear leverage, trained", "C3"),
    "norm": ("nonlinear norm, trained", "C4"),
    "linear": ("linear leverage, no network", "C0"),
    "loss": ("loss, trained", "C7"),
}
KINDS = ("flipped labels", *WAYS)
SHOWN = 14
FRAMES = {"flipped": "#1f77b4", "spoiled": "#d62728"}


class Found(NamedTuple):
    """Areas by (kind, score), a value a seed; and what was spoiled by noise in the first seed, with its scores."""

    areas: dict[tuple[str, str], np.ndarray]
    data: Spoiled
    scores: np.ndarray


def trained(problem: nlis.Problem, data: Spoiled, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Parameters after a few iterations of L-BFGS and at its end."""
    d = data.X.shape[1]
    a, b = rng.uniform(-1, 1, UNITS), rng.uniform(-1, 1, (UNITS, d))
    path: list[np.ndarray] = []
    end = minimize(
        objective,
        problem.model.pack(a=a / np.sqrt(UNITS), b=b / np.sqrt(d)),
        (problem, data.X, data.y),
        method="L-BFGS-B",
        jac=True,
        callback=lambda theta: path.append(theta.copy()),
        options={"maxiter": LATE, "maxfun": 3 * LATE, "maxcor": 20, "ftol": 0, "gtol": 1e-8},
    ).x
    return path[min(EARLY, len(path)) - 1], end


def scored(problem: nlis.Problem, data: Spoiled, early: np.ndarray, late: np.ndarray) -> dict[str, np.ndarray]:
    """All scores of every image."""
    before, after = (nlis.dual_matrix(problem, data.X, data.y, theta=theta) for theta in (early, late))
    found = {
        "early": nlis.leverage_scores(before, nlis.factorize(before)),
        "leverage": nlis.leverage_scores(after, nlis.factorize(after)),
        "norm": nlis.norm_scores(after),
        "linear": nlis.leverage_scores(data.X, nlis.factorize(data.X)),
        "loss": nlis.loss_scores(after),
    }
    return {name: np.asarray(values) for name, values in found.items()}


def experiment(name: str, seeds: int, size: int | None = None) -> Found:
    """Spoil, train and score, by each way to spoil and seed; flipped labels are in all of them."""
    X, y = load(name, size)
    problem = network(leak=0)
    areas: dict[tuple[str, str], list[float]] = {}
    kept = None
    with dask.config.set(scheduler="synchronous"), threadpool_limits(1, user_api="blas"):
        for seed in range(seeds):
            flips: dict[str, list[float]] = {score: [] for score in SCORES}
            for k, way in enumerate(WAYS):
                rng = np.random.default_rng([seed, k])
                data = spoil(X, y, way, rng)
                scores = scored(problem, data, *trained(problem, data, rng))
                right = np.setdiff1d(np.arange(len(y)), np.concatenate([data.flipped, data.spoiled]))
                for score, values in scores.items():
                    areas.setdefault((way, score), []).append(area(values, data.spoiled, right))
                    flips[score].append(area(values, data.flipped, right))
                kept = kept or (data, scores["leverage"])
            for score, values in flips.items():  # one value a seed: the four are of the same seed
                areas.setdefault(("flipped labels", score), []).append(float(np.mean(values)))
    assert kept is not None
    return Found({key: np.array(values) for key, values in areas.items()}, *kept)


def cell(values: np.ndarray) -> str:
    """Mean and standard error."""
    return "{:.3f} ± {:.3f}".format(*mean_error(values))


def table(name: str, found: Found) -> Table:
    """A line for what is wrong, a column a score."""
    seeds = len(found.areas[KINDS[0], "loss"])
    shown = Table(
        title=f"{name}, {len(found.data.y):,} images: area under the ROC curve, mean ± s.e. over {seeds} seeds"
    )
    shown.add_column("what is wrong")
    for meaning, _ in SCORES.values():
        shown.add_column(meaning.replace(", ", "\n"), justify="right")
    for kind in KINDS:
        shown.add_row(kind, *(cell(found.areas[kind, score]) for score in SCORES))
    return shown


def words(name: str, found: Found) -> str:
    """The claim, piece by piece."""

    def mean(kind: str, score: str) -> float:
        return float(found.areas[kind, score].mean())

    def against(kind: str, a: str, b: str) -> str:
        by, error, how = apart(found.areas[kind, a], found.areas[kind, b])
        return f"{how} that of {SCORES[b][0].partition(',')[0]} ({by:+.3f}, s.e. {error:.3f})"

    spoiled = max(("noise", "shuffled"), key=lambda kind: -mean(kind, "leverage"))
    lowest = [kind for kind in KINDS if mean(kind, "leverage") < 0.5]
    yes = mean(spoiled, "leverage") > 0.8
    flips = mean("flipped labels", "leverage")
    weakly = "holds" if flips > 0.9 else "holds weakly" if flips > 0.6 else "does not hold"
    return (
        f"{name}: that noisy images come first {'holds' if yes else 'does not hold'}: the area by nonlinear leverage is at least "
        f"{mean(spoiled, 'leverage'):.2f} for noise and shuffled pixels; but it is {against(spoiled, 'leverage', 'linear')} there, "
        f"which takes no model. That wrong labels come first {weakly}: {flips:.2f}, "
        f"{against('flipped labels', 'leverage', 'loss')}. "
        f"Training matters for labels: {mean('flipped labels', 'early'):.2f} after {EARLY} iterations. "
        + (
            f"Scored lower than images left as they were: {', '.join(lowest)}."
            if lowest
            else "None is scored lower than a guess."
        )
    )


def strip(panels: Any, found: Found) -> None:
    """The highest by nonlinear leverage, a frame around those that were spoiled or have a flipped label."""
    side = round(np.sqrt(found.data.X.shape[1]))
    for panel, row in zip(panels, nlis.top_rows(found.scores, k=SHOWN).indices, strict=True):
        panel.imshow(found.data.X[row].reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
        panel.set(xticks=[], yticks=[])
        what = "spoiled" if row in found.data.spoiled else "flipped" if row in found.data.flipped else ""
        for edge in panel.spines.values():
            edge.set(color=FRAMES.get(what, "#bbbbbb"), linewidth=2.5 if what else 0.6)


def picture(founds: dict[str, Found], path: Path) -> None:
    """Areas with their standard errors above, the highest images below; a column of areas a data set."""
    figure = plt.figure(figsize=(13, 5.4 + 1.2 * len(founds)), layout="constrained")
    top, *strips = figure.subfigures(1 + len(founds), 1, height_ratios=[5] + [1.35] * len(founds))
    panels = top.subplots(1, len(founds), sharey=True, squeeze=False)[0]
    for panel, (name, found) in zip(panels, founds.items(), strict=True):
        for k, (score, (meaning, colour)) in enumerate(SCORES.items()):
            middle, error = np.array([mean_error(found.areas[kind, score]) for kind in KINDS]).T
            places = np.arange(len(KINDS)) + 0.14 * (k - 2)
            panel.errorbar(middle, places, xerr=error, fmt="o", color=colour, label=meaning, markersize=6)
        panel.axvline(0.5, color="black", linestyle=":")
        panel.set_yticks(range(len(KINDS)), KINDS)
        panel.set(title=f"{name}, {len(found.data.y):,} images", xlim=(-0.02, 1.02))
        panel.set_xlabel("area under the ROC curve: 1 comes first, 0.5 is a guess, 0 comes last")
        panel.grid(axis="x", alpha=0.3)
    panels[0].invert_yaxis()
    top.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(SCORES), fontsize=9, frameon=False
    )
    for place, (name, found) in zip(strips, founds.items(), strict=True):
        place.suptitle(
            f"{name}: highest by nonlinear leverage, trained; red: noise, blue: flipped label, grey: as it was",
            fontsize=10,
        )
        strip(place.subplots(1, SHOWN), found)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--seeds", default=6, show_default=True, type=click.IntRange(2), help="Runs of each way to spoil.")
@click.option("--size", type=click.IntRange(300), help="Images of each data set; all without.")
@click.option("--data", multiple=True, type=click.Choice(NAMES), help="One data set; all without.")
@picture_options
def main(seeds: int, size: int | None, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "paper_figure3.png", overwrite)
    mpl.use("Agg")
    founds = {name: experiment(name, seeds, size) for name in data or NAMES}
    for name, found in founds.items():
        Console(width=120).print(table(name, found))
    picture(founds, path)
    print("\n".join(words(name, found) for name, found in founds.items()))


if __name__ == "__main__":
    main()
