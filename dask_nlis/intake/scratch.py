"""Arrays left in files until the process ends: what is too large to travel with a graph is read where it is wanted."""

import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

import dask
import numpy as np

from dask_nlis.errors import MissingDataError

#: Folders by the process that made each and where it was wanted: a fork has one of its own.
_FOLDERS: dict[tuple[int, str | None], str] = {}


def leave_array(values: np.ndarray, name: str) -> str:
    """Write an array to a file of this name, unless it is there, and return the path.

    The folder is made under Dask's `temporary-directory`, or where the system keeps such files, and goes with the process.
    """
    path = Path(_folder()) / f"{name}.npy"
    if not path.exists():
        # Under another name until it is whole: threads may leave the same array at the same time.
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
            try:
                np.save(file, values, allow_pickle=False)
            except BaseException:  # a full disk is not kept so
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
            f"{path!r} is not there: it was removed, as where the process that left it ended, or workers do not see it; "
            "make matrix and scores anew, or set Dask's temporary-directory to a folder that all see"
        ) from cause
    return values


def scratch_folder(prefix: str) -> "tempfile.TemporaryDirectory[str]":
    """Make a folder for temporary files, which goes with the object."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_where(), ignore_cleanup_errors=True)


def _where() -> str | None:
    """Dask's `temporary-directory`, or None for where the system keeps such files."""
    asked = dask.config.get("temporary-directory", None)
    return os.path.abspath(asked) if asked else None  # workers may stand in another folder


def _folder() -> str:
    """The folder of this process, made at the first call."""
    where = _where()
    owner = os.getpid(), where
    if owner not in _FOLDERS:
        made = tempfile.mkdtemp(prefix="nlis-arrays-", dir=where)
        if _FOLDERS.setdefault(owner, made) != made:  # another thread was first
            os.rmdir(made)
        else:
            # At the end of this process, not of a fork of it, and after that of its workers.
            Finalize(None, shutil.rmtree, (made,), {"ignore_errors": True}, exitpriority=-100)
    return _FOLDERS[owner]
