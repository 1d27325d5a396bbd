"""DATA of the commands: the features, labels and row weights it names, and options that plan and run share."""

import re
from collections.abc import Callable
from typing import Any

import click

import dask_nlis as nlis
from dask_nlis.cli.problems import problem_options
from dask_nlis.errors import NlisError
from dask_nlis.intake import columns_of, is_table
from dask_nlis.pipeline.asked import SCORES
from dask_nlis.sampling import SCHEMES


def rows_given(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """A count of rows, a share of them, or auto."""
    for kind in (int, float):
        try:
            return value if value in (None, "auto") else kind(value)
        except ValueError:
            continue
    raise click.BadParameter(f"{value!r} is no number of rows; give a count, a share such as 0.01, or auto", ctx, param)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add DATA, its arrays, the problem and the design to a command."""
    options = (
        click.argument("data"),
        click.option(
            "--x",
            metavar="NAME",
            help="Name of the features in DATA, X by default; of a table names with commas, by default all others.",
        ),
        click.option("--y", help="Name of the labels in DATA; where DATA is an NPY file, the path of another."),
        click.option("--weight", help="Name of row weights in DATA, or the path of an NPY file."),
        problem_options,
        click.option("--scores", type=click.Choice(SCORES), default="two-stage", show_default=True),
        click.option("--scheme", type=click.Choice(SCHEMES), default="poisson", show_default=True),
        click.option(
            "--rounds", type=click.IntRange(1), default=2, show_default=True, help="Stages of two-stage scores."
        ),
        click.option("--pilot-size", metavar="ROWS", callback=rows_given, help="Rows of the first stage."),
        click.option("--block-bytes", type=click.IntRange(1), help="Bytes of a block; 64 MB by default."),
        click.option("--allow-missing", is_flag=True, help="Read chunks that are not there as the fill value."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def opened(
    data: str, x: str | None, y: str | None, weight: str | None, block_bytes: int | None, allow_missing: bool
) -> tuple[Any, Any, Any]:
    """Features, labels and row weights of DATA."""
    how: dict[str, Any] = {
        "block_bytes": block_bytes,
        "allow_missing": allow_missing or None,
    }  # or as the Dask configuration says
    if data.lower().endswith(".npy"):
        return data, y, weight
    names = _named(data, x, y, weight) if is_table(data) else x or "X"
    features, labels = nlis.open_rows(data, X=names, y=y, **how)
    try:
        weights = None if weight is None else nlis.open_rows(data, X=names, y=weight, **how)[1]
    except NlisError as error:  # it is opened as labels are
        raise type(error)(re.sub(r"^y(?=[ =:])", "--weight", str(error))) from error
    return features, labels, weights


def _named(data: str, x: str | None, y: str | None, weight: str | None) -> list[str]:
    """Columns of the features of a table: those named, or all but labels and weights."""
    if x is not None:
        return [name.strip() for name in x.split(",")]
    return [name for name in columns_of(data) if name not in (y, weight)]
