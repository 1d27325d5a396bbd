"""Leverage of the rows of one matrix with respect to another one: how much they would pull, were they added to it."""

from typing import Any

import dask.array as da
import numpy as np

from dask_nlis.device import choose
from dask_nlis.errors import InputTypeError
from dask_nlis.factor import Factor, check_comparable
from dask_nlis.intake import give_back
from dask_nlis.kernels.complement import inside
from dask_nlis.kernels.linalg import leverage
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, as_matrix, shared, summed_over
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import matrix_rows, row_values
from dask_nlis.scores.leverage import placed
from dask_nlis.scores.scorer import Scorer, lazy_scores

Array = Any


def cross_leverage_scores(A: Any, factor: Factor) -> Any:
    """Leverage of every row of A (n, p) with respect to the matrix F behind the factor -> (n,), >= 0. Lazy.

    a (F'F)^+ a' for each row a, with the factor of other rows than those of A: large where a row of A (the source)
    lies in directions that the rows of F (the target) hardly take. May exceed 1: of rows that are not among those
    of F there may be any number. Of a row outside the row space of F the part inside counts alone; `factor.outside(A)`
    tells the share that does not. One read of X when computed, one task a block.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        The rows to score.
    factor : Factor
        `factorize(B)` of a matrix with the same columns and, for dual and reference matrices, the same problem and
        theta. Of A itself it gives `leverage_scores(A, factor)`. From method="sketch-only" an estimate.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    InputError, InputTypeError
        If columns differ; or if an argument is of another type.
    MatrixMismatchError
        If problem or theta differ.
    NonFiniteError
        When computed, if a row is not finite, or its score is not.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    The part inside is the orthogonal projection on the row space of F in the units of the columns, so that the
    score is the squared norm of a F^+, F^+ the Moore-Penrose inverse. For n in A alone: the leverage that a row
    would have once added to F is s / (1 + s), s its score, where the row lies in the row space (Sherman & Morrison
    1950).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> target = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> factor, source = nlis.factorize(target), np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> nlis.cross_leverage_scores(source, factor).round(12), factor.outside(source).round(12)
    (array([4.25, 0.  ]), array([0., 1.]))
    """
    matrix = as_matrix(A)
    if not isinstance(factor, Factor):
        raise InputTypeError(f"factor is {type(factor).__name__}; give factorize(B) of the matrix to compare with")
    check_comparable(matrix, factor.columns, factor.rule_token)
    return give_back(matrix.source.container, lazy_cross(matrix, factor), "cross leverage", "nlis-score")


def lazy_cross(matrix: TallMatrix, factor: Factor) -> da.Array:
    """Cross leverage as a lazy Dask array (n,) with one task a block."""
    target = shared((factor.whitener, factor.correction, factor.outward), "nlis-whitener")
    return lazy_scores(matrix, Scorer(cross_block, {"job": matrix.job, "target": target}))


@on_device
def cross_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    target: tuple[np.ndarray, np.ndarray | None, np.ndarray],
) -> np.ndarray:
    """Cross leverage of one block, (m,)."""
    device = choose(job.device)
    whitener, outward = placed(target[:2], device), device.put(target[2])
    some = target[2].shape[1] > 0  # whether a row may lie outside at all

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        rows, finding = matrix_rows(leaf, job)
        found = leverage(inside(rows, outward) if some else rows, *whitener)
        return summed_over(found, leaf.x.shape[0]), finding

    return row_values(x, y, weight, start, job, device, values)
