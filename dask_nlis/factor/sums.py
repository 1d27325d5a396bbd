"""One read of X that adds something up: a partial sum a block, added in a fixed order.

Blocks are added in order within stacks of 16, stacks in order within groups, groups in order: the tree, and so
the bits of the sum, depend on the blocks alone.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol, Self

import dask.array as da
import numpy as np
from dask import delayed
from dask._task_spec import List, Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.blocks import STACK, group_blocks
from dask_nlis.errors import NonFiniteError
from dask_nlis.matrix import Finding, TallMatrix, check_finite, map_blocks


class Summand(Protocol):
    """What a block contributes, with what was wrong with its rows."""

    @property
    def finding(self) -> Finding:
        """Non-finite and dropped rows."""

    def plus(self, other: Self) -> Self:
        """Contribution of this block and a later one together."""


def read_sum(matrix: TallMatrix, task: Callable[..., np.ndarray], width: int, **arguments: Any) -> Any:
    """One read of X: add up what `task` gives for each block (a Summand in a 1 x 1 object array).

    `width` is the side of a square matrix as large as a summand: wider ones are added up in smaller groups.
    """
    lazy = map_blocks(
        matrix, task, "nlis-factor", rows=1, meta=np.empty((0, 0), dtype=object), job=matrix.job, **arguments
    )
    n_blocks, step = len(matrix.source.chunks), group_blocks(width)
    total = None
    for first in range(0, n_blocks, step):
        last = min(first + step, n_blocks)
        share = (last - first) / n_blocks
        blocks = phase.blocks_of(
            _added(_added(lazy, first, last, "stack"), 0, None, "sum"),
            "nlis-factor",
            n_rows=round(share * matrix.shape[0]),
            n_bytes=round(share * matrix.source.n_bytes),
        )
        part: Any = blocks[0][0, 0]
        total = part if total is None else total.plus(part)
    assert total is not None  # a matrix has at least one block
    check_finite(total.finding, matrix.source.names, "in all")
    return total


def shared(value: np.ndarray | None) -> Any:
    """Give an array that every task needs a key of its own, so that it travels once."""
    return None if value is None else delayed(value, name=f"nlis-whitener-{tokenize(value)}")


def check_finite_factor(r: np.ndarray) -> None:
    """Raise NonFiniteError when a factor of finite rows is not finite."""
    if not np.isfinite(r).all():
        raise NonFiniteError(
            "the factor overflows: rows are finite but too large together; bring columns to smaller units"
        )


def boxed(summand: Summand) -> np.ndarray:
    """Put a summand into a 1 x 1 object array, the block of a Dask array."""
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = summand
    return out


def _added(lazy: da.Array, first: int, last: int | None, step: str) -> da.Array:
    """Add the summands of blocks first ... last - 1: 16 at a time ("stack"), or all of them ("sum")."""
    last = lazy.numblocks[0] if last is None else last
    size = STACK if step == "stack" else last - first
    if last - first == 1 and step == "sum":
        return lazy
    name = f"nlis-factor-{step}-{lazy.name.rpartition('-')[2] if step == 'stack' else tokenize(lazy.name)}-{first}"
    parts = [range(k, min(k + size, last)) for k in range(first, last, size)]
    graph = {
        (name, k, 0): Task((name, k, 0), _sum, List(*(TaskRef((lazy.name, b, 0)) for b in part)))
        for k, part in enumerate(parts)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[lazy]),
        name,
        chunks=((1,) * len(parts), (1,)),
        meta=np.empty((0, 0), dtype=object),
    )


def _sum(blocks: Sequence[np.ndarray]) -> np.ndarray:
    summands: list[Any] = [block[0, 0] for block in blocks]
    return boxed(reduce(lambda total, part: total.plus(part), summands))
