"""Rows of any shape, images say, as rows of numbers, where a model states what shape it takes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import DataNode
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.errors import PerformanceWarning
from dask_nlis.graph import Asked, Key, flat_keys, on_top


def flattened(argument: str, x: da.Array, shape: tuple[int, ...] | None) -> da.Array:
    """Rows (n, *shape) as (n, numbers of a row), in the tasks that read them; others as they came."""
    if shape is None or x.ndim < 3 or x.shape[1:] != shape:
        return x
    if any(len(chunks) > 1 for chunks in x.chunks[1:]):
        phase.warn(
            f"{argument} has blocks that hold parts of rows, which are joined on reading; store whole rows in each chunk",
            PerformanceWarning,
        )
        x = x.rechunk(dict.fromkeys(range(1, x.ndim), -1), method="tasks")
    name = f"nlis-rows-{tokenize(x.name, shape)}"
    made = {(name, k, 0): Asked(key, _flat, ()) for k, key in enumerate(flat_keys(x))}
    graph = on_top(x, made)
    tasks, beneath = {key: graph[key] for key in made}, _beneath(graph, list(made))
    # Constants are layers of their own, so that the tasks pass for those that read.
    plain = all(isinstance(node, DataNode) for node in beneath.values())
    layers = {str(key): {key: node} for key, node in beneath.items()} if plain else {f"{name}-beneath": beneath}
    dependencies: dict[str, set[str]] = {layer: set() for layer in layers} | {name: set(layers)}
    return da.Array(
        HighLevelGraph(layers | {name: tasks}, dependencies),
        name,
        chunks=(x.chunks[0], (math.prod(shape),)),
        meta=np.empty((0, 0), dtype=x.dtype),
    )


def _beneath(graph: Mapping[Key, Any], keys: Sequence[Key]) -> dict[Key, Any]:
    """What the tasks of these keys need, and what that needs."""
    found: dict[Key, Any] = {}
    left = [each for key in keys for each in graph[key].dependencies]
    while left:
        key = left.pop()
        if key not in found and key in graph:
            found[key] = graph[key]
            left += graph[key].dependencies
    return found


def _flat(block: np.ndarray) -> np.ndarray:
    return block.reshape(len(block), math.prod(block.shape[1:]))


def flat_in_memory(x: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    """The same of rows in memory."""
    return x.reshape(len(x), -1) if shape is not None and x.ndim > 2 and x.shape[1:] == shape else x
