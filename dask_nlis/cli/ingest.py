"""dask-nlis ingest: a table in CSV or Parquet files becomes a store that plan and run take."""

import json
import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dask_nlis as nlis


def names_given(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names, several in one value with commas between them."""
    return tuple(name.strip() for each in value for name in each.split(","))


@click.command()
@click.argument("table")
@click.option("--out", required=True, type=click.Path(), help="Folder to be made, such as data.zarr.")
@click.option("--target", help="Column of the labels.")
@click.option("--weight", help="Column of row weights.")
@click.option(
    "--columns",
    multiple=True,
    metavar="A,B",
    callback=names_given,
    help="Columns of the features; by default all others.",
)
@click.option("--exclude", multiple=True, metavar="A,B", callback=names_given, help="Columns to leave out.")
@click.option(
    "--categorical",
    multiple=True,
    metavar="A,B",
    callback=names_given,
    help="Columns of numbers that stand for groups, such as codes.",
)
@click.option(
    "--na", multiple=True, metavar="WORD", help="A word of a CSV file that stands for a missing cell, such as '-'."
)
@click.option("--standardize", is_flag=True, help="Centre and scale columns of numbers; the way back is recorded.")
@click.option(
    "--drop-first/--keep-first",
    default=True,
    show_default=True,
    help="Whether the first category of each column has no column.",
)
@click.option(
    "--missing",
    type=click.Choice(["raise", "drop"]),
    default="raise",
    show_default=True,
    help="Rows with a missing cell.",
)
@click.option(
    "--max-categories",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="A column of text with more values is refused.",
)
@click.option(
    "--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True, help="Of the features."
)
@click.option("--block-bytes", type=click.IntRange(1), help="Bytes of a chunk; 64 MB by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ingest(table: str, out: str, weight: str | None, as_json: bool, **options: Any) -> None:
    """Make a store of features, labels and weights of TABLE, whatever its length: two reads of it.

    TABLE is a file that ends in .csv, .csv.gz or .parquet, or a folder of Parquet files. Numbers stay as they are; text and
    categories become columns of 0 and 1, with the categories of the whole table. How it was done is recorded in the store.

    \b
    Examples:
      dask-nlis ingest diamonds.csv --target price --out diamonds.zarr
      dask-nlis ingest taxi.parquet --target fare --exclude id --categorical zone --missing drop --out taxi.zarr
      dask-nlis run diamonds.zarr --y y --model linear --size 1000 --store run.zarr
    """
    columns = options.pop("columns") or None
    encoding = nlis.ingest(table, out, columns=columns, sample_weight=weight, **options)
    if as_json:
        click.echo(json.dumps(as_dict(out, encoding)))
    else:
        _show(out, encoding)


def as_dict(out: str, encoding: nlis.Encoding) -> dict[str, Any]:
    """What was written, in JSON values."""
    return {
        "path": os.path.abspath(out),
        "n_rows": encoding.n_rows,
        "n_dropped": encoding.n_dropped,
        "feature_names": list(encoding.feature_names),
        "target": encoding.target,
        "sample_weight": encoding.sample_weight,
        "columns": [
            {"name": name, "kind": kind} | ({} if known is None else {"categories": list(known)})
            for name, kind, known in zip(encoding.columns, encoding.kinds, encoding.categories, strict=True)
        ],
        "standardized": encoding.standardization is not None,
    }


#: Categories and columns that the summary lists.
_SHOWN = 6


def _show(out: str, encoding: nlis.Encoding) -> None:
    grid = Table(show_edge=False, pad_edge=False, show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, value in _lines(out, encoding):
        grid.add_row(name, value)
    console = Console(soft_wrap=True, markup=False)
    console.print(grid)
    labels = " --y y" if encoding.target is not None else ""
    weights = " --weight weight" if encoding.sample_weight is not None else ""
    console.print(f"\nnext: dask-nlis plan {out}{labels}{weights} --model linear", highlight=False)


def _lines(out: str, encoding: nlis.Encoding) -> list[tuple[str, str]]:
    dropped = f", {encoding.n_dropped:,} with a missing cell left out" if encoding.n_dropped else ""
    scaled = ", numbers standardised" if encoding.standardization is not None else ""
    lines = [
        ("store", os.path.abspath(out)),
        ("rows", f"{encoding.n_rows:,}{dropped}"),
        ("features X", f"{len(encoding.feature_names):,}{scaled}: {_few(encoding.feature_names)}"),
    ]
    lines += [("labels y", encoding.target)] if encoding.target is not None else []
    lines += [("row weights", encoding.sample_weight)] if encoding.sample_weight is not None else []
    return lines + [
        (
            f"categories of {name[:40]}",
            _few(known) + (f" (the first, {known[0][:40]!r}, has no column)" if encoding.drop_first else ""),
        )
        for name, known in zip(encoding.columns, encoding.categories, strict=True)
        if known
    ]


def _few(names: tuple[str, ...]) -> str:
    shown = ", ".join(name[:40] for name in names[:_SHOWN])
    return f"{shown}, ... {len(names):,} in all" if len(names) > _SHOWN else shown
