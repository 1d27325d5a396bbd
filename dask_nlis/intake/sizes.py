"""Rows of the blocks of Dask arrays that do not know them: filtered, or born from a table."""

import logging
import math
from collections.abc import Mapping

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.errors import InputError

_log = logging.getLogger("dask_nlis")

# Sizes stay on the graph layer that makes the array, so that each verb that takes the same array need not read it
# again. Its name would not do: Dask gives a store that was overwritten the name it had before.
_KEY = "nlis-block-rows"


def unknown_rows(array: da.Array) -> bool:
    """Whether the number of rows, that is the length of some block, is not known."""
    return bool(array.ndim) and math.isnan(array.shape[0])


def with_sizes(argument: str, array: da.Array) -> da.Array:
    """Return the array with its row chunks known; reads it once if they are not, the first time it is seen.

    Empty blocks stay: a block is what one task reads.
    """
    if not unknown_rows(array):
        return array
    count_rows({argument: array})
    return da.Array(array.dask, array.name, chunks=(_counted(array), *array.chunks[1:]), meta=array._meta)


def count_rows(arrays: Mapping[str, da.Array]) -> None:
    """Count the rows of all blocks of unknown length in one compute, so that what the arrays share is read once."""
    new = {k: a for k, a in arrays.items() if unknown_rows(a) and not _counted(a)}
    if not new:
        return
    for argument in new:
        _log.warning(
            "%s has blocks of unknown length, which are read once to count rows; persisted data, the path of a Parquet file, "
            "or compute_chunk_sizes() of an array spares it",
            argument,
        )
    found = map(int, phase.computed(_lengths(list(new.values())), "nlis-sizes"))
    for array in new.values():
        rows = np.array([next(found) for _ in array.chunks[0]], dtype=np.int64)  # an array prints in one line
        layer = array.dask.layers[array.name]
        layer.collection_annotations = {**(layer.collection_annotations or {}), _KEY: rows}


def check_columns_known(argument: str, array: da.Array) -> None:
    """Raise if the number of columns is not known, which no count of rows would tell."""
    if any(map(math.isnan, array.shape[1:])):
        raise InputError(f"{argument} has an unknown number of columns; call {argument}.compute_chunk_sizes() first")


def _counted(array: da.Array) -> tuple[int, ...]:
    """Rows of each block as counted before, or ()."""
    return tuple(map(int, (array.dask.layers[array.name].collection_annotations or {}).get(_KEY, ())))


def _lengths(arrays: list[da.Array]) -> da.Array:
    """Length of each row block of all arrays in turn, from the first block of its columns."""
    blocks = [(a.name, k, *(0,) * (a.ndim - 1)) for a in arrays for k in range(a.numblocks[0])]
    name = f"nlis-sizes-{tokenize(*(a.name for a in arrays))}"
    graph = {(name, k): Task((name, k), _length, TaskRef(block)) for k, block in enumerate(blocks)}
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=arrays),
        name,
        chunks=((1,) * len(graph),),
        meta=np.empty(0, dtype=np.int64),
    )


def _length(block: np.ndarray) -> np.ndarray:
    return np.array([len(block)])
