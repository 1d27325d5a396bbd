"""Pass 2: a tall matrix and its factor -> one score a row, one fused task a block."""

from typing import Any

import dask.array as da
import numpy as np
from dask import delayed
from dask.base import tokenize

from dask_nlis import phase
from dask_nlis.device import choose
from dask_nlis.errors import InputError, InputTypeError, MatrixMismatchError, NonFiniteError, ScaleWarning
from dask_nlis.factor import Factor
from dask_nlis.intake import default_names, give_back, name_columns
from dask_nlis.kernels.linalg import leverage, squared_row_norms
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.matrix import Finding, Job, TallMatrix, as_matrix, check_finite, leaves, map_blocks
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.tall import without_column_axis
from dask_nlis.matrix.tasks import matrix_rows, naming_rows

Array = Any

#: Powers of two between the smallest and the largest float64, and then some.
_LARGEST_SCALE = 1100


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
    # The whitener has a key of its own, so that it travels once and not with every task.
    pair = (factor.whitener, factor.correction)
    whitener = delayed(pair, name=f"nlis-whitener-{tokenize(pair)}", traverse=False)
    lazy = map_blocks(
        matrix,
        leverage_block,
        "nlis-score",
        meta=np.empty((0, 0)),
        job=matrix.job,
        whitener=whitener,
        tolerance=factor.score_tolerance,
    )
    return _named(without_column_axis(lazy), matrix)


def _named(scores: da.Array, matrix: TallMatrix) -> da.Array:
    """Send the feature names along, where there are any of the user's."""
    names = matrix.source.names
    return scores if names == default_names(len(names)) else name_columns(scores, names)


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
    target = [None if part is None else device.put(part) for part in whitener]
    out = np.zeros(len(x))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows, finding = matrix_rows(leaf, job)
            out[leaf.place] = device.fetch(leverage(rows, *target))
            found = found.plus(finding)
    check_finite(found.plus(overflow(out, int(start))), job.names)
    if out.max(initial=0.0) > 1 + tolerance:
        row = int(start) + int(np.argmax(out))
        raise NonFiniteError(
            f"leverage {out.max():.6g} of row {row} exceeds 1: X or y changed since factorize; factorize again"
        )
    return np.minimum(out, 1.0)


def norm_scores(A: Any, *, log2_scale: int = 0) -> Any:
    """Squared row norms of A (n, p), times 2^(-2 log2_scale) -> (n,), non-negative. One read of X when computed.

    In closed form, without forming the rows. Cheaper than leverage by one read, but decided by the units of
    the columns; no guarantee of a subspace embedding at the paper's size. Lazy as `leverage_scores`.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        The matrix; no factor is needed.
    log2_scale : int, default 0
        Rows are divided by 2^log2_scale first, which changes no digit; needed where squares would over- or
        underflow, and the error then names the value.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    NonFiniteError
        When computed, if a row is not finite, or its square is not; the message names `log2_scale`.

    Warns
    -----
    ScaleWarning
        When computed, if one column carries over 90 % of the squared norms of the first block.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.norm_scores(np.array([[3.0, 4.0], [4.0, -3.0]]))
    array([25., 25.])
    """
    if not is_whole(log2_scale):
        raise InputTypeError(f"log2_scale={log2_scale!r} is {type(log2_scale).__name__}; give an integer")
    if abs(log2_scale) > _LARGEST_SCALE:
        raise InputError(
            f"log2_scale={log2_scale} is beyond any float64; give one from -{_LARGEST_SCALE} to {_LARGEST_SCALE}"
        )
    matrix = as_matrix(A)
    return give_back(matrix.source.container, lazy_norms(matrix, int(log2_scale)), "norm", "nlis-score")


def lazy_norms(matrix: TallMatrix, log2_scale: int = 0) -> da.Array:
    """Squared row norms as a lazy Dask array (n,) with one task a block."""
    lazy = map_blocks(
        matrix,
        norm_block,
        "nlis-score",
        meta=np.empty((0, 0)),
        job=matrix.job,
        columns_named=matrix.columns,
        log2_scale=log2_scale,
    )
    return _named(without_column_axis(lazy), matrix)


def norm_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    columns_named: tuple[str, ...],
    log2_scale: int,
) -> np.ndarray:
    """Squared row norms of one block, (m,)."""
    device = choose(job.device)
    out = np.zeros(len(x))
    found = Finding()
    vanished = 0.0  # largest entry of a row whose squared norm is not a normal number
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            if start == 0 and leaf.place.start == 0:
                _warn_of_scale(device.fetch(matrix_rows(leaf, job)[0]), columns_named)
            if log2_scale or not job.rule.exact(leaf.y is not None) or not leaf.counts:
                half = -log2_scale // 2  # in two steps, since 2^1028 is no float64
                norms = squared_row_norms(matrix_rows(leaf, job)[0] * 2.0**half * 2.0 ** (-log2_scale - half))
            else:
                with naming_rows(leaf):
                    norms = leaf.weighted(job.rule.squared_norms(leaf.x, leaf.y), 2)
            host = device.fetch(norms)
            doubtful = ~(host >= np.finfo(np.float64).tiny) | ~np.isfinite(host)
            if doubtful.any():
                rows, finding = matrix_rows(leaf, job)
                if not log2_scale:  # a closed form may leave the range of float64 where the row does not
                    host = np.where(doubtful, device.fetch(squared_row_norms(rows)), host)
                rows = device.fetch(rows)
                found = found.plus(finding).plus(overflow(rows, int(start) + leaf.place.start))
                vanished = max(vanished, float(np.abs(rows).max(initial=0.0)))
            else:
                found = found.plus(leaf.finding)
            out[leaf.place] = host
    check_finite(found, job.names)
    overflows = not np.isfinite(out).all()
    # A row that vanishes beside ordinary ones has no share in the total, nor has a block that vanishes because
    # another one made the scale necessary.
    underflows = vanished > 0 and log2_scale <= 0 and out.max(initial=0.0) < np.finfo(np.float64).tiny
    if overflows or underflows:
        raise NonFiniteError(
            f"squared norms {'over' if overflows else 'under'}flow at log2_scale={log2_scale}; "
            f"give log2_scale={int(np.frexp(vanished)[1])}"
        )
    return out


def _warn_of_scale(rows: np.ndarray, columns: tuple[str, ...]) -> None:
    squares = (rows**2).sum(axis=0)
    total = squares.sum()
    if len(squares) > 1 and np.isfinite(total) and squares.max() > 0.9 * total:
        phase.warn(
            f"column {columns[int(np.argmax(squares))]!r} carries {squares.max() / total:.0%} of the squared norms of "
            "the first rows, so its unit decides the norm scores; standardize(X, y) or use leverage_scores",
            ScaleWarning,
        )
