"""Variables of any number of dimensions -> rows, one task a block; and scores of rows -> an array of those dimensions."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis.adapters.grid import Grid, Place
from dask_nlis.errors import InputError
from dask_nlis.graph import block_nodes, flat_keys
from dask_nlis.intake import LARGEST_INTEGER


class Variable(NamedTuple):
    """A lazy array with the names of its dimensions, cut as the grid is along those that are the grid's."""

    name: str
    array: da.Array
    dims: tuple[Hashable, ...]

    def along(self, dim: Hashable) -> int | None:
        """The axis of a dimension; None where the variable has no such dimension."""
        return self.dims.index(dim) if dim in self.dims else None


class Part(NamedTuple):
    """How a block of a variable becomes columns: its axis for each row dimension and for the features, or None."""

    name: str
    axes: tuple[int | None, ...]
    columns: int


class _Made(NamedTuple):
    """What makes each block of a variable: a task to be put inside another, or a reference; and the layers these need."""

    blocks: Mapping[Place, Any]
    layers: Mapping[str, Any]
    dependencies: Mapping[str, set[str]]
    needs: set[str]


def ravelled(
    grid: Grid, variables: Sequence[Variable], feature_dim: Hashable = None, *, flat: bool = False
) -> da.Array:
    """Put variables side by side as rows (n, d) in float64, or one of them as (n,) where `flat`: one task a block.

    A variable that is plainly read, and has a block of its own for each block of rows, is read inside that task. Blocks
    of one that lacks a dimension serve many blocks of rows and stay tasks of their own, as do blocks that are computed.
    """
    made = [_made(variable, grid) for variable in variables]
    parts, sources = [], []
    for variable, each in zip(variables, made, strict=True):
        axis = variable.along(feature_dim)
        for piece, columns in enumerate((1,) if axis is None else variable.array.chunks[axis]):
            parts.append(Part(variable.name, (*map(variable.along, grid.dims), axis), columns))
            sources.append((each.blocks, variable.dims, piece))
    name = f"nlis-xarray-{tokenize(grid, parts, flat, [variable.array.name for variable in variables])}"
    plan = f"{name}-plan"  # in the graph once, however many blocks and columns there are
    graph: dict[Any, Any] = {}
    first = 0
    for k, (place, shape) in enumerate(grid.blocks()):
        at = dict(zip(grid.dims, place, strict=True))
        blocks = [made[tuple(at.get(dim, piece) for dim in dims)] for made, dims, piece in sources]
        key = (name, k) if flat else (name, k, 0)
        graph[key] = Task(key, _as_rows, *blocks, parts=TaskRef(plan), shape=shape, first=first, flat=flat)
        first += math.prod(shape)
    layers: dict[str, Any] = {plan: {plan: DataNode(plan, tuple(parts))}, name: graph}
    needs: dict[str, set[str]] = {plan: set(), name: {plan}.union(*(each.needs for each in made))}
    for each in made:
        layers, needs = {**each.layers, **layers}, {**each.dependencies, **needs}
    columns = sum(part.columns for part in parts)
    chunks = (grid.row_chunks,) if flat else (grid.row_chunks, (columns,))
    return da.Array(HighLevelGraph(layers, needs), name, chunks=chunks, meta=np.empty((0,) * len(chunks)))


def _made(variable: Variable, grid: Grid) -> _Made:
    array = variable.array
    keys = flat_keys(array)
    shared = any(n > 1 for dim, n in zip(grid.dims, grid.numblocks, strict=True) if dim not in variable.dims)
    nodes = block_nodes(array)
    values = [] if nodes is None or not shared else [node.value for node in nodes.blocks if isinstance(node, DataNode)]
    if len(values) == len(keys):
        # Values in memory that many tasks share are in the graph once, as constants of their own.
        names = [f"{array.name}-{k}" for k in range(len(keys))]
        layers: dict[str, Any] = {
            name: {name: DataNode(name, value)} for name, value in zip(names, values, strict=True)
        }
        refs = {key[1:]: TaskRef(name) for key, name in zip(keys, names, strict=True)}
        return _Made(refs, layers, {layer: set() for layer in layers}, set(layers))
    if nodes is None or shared:
        graph = array.dask
        return _Made({key[1:]: TaskRef(key) for key in keys}, graph.layers, graph.dependencies, {array.name})
    layers = nodes.layers
    blocks = {key[1:]: node for key, node in zip(keys, nodes.blocks, strict=True)}
    return _Made(blocks, layers, {layer: set() for layer in layers}, set(layers))


def _as_rows(*blocks: np.ndarray, parts: Sequence[Part], shape: tuple[int, ...], first: int, flat: bool) -> np.ndarray:
    """Blocks side by side: a row for each cell of a block of this shape, in C order, the first of them row `first`."""
    columns = sum(part.columns for part in parts)
    rows = np.empty((math.prod(shape), columns))
    cells = rows.reshape(*shape, columns)
    column = 0
    for block, part in zip(blocks, parts, strict=True):
        present = [axis for axis in part.axes if axis is not None]
        lying = block.transpose(present)[tuple(None if axis is None else slice(None) for axis in part.axes)]
        target = cells[..., column : column + part.columns]
        _check_integers(lying, part.name, target.shape, first)
        target[...] = lying
        column += part.columns
    return rows[:, 0] if flat else rows


def _check_integers(block: np.ndarray, name: str, shape: tuple[int, ...], first: int) -> None:
    if block.dtype.kind not in "iu" or block.dtype.itemsize < 8 or not block.size:
        return
    if block.max() <= LARGEST_INTEGER and block.min() >= -LARGEST_INTEGER:
        return
    too_large = (block > LARGEST_INTEGER) | (block < -LARGEST_INTEGER)
    row = first + int(np.broadcast_to(too_large, shape).any(axis=-1).argmax())
    raise InputError(
        f"variable {name!r} holds {block[too_large][0]} at row {row}, beyond 2^53, where float64 leaves integers out; subtract "
        "an offset, or round on purpose by .astype(float)"
    )


def restored(grid: Grid, scores: da.Array) -> da.Array:
    """Scores (n,) in the blocks of the rows -> an array of the grid's shape and chunks, lazily; one task a block."""
    name = f"nlis-restore-{tokenize(grid, scores.name)}"
    graph = {
        (name, *place): Task((name, *place), np.reshape, TaskRef(block), shape)
        for (place, shape), block in zip(grid.blocks(), flat_keys(scores), strict=True)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[scores]),
        name,
        chunks=grid.chunks,
        meta=np.empty((0,) * len(grid.dims), dtype=scores.dtype),
    )


def restored_in_memory(grid: Grid, scores: np.ndarray) -> np.ndarray:
    """Scores (n,) in the order of the rows -> an array of the grid's shape."""
    out = np.empty(grid.shape, dtype=scores.dtype)
    first = 0
    for cells in grid.slices():
        part = out[cells]
        part[...] = scores[first : first + part.size].reshape(part.shape)
        first += part.size
    return out
