"""One target in each of equal slices: stratified (a random place in each) and systematic (the same place in all).

Rows lie in the order of half-octave bins of their scores and then of row numbers, so that neighbours have alike
scores, and alike values where the rows of the file have an order.
"""

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from dask_nlis.kernels import draw as kernel, exact_sums
from dask_nlis.sample import Sample, Scale
from dask_nlis.sampling.bins import BinTable, Wanted, located
from dask_nlis.sampling.passes import Design, Part, Pass
from dask_nlis.sampling.plan import Plan

#: No whole number is as large as this.
_NONE_CERTAIN = 2**62


def stratified(plan: Plan) -> Design[Sample]:
    """Draw in two passes: sums by block and bin, then the rows in which the targets of the slices fall."""
    scale = plan.scale()
    table = yield from _table(plan, scale, _NONE_CERTAIN)
    total = table.total()
    scale = replace(scale, total=total)
    offsets = kernel.uniform_targets(total, plan.n_draws, plan.key)
    targets, where = kernel.slice_targets(total, plan.n_draws, offsets)
    rows, scores, onward, before = yield from _found(plan, scale, table, targets, _NONE_CERTAIN)
    # Ends of the row in its slice, as shares of the slice; a row may reach beyond it on both sides.
    stretch = plan.n_draws / float(total)
    shares = np.minimum(where + onward * stretch, 1.0) - np.maximum(where - before * stretch, 0.0)
    return plan.with_replacement(scale, rows, scores, np.clip(shares, 0.0, 1.0))


def systematic(plan: Plan) -> Design[Sample]:
    """Draw in two passes, or up to six where rows may be certain: these are found and set apart first."""
    scale, size, bound = plan.scale(), plan.n_draws, _NONE_CERTAIN
    table = yield from _table(plan, scale, bound)
    total, n_free = table.total(), size
    if int(scale.whole(np.array([plan.summary.largest]))[0]) * size >= total:
        bound, n_free, total = yield from _certain(plan, scale)
        table = yield from _table(plan, scale, bound)
    scale = replace(scale, total=total, n_free=n_free)
    offset = kernel.uniform_targets(total, 1, plan.key) if n_free else np.empty((0, 2), dtype=np.uint64)
    targets = kernel.slice_targets(total, n_free, offset)[0] if n_free else offset
    rows, scores, _, _ = yield from _found(plan, scale, table, targets, bound)
    if n_free < size:
        apart: list[tuple[np.ndarray, np.ndarray]] = []
        yield Pass(_block_certain, plan.blocks, lambda _, answer: apart.append(answer), (scale, bound))
        rows = np.concatenate([rows, *(part[0] for part in apart)])
        scores = np.concatenate([scores, *(part[1] for part in apart)])
    return plan.distinct(scale, rows, scores)


def _table(plan: Plan, scale: Scale, bound: int) -> Design[BinTable]:
    table = BinTable(plan.summary.blocks)
    yield Pass(_block_bins, plan.blocks, table.add, (scale, plan.summary.largest, bound))
    return table


def _certain(plan: Plan, scale: Scale) -> Generator[Pass, None, tuple[int, int, int]]:
    """Find the rows that are drawn for certain: smallest q among them, rows left to draw, sum of q of the rest."""
    sums: dict[int, tuple[int, int]] = {}

    def add(_: int, answer: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        nonlocal sums
        sums = exact_sums.merge_sums([sums, exact_sums.unpacked(answer)])

    yield Pass(_block_sums, plan.blocks, add, (scale,))
    boundary, some_certain = exact_sums.boundary_bin(sums, plan.n_draws)
    inside: list[np.ndarray] = [np.empty(0)]
    if some_certain:
        yield Pass(_block_inside, plan.blocks, lambda _, answer: inside.append(answer), (scale, boundary))
    bound, n_certain, rest = exact_sums.certain_whole(sums, plan.n_draws, boundary, np.concatenate(inside))
    return bound, plan.n_draws - n_certain, rest


def _found(
    plan: Plan, scale: Scale, table: BinTable, targets: np.ndarray, bound: int
) -> Generator[Pass, None, tuple[np.ndarray, ...]]:
    """Rows of the targets in the order of the slices, with their scores and the parts of q around the targets."""
    n = len(targets)
    rows, scores = np.empty(n, dtype=np.int64), np.empty(n)
    onward, before = np.empty(n), np.empty(n)

    placed = table.place(targets)

    def take(block: int, answer: tuple[np.ndarray, ...]) -> None:
        numbers = placed[block].numbers
        rows[numbers], scores[numbers], onward[numbers], before[numbers] = answer

    yield Pass(_block_rows, placed, take, (scale, plan.summary.largest, bound))
    return rows, scores, onward, before


def _whole(part: Part, scale: Scale, bound: int) -> np.ndarray:
    """Whole numbers of the rows that are not certain, 0 for the others."""
    q = part.whole(scale)
    return q if bound == _NONE_CERTAIN else np.where(q < bound, q, np.uint64(0))


def _bins(part: Part, largest: float) -> np.ndarray:
    """Half-octave bins of the rows."""
    bins = np.empty(len(part.scores), dtype=np.uint8)
    for k, piece in part.pieces():
        bins[k : k + len(piece.scores)] = kernel.half_octaves(piece.scores, largest)
    return bins


def _block_bins(part: Part, scale: Scale, largest: float, bound: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return kernel.bin_sums(_whole(part, scale, bound), _bins(part, largest))


def _block_rows(part: Part, scale: Scale, largest: float, bound: int, wanted: Wanted) -> tuple[np.ndarray, ...]:
    bins = _bins(part, largest)
    chosen, onward, before = located(_whole(part, scale, bound), bins, wanted)
    return part.rows(chosen), part.scores[chosen], onward, before


def _block_sums(part: Part, scale: Scale) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return exact_sums.packed(exact_sums.exponent_sums(scale.whole(part.scores)))


def _block_inside(part: Part, scale: Scale, boundary: int) -> np.ndarray:
    q = scale.whole(part.scores)
    return q[(q > 0) & (np.frexp(q)[1] == boundary)]


def _block_certain(part: Part, scale: Scale, bound: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.flatnonzero(scale.whole(part.scores) >= bound)
    return part.rows(chosen), part.scores[chosen]
