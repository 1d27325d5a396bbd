"""dask-nlis report: the page of a finished run."""

import os
from typing import Any

import click

import dask_nlis as nlis
from dask_nlis.intake import is_table


def shape_given(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Sizes with x between them."""
    if value is None:
        return None
    sizes = value.lower().split("x")
    if not all(size.isdecimal() and size.isascii() for size in sizes):
        raise click.BadParameter(f"{value!r} is no shape; give height x width, such as 28x28", ctx, param)
    return tuple(map(int, sizes))


@click.command()
@click.argument("store", metavar="RUN")
@click.option("-o", "--out", required=True, type=click.Path(), help="File to be written, such as report.html.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@click.option("--data", metavar="DATA", help="What the run was made of, for rows of the tables that were not drawn.")
@click.option("--x", metavar="NAME", help="Name of the features in DATA, X by default; of a table those of the run.")
@click.option("--images", metavar="HxW", callback=shape_given, help="Show rows as images, such as 28x28 or 32x32x3.")
@click.option(
    "--other", "others", multiple=True, metavar="RUN", help="A run of another size on the same data; may be repeated."
)
@click.option("--rows", type=click.IntRange(1, 100), default=20, show_default=True, help="Rows of each table.")
def report(
    store: str,
    out: str,
    overwrite: bool,
    data: str | None,
    x: str | None,
    images: tuple[int, ...] | None,
    others: tuple[str, ...],
    rows: int,
) -> None:
    """Write the page of the finished RUN: one HTML file that loads nothing, under 2 MB.

    Needs the extra plot. Reads the scores of the run, and with --data the blocks that hold rows of the tables.

    \b
    Examples:
      dask-nlis report run.zarr -o report.html
      dask-nlis report run.zarr -o report.html --data taxi.zarr --overwrite
      dask-nlis report drawings.zarr -o report.html --images 28x28
    """
    job = nlis.open_run(store)
    features: Any = None
    if data is not None:
        features = data if data.lower().endswith(".npy") else _opened(data, x, job.fit.feature_names)
    compared = [nlis.open_run(other) for other in others] or None
    made = job.report(out, X=features, image_shape=images, others=compared, k=rows, overwrite=overwrite)
    assert made.path is not None
    click.echo(f"{made.path}: {os.path.getsize(made.path):,} bytes")


def _opened(data: str, x: str | None, names: tuple[str, ...]) -> Any:
    columns: Any = x or "X"
    if is_table(data):
        columns = list(names) if x is None else [name.strip() for name in x.split(",")]
    return nlis.open_rows(data, X=columns)[0]
