"""Inside a task: a block of X and y becomes sub-blocks of matrix rows, checked on the way.

Only float64 sub-blocks of about a megabyte exist at a time; X stays in the type it was stored in.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Identity
from dask_nlis.device import Device, choose, sub_block_rows
from dask_nlis.errors import IdentityResidualError, InputError, NonFiniteError, ZeroLossSingularityError
from dask_nlis.intake import LARGEST_INTEGER
from dask_nlis.losses import Loss
from dask_nlis.matrix.rules import Dual, Reference, Rule
from dask_nlis.nouns import noun
from dask_nlis.problem import singular

Array = Any

#: Columns that are not features, in a Finding.
_Y, _WEIGHT, _ROW, _LABEL = -1, -2, -3, -4

#: Values of y that a message names.
_NAMED = 5


@noun
class Job:
    """What a task needs besides its block, small and the same for all tasks."""

    rule: Rule
    names: tuple[str, ...]
    n_matrix_columns: int
    missing: str
    device: str


class Finding(NamedTuple):
    """Cells of some rows that are not finite or not allowed: how many rows, the first (global) row, its column.

    With them the rows dropped and, for labels that the loss does not allow, what they are, a remedy, and some of them,
    the first first. For rows that are integrals: the most nodes that one took, and the largest identity residual.
    """

    n_bad: int = 0
    row: int = -1
    column: int = 0
    n_dropped: int = 0
    fault: tuple[str, str] = ("", "")
    values: tuple[float, ...] = ()
    nodes: int = 0
    residual: float = 0.0

    def plus(self, other: "Finding") -> "Finding":
        """Findings of two sets of rows together."""
        known = sorted((f for f in (self, other) if f.n_bad), key=lambda f: f.row)
        first = known[0] if known else self
        values = tuple(dict.fromkeys(value for f in known for value in f.values))[:_NAMED]
        return Finding(
            self.n_bad + other.n_bad,
            first.row,
            first.column,
            self.n_dropped + other.n_dropped,
            first.fault,
            values if first.column == _LABEL else (),
            max(self.nodes, other.nodes),
            max(self.residual, other.residual),
        )


def check_finite(finding: Finding, names: Sequence[str], scope: str = "in its block") -> None:
    """Raise an error naming the first row, its column and the number of rows that are not as they must be, if any.

    NonFiniteError for cells, weights and rows that are not finite, InputError for labels that the loss does not allow.
    """
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
    if finding.column == _LABEL:
        first, *others = (f"{value:g}" for value in finding.values)
        more = f", also {', '.join(others)}" if others else ""
        raise InputError(
            f"y holds labels {finding.fault[0]} first at row {finding.row} (value {first}{more}; {count}); "
            f"{finding.fault[1]}"
        )
    where = "y" if finding.column == _Y else f"X, column {finding.column} ({names[finding.column]!r}),"
    raise NonFiniteError(
        f"{where} is not finite, or too large an integer for float64, at row {finding.row} ({count}); "
        "clean it or give missing='drop'"
    )


class Leaf(NamedTuple):
    """A sub-block: its place in the block, its first (global) row, its data on the device and what was found in it."""

    place: slice
    row: int
    x: Array
    y: Array | None
    root_weight: Array | None
    finding: Finding


Form = Callable[[Array, Array | None], Array]


def leaves(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    job: Job,
    device: Device,
    *,
    reducing: bool = False,
) -> Iterator[Leaf]:
    """Cut a block into sub-blocks on the device; rows with input that is not finite or not allowed are reported.

    Those rows, and rows of weight 0, are replaced by a zero row with a label to which no loss objects.
    """
    loss, harmless = _loss_of(job.rule)
    step = sub_block_rows(device.kind, job.n_matrix_columns, reducing=reducing)
    labels = None if y is None else y.reshape(-1)
    weights = None if weight is None else weight.reshape(-1)
    for a in range(0, len(x), step):
        place = slice(a, min(a + step, len(x)))
        columns = _float64(x[place])
        label = None if labels is None else _float64(labels[place])
        root = None if weights is None else _float64(weights[place])
        bad, finding = _inspect(columns, label, root, start + a, job.missing, loss)
        if bad is not None:
            # A row of weight 0 is a zero row of the matrix: score 0, no part in the factor.
            root = np.where(bad, 0.0, 1.0 if root is None else root)
        if root is not None and not root.all():
            keep = root > 0
            columns = np.where(keep[:, None], columns, 0.0)
            label = None if label is None else np.where(keep, label, harmless)
        root = None if root is None else np.sqrt(root)
        yield Leaf(
            place,
            start + a,
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


def _loss_of(rule: Rule) -> tuple[Loss | None, float]:
    """Loss behind the rows, and a label that it allows and that lies off phi(0), where a root may have no slope."""
    if not isinstance(rule, Dual | Reference):
        return None, 0.0
    return rule.problem.loss, getattr(rule.problem.model, "activation", Identity()).at_zero + 1.0


def _inspect(
    x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, missing: str, loss: Loss | None
) -> tuple[np.ndarray | None, Finding]:
    """Find rows with a cell that is not finite or not allowed, as a mask (None when there are none) and a Finding."""
    checked = None if y is None or loss is None else loss.check_labels(y)
    refused = None if checked is None else checked[0]
    total = x.sum() + (0.0 if y is None else y.sum())
    finite = np.isfinite(total) and (weight is None or (np.isfinite(weight.sum()) and weight.min(initial=0.0) >= 0))
    if finite and (refused is None or not refused.any()):
        return None, Finding()  # one sum finds any NaN or infinity; it may overflow, hence the second look
    bad_weight = np.zeros(len(x), dtype=bool) if weight is None else ~(np.isfinite(weight) & (weight >= 0))
    bad_label = np.zeros(len(x), dtype=bool) if y is None else ~np.isfinite(y)
    bad_cells = ~np.isfinite(x)
    empty = bad_weight | bad_label | bad_cells.any(axis=1)
    wrong = np.zeros(len(x), dtype=bool) if refused is None else refused & ~bad_label
    drop = missing == "drop" and not bad_weight.any()
    named = wrong & ~empty if drop else wrong | empty
    n_dropped = int(empty.sum()) if drop else 0
    if not named.any():
        return (empty, Finding(n_dropped=n_dropped)) if empty.any() else (None, Finding())
    row = int(np.argmax(named))
    if checked is not None and y is not None and not empty[row]:
        values = tuple(dict.fromkeys([float(y[row]), *np.unique(y[wrong])[:_NAMED].tolist()]))[:_NAMED]
        return wrong | empty, Finding(int(named.sum()), start + row, _LABEL, n_dropped, checked[1:], values)
    column = int(np.argmax(bad_cells[row])) if bad_cells[row].any() else _Y if bad_label[row] else _WEIGHT
    return named | empty, Finding(int(named.sum()), start + row, column, n_dropped)


def matrix_rows(leaf: Leaf, job: Job) -> tuple[Array, Finding]:
    """Rows of the matrix for a leaf, times the roots of the row weights, (m, p); and what was found in the leaf."""
    if isinstance(job.rule, Dual) and leaf.y is not None and job.rule.problem.loss.may_be_singular:
        _check_slopes(job.rule, leaf, leaf.y)
    found = leaf.finding
    if job.rule.exact(leaf.y is not None):
        rows = job.rule.rows(leaf.x, leaf.y)
    else:
        rows, nodes, residual = job.rule.ray(leaf.x, leaf.y)
        found = found._replace(nodes=nodes, residual=_checked(residual, leaf, job.rule.tolerance))
    return rows if leaf.root_weight is None else rows * leaf.root_weight[:, None], found


def _checked(residual: Array, leaf: Leaf, tolerance: float) -> float:
    """Refuse rows whose adjoint the quadrature did not reach; a kink along the ray is the usual cause."""
    worst = int(array_namespace(residual).argmax(residual))
    largest = float(residual[worst])
    if largest > tolerance:
        raise IdentityResidualError(
            f"row {leaf.row + worst}: f(theta) = f(0) + <theta, f*> misses by {largest:.1e} (tolerance "
            f"{tolerance:.0e}) with 256 nodes along the ray; use a smaller theta, a smoother model or loss (PseudoHuber for "
            "Huber), or Numerical with a larger tolerance="
        )
    return largest


def _check_slopes(rule: Dual, leaf: Leaf, y: Array) -> None:
    """Raise where the root of the loss has no slope between phi(0) and the prediction: such a row has no adjoint."""
    theta = array_namespace(leaf.x).asarray(np.array(rule.theta))
    mask = singular(rule.problem, theta, leaf.x, y)
    if not bool(mask.any()):
        return
    first = leaf.row + int(mask.argmax())
    raise ZeroLossSingularityError(
        f"y equals the prediction and phi(0) at row {first} ({int(mask.sum()):,} of {len(mask):,} rows from row "
        f"{leaf.row}), where {rule.problem.loss!r} has no slope; move theta, give on_singular='zero', or PseudoHuber"
    )


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
            rows, finding = matrix_rows(leaf, job)
            out[leaf.place] = device.fetch(rows)
            found = found.plus(finding)
    check_finite(found.plus(overflow(out, int(start))), job.names)
    return out
