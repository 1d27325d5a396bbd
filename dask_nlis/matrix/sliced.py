"""The product of a network's rows with a matrix, from short rows: the matrix is summed over active units first.

A row of F W is c x' (sum_j s_j a_j W_j) + f(0) w, the last term of dual rows alone, so that rows with one activation
pattern share a slice of width x rank numbers: 2 n w rank multiplications in place of 2 n p rank, p = m w.
"""

from collections.abc import Iterator

import numpy as np

from dask_nlis.kernels.patterns import batches, rows_at_a_time, windows, worth_slicing
from dask_nlis.matrix.grouping import Grouping


def sliced(groups: Grouping, narrow: np.ndarray, fewest: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of B narrow, B the basis of F, narrow (k, rank), with their places in the block; at least `fewest` at a time.

    The rows of groups too small for a slice of their own are formed. Memory: a few times 16 MB.
    """
    units, rank = groups.units, narrow.shape[1]
    worth = worth_slicing(groups.sizes, len(units.a), units.width, len(narrow), rank)
    many = groups.only(worth)
    parts, w = units.split(narrow), units.width
    flat = parts.reshape(len(parts), w * rank)
    for first, end, members in windows(many.edges, max(w, rank), fewest):
        rows, place = many.short(first, end), many.order[first:end]
        out = many.last[place][:, None] * narrow[-1] if units.bordered else np.zeros((len(rows), rank))
        for batch in batches(len(members), w * rank):
            slices = (many.slopes[[group for group, _ in members[batch]]] @ flat).reshape(-1, w, rank)
            for (_, part), matrix in zip(members[batch], slices, strict=True):
                out[part] += rows[part] @ matrix
        yield place, out
    yield from multiplied(groups.only(~worth), narrow, fewest)


def multiplied(groups: Grouping, narrow: np.ndarray, fewest: int = 256) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of B narrow, from formed rows, with their places in the block; at least `fewest` at a time."""
    for place, formed in groups.formed(rows_at_a_time(len(narrow), fewest)):
        yield place, formed @ narrow
