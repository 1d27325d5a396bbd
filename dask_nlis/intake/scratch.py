"""Arrays left in files until the process ends: what is too large to travel with a graph is read where it is wanted."""

import os
import tempfile
from functools import cache
from pathlib import Path

import dask
import numpy as np

from dask_nlis.errors import MissingDataError


def leave_array(values: np.ndarray, name: str) -> str:
    """Write an array to a file of this name, unless it is there, and return the path.

    The folder is made under Dask's `temporary-directory`, or where the system keeps such files, and goes with the process.
    """
    path = Path(_folder().name) / f"{name}.npy"
    if not path.exists():
        # Under another name until it is whole: threads may leave the same array at the same time.
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
            try:
                np.save(file, values, allow_pickle=False)
            except OSError:  # what is there of it would fill the disk until the process ends
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    return str(path)


def left_array(path: str) -> np.ndarray:
    """Read what was left."""
    try:
        values: np.ndarray = np.load(path, allow_pickle=False)
    except FileNotFoundError as cause:
        raise MissingDataError(
            f"{path!r} is not there: the process that left it has ended, or workers do not see its files; set Dask's "
            "temporary-directory to a folder that all see"
        ) from cause
    return values


def scratch_folder(prefix: str) -> "tempfile.TemporaryDirectory[str]":
    """A new folder under Dask's `temporary-directory`, or where the system keeps such files, that goes with the object."""
    where = dask.config.get("temporary-directory", None)
    return tempfile.TemporaryDirectory(prefix=prefix, dir=where, ignore_cleanup_errors=True)


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return scratch_folder("nlis-arrays-")
