"""One read of X that adds something up: a partial sum a block, added in a fixed order.

Blocks are added in order within stacks of 16, stacks in order within groups, groups in order: the tree, and so
the bits of the sum, depend on the blocks alone.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol, Self

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph

from dask_nlis.blocks import STACK, group_blocks
from dask_nlis.checkpoints import NOWHERE, Checkpoints, Kinds, each_kept
from dask_nlis.errors import NonFiniteError
from dask_nlis.matrix import Finding, TallMatrix, boxed, check_finite, map_boxes


class Summand(Protocol):
    """What a block contributes, with what was wrong with its rows."""

    @property
    def finding(self) -> Finding:
        """Non-finite and dropped rows."""

    def plus(self, other: Self) -> Self:
        """Contribution of this block and a later one together."""


def read_sum(
    matrix: TallMatrix,
    task: Callable[..., np.ndarray],
    width: int,
    saved: Checkpoints = NOWHERE,
    kinds: Kinds | None = None,
    **arguments: Any,
) -> Any:
    """One read of X: add up what `task` gives for each block (a Summand in a 1 x 1 object array).

    `width` is the side of a square matrix as large as a summand: wider ones are added up in smaller groups. The sums of
    groups, named tuples of these kinds, are kept in `saved`: those that are there already are not read for.
    """
    lazy = map_boxes(matrix, task, "nlis-factor", **arguments)
    total = None

    def add(part: Any) -> None:
        nonlocal total
        total = part if total is None else total.plus(part)

    source = matrix.source
    parts = _added(lazy, group_blocks(width))
    each_kept(parts, "nlis-factor", add, saved, kinds, n_rows=source.n_rows, n_bytes=source.n_bytes)
    assert total is not None  # a matrix has at least one block
    check_finite(total.finding, matrix.source.names, "in all")
    return total


def check_finite_factor(r: np.ndarray) -> None:
    """Raise NonFiniteError when a factor of finite rows is not finite."""
    if not np.isfinite(r).all():
        raise NonFiniteError(
            "the factor overflows: rows are finite but too large together; bring columns to smaller units"
        )


def _added(lazy: da.Array, step: int) -> da.Array:
    """Add the summands of each group of `step` blocks: 16 at a time, and those sums together."""
    token = lazy.name.rpartition("-")[2]
    stack, name = f"nlis-factor-stack-{token}", f"nlis-factor-sum-{token}"
    graph: dict[Any, Task] = {}
    n_blocks = lazy.numblocks[0]
    groups = [range(first, min(first + step, n_blocks)) for first in range(0, n_blocks, step)]
    for group, blocks in enumerate(groups):
        made: Sequence[Any] = [(lazy.name, b, 0) for b in blocks]
        if len(blocks) > STACK:
            pieces = [made[k : k + STACK] for k in range(0, len(made), STACK)]
            made = [(stack, blocks[k * STACK], 0) for k in range(len(pieces))]
            graph |= {key: _sum_of(key, piece) for key, piece in zip(made, pieces, strict=True)}
        graph[(name, group, 0)] = _sum_of((name, group, 0), made)
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[lazy]),
        name,
        chunks=((1,) * len(groups), (1,)),
        meta=np.empty((0, 0), dtype=object),
    )


def _sum_of(key: Any, summands: Sequence[Any]) -> Task:
    return Task(key, _sum, List(*map(TaskRef, summands)))


def _sum(blocks: Sequence[np.ndarray]) -> np.ndarray:
    summands: list[Any] = [block[0, 0] for block in blocks]
    return boxed(reduce(lambda total, part: total.plus(part), summands))
