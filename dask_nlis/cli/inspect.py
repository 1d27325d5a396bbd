"""dask-nlis inspect: what is in a run store, finished or not, and whether it could be resumed here."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from dask_nlis.cli.run import as_dict, lines
from dask_nlis.errors import MissingDataError
from dask_nlis.pipeline import Standing, open_run, standing


@click.command()
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(store: str, as_json: bool) -> None:
    """Tell the state of the run in STORE: how far it has come, who writes it, what differs here. Reads no data.

    \b
    Example:
      dask-nlis inspect run.zarr
    """
    found = standing(store)
    if not found.state:
        raise MissingDataError(f"{store!r} holds no run; give the --store of a run")
    if as_json:
        out: dict[str, Any] = found._asdict()
        if found.state == "complete":
            out["run"] = as_dict(open_run(store))
        click.echo(json.dumps(out))
        return
    table = Table(show_edge=False, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in [*_lines(found), *(lines(open_run(store)) if found.state == "complete" else [])]:
        table.add_row(name, value)
    Console(soft_wrap=True).print(table)


def _lines(found: Standing) -> list[tuple[str, str]]:
    out = [("state", found.state)]
    if found.state != "complete":
        out += [("scored", found.progress), ("begun", found.started or "-")]
    if found.owner:
        out.append(("written by", found.owner))
    out.append(("asked for", found.asked))
    out += [("differs here", each) for each in found.differs]
    return out
