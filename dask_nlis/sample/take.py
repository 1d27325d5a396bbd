"""Rows out of arrays of every accepted kind, reading only the blocks that hold them."""

from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.blocks import locate
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
    taken[order] = _gather(lazy.array, rows[order])
    return array[rows].copy(data=taken) if library == "xarray" else taken


def _gather(array: da.Array, indices: np.ndarray) -> np.ndarray:
    """Rows of a lazy array: one task for each block that holds one, read and selection fused."""
    if not len(indices):
        return np.empty((0, *array.shape[1:]), dtype=array.dtype)
    if any(len(axis) > 1 for axis in array.chunks[1:]):
        array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1), method="tasks")
    name = f"nlis-gather-{tokenize(array.name, indices)}"
    touched = locate(indices, array.chunks[0])
    first = np.cumsum([0, *array.chunks[0]])
    rest = (0,) * (array.ndim - 1)
    graph = {
        (name, k, *rest): Task(
            (name, k, *rest), _select, TaskRef((array.name, block, *rest)), indices[a:b] - first[block]
        )
        for k, (block, a, b) in enumerate(touched)
    }
    selected = da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[array]),
        name,
        chunks=(tuple(b - a for _, a, b in touched), *array.chunks[1:]),
        meta=array._meta,
    )
    return np.concatenate(phase.blocks_of(selected, "nlis-gather"))


def _select(block: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(block)[rows]
