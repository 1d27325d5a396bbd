"""Where examples leave their pictures: in a folder of one's choice, and over no file that is there already."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def picture_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --folder and --overwrite."""
    where = click.Path(file_okay=False, path_type=Path)
    folder = click.option("--folder", default=".", type=where, help="Where the picture goes; this folder without.")
    overwrite = click.option("--overwrite", is_flag=True, help="Over a picture that is there already.")
    return folder(overwrite(command))


def free_path(folder: Path, name: str, overwrite: bool) -> Path:
    """Path of a picture that is to be drawn; refused before any work where a file is there, unless it may be replaced."""
    path = folder / name
    if path.exists() and not overwrite:
        raise click.ClickException(f"{path} is there already; give another --folder, or --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    return path


def pyplot() -> Any:
    """matplotlib.pyplot, drawing into memory; None where there is no matplotlib, which it says."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no picture: it needs matplotlib; pip install 'dask-nlis[plot]'")
        return None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write a figure and say where it is."""
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"drawn: {path}")
