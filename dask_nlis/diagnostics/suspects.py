"""The rows to look at first, by what one looks for."""

from collections.abc import Callable
from typing import Any

import dask.array as da

from dask_nlis.diagnostics.row_tables import RowTable, check_count, top_rows
from dask_nlis.errors import InputError
from dask_nlis.factor import Factor, factorize
from dask_nlis.matrix import TallMatrix, as_matrix
from dask_nlis.scores import check_factor, check_has_loss, lazy_deletion, lazy_leverage, lazy_losses, lazy_norms


def _loss(matrix: TallMatrix, factor: Factor | None) -> da.Array:
    check_has_loss(matrix, "by='loss'")
    return lazy_losses(matrix)


def _deletion(matrix: TallMatrix, factor: Factor | None) -> da.Array:
    check_has_loss(matrix, "by='deletion'")
    if factor is not None and "sketch-only" in factor.method.split("+"):
        raise InputError(
            "factor is a sketch, which knows leverages near 1 too roughly for by='deletion'; give factorize(A)"
        )
    return lazy_deletion(matrix, factor or factorize(matrix))


def _leverage(matrix: TallMatrix, factor: Factor | None) -> da.Array:
    return lazy_leverage(matrix, factor or factorize(matrix))


def _norm(matrix: TallMatrix, factor: Factor | None) -> da.Array:
    return lazy_norms(matrix)


RANKINGS: dict[str, Callable[[TallMatrix, Factor | None], da.Array]] = {
    "loss": _loss,
    "deletion": _deletion,
    "norm": _norm,
    "leverage": _leverage,
}


def suspects(A: Any, factor: Factor | None = None, k: int = 100, *, by: str = "loss") -> RowTable:
    """Find the k most suspect rows of A (n, p) -> RowTable. One read of X, and those of factorize(A) where it is needed.

    The loss finds label errors; leverage finds unusual rows, and is no sign of a wrong label. On images with flipped
    labels the loss told flips from others far better than leverage, on corrupted ones it was the other way round
    (`examples/detection.py` prints the figures); blank images have the smallest leverage of all.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        `dual_matrix(problem, X, y, theta=...)`. For "norm" and "leverage" any matrix.
    factor : Factor, optional
        `factorize(A)`; made here where "deletion" or "leverage" need it and it is not given.
    k : int, default 100
        How many rows; clipped to the number of rows, with a warning.
    by : {"loss", "deletion", "norm", "leverage"}
        loss: the row's loss r^2 at theta. For wrong labels.
        deletion: r^2 / (1 - h)^2, h the leverage: what the loss would be, were the row not there itself to pull
        the fit towards it (exact for least squares on the rows of A, where it is the PRESS residual of Allen
        1974, a first-order idea elsewhere). For wrong labels of unusual rows. 1 - h counts as no less than
        `factor.score_tolerance`: a row of leverage 1 comes first if it has a loss, last if it has none.
        norm: the squared norm of the row of A, of which the root of the loss is one direction. Decided by units.
        leverage: how much of the row no other row can replace. For unusual features, also with right labels.

    Returns
    -------
    RowTable
        By descending score; ties by smallest row.

    Raises
    ------
    InputError
        If by is not known, k is no positive number, A has no labels, or the factor is only a sketch.
    InputTypeError
        If A has no theta for "loss" and "deletion".
    MatrixMismatchError
        If the factor belongs to another matrix.
    NonFiniteError
        If a row or its score is not finite.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    A ranking for looking at rows, not for sampling. Of a dual matrix leverage sees the label too, in the last column:
    a label far off raises it as an unusual feature does.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X, y = np.array([[1.0], [2.0], [3.0], [-9.0]]), np.array([1.0, 4.0, 3.0, -9.0])
    >>> A = nlis.dual_matrix(nlis.Problem(nlis.Linear(intercept=False)), X, y, theta=[1.0])
    >>> nlis.suspects(A, k=1).indices, nlis.suspects(A, k=2, by="leverage").indices
    (array([1]), array([1, 3]))
    """
    if not isinstance(by, str) or by not in RANKINGS:
        raise InputError(f"by={by!r} is not known; give one of {', '.join(map(repr, RANKINGS))}")
    check_count("k", k)
    matrix = as_matrix(A)
    if by == "deletion" and matrix.rule.each > 1:
        raise InputError(
            "by='deletion' takes a data row out of one row of the matrix, but outputs are separate; give Problem(..., "
            "outputs='joint')"
        )
    if factor is not None:
        check_factor(matrix, factor)
    return top_rows(RANKINGS[by](matrix, factor), k)
