"""California housing from stored rows to a constrained fit, on this machine or on a Dask cluster.

\b
python examples/california.py                                    a temporary folder, no cluster
python examples/california.py try --size 200                     keep data and run in the new folder "try"
python examples/california.py /data --scheduler tcp://host:8786  every worker sees /data under this path

At the end samples of the same size by other designs, over twenty seeds, and a map of the drawn rows; the map needs
matplotlib (the extra `plot`).
"""

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import dask
import distributed
import numpy as np
import zarr
from drawing import free_path, picture_options, pyplot, save
from medians import median, standard_error

import dask_nlis as nlis
from dask_nlis.datasets.california import FEATURES

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))


def designs(X: np.ndarray, y: np.ndarray, best: nlis.Fit, size: int, seeds: int) -> dict[str, np.ndarray]:
    """Log excess loss against the fit on all rows of samples by each design, (seeds,)."""
    dual = nlis.dual_matrix(PROBLEM, X, y, theta=best.theta)
    scores = {
        "uniform rows": np.ones(len(y)),
        "linear leverage": nlis.leverage_scores(X, nlis.factorize(X)),
        "nonlinear leverage at the best fit": nlis.leverage_scores(dual, nlis.factorize(dual)),
    }
    thetas = []
    for each in scores.values():
        for seed in range(seeds):
            sample = nlis.draw(each, size, scheme="poisson", seed=seed)
            thetas.append(nlis.refit(PROBLEM, *sample.take(X, y), sample, n_starts=1).theta)
    thetas += [nlis.run(PROBLEM, X, y, size=size, seed=seed).fit.theta for seed in range(seeds)]
    excess = np.log(np.maximum(nlis.total_loss(PROBLEM, X, y, np.array(thetas)) / best.loss - 1, 1e-12))
    return dict(zip((*scores, "run"), excess.reshape(len(scores) + 1, seeds), strict=True))


def claim(found: dict[str, np.ndarray], size: int) -> str:
    """The paper's claim and `run` beside it."""

    def less(a: str, b: str) -> str:
        gap = np.median(found[a]) - np.median(found[b])
        return f"{b} {gap:+.2f} (s.e. {np.hypot(standard_error(found[a]), standard_error(found[b])):.2f})"

    oracle = "nonlinear leverage at the best fit"
    return (
        f"log excess loss of {size} rows, {len(found['run'])} samples each, median ± s.e.: "
        f"{'; '.join(f'{name} {median(values)}' for name, values in found.items())}\n"
        f"the paper's claim, {oracle} (an oracle) less {less(oracle, 'linear leverage')}, less {less(oracle, 'uniform rows')}; "
        f"run, which knows no fit, less {less('run', oracle)}"
    )


def picture(table: np.ndarray, job: nlis.Run, top: nlis.RowTable, found: dict[str, np.ndarray], path: Path) -> None:
    """All rows and the drawn ones on a map, a dot as large as its weight; and losses by design."""
    plt = pyplot()
    if plt is None:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.4), layout="constrained", width_ratios=[1, 1.1])
    north, east = (FEATURES.index(name) for name in ("Latitude", "Longitude"))

    def dots(rows: Any, **look: Any) -> None:
        left.scatter(table[rows, east], table[rows, north], **look)

    dots(slice(None), s=1, color="#cccccc", label="all rows")
    size = 4 + 60 * job.sample.weights / job.sample.weights.max()
    dots(job.sample.indices, s=size, color="C3", alpha=0.5, label="drawn, as large as its weight")
    dots(top.indices, s=70, facecolor="none", edgecolor="black", label="the ten highest scores")
    left.set(
        xlabel="longitude, standardised",
        ylabel="latitude, standardised",
        title=f"{len(job.sample)} of {len(table):,} rows",
    )
    left.legend(fontsize=9)
    right.boxplot(
        list(found.values()), orientation="horizontal", tick_labels=[name.replace(" at ", "\nat ") for name in found]
    )
    right.set(xlabel="log((L - L*) / L*)", title="loss above that of the fit on all rows, by design")
    right.invert_yaxis()
    right.grid(axis="x", alpha=0.3)
    save(figure, path)


@click.command(help=__doc__)
@click.argument("place", required=False, type=click.Path(file_okay=False))
@click.option("--size", default=413, show_default=True, help="Rows to draw.")
@click.option("--scheduler", help="Address of a Dask scheduler; without one, the threads of this process.")
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(2), help="Samples of each design.")
@picture_options
def main(place: str | None, size: int, scheduler: str | None, seeds: int, folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "california.png", overwrite)
    given = nullcontext(place) if place else tempfile.TemporaryDirectory(prefix="nlis-california-")
    with given as kept, distributed.Client(scheduler) if scheduler else nullcontext():
        where = Path(kept).resolve()
        table, labels = nlis.datasets.california_housing(standardized=True)
        group = zarr.open_group(where / "california.zarr", mode="w-")
        stored = group.create_array("X", data=table.compute(), chunks=table.chunksize)
        stored.update_attributes({"feature_names": FEATURES})
        group.create_array("y", data=labels.compute(), chunks=labels.chunksize)

        X, y = nlis.open_rows(where / "california.zarr", X="X", y="y", block_bytes=300_000)
        job = nlis.run(PROBLEM, X, y, size=size, seed=0, store=where / "run.zarr")
        print(job)
        print(job.certificate)
        for name, value in job.fit.params.items():
            print(f"{name:>10} {value:+.3f}")

        rows, prices = table.compute(), labels.compute()
        best = nlis.refit(PROBLEM, rows, prices, np.ones(len(prices)))
        print(f"log excess loss against the fit on all rows: {np.log(job.total_loss / best.loss - 1):.2f}")

        leverage = nlis.leverage_scores(nlis.dual_matrix(PROBLEM, X, y, theta=job.pilot.theta), job.factor)
        top = nlis.top_rows(leverage, k=10, X=X)
        for row, score, features in zip(top.indices, top.scores, top.X, strict=True):
            print(f"row {row:>5}, leverage {score:.3f}:", dict(zip(top.names, features.round(1).tolist(), strict=True)))

    with dask.config.set(scheduler="threads"):
        found = designs(rows, prices, best, size, seeds)
    picture(rows, job, top, found, path)
    print(claim(found, size))


if __name__ == "__main__":
    main()
