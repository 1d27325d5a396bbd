"""Which chunks of a stored array were written after a moment: for the message of a job that finds its data changed."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import dask.array as da
import zarr
from zarr.storage import LocalStore

from dask_nlis.intake.chunk_watch import rows_at
from dask_nlis.intake.reader import Reader, file_root, read_by
from dask_nlis.intake.remote_tokens import objects_written
from dask_nlis.intake.zarr_files import stored_files

#: Times of files come from a clock that the system moves on a few times a second.
_TICK = 0.02


def written_since(array: da.Array, moment: datetime) -> str:
    """Say which chunks of the Zarr array that a lazy array reads were written since; empty where none is known to be.

    Looks at one time of modification a chunk, and reads none.
    """
    reader = read_by(array)
    if reader is None or not isinstance(reader.array, zarr.Array):
        return ""
    keys = list(_keys(reader, moment.timestamp() - _TICK))
    if not keys:
        return ""
    rows: tuple[int, str] = min((_first_row(key), key) for key in keys)
    first, last = rows_at(reader.array, rows[0])
    count = "1 chunk was" if len(keys) == 1 else f"{len(keys):,} chunks were"
    return f"{count} written since, the first {rows[1]!r} with rows {first} to {last}"


def _keys(reader: Reader, moment: float) -> Iterator[str]:
    """Keys of the chunks, below the array, that are younger."""
    array = reader.array
    if type(array.store) is not LocalStore:
        yield from objects_written(array, moment)
        return
    root = file_root(array)
    for path, _ in stored_files(array, root):
        with suppress(FileNotFoundError):
            if os.stat(path).st_mtime >= moment:
                yield os.path.relpath(path, root).replace(os.sep, "/")


def _first_row(key: str) -> int:
    """Number of a chunk along the rows: the first of the numbers in its key."""
    return int(key.removeprefix("c").lstrip("/.").replace(".", "/").partition("/")[0])
