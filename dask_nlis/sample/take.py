"""Rows out of arrays of every accepted kind, reading only the blocks that hold them."""

from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import locate, starts
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import open_array
from dask_nlis.kernels.numbers import is_whole

#: `take` refuses to bring more than this into memory unless told otherwise.
MAX_TAKE_BYTES = 4 * 2**30


def take_rows(argument: str, array: Any, rows: np.ndarray, n_rows: int, max_bytes: int = MAX_TAKE_BYTES) -> Any:
    """Take global rows, in the order given, out of an array of any accepted kind; reads only the blocks touched."""
    if not is_whole(max_bytes):
        raise InputTypeError(f"max_bytes={max_bytes!r} is {type(max_bytes).__name__}; give a number of bytes")
    library = type(array).__module__.partition(".")[0]
    in_memory = isinstance(array, np.ndarray) or library == "pandas"
    lazy = None if in_memory else open_array(argument, array)
    shape = tuple(array.shape) if lazy is None else lazy.array.shape
    if not shape or shape[0] != n_rows:
        raise InputError(
            f"{argument} has {shape[0] if shape else 0:,} rows, but the sample was drawn from {n_rows:,}; give the same data"
        )
    itemsize = 8 if library == "pandas" else (array if lazy is None else lazy.array).dtype.itemsize
    needed = len(rows) * int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    if needed > max_bytes:
        raise InputError(
            f"{argument}: the {len(rows):,} rows take {needed:,} bytes, above max_bytes={max_bytes:,}; "
            "draw fewer rows or give a larger max_bytes"
        )
    if lazy is None:
        return array.iloc[rows] if library == "pandas" else array[rows]
    if library == "xarray" and not lazy.container.lazy:
        return array[rows]
    order = np.argsort(rows, kind="stable")
    taken = np.empty((len(rows), *shape[1:]), dtype=lazy.array.dtype)
    _gather(lazy.array, rows[order], order, taken)
    return array[rows].copy(data=taken) if library == "xarray" else taken


def _gather(array: da.Array, indices: np.ndarray, places: np.ndarray, taken: np.ndarray) -> None:
    """Put rows of a lazy array in their places: one task for each block that holds one, read and selection fused."""
    if any(len(axis) > 1 for axis in array.chunks[1:]):
        array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1), method="tasks")
    touched = locate(indices, array.chunks[0])
    first = starts(array.chunks[0])
    coming = iter(touched)

    def put(rows: np.ndarray) -> None:
        _, a, b = next(coming)
        taken[places[a:b]] = rows

    wanted = {block: (indices[a:b] - first[block],) for block, a, b in touched}
    phase.on_blocks(array, "nlis-gather", _select, wanted, put)


def _select(block: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return block[rows]
