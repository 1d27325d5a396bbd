"""Leverage of rows s [x, 1 | g/s] of a model with one index, from x as it is: the factor s of a row enters at the end.

With W upper triangular, z = [x, 1, 0] W gives all columns of the whitened row but the last by z s, and the last as
z s + g w. That saves the pass that multiplies each row by its s, and the one that looks for cells that are not finite:
such a cell spoils z. `examples/benchmarks/leverage.py` prints what is left above the products alone.
"""

from typing import Any

import numpy as np

from dask_nlis.kernels.products import Triangular, times
from dask_nlis.losses import CustomLoss
from dask_nlis.matrix import Job
from dask_nlis.matrix.leaf import float64
from dask_nlis.matrix.rules import Dual
from dask_nlis.meters import metered
from dask_nlis.models import Linear, SingleIndex
from dask_nlis.problem import dual_parts

Array = Any

#: Between these |z|^2 has lost no digit to the ends of float64's range.
_LEAST, _MOST = 1e-280, 1e280


def unscaled_leverage(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    job: Job,
    whitener: Array | Triangular,
    room: np.ndarray | None,
) -> np.ndarray | None:
    """Leverage of a block on the host, (m,), not clipped; None where it has to be made of rows of the matrix.

    That is where there is no single index or W is not triangular; for functions of the user, who shall meet no cell that
    is not finite; and where a cell, a label or a weight is not as it should be, which is for others to tell.
    """
    rule = job.rule
    if room is None or not isinstance(rule, Dual) or not _is_plain(rule, y):
        return None
    if not isinstance(whitener, Triangular) or not isinstance(whitener.columns, slice):
        return None
    labels = None if y is None else float64(y.reshape(-1))
    if labels is not None and not (np.isfinite(labels).all() and _are_allowed(rule, labels)):
        return None
    root = None if weight is None else np.sqrt(np.maximum(float64(weight.reshape(-1)), 0.0))
    if root is not None and not (np.isfinite(root).all() and root.all()):
        return None
    out = np.empty(len(x))
    step = max(1, len(room))
    with np.errstate(all="ignore"):
        for a in range(0, len(x), step):
            some = slice(a, min(a + step, len(x)))
            label, own = (None if part is None else part[some] for part in (labels, root))
            found = _leverage(x[some], label, own, rule, whitener, room)
            if found is None:
                return None
            out[some] = found
    return out


def _leverage(
    x: np.ndarray, y: np.ndarray | None, root: np.ndarray | None, rule: Dual, whitener: Triangular, room: np.ndarray
) -> np.ndarray | None:
    rows = room[: len(x)]
    factor, last = _inputs_and_parts(x, y, rule, rows)
    if root is not None:
        factor, last = factor * root, last * root
    z = times(rows, whitener, room)
    squares = np.vecdot(z[:, :-1], z[:, :-1])
    if not (squares.min(initial=1.0) > _LEAST and squares.max(initial=1.0) < _MOST):  # nor where it is NaN
        return None
    most, end = factor * np.sqrt(squares), factor * z[:, -1] + last * whitener.values[-1, -1]
    found: np.ndarray = most * most + end * end
    return found if np.isfinite(found).all() else None


@metered("adjoint")
def _inputs_and_parts(
    x: np.ndarray, y: np.ndarray | None, rule: Dual, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Write [x, 1, 0] into `rows`, and return the factor and the last entry of each row of the matrix."""
    d = x.shape[1]
    # Integers beyond 2^53 become NaN, and the block is left to others.
    rows[:, :d] = float64(x) if x.dtype.kind in "iu" and x.itemsize == 8 else x
    rows[:, d:-1] = 1.0  # the intercept, where there is one
    rows[:, -1] = 0.0
    # The index from the copy, which is in the cache now.
    return dual_parts(rule.problem, rule.theta, rows[:, :d], y)


def _is_plain(rule: Dual, y: np.ndarray | None) -> bool:
    """Whether there is one index, and the loss is one of ours with a slope everywhere."""
    loss = rule.problem.loss
    ours = y is None or not (isinstance(loss, CustomLoss) or loss.may_be_singular)
    return ours and isinstance(rule.problem.model, Linear | SingleIndex)


def _are_allowed(rule: Dual, labels: np.ndarray) -> bool:
    checked = rule.problem.row_loss.check_labels(labels)
    return checked is None or not checked[0].any()
