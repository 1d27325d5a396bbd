"""Images of the highest and the lowest score, by nonlinear and by linear scores: the paper's Figure 2, and what it is worth.

\b
python examples/paper_figure2.py                                   ten trainings each; half a minute
python examples/paper_figure2.py --seeds 2 --size 600 --data digits

A network of 5 ReLU units without biases is trained to tell fish from bicycles (Quick Draw), odd from even digits. The
picture shows the images at both ends of each score of the first training; a red frame marks those that the network gets
wrong. The paper says that the highest nonlinear scores belong to unusual, mislabelled or noisy images and the lowest to
plain ones, and that linear scores do not tell. The table counts it, over trainings from several starts: how many of the
100 highest and lowest images the network gets wrong (which is not to say that the label is wrong: nobody has looked at
them all), how many of the 100 highest linear leverage has too, and how many two trainings have in common. The loss is no
score of the paper; it is what anybody would look at first. Standard errors are over the starts, on the same images.

Needs matplotlib: pip install 'dask-nlis[plot]'.
"""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import click
import dask
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from detection import NAMES, load, network, train
from drawing import free_path, picture_options, save
from medians import apart, mean_error
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

CLASSES = {"Quick Draw": ("fish", "bicycle"), "digits": ("even", "odd")}
SCORES = ("nonlinear leverage", "nonlinear norm", "linear leverage", "linear norm", "loss")
COUNTED, SHOWN = 100, 8


class Trained(NamedTuple):
    """Scores of every image by name, (n,) each, and which images a network gets wrong, (n,)."""

    scores: dict[str, np.ndarray]
    wrong: np.ndarray


def trained(X: np.ndarray, y: np.ndarray, seed: int) -> Trained:
    """Train from one start and score every image at the end of it."""
    problem = network(leak=0)
    theta = train(problem, X, y, np.random.default_rng(seed))
    dual = nlis.dual_matrix(problem, X, y, theta=theta)
    scores = {
        "nonlinear leverage": nlis.leverage_scores(dual, nlis.factorize(dual)),
        "nonlinear norm": nlis.norm_scores(dual),
        "linear leverage": nlis.leverage_scores(X, nlis.factorize(X)),
        "linear norm": nlis.norm_scores(X),
        "loss": nlis.loss_scores(dual),
    }
    return Trained(scores, (problem.model.predict(theta, X) > 0) != (y > 0.5))


def extremes(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the highest scores, highest first, and of the lowest, lowest first."""
    highest, lowest = nlis.top_rows(scores, k=count), nlis.bottom_rows(scores, k=count)
    return highest.indices, lowest.indices


class Counted(NamedTuple):
    """Shares of a score's extremes, a value a training; of `again` one a pair of trainings."""

    wrong_high: np.ndarray
    wrong_low: np.ndarray
    linear: np.ndarray
    again: np.ndarray


def counted(name: str, runs: list[Trained], count: int) -> Counted:
    """What the highest and the lowest images by one score are."""
    ends = [extremes(run.scores[name], count) for run in runs]
    straight = [extremes(run.scores["linear leverage"], count)[0] for run in runs]
    return Counted(
        np.array([run.wrong[high].mean() for run, (high, _) in zip(runs, ends, strict=True)]),
        np.array([run.wrong[low].mean() for run, (_, low) in zip(runs, ends, strict=True)]),
        np.array([len(np.intersect1d(high, other)) / count for (high, _), other in zip(ends, straight, strict=True)]),
        np.array([len(np.intersect1d(a[0], b[0])) / count for a, b in itertools.combinations(ends, 2)]),
    )


def share(values: np.ndarray) -> str:
    """Mean and standard error in per cent."""
    mean, error = mean_error(values)
    return f"{mean:.1%}" if np.isnan(error) else f"{mean:.1%} ± {error:.1%}"


def table(name: str, n: int, runs: list[Trained], found: dict[str, Counted], count: int) -> Table:
    """A line a score."""
    wrong = share(np.array([run.wrong.mean() for run in runs]))
    shown = Table(
        title=f"{name}: {n:,} images, of which the network gets {wrong} wrong; {len(runs)} trainings, mean ± s.e."
    )
    headings = (f"wrong of the {count} highest", f"wrong of the {count} lowest", "also by linear leverage")
    for heading in ("score", *headings, "also after another training"):
        shown.add_column(heading, justify="left" if heading == "score" else "right")
    for score, each in found.items():
        shown.add_row(
            score, share(each.wrong_high), share(each.wrong_low), share(each.linear), f"{each.again.mean():.1%}"
        )
    return shown


def words(name: str, runs: list[Trained], found: dict[str, Counted]) -> str:
    """The paper's claim beside what was counted."""
    base = float(np.mean([run.wrong.mean() for run in runs]))
    nonlinear, straight, loss = (found[each] for each in ("nonlinear leverage", "linear leverage", "loss"))
    mean, error, how = apart(nonlinear.wrong_high, straight.wrong_high)
    verdict = {
        "above": "holds here, by so much",
        "below": "does not hold here: linear leverage finds more",
        "not to be told from": "does not show here beyond chance",
    }[how]
    return (
        f"{name}: of the images with the highest nonlinear leverage the network gets {nonlinear.wrong_high.mean():.0%} wrong, "
        f"of all images {base:.1%}, of those with the highest linear leverage {straight.wrong_high.mean():.0%}, with the "
        f"largest loss {loss.wrong_high.mean():.0%}. "
        f"The paper's claim that nonlinear scores find what linear ones miss {verdict} ({mean:+.1%}, s.e. {error:.1%}); "
        f"{nonlinear.linear.mean():.0%} of the images are the same, and another training keeps {nonlinear.again.mean():.0%}. "
        "Who looks for wrong labels looks at the loss."
    )


def strip(
    panels: Any, images: np.ndarray, y: np.ndarray, run: Trained, rows: np.ndarray, names: tuple[str, str]
) -> None:
    """One image a panel, with its label, and a frame where the network is wrong."""
    for panel, row in zip(panels, rows, strict=True):
        panel.imshow(images[row], cmap="gray_r", vmin=0, vmax=1)
        panel.set(xticks=[], yticks=[])
        panel.set_title(names[int(y[row])], fontsize=8, pad=2)
        for side in panel.spines.values():
            side.set(color="#d62728" if run.wrong[row] else "#bbbbbb", linewidth=2.5 if run.wrong[row] else 0.6)


def picture(shown: dict[str, tuple[np.ndarray, np.ndarray, Trained]], path: Path) -> None:
    """A block for each data set, a line for each score: the highest on the left, the lowest on the right."""
    figure = plt.figure(figsize=(13, 0.6 + 4.6 * len(shown)), layout="constrained")
    for block, (name, (X, y, run)) in zip(
        figure.subfigures(len(shown), 1, squeeze=False).flat, shown.items(), strict=True
    ):
        side = round(np.sqrt(X.shape[1]))
        images = X.reshape(-1, side, side)
        block.suptitle(f"{name}: highest scores on the left, lowest on the right; red: the network gets it wrong")
        grid = block.subplots(
            len(SCORES), 2 * SHOWN + 1, gridspec_kw={"width_ratios": [1] * SHOWN + [0.4] + [1] * SHOWN}
        )
        for line, score in zip(grid, SCORES, strict=True):
            high, low = extremes(run.scores[score], SHOWN)
            strip(line[:SHOWN], images, y, run, high, CLASSES[name])
            strip(line[SHOWN + 1 :], images, y, run, low, CLASSES[name])
            line[SHOWN].set_axis_off()
            line[0].set_ylabel(score.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=10)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(2), help="Trainings of each network.")
@click.option("--size", type=click.IntRange(300), help="Images of each data set; all without.")
@click.option("--data", multiple=True, type=click.Choice(NAMES), help="One data set; all without.")
@picture_options
def main(seeds: int, size: int | None, data: tuple[str, ...], folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "paper_figure2.png", overwrite)
    mpl.use("Agg")
    console = Console(width=120)
    shown, closing = {}, []
    for name in data or NAMES:
        X, y = load(name, size)
        with dask.config.set(scheduler="synchronous"), threadpool_limits(1, user_api="blas"):
            runs = [trained(X, y, seed) for seed in range(seeds)]
            found = {score: counted(score, runs, COUNTED) for score in SCORES}
        console.print(table(name, len(y), runs, found, COUNTED))
        closing.append(words(name, runs, found))
        shown[name] = (X, y, runs[0])
    picture(shown, path)
    print("\n".join(closing))


if __name__ == "__main__":
    main()
