"""The R-only QR tree: one read of a tall matrix -> its R factor, at any condition and rank.

1. `factor_block`: in-block R of cache-sized sub-blocks, one task a block, X and y read inside it.
2. `_stacked`: R factors of 16 neighbours in one chunk, still on the workers.
3. `_merged`: `dask.array.linalg.tsqr` of the stacks, R only (Benson, Gleich & Demmel 2013), in a compute
   of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from array_api_compat import array_namespace
from dask._task_spec import List, Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.blocks import STACK, group_blocks, groups_together
from dask_nlis.checkpoints import NOWHERE, Checkpoints, kinds_of, runs_of
from dask_nlis.device import choose
from dask_nlis.factor.sums import check_finite_factor
from dask_nlis.kernels.linalg import merge_r, r_factor
from dask_nlis.matrix import Finding, Job, TallMatrix, boxed, check_finite, leaves, map_boxes
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import matrix_rows


class Partial(NamedTuple):
    """R factor of some rows, how many there are, and what was wrong with them."""

    r: np.ndarray
    n_rows: int
    finding: Finding


def read_tree(
    matrix: TallMatrix,
    whitener: np.ndarray | None = None,
    only: np.ndarray | None = None,
    saved: Checkpoints = NOWHERE,
) -> Partial:
    """One read of X: the R factor of F, of some of its columns, or of F W, group of blocks by group.

    The factors of groups are kept in `saved`: groups that are there already are not read.
    """
    p = _width(matrix.shape[1], whitener, only)
    lazy = map_boxes(matrix, factor_block, "nlis-factor", whitener=whitener, only=only)
    n_rows, found = 0, Finding()

    def factors() -> Iterator[np.ndarray]:
        nonlocal n_rows, found
        for group in _groups(matrix, lazy, p, saved):
            n_rows, found = n_rows + group.n_rows, found.plus(group.finding)
            yield group.r

    r = r_factor(merge_r(factors()))
    check_finite(found, matrix.source.names, "in all")
    check_finite_factor(r)
    return Partial(r, n_rows, found)


def _groups(matrix: TallMatrix, lazy: da.Array, p: int, saved: Checkpoints) -> Iterator[Partial]:
    """Factor of each group of blocks, those that are kept and those that are read, in order."""
    n_groups, kinds, names = -(-len(matrix.source.chunks) // group_blocks(p)), kinds_of(Partial, Finding), saved.names()
    missing = [k for k in range(n_groups) if str(k) not in names or saved.load(str(k), kinds) is None]
    made = _made(matrix, lazy, p, missing)
    for k in range(n_groups):
        if k in missing:
            part = next(made)
            saved.save(str(k), part)
        else:
            part = saved.load(str(k), kinds)
        yield part


def _made(matrix: TallMatrix, lazy: da.Array, p: int, groups: Sequence[int]) -> Iterator[Partial]:
    """Factor of each of these groups of blocks; as many are read at a time as `groups_together` allows."""
    source, group = matrix.source, group_blocks(p)
    n_blocks = len(source.chunks)
    for run in runs_of(groups, groups_together(p)):
        first, last = run[0] * group, min((run[-1] + 1) * group, n_blocks)
        share = (last - first) / n_blocks
        stacks = phase.held(
            _stacked(lazy, first, last, p),
            "nlis-factor",
            n_rows=round(share * source.n_rows),
            n_bytes=round(share * source.n_bytes),
        )
        for begin in range(0, stacks.numblocks[0], group // STACK):  # a group is whole stacks
            yield _merged(stacks, begin, min(begin + group // STACK, stacks.numblocks[0]), p)


def _width(p: int, whitener: np.ndarray | None, only: np.ndarray | None) -> int:
    return whitener.shape[1] if whitener is not None else p if only is None else len(only)


@on_device
def factor_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: np.ndarray | None = None,
    only: np.ndarray | None = None,
) -> np.ndarray:
    """R factor of one block, as a Partial in a 1 x 1 object array; sub-block by sub-block on the device."""
    device = choose(job.device)
    p = _width(job.n_matrix_columns, whitener, only)
    target = None if whitener is None else device.put(whitener)
    found = Finding()

    def factors() -> Iterator[Any]:
        nonlocal found
        for leaf in leaves(x, y, weight, int(start), job, device, reducing=True):
            rows, finding = matrix_rows(leaf, job)
            if only is not None:
                rows = array_namespace(rows).take(rows, array_namespace(rows).asarray(only), axis=1)
            r = r_factor(rows if target is None else rows @ target)
            found = found.plus(finding)
            if overflow(r, 0).n_bad:  # NaN or an infinity spreads through R; the rows say where
                found = found.plus(overflow(rows, int(start) + leaf.place.start, job.rule.each))
            yield r

    with np.errstate(all="ignore"):
        r = device.fetch(merge_r(factors())) if len(x) else np.zeros((p, p))
    return boxed(Partial(r, len(x), found))


def _stacked(lazy: da.Array, first: int, last: int, p: int) -> da.Array:
    """Object array (k, 1) of Partials, each the R factors of 16 neighbouring blocks one below the other."""
    name = f"nlis-factor-stack-{lazy.name.rpartition('-')[2]}-{first}"
    parts = [range(k, min(k + STACK, last)) for k in range(first, last, STACK)]
    graph = {
        (name, k, 0): Task((name, k, 0), _stack, List(*(TaskRef((lazy.name, b, 0)) for b in part)), p)
        for k, part in enumerate(parts)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[lazy]),
        name,
        chunks=((1,) * len(parts), (1,)),
        meta=np.empty((0, 0), dtype=object),
    )


def _stack(blocks: Sequence[np.ndarray], p: int) -> np.ndarray:
    """Stack R factors; a short last stack is padded with zero rows to 2p, so that the merge reduces it."""
    partials: list[Partial] = [block[0, 0] for block in blocks]
    rows = [partial.r for partial in partials]
    if len(rows) < 2:
        rows.append(np.zeros((p, p)))
    found = reduce(Finding.plus, (partial.finding for partial in partials))
    return boxed(Partial(np.concatenate(rows), sum(partial.n_rows for partial in partials), found))


def _merged(stacks: da.Array, begin: int, end: int, p: int) -> Partial:
    """Merge the stacks of a group with Dask's own tsqr, R only: at most 0.4 tasks a block."""
    infos = [
        block[0, 0]
        for block in phase.blocks_of(_of_stacks(_info, stacks, begin, (1,) * (end - begin), 1), "nlis-merge")
    ]
    heights = tuple(height for height, _, _ in infos)
    found = reduce(Finding.plus, (finding for _, _, finding in infos))
    n_rows = sum(n for _, n, _ in infos)
    if found.n_bad:
        return Partial(np.zeros((p, p)), n_rows, found)
    r = da.linalg.tsqr(_of_stacks(_r_of, stacks, begin, heights, p))[1]
    (merged,) = phase.blocks_of(r, "nlis-merge")
    return Partial(np.asarray(merged), n_rows, found)


def _of_stacks(
    task: Callable[[np.ndarray], np.ndarray], stacks: da.Array, begin: int, heights: tuple[int, ...], width: int
) -> da.Array:
    """What `task` makes of some consecutive stacks, as an array of blocks of these heights."""
    name = f"nlis-merge-{tokenize(task, stacks.name, begin)}"
    graph = {(name, k, 0): Task((name, k, 0), task, TaskRef((stacks.name, begin + k, 0))) for k in range(len(heights))}
    meta = np.empty((0, 0), dtype=object if task is _info else np.float64)
    layered = HighLevelGraph.from_collections(name, graph, dependencies=[stacks])
    return da.Array(layered, name, chunks=(heights, (width,)), meta=meta)


def _info(block: np.ndarray) -> np.ndarray:
    partial: Partial = block[0, 0]
    return boxed((len(partial.r), partial.n_rows, partial.finding))


def _r_of(block: np.ndarray) -> np.ndarray:
    partial: Partial = block[0, 0]
    return partial.r
