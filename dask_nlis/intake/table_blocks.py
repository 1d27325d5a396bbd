"""Tables whose blocks are read by parts of them: a lazy array of one task a block, each with what its block needs alone."""

import operator
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_nlis.intake.reader import Reader, Storage, told_of


def in_parts(name: str, parts: Sequence[Any], chunks: Sequence[int], storage: Storage) -> da.Array:
    """A lazy array of `chunks` rows a block, block k read from `parts[k]`, which numbers rows as the whole table does.

    `name` is what messages call the table.
    """
    shape = parts[0].shape
    key = f"nlis-read-{tokenize(parts[0].token, parts[0].columns, parts[0].ndim, tuple(chunks))}"
    rest: tuple[slice, ...] = tuple(slice(None) for _ in shape[1:])
    tasks, start = {}, 0
    for k, (part, rows) in enumerate(zip(parts, chunks, strict=True)):
        place = (key, k, *(0,) * len(rest))
        tasks[place] = Task(
            place, operator.getitem, Reader(part, part.token, name), (slice(start, start + rows), *rest)
        )
        start += rows
    layer = MaterializedLayer(tasks)
    layer.collection_annotations = told_of(storage, Reader(parts[0], parts[0].token, name))
    return da.Array(
        HighLevelGraph({key: layer}, {key: set()}),
        key,
        chunks=(tuple(chunks), *((size,) for size in shape[1:])),
        meta=np.empty((0,) * len(shape), dtype=parts[0].dtype),
    )
