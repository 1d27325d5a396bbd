"""One number a row, opened as every array of the library is, and gone through once."""

from collections.abc import Callable, Mapping
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import open_array

#: What tasks are called on the dashboard.
LABEL = "nlis-plot"

#: Beyond it nothing can be placed: matplotlib adds margins.
LARGEST = 1e300


def one_a_row(argument: str, value: Any, like: da.Array | None = None, first: str = "") -> da.Array:
    """A lazy array (n,) of float64; with `like`, the argument `first`, as long as that one and in its blocks."""
    array = open_array(argument, value, chunks=None if like is None else like.chunks[0]).array
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{argument} has shape {array.shape}; give (n,), one number a row")
    if not array.shape[0]:
        raise InputError(f"{argument} is empty; give at least one row")
    if like is not None and array.shape != like.shape:
        raise InputError(f"{argument} has {array.shape[0]:,} rows, but {first} {like.shape[0]:,}; give as many of both")
    if like is not None and array.chunks != like.chunks:
        array = array.rechunk(like.chunks, method="tasks")
    return array if array.dtype == np.float64 and array.dtype.isnative else array.astype(np.float64)


def each_block(
    array: da.Array, task: Callable[..., Any], collect: Callable[[Any], None], beside: Mapping[int, Any] | None = None
) -> None:
    """Collect `task(block, start)` of all blocks in their order, each read once; with `beside` also that block's share."""
    first = starts(array.chunks[0])
    arguments = {
        k: (int(first[k]),) if beside is None else (int(first[k]), beside[k]) for k in range(array.numblocks[0])
    }
    phase.on_blocks(array, LABEL, task, arguments, collect)


def rows_by_block(array: da.Array, rows: np.ndarray) -> dict[int, np.ndarray]:
    """Those of some rows, ascending, that lie in each block."""
    first = starts(array.chunks[0]).tolist()
    cuts = np.searchsorted(rows, [*first[: array.numblocks[0]], array.shape[0]])
    return {k: rows[cuts[k] : cuts[k + 1]] for k in range(array.numblocks[0])}


def checked_number(argument: str, value: Any, most: int) -> int:
    """Return a whole number from 1 to `most`."""
    allowed = f"a whole number from 1 to {most:,}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(f"{argument}={value!r} is {type(value).__name__}; give {allowed}")
    if not 1 <= value <= most:
        raise InputError(f"{argument}={value} is not allowed; give {allowed}")
    return int(value)
