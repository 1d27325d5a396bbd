"""Inside a task: a block of X and y becomes sub-blocks of matrix rows, checked on the way.

Only float64 sub-blocks of about a megabyte exist at a time; X stays in the type it was stored in.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.device import Device, choose, sub_block_rows
from dask_nlis.errors import NonFiniteError
from dask_nlis.intake import LARGEST_INTEGER
from dask_nlis.matrix.rules import Rule
from dask_nlis.nouns import noun

Array = Any

#: Columns that are not features, in a Finding.
_Y, _WEIGHT, _ROW = -1, -2, -3


@noun
class Job:
    """What a task needs besides its block, small and the same for all tasks."""

    rule: Rule
    names: tuple[str, ...]
    n_matrix_columns: int
    missing: str
    device: str


class Finding(NamedTuple):
    """Non-finite cells of some rows: how many rows, the first (global) row, its column, rows dropped."""

    n_bad: int = 0
    row: int = -1
    column: int = 0
    n_dropped: int = 0

    def plus(self, other: "Finding") -> "Finding":
        """Findings of two sets of rows together."""
        known = [f for f in (self, other) if f.n_bad]
        first = min(known, key=lambda f: f.row) if known else self
        return Finding(self.n_bad + other.n_bad, first.row, first.column, self.n_dropped + other.n_dropped)


def check_finite(finding: Finding, names: Sequence[str], scope: str = "in its block") -> None:
    """Raise NonFiniteError naming the first row, its column and the number of rows, if there are any."""
    if not finding.n_bad:
        return
    count = f"{finding.n_bad:,} row{'s' if finding.n_bad > 1 else ''} {scope}"
    if finding.column == _ROW:
        raise NonFiniteError(
            f"X, finite at row {finding.row}, overflows in the model ({count}); bring theta or the columns to smaller units"
        )
    if finding.column == _WEIGHT:
        raise NonFiniteError(
            f"sample_weight is negative or not finite at row {finding.row} ({count}); give weights >= 0"
        )
    where = "y" if finding.column == _Y else f"X, column {finding.column} ({names[finding.column]!r}),"
    raise NonFiniteError(
        f"{where} is not finite, or too large an integer for float64, at row {finding.row} ({count}); "
        "clean it or give missing='drop'"
    )


class Leaf(NamedTuple):
    """A sub-block: its place in the block, its data on the device and what was found in it."""

    place: slice
    x: Array
    y: Array | None
    root_weight: Array | None
    finding: Finding


Form = Callable[[Array, Array | None], Array]


def leaves(
    x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, job: Job, device: Device
) -> Iterator[Leaf]:
    """Cut a block into sub-blocks on the device; rows with non-finite input are zeroed and reported."""
    step = sub_block_rows(device.kind, job.n_matrix_columns)
    labels = None if y is None else y.reshape(-1)
    weights = None if weight is None else weight.reshape(-1)
    for a in range(0, len(x), step):
        place = slice(a, min(a + step, len(x)))
        columns = _float64(x[place])
        label = None if labels is None else _float64(labels[place])
        root = None if weights is None else _float64(weights[place])
        bad, finding = _inspect(columns, label, root, start + a, job.missing)
        if bad is not None:
            keep = ~bad
            columns = np.where(keep[:, None], columns, 0.0)
            label = None if label is None else np.where(keep, label, 0.0)
            # A row of weight 0 is a zero row of the matrix: score 0, no part in the factor.
            root = np.where(keep, 1.0 if root is None else root, 0.0)
        root = None if root is None else np.sqrt(root)
        yield Leaf(
            place,
            device.put(columns),
            None if label is None else device.put(label),
            None if root is None else device.put(root),
            finding,
        )


def _float64(values: np.ndarray) -> np.ndarray:
    """Cast before any arithmetic (uint8 would wrap); integers beyond 2^53 become NaN, to be reported."""
    # One memory layout, so that the bits of a sum do not depend on how the block was stored.
    cast = np.ascontiguousarray(values, dtype=np.float64)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return np.where((values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER), np.nan, cast)
    return cast


def _inspect(
    x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, missing: str
) -> tuple[np.ndarray | None, Finding]:
    """Find rows with a non-finite cell, as a mask (None when there are none) and a Finding."""
    total = x.sum() + (0.0 if y is None else y.sum())
    if np.isfinite(total) and (weight is None or (np.isfinite(weight.sum()) and weight.min(initial=0.0) >= 0)):
        return None, Finding()  # one sum finds any NaN or infinity; it may overflow, hence the second look
    bad_weight = np.zeros(len(x), dtype=bool) if weight is None else ~(np.isfinite(weight) & (weight >= 0))
    bad_label = np.zeros(len(x), dtype=bool) if y is None else ~np.isfinite(y)
    bad_cells = ~np.isfinite(x)
    bad = bad_weight | bad_label | bad_cells.any(axis=1)
    if not bad.any():
        return None, Finding()
    if missing == "drop" and not bad_weight.any():
        return bad, Finding(n_dropped=int(bad.sum()))
    row = int(np.argmax(bad))
    column = int(np.argmax(bad_cells[row])) if bad_cells[row].any() else _Y if bad_label[row] else _WEIGHT
    return bad, Finding(int(bad.sum()), start + row, column)


def matrix_rows(leaf: Leaf, job: Job) -> Array:
    """Rows of the matrix for a leaf, times the roots of the row weights, (m, p)."""
    rows = job.rule.rows(leaf.x, leaf.y)
    return rows if leaf.root_weight is None else rows * leaf.root_weight[:, None]


def overflow(rows: np.ndarray, start: int) -> Finding:
    """Report rows (or values of rows) that are not finite though their input was."""
    bad = ~np.isfinite(rows) if rows.ndim == 1 else ~np.isfinite(rows).all(axis=1)
    return Finding(int(bad.sum()), start + int(np.argmax(bad)), _ROW) if bad.any() else Finding()


def rows_block(x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, *, job: Job) -> np.ndarray:
    """Rows of the matrix for one block, (m, p) on the host."""
    device = choose(job.device)
    out = np.zeros((len(x), job.n_matrix_columns))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            out[leaf.place] = device.fetch(matrix_rows(leaf, job))
            found = found.plus(leaf.finding)
    check_finite(found.plus(overflow(out, int(start))), job.names)
    return out
