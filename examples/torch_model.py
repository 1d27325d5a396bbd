"""A net of torch on drawn rows: `from_torch`, a sample by the scores of a rough net, a weighted loop; and what it gains.

\b
python examples/torch_model.py                          1,000 of 15,480 rows, 15 splits; a minute or two
python examples/torch_model.py --seeds 2 --size 400 --epochs 5

House prices of California by a net of 8-16-1 ReLU units with biases, 161 parameters. A rough net is trained on 300 uniform
rows; `from_torch` takes it over as a model, and every training row is scored at its parameters. Rows are drawn by the scores
and a net trained on them from where the rough one ended, through a DataLoader that hands out each row with its weight; the
loss of a row is multiplied by it. All ways take as many rows: uniform samples and linear leverage, which need no rough net,
have its 300 rows on top.

Shown is the mean squared error on held-out rows over that of the net trained on all training rows: medians over the splits
and their standard errors. And what happens without the weights, and with them but in the sampler of the DataLoader.

Needs torch and matplotlib: pip install 'dask-nlis[torch,plot]'.
"""

import copy
import time
from pathlib import Path
from typing import NamedTuple

import click
import dask
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from drawing import free_path, picture_options, save
from medians import apart, median
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

import dask_nlis as nlis

ROUGH, BATCH, UNITS = 300, 50, 16
TEST = 0.25
WAYS = {
    "uniform": "uniform rows",
    "linear leverage": "linear leverage",
    "leverage": "nonlinear leverage at the rough net",
    "norm": "nonlinear norm at the rough net",
    "influence": "influence at the rough net",
    "no weights": "nonlinear leverage, weights left out",
    "sampler": "nonlinear leverage, weights in the sampler",
}


class Split(NamedTuple):
    """Standardised training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split(X: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """At random."""
    rows = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(rows, [round(TEST * len(y))])
    return Split(X[train], y[train], X[test], y[test])


def made(seed: int) -> torch.nn.Sequential:
    """A net at its starting point."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(8, UNITS), torch.nn.ReLU(), torch.nn.Linear(UNITS, 1), torch.nn.Flatten(0)
    ).double()


def trained(
    net: torch.nn.Module,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    steps: int,
    seed: int,
    *,
    by_sampler: bool = False,
) -> torch.nn.Module:
    """A copy of the net after so many steps of Adam on rows in batches, each with its weight."""
    net = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(seed)
    # Divided by their mean, weights leave learning rates what they are for unweighted rows.
    share = torch.tensor(weights / weights.mean())
    in_loss = torch.ones_like(share) if by_sampler else share
    rows = TensorDataset(torch.tensor(X), torch.tensor(y), in_loss)
    one_by_one = (
        WeightedRandomSampler(share.tolist(), len(y), generator=generator)
        if by_sampler
        else RandomSampler(rows, generator=generator)
    )
    # A batch is one look-up of many rows, which is much faster than many look-ups put together.
    batches = DataLoader(rows, batch_size=None, sampler=BatchSampler(one_by_one, min(BATCH, len(y)), drop_last=True))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    done = 0
    while done < steps:
        for x, target, weight in batches:
            optimizer.zero_grad()
            (weight * (net(x) - target) ** 2).mean().backward()
            optimizer.step()
            schedule.step()
            done += 1
            if done == steps:
                break
    return net


def error(net: torch.nn.Module, X: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error."""
    with torch.no_grad():
        return float(((net(torch.tensor(X)) - torch.tensor(y)) ** 2).mean())


def scored(net: torch.nn.Sequential, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of every row at the parameters of a net."""
    model = nlis.from_torch(net[:-1])
    problem = nlis.Problem(model)
    A = nlis.dual_matrix(problem, X, y, theta=model.theta)
    T = nlis.tangent_matrix(problem, X, y, theta=model.theta)
    return {
        "leverage": np.asarray(nlis.leverage_scores(A, nlis.factorize(A))),
        "norm": np.asarray(nlis.norm_scores(A)),
        "influence": np.asarray(nlis.influence_scores(T, nlis.factorize(T))),
    }


class Errors(NamedTuple):
    """Of one split: errors on test rows by way, those of the rough net and of the net of all rows, and seconds."""

    by_way: dict[str, float]
    rough: float
    everything: float
    scoring: float
    training: float


def once(data: Split, size: int, epochs: int, seed: int) -> Errors:
    """All ways on one split. Each net takes as many steps; the one of all rows five times as many."""
    rng = np.random.default_rng([1, seed])
    few = rng.choice(len(data.y), ROUGH, replace=False)
    start = made(seed)
    steps = epochs * (size // BATCH)
    rough = trained(start, data.X[few], data.y[few], np.ones(ROUGH), steps // 2, seed)
    began = time.perf_counter()
    scores = scored(rough, data.X, data.y)
    scoring = time.perf_counter() - began
    scores |= {"uniform": np.ones(len(data.y)), "linear leverage": nlis.leverage_scores(data.X, nlis.factorize(data.X))}
    scores |= {"no weights": scores["leverage"], "sampler": scores["leverage"]}
    found = {}
    for way in WAYS:
        budget = size + ROUGH if way in ("uniform", "linear leverage") else size
        sample = nlis.draw(scores[way], budget, scheme="poisson", seed=seed)
        X, y = sample.take(data.X, data.y)
        weights = np.ones(len(y)) if way == "no weights" else sample.weights
        net = trained(rough, X, y, weights, steps, seed, by_sampler=way == "sampler")
        found[way] = error(net, data.X_test, data.y_test)
    began = time.perf_counter()
    everything = trained(start, data.X, data.y, np.ones(len(data.y)), 5 * steps, seed)
    training = time.perf_counter() - began
    return Errors(
        found,
        error(rough, data.X_test, data.y_test),
        error(everything, data.X_test, data.y_test),
        scoring,
        training,
    )


def table(found: list[Errors], size: int, n: int) -> Table:
    """A line a way."""
    shown = Table(title=f"{size:,} of {n:,} rows, {len(found)} splits: error on test rows, median ± s.e.")
    for heading in ("net trained on", "error", "over that of all rows", "at most", "ahead of uniform rows"):
        shown.add_column(heading, justify="left" if heading == "net trained on" else "right")
    whole = np.array([each.everything for each in found])
    chance = np.array([each.by_way["uniform"] for each in found])
    for way, meaning in WAYS.items():
        errors = np.array([each.by_way[way] for each in found])
        ahead = "" if way == "uniform" else f"{(errors < chance).sum()} of {len(found)}"
        shown.add_row(meaning, median(errors, 3), median(errors / whole), f"{(errors / whole).max():.2f}", ahead)
    rough = np.array([each.rough for each in found])
    worst = f"{(rough / whole).max():.2f}"
    shown.add_row(f"{ROUGH} uniform rows, the rough net", median(rough, 3), median(rough / whole), worst, "")
    shown.add_row("all rows", median(whole, 3), "1", "1", "")
    return shown


def words(found: list[Errors]) -> str:
    """What was gained, by pairs of the same split."""
    logs = {way: np.log([each.by_way[way] for each in found]) for way in WAYS}
    lines = []
    for a, b in (
        ("leverage", "uniform"),
        ("leverage", "linear leverage"),
        ("norm", "uniform"),
        ("no weights", "leverage"),
    ):
        mean, standard, how = apart(logs[a], logs[b])
        lines.append(
            f"{WAYS[a]}: {how} {WAYS[b]}, {np.exp(mean):.2f} times its error (log {mean:+.2f}, s.e. {standard:.2f})"
        )
    _, _, straight = apart(logs["leverage"], logs["linear leverage"])
    # Some uniform samples end far off, so that means of differences say little; splits are counted.
    ahead = int((logs["leverage"] < logs["uniform"]).sum())
    chance = binomtest(ahead, len(found)).pvalue
    claim = "is not settled for this net"
    if chance < 0.003:
        claim = "holds for this net and these rows" if 2 * ahead > len(found) else "does not hold here"
    worst = {way: max(each.by_way[way] / each.everything for each in found) for way in ("uniform", "leverage")}
    scoring, training = (np.median([getattr(each, what) for each in found]) for what in ("scoring", "training"))
    lines.append(
        f"The paper's claim that nonlinear scores beat uniform rows {claim}: they are ahead in {ahead} of {len(found)} "
        f"splits (by chance p = {chance:.1g}), and in the worst one at {worst['leverage']:.2f} times the error of all rows, uniform ones at "
        f"{worst['uniform']:.2f}. That they beat linear leverage {'shows too' if straight == 'below' else 'does not show'}. Scoring took {scoring:.1f} s, training on all rows {training:.1f} s: on rows that fit, train on "
        "all of them."
    )
    return "\n".join(lines)


def picture(found: list[Errors], title: str, path: Path) -> None:
    """A line a way, a dot a split."""
    figure, panel = plt.subplots(figsize=(10, 4.6), layout="constrained")
    rng = np.random.default_rng(0)
    for place, way in enumerate(reversed(WAYS)):
        above = np.array([100 * (each.by_way[way] / each.everything - 1) for each in found])
        colour = (
            "C7"
            if way == "uniform"
            else "C0"
            if way == "linear leverage"
            else "C1"
            if way in ("no weights", "sampler")
            else "C3"
        )
        panel.plot(above, place + rng.uniform(-0.18, 0.18, len(above)), "o", color=colour, alpha=0.5, markersize=5)
        panel.plot([np.median(above)] * 2, [place - 0.35, place + 0.35], color="black")
    panel.set_yticks(range(len(WAYS)), list(WAYS.values())[::-1])
    # Linear up to 10 %, so that a net which does better than that of all rows has its place too.
    panel.set_xscale("symlog", linthresh=10)
    ticks = [0, 5, 10, 20, 50, 100, 300, 1000, 5000]
    panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    lines = np.concatenate([line.get_xdata() for line in panel.lines])
    panel.set_xlim(min(-1, 1.2 * lines.min()), 1.3 * lines.max())
    panel.minorticks_off()
    panel.axvline(0, color="black", linestyle=":")
    panel.set(
        xlabel="error on test rows above that of the net of all rows, %; a dot a split, the line their median",
        title=title,
    )
    panel.grid(axis="x", alpha=0.3)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--size", default=1_000, show_default=True, type=click.IntRange(200, 10_000), help="Rows to draw.")
@click.option("--seeds", default=15, show_default=True, type=click.IntRange(2), help="Splits.")
@click.option("--epochs", default=20, show_default=True, type=click.IntRange(1), help="Over the drawn rows.")
@picture_options
def main(size: int, seeds: int, epochs: int, folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "torch_model.png", overwrite)
    mpl.use("Agg")
    torch.set_num_threads(1)  # batches are small
    X, y = (part.compute() for part in nlis.datasets.california_housing(standardized=True))
    with dask.config.set(scheduler="synchronous"):
        found = [once(split(X, y, seed), size, epochs, seed) for seed in range(seeds)]
    n = len(y) - round(TEST * len(y))
    Console(width=120).print(table(found, size, n))
    picture(found, f"a net of 161 parameters on {size:,} of {n:,} rows", path)
    print(words(found))


if __name__ == "__main__":
    main()
