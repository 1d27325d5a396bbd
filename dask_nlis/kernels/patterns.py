"""Rows that share an activation pattern: grouping, Gram matrices and quadratic forms, pattern by pattern.

A row is sum_j s_j L_j v + last, v a short row, s_j the slope of unit j in the row's pattern, L_j the place of unit
j among the columns. So sums over rows become sums over patterns of s_j s_k times one small Gram matrix a pattern, and
the quadratic form of a row is one small matrix a pattern: both are one matrix product for all pairs of units (j, k)
and a batch of patterns. Pairs are j <= k, in the order of `np.triu_indices`.

NumPy only: sorting into groups of unequal length has no array-API form; other namespaces form the rows.
"""

from collections.abc import Iterator

import numpy as np

#: Bytes of a batch of small matrices, one a pattern; more where the result is larger still, which each batch passes over.
BATCH_BYTES = 2**24

#: Bytes of short rows that are worked on at a time.
_WINDOW_BYTES = 2**20

#: Work that one more group costs whatever its size, and beyond arithmetic each entry of a formed row, of a small Gram
#: matrix, of a slice (which comes from and goes to memory); in multiplications, measured.
_GROUP, _FORMED_ENTRY, _GRAM_ENTRY, _SLICE_ENTRY, _FORM_ENTRY = 1.2e5, 80.0, 40.0, 120.0, 20.0


def grouped(active: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group rows by activation pattern: active (n, m), rows (k,) ascending -> those rows by pattern (k,), edges (g + 1,).

    Group i is order[edges[i]:edges[i + 1]], in ascending order. Sorts packed bits: O(k m / 8) bytes.
    """
    packed = np.packbits(active[rows], axis=1)
    width = packed.shape[1]
    size = 2 if width <= 2 else 8
    words = np.zeros((len(rows), -(-width // size) * size), dtype=np.uint8)
    words[:, :width] = packed
    words = words.view(np.uint16 if size == 2 else np.uint64)
    # Two bytes are sorted by radix; further words of long patterns break ties.
    order = np.argsort(words[:, 0], kind="stable") if words.shape[1] == 1 else np.lexsort(words.T)
    words = words[order]
    new = np.any(words[1:] != words[:-1], axis=1)
    edges = np.concatenate([[0], np.flatnonzero(new) + 1, [len(rows)]]) if len(rows) else np.zeros(1, dtype=np.int64)
    return rows[order], edges


def worth_grouping(sizes: np.ndarray, units: int, width: int, columns: int) -> np.ndarray:
    """Groups whose Gram matrix is cheaper by pattern than from formed rows: sizes (g,) -> mask (g,).

    `width` is the length of a short row, `columns` that of a formed one.
    """
    by_pattern = _GROUP + width * width * (units * (units + 1) + sizes + _GRAM_ENTRY)
    return by_pattern < sizes * (columns * (columns + _FORMED_ENTRY))


def worth_slicing(sizes: np.ndarray, units: int, width: int, columns: int, rank: int) -> np.ndarray:
    """Groups whose product with a matrix (columns, rank) is cheaper by pattern than from formed rows: (g,) -> mask (g,)."""
    by_pattern = _GROUP + width * rank * (2 * units + 2 * sizes + _SLICE_ENTRY)
    return by_pattern < sizes * (columns * (2 * rank + _FORMED_ENTRY))


def worth_a_form(sizes: np.ndarray, units: int, width: int, columns: int, rank: int) -> np.ndarray:
    """Groups whose quadratic forms are cheaper than squared norms of that product from formed rows: (g,) -> mask (g,)."""
    by_pattern = _GROUP + width * width * (units * (units + 1) + 2 * sizes + _FORM_ENTRY)
    return by_pattern < sizes * (columns * (2 * rank + _FORMED_ENTRY))


def rows_at_a_time(columns: int, fewest: int = 256) -> int:
    """Rows of so many columns that take about a megabyte, or `fewest`."""
    return max(fewest, _WINDOW_BYTES // (8 * columns))


def batches(n: int, width: int, result: int = 0) -> Iterator[slice]:
    """Patterns 0 ... n - 1 in batches whose matrices of `width` numbers each take some 16 MB, or the bytes of `result` numbers / 8."""
    step = max(1, max(BATCH_BYTES // 8, result // 8) // width)
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def windows(edges: np.ndarray, width: int, fewest: int = 256) -> Iterator[tuple[int, int, list[tuple[int, slice]]]]:
    """Cut grouped rows into pieces of about a megabyte: first and last row, and which rows of the piece are of which group."""
    step = rows_at_a_time(width, fewest)
    for first in range(int(edges[0]), int(edges[-1]), step):
        last = min(first + step, int(edges[-1]))
        a = int(np.searchsorted(edges, first, side="right")) - 1
        b = int(np.searchsorted(edges, last, side="left"))
        cuts = np.clip(edges[a : b + 1], first, last) - first
        yield first, last, [(a + i, slice(int(cuts[i]), int(cuts[i + 1]))) for i in range(b - a)]


def pairs(units: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (j, k) of units with j <= k."""
    return np.triu_indices(units)


def pair_slopes(slopes: np.ndarray) -> np.ndarray:
    """s_j s_k for each pattern and pair: (g, m) -> (g, m (m + 1) / 2)."""
    j, k = pairs(slopes.shape[1])
    return slopes[:, j] * slopes[:, k]


def add_products(total: np.ndarray, slopes: np.ndarray, small: np.ndarray) -> None:
    """Add slopes' small to total, (k, w), for slopes (g, k) and small (g, w): a few rows of `total` at a time."""
    step = max(1, BATCH_BYTES // (8 * total.shape[1]))
    for first in range(0, len(total), step):
        part = slice(first, first + step)
        total[part] += slopes[:, part].T @ small


def row_forms(rows: np.ndarray, matrices: np.ndarray, groups: list[tuple[int, slice]]) -> np.ndarray:
    """v' A v for each short row v (n, w) and the matrix A of its group, (g, w, w) -> (n,)."""
    product = np.empty_like(rows)
    for group, part in groups:
        np.matmul(rows[part], matrices[group], out=product[part])
    return np.einsum("ij,ij->i", product, rows)
