"""Inside a task: a block of X and y becomes sub-blocks of matrix rows, checked on the way.

Only float64 sub-blocks of about a megabyte exist at a time; X stays in the type it was stored in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import Device, choose, sub_block_rows
from dask_nlis.errors import IdentityResidualError, InputError, ZeroLossSingularityError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.losses import Loss
from dask_nlis.matrix.findings import LABEL, NAMED, ROW, WEIGHT, Finding, Y, check_finite, overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.pieces import Gathered, cut, float64
from dask_nlis.matrix.rules import Dual, Modelled, Rule, Tangent, array_like
from dask_nlis.matrix.spoilers import spoiled
from dask_nlis.nouns import noun
from dask_nlis.problem import singular

Array = Any


@noun
class Job:
    """What a task needs besides its block, small and the same for all tasks."""

    rule: Rule
    names: tuple[str, ...]
    n_matrix_columns: int
    missing: str
    device: str


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
        """Rows (m, p) or values (m,) times the roots of the row weights to a power; exactly 0 where the weight is.

        Not a product alone: a model may be infinite where no row counts. NumPy rows that are the caller's `own` are
        overwritten.
        """
        if self.root_weight is None:
            return values
        if own:
            values *= self.root_weight[:, None]
            values[self.root_weight == 0] = 0.0
            return values
        root = self.root_weight if values.ndim == 1 else self.root_weight[:, None]
        for _ in range(power):
            values = values * root
        xp = array_namespace(values)
        return xp.where(root > 0, values, xp.zeros_like(values))


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
    width: int | None = None,
    lengths: bool = False,
) -> Iterator[Leaf]:
    """Cut a block into sub-blocks on the device; rows with input that is not finite or not allowed are reported.

    Their size is that for p numbers a row of what is made of them, or for `width`. `lengths` asks for `Leaf.lengths`,
    which cost nothing on the host: they tell as well as a sum whether all cells are finite.

    Those rows, and rows of weight 0, are replaced by a row of the sub-block that counts, so that no function of the
    user meets what is not there; `Leaf.weighted` makes them 0.
    """
    loss = job.rule.problem.loss if isinstance(job.rule, Modelled) else None
    step = sub_block_rows(device.kind, job.n_matrix_columns if width is None else width, reducing=reducing)
    labels = None if y is None else y.reshape(-1)
    weights = None if weight is None else weight.reshape(-1)
    if device.kind != "cpu":

        def look(
            columns: np.ndarray, label: np.ndarray | None, own: np.ndarray | None, row: int
        ) -> tuple[np.ndarray | None, Finding]:
            return _inspect(columns, columns.sum(), label, own, row, job.missing, loss)

        for part in cut(x, labels, weights, start, job.n_matrix_columns, step, device, look):
            yield Leaf(*part)
        return
    for a in range(0, len(x), step):
        place = slice(a, min(a + step, len(x)))
        columns = float64(x[place])
        label = None if labels is None else float64(labels[place])
        root = None if weights is None else float64(weights[place])
        squares = squared_row_norms(columns) if lengths else None
        total = (columns if squares is None else squares).sum()
        bad, finding = _inspect(columns, total, label, root, start + a, job.missing, loss)
        if bad is not None:
            # A row of weight 0 is a zero row of the matrix: score 0, no part in the factor.
            root = np.where(bad, 0.0, 1.0 if root is None else root)
        if root is not None and not root.all():
            keep = root > 0
            stand_in = int(np.argmax(keep))
            columns = np.where(keep[:, None], columns, columns[stand_in])
            label = None if label is None else np.where(keep, label, label[stand_in])
        root = None if root is None else np.sqrt(root)
        yield Leaf(
            place,
            start + a,
            device.put(columns),
            None if label is None else device.put(label),
            None if root is None else device.put(root),
            finding,
            root is None or bool(root.any()),
            squares,
        )


def _inspect(
    x: np.ndarray,
    total: float,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    missing: str,
    loss: Loss | None,
) -> tuple[np.ndarray | None, Finding]:
    """Find rows with a cell that is not finite or not allowed, as a mask (None when there are none) and a Finding.

    `total` is a sum over x that any NaN or infinity in it spoils.
    """
    checked = None if y is None or loss is None else loss.check_labels(y)
    refused = None if checked is None else checked[0]
    total = total + (0.0 if y is None else y.sum())
    finite = np.isfinite(total) and (weight is None or (np.isfinite(weight.sum()) and weight.min(initial=0.0) >= 0))
    if finite and (refused is None or not refused.any()):
        return None, Finding()  # one sum finds any NaN or infinity; it may overflow, hence the second look
    bad_weight = np.zeros(len(x), dtype=bool) if weight is None else ~(np.isfinite(weight) & (weight >= 0))
    bad_label = np.zeros(len(x), dtype=bool) if y is None else ~np.isfinite(y)
    bad_cells = ~np.isfinite(x)
    empty = bad_weight | bad_label | bad_cells.any(axis=1)
    wrong = np.zeros(len(x), dtype=bool) if refused is None else refused & ~bad_label
    drop = missing == "drop" and not bad_weight.any()
    named = wrong & ~empty if drop else bad_weight if missing == "drop" else wrong | empty
    n_dropped = int(empty.sum()) if drop else 0
    if not named.any():
        return (empty, Finding(n_dropped=n_dropped)) if empty.any() else (None, Finding())
    row = int(np.argmax(named))
    if checked is not None and y is not None and wrong[row] and not empty[row]:
        values = tuple(dict.fromkeys([float(y[row]), *np.unique(y[wrong])[:NAMED].tolist()]))[:NAMED]
        return wrong | empty, Finding(int(named.sum()), start + row, LABEL, n_dropped, checked[1:], values)
    if bad_weight[row] and missing == "drop":
        column = WEIGHT
    else:
        column = int(np.argmax(bad_cells[row])) if bad_cells[row].any() else Y if bad_label[row] else WEIGHT
    return named | empty, Finding(int(named.sum()), start + row, column, n_dropped)


def room_for(n: int, job: Job, device: Device, *, reducing: bool = False) -> np.ndarray | None:
    """A buffer for the rows of any sub-block of n rows, used again by each: a fresh megabyte costs page faults."""
    if device.kind != "cpu":
        return None
    return np.empty(
        (min(n, sub_block_rows(device.kind, job.n_matrix_columns, reducing=reducing)), job.n_matrix_columns)
    )


def matrix_rows(leaf: Leaf, job: Job, room: np.ndarray | None = None) -> tuple[Array, Finding]:
    """Rows of the matrix for a leaf, times the roots of the row weights, (m, p); and what was found in the leaf.

    The rows may lie in `room`, from `room_for`, where they last until it is used again.
    """
    xp = array_namespace(leaf.x)
    if not leaf.counts:
        return xp.zeros((leaf.x.shape[0], job.n_matrix_columns), dtype=leaf.x.dtype), leaf.finding
    with naming_rows(leaf):
        if isinstance(job.rule, Dual):
            check_slopes(job.rule, leaf)
        found = leaf.finding
        if not isinstance(job.rule, Dual) or job.rule.exact(leaf.y is not None):
            rows = job.rule.rows(leaf.x, leaf.y, room)
        else:
            rows, nodes, residual = job.rule.ray(leaf.x, leaf.y)
            known = xp.isfinite(residual)
            # Where f(theta) or f(0) overflows the identity says nothing about the row.
            rows = xp.where(known[:, None], rows, xp.nan * xp.ones_like(rows))
            residual = xp.where(known, residual, xp.zeros_like(residual))
            found = found._replace(nodes=nodes, residual=_checked(residual, leaf, job.rule.tolerance))
        rows = leaf.weighted(rows, own=room is not None and rows.base is room)
        wrong = spoiled(job.rule, leaf.x, leaf.y, rows)
    if wrong is None:
        return rows, found
    first, count = int(xp.argmax(xp.astype(wrong.rows, xp.int8))), int(xp.count_nonzero(wrong.rows))
    found = found.plus(Finding(count, leaf.row + first, ROW, fault=(wrong.by, "")))
    return xp.where(wrong.rows[:, None], xp.zeros_like(rows), rows), found  # reported once


def gradient_rows(leaf: Leaf, rule: Tangent) -> Array:
    """Gradients of the losses of a leaf in theta, times the row weights, (m, p)."""
    if not leaf.counts:
        xp = array_namespace(leaf.x)
        return xp.zeros((leaf.x.shape[0], len(rule.theta)), dtype=leaf.x.dtype)
    with naming_rows(leaf):
        return leaf.weighted(rule.gradients(leaf.x, leaf.y), 2)


@contextmanager
def naming_rows(leaf: Leaf) -> Iterator[None]:
    """Turn the place in a leaf that an InputError knows into the row of X."""
    try:
        yield
    except InputError as error:
        if error.row is None:
            raise
        raise InputError(f"row {leaf.row + error.row}: {error}") from error


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


def check_slopes(rule: Dual, leaf: Leaf) -> None:
    """Raise where the root of the loss has no slope between phi(0) and the prediction: such a row has no adjoint."""
    y = leaf.y
    if y is None or not rule.problem.loss.may_be_singular:
        return
    theta = array_like(rule.theta, leaf.x)
    mask = singular(rule.problem, theta, leaf.x, y)
    if leaf.root_weight is not None:
        mask = mask & (leaf.root_weight > 0)
    if not bool(mask.any()):
        return
    first = leaf.row + int(mask.argmax())
    raise ZeroLossSingularityError(
        f"y equals the prediction and phi(0) at row {first} ({int(mask.sum()):,} of {len(mask):,} rows from row "
        f"{leaf.row}), where {rule.problem.loss!r} has no slope; move theta, give on_singular='zero', or PseudoHuber"
    )


def row_values(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    job: Job,
    device: Device,
    values: Callable[[Leaf], tuple[Array, Finding]],
) -> np.ndarray:
    """One value for each row of a block, (m,) on the host, and finite: `values` gives those of a leaf and its finding."""
    gathered = Gathered(device, (len(x),))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            value, finding = values(leaf)
            gathered.add(leaf.place, value)
            found = found.plus(finding)
        out = gathered.host()
    check_finite(found.plus(overflow(out, int(start))), job.names)
    return out


@on_device
def rows_block(x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, *, job: Job) -> np.ndarray:
    """Rows of the matrix for one block, (m, p) on the host."""
    device = choose(job.device)
    gathered = Gathered(device, (len(x), job.n_matrix_columns))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows, finding = matrix_rows(leaf, job)
            gathered.add(leaf.place, rows)
            found = found.plus(finding)
        out = gathered.host()
    check_finite(found.plus(overflow(out, int(start))), job.names)
    return out
