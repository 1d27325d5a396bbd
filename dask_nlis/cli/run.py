"""dask-nlis run: score, draw, refit and certify DATA into a store; the same command starts and restarts."""

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis
from dask_nlis.cli.data import data_options, opened, rows_given
from dask_nlis.cli.problems import problem_from
from dask_nlis.cli.requirements import found_in, parsed, unmet
from dask_nlis.workers import connected

EXIT_UNMET = 3


@click.command()
@data_options
@click.option(
    "--size", metavar="ROWS", callback=rows_given, required=True, help="Rows to draw: a count, a share, or auto."
)
@click.option("--epsilon", type=float, help="What --size auto is to reach.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the draws; a fresh one by default, which is recorded.")
@click.option(
    "--store", required=True, type=click.Path(), help="Folder, or URL in object storage, that the run is written to."
)
@click.option(
    "--resume", is_flag=True, help="Go on with the run in --store, return it if finished, begin it if there is none."
)
@click.option(
    "--verify",
    is_flag=True,
    help="With --resume: read all again and make each step again; what is kept must be the same.",
)
@click.option("--data-version", help="What stands for the content of DATA when the run is resumed.")
@click.option(
    "--missing", type=click.Choice(["raise", "drop"]), default="raise", show_default=True, help="Rows with NaN."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where tasks compute; auto by default.")
@click.option(
    "--keep-scores/--no-keep-scores", default=True, show_default=True, help="Whether the n scores are stored."
)
@click.option(
    "--scheduler", metavar="ADDRESS|FILE", help="A Dask cluster to run on; threads of this machine by default."
)
@click.option(
    "--require", "require", metavar="TERMS", help="Such as 'fit.ok, epsilon<=0.3'; exit code 3 unless all hold."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(
    data: str,
    x: str | None,
    y: str | None,
    weight: str | None,
    file: Path | None,
    model: str | None,
    activation: str | None,
    loss: str | None,
    constraint: str | None,
    scheduler: str | None,
    require: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Score all rows of DATA, draw the ones that matter, fit on them, and say what the fit is worth.

    DATA is a Zarr group or an HDF5 file, a table (.parquet, .csv) with columns of numbers, or an NPY file of the features alone;
    it is read, and --store is written.

    \b
    Examples:
      dask-nlis run taxi.zarr --y y --model single-index --activation tanh --size 5000 --store run.zarr --resume
      dask-nlis run taxi.zarr --y y --problem problem.toml --size 0.01 --store run.zarr --scheduler tcp://10.0.0.1:8786
      dask-nlis run taxi.h5 --y fare --model linear --size auto --epsilon 0.3 --store run.zarr --require 'fit.ok'
    """
    requirements = parsed(require)
    problem = problem_from(file, model, activation, loss, constraint)
    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(connected(scheduler))
        features, labels, weights = opened(data, x, y, weight, options["block_bytes"], options.pop("allow_missing"))
        job = nlis.run(problem, features, labels, sample_weight=weights, **options)
    missed = unmet(job, requirements)
    if as_json:
        click.echo(json.dumps(_finite(as_dict(job) | {"unmet": missed})))
    else:
        show(job)
    for each in missed:
        click.echo(f"dask-nlis: not met: {each}", err=True)
    if missed:
        click.get_current_context().exit(EXIT_UNMET)


def as_dict(job: nlis.Run) -> dict[str, Any]:
    """A finished run in JSON values."""
    manifest = {name: value for name, value in job.manifest.items() if name not in ("fingerprint", "theta", "format")}
    parameters = [
        {"name": name, "estimate": float(value), "standard_error": float(error)}
        for name, value, error in zip(job.fit.names, job.fit.theta, job.fit.standard_errors, strict=True)
    ]
    return {
        "path": job.path,
        **found_in(job),
        "reasons": list(job.fit.reasons),
        "parameters": parameters,
        "run": manifest,
    }


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinities: null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(job: nlis.Run) -> None:
    """Print what a run came to."""
    console = Console(soft_wrap=True)
    table = Table(show_edge=False, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in lines(job):
        table.add_row(name, value)
    console.print(table)
    console.print(f"\n{job.fit.summary()}", highlight=False)


def _rank(factor: nlis.Factor) -> str:
    """Rank and condition, with the first columns that are combinations of one another, by name."""
    more = ", ..." if len(factor.dependent) > 6 else ""
    named = f"; dependent: {', '.join(factor.dependent[:6])}{more}" if factor.dependent else ""
    return f"{factor.rank} of {len(factor.columns)}, condition {factor.condition:.3g}{named}"


def lines(job: nlis.Run) -> list[tuple[str, str]]:
    """What a run came to, line by line."""
    sample, factor = job.sample, job.factor
    dropped = f", {job.n_dropped:,} dropped" if job.n_dropped else ""
    out = [
        ("store", str(job.path)),
        ("rows scored", f"{sample.n_rows:,}{dropped}"),
        ("reads of X", ", ".join(f"{name} {count}" for name, count in job.reads.items())),
        (
            "rows drawn",
            f"{len(sample):,} distinct, {sample.n_draws:,} asked for, effective size {sample.effective_size:,.0f}",
        ),
        ("rank", "-" if factor is None else _rank(factor)),
        ("certificate", "-" if job.certificate is None else job.certificate.verdict),
        ("fit passes its checks", "yes" if job.fit.ok else f"no: {'; '.join(job.fit.reasons)}"),
        ("loss over all rows", f"{job.total_loss:,.6g}"),
    ]
    return out + ([("one stage", job.why_one_stage)] if job.why_one_stage else [])
