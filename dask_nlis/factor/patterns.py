"""Gram matrix of a block of a ReLU network's dual or tangent rows, assembled from one small Gram matrix per activation pattern.

Per pattern one Gram matrix of [c x | f(0)], n w^2 multiplications for n rows; per batch of patterns one matrix product
for all pairs of units, w^2 m^2 / 2 a pattern. Against n p^2 from formed rows, p = m w, that pays from two or three
rows a pattern on; rows of smaller groups are formed. No n x p array, no condition on the number of patterns.
"""

import numpy as np

from dask_nlis.kernels.patterns import (
    add_products,
    batches,
    pair_slopes,
    pairs,
    rows_at_a_time,
    windows,
    worth_grouping,
)
from dask_nlis.kernels.products import gram
from dask_nlis.matrix import Finding
from dask_nlis.matrix.grouping import Grouped, Grouping
from dask_nlis.matrix.sliced import sliced

#: Squared column norms between which neither they nor their products leave float64's range.
LOWEST, HIGHEST = 2.0**-600, 2.0**600


def pattern_gram(grouped: Grouped, whitener: np.ndarray | None) -> tuple[np.ndarray, Finding] | None:
    """Gram matrix of B, the basis of F, or of F W, of one block, and what was found in it.

    None where rows are not finite, or columns beyond the range in which their squares are: form the rows then.
    """
    groups, finding = grouped
    if groups is None:
        return None
    units = groups.units
    if whitener is not None:
        values = whitened_gram(groups, units.narrowed(whitener))
        return (values, finding) if np.isfinite(values).all() else None
    worth = worth_grouping(groups.sizes, len(units.a), units.width, len(units.basis))
    values = assembled(groups.only(worth))
    few = groups.only(~worth)
    for _, rows in few.formed(rows_at_a_time(len(values), 2 * len(values))):
        values += gram(rows)
    squares = np.diagonal(values)
    ordinary = ((squares > LOWEST) & (squares < HIGHEST)) | ((squares == 0) & ~_vanished(groups, squares))
    return (values, finding) if ordinary.all() else None


def assembled(groups: Grouping) -> np.ndarray:
    """Gram matrix of the basis, (k, k), by pattern."""
    units, m, w = groups.units, len(groups.units.a), groups.units.width
    k = len(units.basis)
    blocks, border, corner = np.zeros((m * (m + 1) // 2, w * w)), np.zeros((m, w)), 0.0
    bordered = bool(groups.last[groups.order].any())
    for batch in batches(len(groups.slopes), w * w, k * k):
        edges, slopes = groups.edges[batch.start : batch.stop + 1], groups.slopes[batch]
        small, beside = np.empty((len(slopes), w, w)), np.zeros((len(slopes), w))
        done = np.zeros(len(slopes), dtype=bool)
        for first, end, members in windows(edges, w):
            rows = groups.short(first, end)
            last = groups.last[groups.order[first:end]]
            for group, part in members:
                some = rows[part]
                if done[group]:
                    small[group] += gram(some)
                else:
                    np.matmul(some.T, some, out=small[group])
                    done[group] = True
                if bordered:
                    beside[group] += last[part] @ some
            corner += float(last @ last)
        add_products(blocks, pair_slopes(slopes), small.reshape(len(slopes), w * w))
        border += slopes.T @ beside
    places = list(units.places())
    out = np.zeros((k, k))
    for (j, i), block in zip(zip(*pairs(m), strict=True), blocks.reshape(-1, w, w), strict=True):
        (place, inner, factor), (other, within, times) = places[j], places[i]
        out[place, other] = factor * times * block[inner, within]
        out[other, place] = out[place, other].T
    if units.bordered:
        for j, (place, inner, factor) in enumerate(places):
            out[place, -1] = out[-1, place] = factor * border[j, inner]
        out[-1, -1] = corner
    return out


def whitened_gram(groups: Grouping, narrow: np.ndarray) -> np.ndarray:
    """Gram matrix of B times a matrix on the basis, (k, rank) -> (rank, rank)."""
    rank = narrow.shape[1]
    total = np.zeros((rank, rank))
    for _, rows in sliced(groups, narrow, 2 * rank):
        total += gram(rows)
    return total


def _vanished(groups: Grouping, squares: np.ndarray) -> np.ndarray:
    """Columns of the basis whose squares are all lost, though they are not zero: (k,)."""
    lost = np.zeros(len(squares), dtype=bool)
    if squares.all():
        return lost
    if groups.units.bordered:
        lost[-1] = squares[-1] == 0 and groups.last.any()
    nonzero = np.ones(groups.units.width, dtype=bool)
    nonzero[: groups.x.shape[1]] = groups.x.any(axis=0)
    for j, (place, inner, _) in enumerate(groups.units.places()):
        alive = groups.only(groups.slopes[:, j] != 0)
        doubtful = (squares[place] == 0) & nonzero[inner]
        if not doubtful.any():
            continue
        for first, end, _ in windows(alive.edges, groups.units.width):
            lost[place] |= doubtful & alive.short(first, end)[:, inner].any(axis=0)
    return lost
