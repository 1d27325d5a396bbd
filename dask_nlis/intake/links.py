"""Symbolic links: none of a stored array may lead out of the folder that was given, and none is written through.

Whoever unpacks data of others unpacks their links too, and what these point to would be read as numbers.
"""

import os
import stat
from collections.abc import Iterator
from typing import Any

import zarr
from zarr.storage import LocalStore

from dask_nlis.errors import InputError, StoreExistsError


def check_inside(argument: str, array: Any) -> None:
    """Raise where an array of a local Zarr store lies, by a link, outside the folder that was opened.

    Looked at are the folder of the array, and what lies right in it and in its folder `c`; `inner_stat` looks at the
    files of chunks, wherever they lie. The folder that was opened may itself be a link.
    """
    if not isinstance(array, zarr.Array) or not isinstance(array.store, LocalStore):
        return
    root = os.path.abspath(os.fspath(array.store.root))
    folder = os.path.join(root, array.path)
    for each in (folder, *_links(folder), *_links(os.path.join(folder, "c"))):
        _check(argument, each, root)


def inner_stat(path: str, root: str) -> os.stat_result:
    """`os.stat` of a file under a root; raises where the file is a link that leads out, or FileNotFoundError."""
    try:
        found = os.lstat(path)
    except NotADirectoryError as cause:  # a file stands where its folder should
        raise FileNotFoundError(path) from cause
    if not stat.S_ISLNK(found.st_mode):
        return found
    _check("the array", path, root)
    return os.stat(path)


def check_no_link(argument: str, path: str | os.PathLike[str]) -> None:
    """Raise where an output path is a link, also one to nothing."""
    if os.path.islink(path):
        raise StoreExistsError(f"{argument}={os.fspath(path)!r} is a symbolic link; give the path that it points to")


def is_within(path: str, folder: str) -> bool:
    """Whether what is found at a path lies in a folder, links followed."""
    real, outer = os.path.realpath(path), os.path.realpath(folder)
    return real == outer or real.startswith(outer.rstrip(os.sep) + os.sep)


def _check(argument: str, path: str, root: str) -> None:
    if not is_within(path, root):
        raise InputError(
            f"{argument}: {os.path.relpath(path, root)!r} is a link out of {root!r}; give the path that it points to"
        )


def _links(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            yield from (entry.path for entry in found if entry.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return
