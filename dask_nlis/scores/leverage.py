"""Leverage: how much of a row no other row can replace."""

from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace
from dask import delayed
from dask.base import tokenize

from dask_nlis.device import Device, choose
from dask_nlis.errors import InputTypeError, MatrixMismatchError, NonFiniteError
from dask_nlis.factor import Factor
from dask_nlis.intake import give_back
from dask_nlis.kernels.linalg import leverage
from dask_nlis.kernels.products import triangular
from dask_nlis.matrix import Finding, Job, TallMatrix, as_matrix, map_blocks
from dask_nlis.matrix.tall import one_a_row
from dask_nlis.matrix.tasks import Leaf, matrix_rows, room_for, row_values

Array = Any


def leverage_scores(A: Any, factor: Factor) -> Any:
    """Leverage of every row of A (n, p), given its factor -> (n,), in [0, 1], sum = factor.rank.

    h_i is the i-th diagonal entry of F F^+ (the hat matrix diagonal of F): how much of the row no other row
    can replace. With a factor of method="sketch-only" an estimate, of which `factor.beta` tells the worst. Lazy for
    Dask, Zarr and lazy xarray input; computed at the call for NumPy and pandas. One read of X when computed, one
    task a block.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        The matrix.
    factor : Factor
        `factorize(A)` of the same matrix, or a factor merged from it and others: then leverage among the rows of
        all parts, and the scores of all parts together sum to the rank.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    MatrixMismatchError
        If the factor belongs to another matrix.
    NonFiniteError
        When computed, if a row is not finite.

    See Also
    --------
    statsmodels.stats.outliers_influence.OLSInfluence.hat_matrix_diag : the linear case, in memory.

    Notes
    -----
    Sampling rows in proportion to these scores gives a subspace embedding of F with high probability, hence
    the guarantee of Theorem 3.1 of Rajmohan & Roosta (ICML 2025) at the theta of A.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> nlis.leverage_scores(X, nlis.factorize(X)).round(12)
    array([1. , 0.5, 0.5])
    """
    matrix = as_matrix(A)
    check_factor(matrix, factor)
    return give_back(matrix.source.container, lazy_leverage(matrix, factor), "leverage", "nlis-score")


def check_factor(matrix: TallMatrix, factor: object) -> None:
    """Raise unless the factor was made from this matrix."""
    if not isinstance(factor, Factor):
        raise InputTypeError(f"factor is {type(factor).__name__}; give factorize(A)")
    if matrix.token not in factor.parts:
        raise MatrixMismatchError(
            f"factor belongs to another matrix (rank {factor.rank} of {len(factor.columns)} columns, A has "
            f"{matrix.shape[1]}); give factorize(A), or cross_leverage_scores for rows of another matrix"
        )


def lazy_leverage(matrix: TallMatrix, factor: Factor) -> da.Array:
    """Leverage as a lazy Dask array (n,) with one task a block."""
    lazy = map_blocks(
        matrix,
        leverage_block,
        "nlis-score",
        meta=np.empty((0, 0)),
        job=matrix.job,
        whitener=shared_whitener(factor),
        tolerance=factor.score_tolerance,
    )
    return one_a_row(matrix, lazy)


def shared_whitener(factor: Factor) -> Any:
    """Give whitener and correction a key of their own, so that they travel once and not with every task."""
    pair = (factor.whitener, factor.correction)
    return delayed(pair, name=f"nlis-whitener-{tokenize(pair)}", traverse=False)


def leverage_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: tuple[np.ndarray, np.ndarray | None],
    tolerance: float,
) -> np.ndarray:
    """Leverage of one block, (m,), checked against [0, 1] and clipped."""
    device = choose(job.device)
    target, room = placed(whitener, device), room_for(len(x), job, device)

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        rows, finding = matrix_rows(leaf, job, room)
        return leverage(rows, *target, room=room), finding

    return at_most_one(row_values(x, y, weight, start, job, device, values), tolerance, int(start))


def placed(whitener: tuple[np.ndarray, np.ndarray | None], device: Device) -> list[Array | None]:
    """Whitener and correction on the device, as `leverage` takes them fastest."""
    return [None if part is None else triangular(device.put(part)) for part in whitener]


def at_most_one(found: Array, tolerance: float, start: int) -> Array:
    """Leverages (m,) of rows from `start` on, clipped to 1; raises where that is more than rounding."""
    xp = array_namespace(found)
    if found.shape[0] and (largest := float(xp.max(found))) > 1 + tolerance:
        row = start + int(xp.argmax(found))
        raise NonFiniteError(
            f"leverage {largest:.6g} of row {row} exceeds 1: X or y changed since factorize; factorize again"
        )
    return xp.where(found > 1, xp.ones_like(found), found)
