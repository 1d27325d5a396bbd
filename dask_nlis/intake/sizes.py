"""Rows of the blocks of a Dask array that does not know them: filtered, or born from a table."""

import logging

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.errors import InputError

_log = logging.getLogger("dask_nlis")

#: Sizes known by name of the array, so that each verb that takes the same array need not read it again.
_KNOWN: dict[str, tuple[int, ...]] = {}
_MOST_KNOWN = 1024


def with_sizes(argument: str, array: da.Array) -> da.Array:
    """Return the array with its row chunks known; reads it once if they are not, the first time it is seen.

    Empty blocks stay: a block is what one task reads.
    """
    if any(np.isnan(size) for axis in array.chunks[1:] for size in axis):
        raise InputError(f"{argument} has an unknown number of columns; call {argument}.compute_chunk_sizes() first")
    if not any(np.isnan(size) for size in array.chunks[0]):
        return array
    if array.name not in _KNOWN:
        _log.warning(
            "%s has blocks of unknown length, which are read once to count rows; %s.compute_chunk_sizes(), or persisted "
            "data, spares it",
            argument,
            argument,
        )
        while len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[array.name] = tuple(map(int, phase.computed(_lengths(array), "nlis-sizes")))
    return da.Array(array.dask, array.name, chunks=(_KNOWN[array.name], *array.chunks[1:]), meta=array._meta)


def _lengths(array: da.Array) -> da.Array:
    """Length of each row block, (blocks,), from the first block of its columns."""
    name = f"nlis-sizes-{array.name}"
    rest = (0,) * (array.ndim - 1)
    graph = {(name, k): Task((name, k), _length, TaskRef((array.name, k, *rest))) for k in range(len(array.chunks[0]))}
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[array]),
        name,
        chunks=((1,) * len(graph),),
        meta=np.empty(0, dtype=np.int64),
    )


def _length(block: np.ndarray) -> np.ndarray:
    return np.array([len(block)])
