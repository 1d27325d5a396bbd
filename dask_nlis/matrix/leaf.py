"""A sub-block of rows, and what the host looks at before anything is made of it."""

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.intake import LARGEST_INTEGER
from dask_nlis.kernels.aligned import aligned
from dask_nlis.losses import Loss, LossOfSeveral
from dask_nlis.matrix.findings import LABEL, NAMED, WEIGHT, Finding, Y

Array = Any


class Leaf(NamedTuple):
    """A sub-block: its place in the block, its first (global) row, its data on the device and what was found in it."""

    place: slice
    row: int
    x: Array
    y: Array | None
    root_weight: Array | None
    finding: Finding
    counts: bool = True  # whether any row has a weight
    lengths: Array | None = None  # squared row norms of x where they are known, of rows that count

    def weighted(self, values: Array, power: int = 1, *, own: bool = False) -> Array:
        """Rows (m, p), or k of them a data row, (m k, p), or values (m,) times the roots of the row weights to a power; exactly 0 where the weight is.

        Not a product alone: a model may be infinite where no row counts. NumPy rows that are the caller's `own` are
        overwritten.
        """
        if self.root_weight is None:
            return values
        if own and values.shape[0] == self.root_weight.shape[0]:
            values *= self.root_weight[:, None]
            values[self.root_weight == 0] = 0.0
            return values
        xp, root = array_namespace(values), self.root_weight
        if values.shape[0] != root.shape[0]:  # several rows of the matrix a data row
            root = xp.repeat(root, values.shape[0] // root.shape[0])
        root = root if values.ndim == 1 else root[:, None]
        for _ in range(power):
            values = values * root
        return xp.where(root > 0, values, xp.zeros_like(values))


def float64(values: np.ndarray) -> np.ndarray:
    """Cast before any arithmetic (uint8 would wrap); integers beyond 2^53 become NaN, to be reported."""
    # One memory layout, so that the bits of a sum do not depend on how the block was stored, or came.
    cast = aligned(np.ascontiguousarray(values, dtype=np.float64))
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return np.where((values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER), np.nan, cast)
    return cast


def inspect(
    x: np.ndarray,
    total: float,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    missing: str,
    loss: Loss | LossOfSeveral | None,
) -> tuple[np.ndarray | None, Finding]:
    """Find rows with a cell that is not finite or not allowed, as a mask (None when there are none) and a Finding.

    `total` is a sum over x that any NaN or infinity in it spoils.
    """
    checked = None if y is None or loss is None else loss.check_labels(y)
    cells = None if checked is None else checked[0]
    refused: np.ndarray | None = None if cells is None else in_any_column(cells)
    total = total + (0.0 if y is None else y.sum())
    finite = np.isfinite(total) and (weight is None or (np.isfinite(weight.sum()) and weight.min(initial=0.0) >= 0))
    if finite and (refused is None or not refused.any()):
        return None, Finding()  # one sum finds any NaN or infinity; it may overflow, hence the second look
    bad_weight = np.zeros(len(x), dtype=bool) if weight is None else ~(np.isfinite(weight) & (weight >= 0))
    bad_label = np.zeros(len(x), dtype=bool) if y is None else in_any_column(~np.isfinite(y))
    bad_cells = ~np.isfinite(x)
    empty = bad_weight | bad_label | bad_cells.any(axis=1)
    wrong: np.ndarray = np.zeros(len(x), dtype=bool) if refused is None else refused & ~bad_label
    drop = missing == "drop" and not bad_weight.any()
    named = wrong & ~empty if drop else bad_weight if missing == "drop" else wrong | empty
    n_dropped = int(empty.sum()) if drop else 0
    if not named.any():
        return (empty, Finding(n_dropped=n_dropped)) if empty.any() else (None, Finding())
    row = int(np.argmax(named))
    if checked is not None and cells is not None and y is not None and wrong[row] and not empty[row]:
        there = cells & np.isfinite(y)
        first = float(np.atleast_1d(y[row])[np.atleast_1d(there[row])][0])
        values = tuple(dict.fromkeys([first, *np.unique(y[there])[:NAMED].tolist()]))[:NAMED]
        return wrong | empty, Finding(int(named.sum()), start + row, LABEL, n_dropped, checked[1:], values)
    if bad_weight[row] and missing == "drop":
        column = WEIGHT
    else:
        column = int(np.argmax(bad_cells[row])) if bad_cells[row].any() else Y if bad_label[row] else WEIGHT
    return named | empty, Finding(int(named.sum()), start + row, column, n_dropped)


def in_any_column(cells: np.ndarray) -> np.ndarray:
    """Mask of rows (m,) of a mask of labels (m,) or (m, k)."""
    return cells if cells.ndim == 1 else np.asarray(cells.any(axis=1))


def as_labels(y: np.ndarray) -> np.ndarray:
    """Labels as they were stored, (m,), (m, 1) or (m, k), as the loss takes them: (m,) or (m, k)."""
    return y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y


def beside(keep: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A mask of rows (m,) beside labels (m,) or (m, k)."""
    return keep if y.ndim == 1 else keep[:, None]


def counted(weight: np.ndarray | None, bad: np.ndarray | None) -> tuple[np.ndarray | None, int | None]:
    """Weights (m,) of rows of which those that are `bad` (m,) do not count, and a row that stands for those of weight 0.

    A row of weight 0 is a zero row of the matrix: score 0, no part in the factor. None where all rows count.
    """
    if bad is not None:
        weight = np.where(bad, 0.0, 1.0 if weight is None else weight)
    return weight, None if weight is None or weight.all() else int(np.argmax(weight > 0))
