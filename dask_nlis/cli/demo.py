"""dask-nlis demo: the whole job on California housing, without a cluster."""

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis
from dask_nlis import phase
from dask_nlis.diagnostics import RowTable
from dask_nlis.intake import write_rows

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data store and the run here (a new or empty folder); a temporary folder otherwise.",
)
@click.option(
    "--size", type=click.IntRange(50, 10_000), default=413, show_default=True, help="Rows to draw (2 % = 413)."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the draws.")
@click.option(
    "--seeds", type=click.IntRange(1, 200), default=40, show_default=True, help="Samples a row of the comparison."
)
def demo(folder: Path | None, size: int, seed: int, seeds: int) -> None:
    """Score, draw and refit California housing, and compare with uniform sampling.

    Writes 20,640 rows to a Zarr store, scores every row under a nonlinear model in blocks, draws a weighted sample,
    refits inside a ball, and shows what the sample is worth against the fit on all rows. No cluster, no download.

    \b
    Examples:
      dask-nlis demo
      dask-nlis demo --folder try --size 200
    """
    console = Console()
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise nlis.StoreExistsError(f"folder={str(folder)!r} is not empty; give a new or empty one")
    holder: Any = tempfile.TemporaryDirectory(prefix="nlis-demo-") if folder is None else nullcontext(str(folder))
    with holder as place, dask.config.set(scheduler="threads"):
        where = Path(place)
        where.mkdir(parents=True, exist_ok=True)
        X, y = _write_data(where / "california.zarr")
        job = nlis.run(PROBLEM, X, y, size=size, seed=seed, store=where / "run.zarr")
        everything = phase.computed(X, "nlis-gather"), phase.computed(y, "nlis-gather")
        full = nlis.refit(PROBLEM, everything[0], everything[1], np.ones(len(everything[1])))
        best = float(nlis.total_loss(PROBLEM, X, y, full.theta))
        leverage = phase.computed(_leverage(job, X, y), "nlis-score")
        _show_job(console, job, best)
        _show_comparison(console, leverage, everything, best, size, seed, seeds)
        _show_fit(console, job.fit, full)
        _show_rows(console, nlis.top_rows(leverage, k=10, X=X), everything, full)
        if folder is not None:
            console.print(f"\nKept: {where / 'california.zarr'} and {where / 'run.zarr'}; nlis.open_run reads the run.")


def _write_data(path: Path) -> tuple[Any, Any]:
    """Write the built-in data to Zarr and open them as a user would."""
    write_rows(path, *nlis.datasets.california_housing(standardized=True))
    # Small blocks, so that there is something to schedule; the default would take all rows in one.
    return nlis.open_rows(path, X="X", y="y", block_bytes=300_000)


def _leverage(job: nlis.Run, X: Any, y: Any) -> Any:
    """Leverage of every row by the factor of the job, at the pilot fit."""
    if job.pilot is None:
        matrix = nlis.reference_matrix(PROBLEM, X, y)
    else:
        matrix = nlis.dual_matrix(PROBLEM, X, y, theta=job.pilot.theta)
    assert job.factor is not None
    return nlis.leverage_scores(matrix, job.factor)


def _table(title: str, *columns: str, text: int = 1) -> Table:
    table = Table(
        title=title, show_header=any(columns), title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < text else "right", no_wrap=k < text)
    return table


def _show_job(console: Console, job: nlis.Run, best: float) -> None:
    sample, factor = job.sample, job.factor
    table = _table("What was done", "", "")
    rows = (
        ("rows scored", f"{sample.n_rows:,}"),
        ("reads of X", ", ".join(f"{name} {count}" for name, count in job.reads.items())),
        ("rank of the dual matrix", f"{factor.rank} of {len(factor.columns)}" if factor else "-"),
        (
            "rows drawn",
            f"{len(sample):,} distinct, {sample.n_draws:,} asked for, in {len(job.manifest['stages'])} stages",
        ),
        ("effective size (Kish)", f"{sample.effective_size:,.0f}"),
        ("certificate", job.certificate.verdict.partition(";")[0] if job.certificate else "-"),
        ("fit passes its checks", "yes" if job.fit.ok else f"no: {'; '.join(job.fit.reasons)}"),
        ("loss over all rows", f"{job.total_loss:,.1f}, {job.total_loss / best - 1:+.1%} against the fit on all rows"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _show_comparison(
    console: Console,
    leverage: np.ndarray,
    data: tuple[np.ndarray, np.ndarray],
    best: float,
    size: int,
    seed: int,
    seeds: int,
) -> None:
    X, y = data
    scores = {
        "nonlinear leverage": leverage,
        "linear leverage of X": nlis.leverage_scores(X, nlis.factorize(X)),
        "uniform": np.ones(len(y)),
    }
    table = _table(
        f"\nLoss above the best, log((L - L*)/L*), {seeds} samples of {size} rows each: lower is better",
        "drawn by", "median", "quartiles", "excess at the median",
    )  # fmt: skip
    thetas = {
        "two stages, as above": [nlis.run(PROBLEM, X, y, size=size, seed=seed + k).fit.theta for k in range(seeds)]
    }
    for name, values in scores.items():
        samples = [nlis.draw(values, size, scheme="poisson", seed=seed + k) for k in range(seeds)]
        taken = [(*sample.take(X, y), sample) for sample in samples]
        thetas[name] = [nlis.refit(PROBLEM, x, labels, sample).theta for x, labels, sample in taken]
    losses = nlis.total_loss(PROBLEM, X, y, np.concatenate(list(thetas.values())))
    for name, part in zip(thetas, np.split(losses, len(thetas)), strict=True):
        excess = np.log(part / best - 1)
        low, middle, high = np.quantile(excess, (0.25, 0.5, 0.75))
        table.add_row(name, f"{middle:.2f}", f"{low:.2f} .. {high:.2f}", f"{np.exp(middle):.1%}")
    console.print(table)


def _show_fit(console: Console, fit: nlis.Fit, full: nlis.Fit) -> None:
    table = _table("\nThe fit, in standard units", "parameter", "on the sample", "on all rows")
    for name, value, reference in zip(fit.names, fit.theta, full.theta, strict=True):
        table.add_row(name, f"{value:+.3f}", f"{reference:+.3f}")
    console.print(table)


def _show_rows(console: Console, rows: RowTable, data: tuple[np.ndarray, np.ndarray], full: nlis.Fit) -> None:
    X, y = data
    residual = full.predict(X) - y
    spread = residual.std()
    table = _table("\nThe ten rows with the highest leverage, and why they stand out", "row", "leverage", "why", text=0)
    table.columns[2].justify = "left"
    for index, score, features in zip(rows.indices, rows.scores, rows.X if rows.X is not None else [], strict=True):
        table.add_row(str(index), f"{score:.3f}", _why(features, rows.names, residual[index] / spread))
    console.print(table)


def _why(features: np.ndarray, names: tuple[str, ...], residual: float) -> str:
    """The three largest deviations from the mean, in standard deviations; the label enters through the residual."""
    far = [(abs(value), f"{name} {value:+.1f} sd") for name, value in zip(names, features, strict=True)]
    far.append((abs(residual), f"residual {residual:+.1f} sd"))
    return ", ".join(text for _, text in sorted(far, reverse=True)[:3])
