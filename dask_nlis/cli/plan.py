"""dask-nlis plan: what a run would read, compute and hold."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis
from dask_nlis.cli.data import data_options, opened, rows_given
from dask_nlis.cli.problems import problem_from
from dask_nlis.planner import METHODS


@click.command()
@data_options
@click.option(
    "--size", metavar="ROWS", callback=rows_given, help="Rows to draw: a count, a share, or auto (the default)."
)
@click.option("--method", type=click.Choice(list(METHODS)), default="auto", show_default=True, help="Of the factor.")
@click.option("--memory-limit", help="Bytes of one worker process, such as '2 GiB'; by default those of this machine.")
@click.option("--calibrate/--no-calibrate", default=True, show_default=True, help="Read one block, to tell the time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    data: str,
    x: str | None,
    y: str | None,
    weight: str | None,
    file: Path | None,
    model: str | None,
    activation: str | None,
    loss: str | None,
    constraint: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Tell what a run on DATA would read, compute and hold, and refuse what cannot fit. Writes nothing.

    DATA is a Zarr group or an HDF5 file, a table (.parquet, .csv) with columns of numbers, or an NPY file of the features alone.

    \b
    Examples:
      dask-nlis plan taxi.zarr --x X --y y --model single-index --activation swish:c1=1,c2=2
      dask-nlis plan taxi.h5 --y fare --problem problem.toml --size 5000 --memory-limit '2 GiB' --json
    """
    problem = problem_from(file, model, activation, loss, constraint)
    features, labels, weights = opened(data, x, y, weight, options["block_bytes"], options.pop("allow_missing"))
    found = nlis.plan(problem, features, labels, sample_weight=weights, **options)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        _show(found)


def _show(found: nlis.Plan) -> None:
    console = Console(soft_wrap=True)
    for line in found.lines():
        console.print(line, highlight=False)
    head, *rows = found.table()
    table = Table(show_edge=False, pad_edge=False)
    for k, column in enumerate(head):
        table.add_column(column, justify="right" if k else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(found.note, highlight=False)
