"""Inside a task: a block of X and y becomes sub-blocks of matrix rows, checked on the way.

Only float64 sub-blocks of about a megabyte exist at a time; X stays in the type it was stored in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import Device, choose, sub_block_rows
from dask_nlis.errors import IdentityResidualError, InputError, ZeroLossSingularityError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.matrix.findings import ROW, Finding, check_finite, overflow
from dask_nlis.matrix.leaf import Leaf, as_labels, beside, counted, float64, inspect
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.pieces import Gathered, cut
from dask_nlis.matrix.rules import Dual, Modelled, Rule, Tangent, array_like
from dask_nlis.matrix.spoilers import spoiled
from dask_nlis.meters import metered
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
    loss = job.rule.problem.row_loss if isinstance(job.rule, Modelled) else None
    columns_at_work = job.n_matrix_columns * job.rule.each if width is None else width
    step = sub_block_rows(device.kind, columns_at_work, reducing=reducing)
    labels = None if y is None else as_labels(y)
    weights = None if weight is None else weight.reshape(-1)
    if device.kind != "cpu":
        yield from cut(x, labels, weights, start, job.n_matrix_columns * job.rule.each, step, device, job.missing, loss)
        return
    for a in range(0, len(x), step):
        place = slice(a, min(a + step, len(x)))
        columns = float64(x[place])
        label = None if labels is None else float64(labels[place])
        own = None if weights is None else float64(weights[place])
        squares = squared_row_norms(columns) if lengths else None
        total = (columns if squares is None else squares).sum()
        bad, finding = inspect(columns, total, label, own, start + a, job.missing, loss)
        own, stand_in = counted(own, bad)
        if own is not None and stand_in is not None:
            keep = own > 0
            columns = np.where(keep[:, None], columns, columns[stand_in])
            label = None if label is None else np.where(beside(keep, label), label, label[stand_in])
        root = None if own is None else np.sqrt(own)
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


def room_for(n: int, job: Job, device: Device, *, reducing: bool = False) -> np.ndarray | None:
    """A buffer for the rows of any sub-block of n rows, used again by each: a fresh megabyte costs page faults."""
    if device.kind != "cpu" or job.rule.each > 1:
        return None
    return np.empty(
        (min(n, sub_block_rows(device.kind, job.n_matrix_columns, reducing=reducing)), job.n_matrix_columns)
    )


@metered("adjoint")
def matrix_rows(leaf: Leaf, job: Job, room: np.ndarray | None = None) -> tuple[Array, Finding]:
    """Rows of the matrix for a leaf, times the roots of the row weights, (m, p); and what was found in the leaf.

    Where a data row is several rows of the matrix, `job.rule.each`, they follow one another, (m each, p).
    The rows may lie in `room`, from `room_for`, where they last until it is used again.
    """
    xp = array_namespace(leaf.x)
    if not leaf.counts:
        n_rows = leaf.x.shape[0] * job.rule.each
        return xp.zeros((n_rows, job.n_matrix_columns), dtype=leaf.x.dtype), leaf.finding
    with naming_rows(leaf):
        if isinstance(job.rule, Dual):
            check_slopes(job.rule, leaf)
        found = leaf.finding
        if not isinstance(job.rule, Dual) or job.rule.exact(leaf.y is not None):
            rows = job.rule.rows(leaf.x, leaf.y, room)
        else:
            rows, nodes, residual = job.rule.ray(leaf.x, leaf.y)
            rows, found = _judged(rows, nodes, residual, leaf, job.rule.tolerance)
        rows = leaf.weighted(rows, own=room is not None and rows.base is room)
        wrong = spoiled(job.rule, leaf.x, leaf.y, rows)
    if wrong is None:
        return rows, found
    first, count = int(xp.argmax(xp.astype(wrong.rows, xp.int8))), int(xp.count_nonzero(wrong.rows))
    found = found.plus(Finding(count, leaf.row + first, ROW, fault=(wrong.by, "")))
    spoilt = xp.repeat(wrong.rows, job.rule.each)
    return xp.where(spoilt[:, None], xp.zeros_like(rows), rows), found  # reported once


@metered("adjoint")
def row_norms(leaf: Leaf, job: Job) -> Array:
    """Squared norms of the rows of the matrix for a leaf, times the row weights, (m,), without forming the rows."""
    with naming_rows(leaf):
        if not isinstance(job.rule, Dual) or job.rule.exact(leaf.y is not None):
            return leaf.weighted(job.rule.squared_norms(leaf.x, leaf.y, leaf.lengths), 2)
        norms, nodes, residual = job.rule.ray_norms(leaf.x, leaf.y)
        norms, _ = _judged(norms, nodes, residual, leaf, job.rule.tolerance)
        return leaf.weighted(norms, 2)


@metered("adjoint")
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


def _judged(values: Array, nodes: int, residual: Array, leaf: Leaf, tolerance: float) -> tuple[Array, Finding]:
    """Rows or norms by quadrature, NaN where f(theta) or f(0) overflows: there the identity says nothing about them."""
    xp = array_namespace(values)
    known = xp.isfinite(residual)
    each = xp.repeat(known, values.shape[0] // known.shape[0])
    kept = xp.where(each if values.ndim == 1 else each[:, None], values, xp.nan * xp.ones_like(values))
    residual = xp.where(known, residual, xp.zeros_like(residual))
    return kept, leaf.finding._replace(nodes=nodes, residual=_checked(residual, nodes, leaf, tolerance))


def _checked(residual: Array, nodes: int, leaf: Leaf, tolerance: float) -> float:
    """Refuse rows whose adjoint the quadrature did not reach: by a kink along the ray, or a gradient that is none."""
    worst = int(array_namespace(residual).argmax(residual))
    largest = float(residual[worst])
    if largest > tolerance:
        raise IdentityResidualError(
            f"row {leaf.row + worst}: f(theta) = f(0) + <theta, f*> misses by {largest:.1e} (tolerance "
            f"{tolerance:.0e}) with {nodes} nodes along the ray; check a gradient of your own, use a smaller theta, a smoother "
            "model or loss (PseudoHuber for Huber), or a larger tolerance= of Numerical, from_torch or from_jax"
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
    """Rows of the matrix for one block, (m, p) on the host; (m each, p) where a data row is several."""
    device = choose(job.device)
    each = job.rule.each
    gathered = Gathered(device, (len(x) * each, job.n_matrix_columns))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows, finding = matrix_rows(leaf, job)
            gathered.add(slice(leaf.place.start * each, leaf.place.stop * each), rows)
            found = found.plus(finding)
        out = gathered.host()
    check_finite(found.plus(overflow(out, int(start), each)), job.names)
    return out
