"""dask-nlis plan: what a run would read, compute and hold."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis
from dask_nlis.cli.problems import problem_from, problem_options
from dask_nlis.pipeline.asked import SCORES
from dask_nlis.planner import METHODS
from dask_nlis.sampling import SCHEMES


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """A count of rows, a share of them, or auto."""
    for kind in (int, float):
        try:
            return value if value in (None, "auto") else kind(value)
        except ValueError:
            continue
    raise click.BadParameter(f"{value!r} is no number of rows; give a count, a share such as 0.01, or auto", ctx, param)


@click.command()
@click.argument("data")
@click.option("--x", default="X", show_default=True, help="Name of the features in DATA.")
@click.option("--y", help="Name of the labels in DATA; where DATA is an NPY file, the path of another.")
@click.option("--weight", help="Name of row weights in DATA, or the path of an NPY file.")
@problem_options
@click.option("--size", metavar="ROWS", callback=_size, help="Rows to draw: a count, a share, or auto (the default).")
@click.option("--scores", type=click.Choice(SCORES), default="two-stage", show_default=True)
@click.option("--scheme", type=click.Choice(SCHEMES), default="poisson", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Stages of two-stage scores.")
@click.option("--pilot-size", metavar="ROWS", callback=_size, help="Rows of the first stage.")
@click.option("--method", type=click.Choice(list(METHODS)), default="auto", show_default=True, help="Of the factor.")
@click.option("--block-bytes", type=click.IntRange(1), help="Bytes of a block; 64 MB by default.")
@click.option("--memory-limit", help="Bytes of one worker process, such as '2 GiB'; by default those of this machine.")
@click.option("--calibrate/--no-calibrate", default=True, show_default=True, help="Read one block, to tell the time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    data: str,
    x: str,
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

    DATA is a Zarr group or an HDF5 file, or an NPY file of the features alone.

    \b
    Examples:
      dask-nlis plan taxi.zarr --x X --y y --model single-index --activation swish:c1=1,c2=2
      dask-nlis plan taxi.h5 --y fare --problem problem.toml --size 5000 --memory-limit '2 GiB' --json
    """
    problem = problem_from(file, model, activation, loss, constraint)
    features, labels, weights = _opened(data, x, y, weight, options["block_bytes"])
    found = nlis.plan(problem, features, labels, sample_weight=weights, **options)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        _show(found)


def _opened(data: str, x: str, y: str | None, weight: str | None, block_bytes: int | None) -> tuple[Any, Any, Any]:
    if data.lower().endswith(".npy"):
        return data, y, weight
    features, labels = nlis.open_rows(data, X=x, y=y, block_bytes=block_bytes)
    weights = None if weight is None else nlis.open_rows(data, X=x, y=weight, block_bytes=block_bytes)[1]
    return features, labels, weights


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
