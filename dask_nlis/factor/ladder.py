"""`factorize`: a ladder of methods, from one Gram matrix to the QR tree, climbed as far as the condition asks."""

from collections.abc import Sequence
from typing import Any

from dask_nlis.checkpoints import NOWHERE, Checkpoints
from dask_nlis.errors import InputError
from dask_nlis.factor.climb import climb
from dask_nlis.factor.noun import Factor, made
from dask_nlis.factor.rungs import METHODS, Found
from dask_nlis.factor.sums import check_finite_factor
from dask_nlis.matrix import TallMatrix, as_matrix

#: A p x p factor above this is refused before anything is read (p about 16,000).
_LARGEST_FACTOR_BYTES = 2**31


def factorize(A: Any, *, method: str = "auto") -> Factor:
    """Factorise a tall matrix: A (n, p) -> Factor; reads X once at conditions up to 100, twice up to 1e7, else thrice.

    Computes. The condition is measured after scaling the columns by powers of two, so units play no part.
    `Factor.method` and `Factor.reads` say what was done. Memory: one block and a p x p factor a task.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        What to factorise.
    method : {"auto", "gram", "tsqr", "sketch", "sketch-only"}
        "auto": a Gram matrix and its Cholesky factor R (1 read); above a condition of 100 another one, of
        F R^-1 (2 reads); above 1e7, or for dependent columns, then "tsqr" (2 or 3 reads in all, rarely 4). The dual
        matrix of a `ReluNetwork` has columns that depend on others by construction, those of the outer weights; they
        are left out of the Gram matrix, which is summed by activation pattern, and `Factor.method` is "patterns".
        "gram": the first step alone, refused above a condition of 100.
        "tsqr": an R-only QR tree (1 read; 2 above a condition of 1e3), at any condition and rank.
        "sketch": a random sketch of about 10 p rows whitens F, a Gram matrix of the whitened rows makes it exact
        (2 reads at any condition, where "auto" takes 3 above 1e7); "tsqr" follows where columns are dependent.
        "sketch-only": the sketch alone (1 read). Approximate: `Factor.beta` is measured.

    Returns
    -------
    Factor

    Raises
    ------
    NonFiniteError
        If a cell is NaN or infinite, naming the first row, its column and the number of rows.
    InputError, InputTypeError
        If all rows are zero, p is too large for a p x p factor, or "gram" is refused;
        or if an argument is of another type.
    MissingDataError
        If a path was given and nothing is stored there.

    Warns
    -----
    RankAmbiguityWarning
        If a kept singular value is below 1000 tolerances or a dropped one suspiciously large.

    Notes
    -----
    Rows of a network (rectified or leaky units, activation on their sum) with one activation pattern are one linear
    map of c x: n d^2 multiplications and d^2 m^2 / 2 a pattern and block, in place of n (m d)^2 from formed rows.

    Leverage from "auto", "tsqr", "sketch" and "gram" agrees within 100 kappa eps. CholeskyQR2 is by Yamamoto et
    al. (2015), the tree by Benson, Gleich & Demmel (2013), sketched preconditioning by Rokhlin & Tygert (2008).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.arange(8.0).reshape(4, 2) ** 2
    >>> factor = nlis.factorize(X)
    >>> factor.rank, factor.method, factor.reads
    (2, 'gram', 1)
    >>> factor = nlis.factorize(np.column_stack([X, X[:, 0]]))
    >>> factor.rank, factor.method, factor.reads
    (2, 'tsqr', 2)
    """
    matrix = as_matrix(A)
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method={method!r} is not known; give one of {', '.join(map(repr, METHODS))}")
    _check_width(matrix.shape[1])
    (found,), _ = climb([matrix], method)
    return _factor(matrix, found)


def factorize_together(matrices: Sequence[TallMatrix], saved: Checkpoints = NOWHERE) -> tuple[list[Factor], int]:
    """Factors of several matrices of the same X by the method "auto", in shared reads; with how many there were.

    The factors, and on the way to them the sums of groups of blocks, are kept in `saved`.
    """
    for matrix in matrices:
        _check_width(matrix.shape[1])
    known = saved.load("factors")
    if known is not None:
        return [Factor.from_dict(each) for each in known["factors"]], known["reads"]
    found, reads = climb(matrices, "auto", saved)
    factors = [_factor(*pair) for pair in zip(matrices, found, strict=True)]
    if saved is not NOWHERE:
        saved.save("factors", {"factors": [factor.to_dict() for factor in factors], "reads": reads})
    return factors, reads


def _check_width(p: int) -> None:
    if 8 * p * p > _LARGEST_FACTOR_BYTES:
        raise InputError(
            f"p={p:,} columns need a factor of {8 * p * p:,} bytes, above {_LARGEST_FACTOR_BYTES:,}; use norm_scores, or "
            "fewer parameters (those of the last layer, by wrt= of from_torch)"
        )


def _factor(matrix: TallMatrix, found: Found) -> Factor:
    check_finite_factor(found.r)
    return made(
        found.r,
        found.decided,
        whitening=found.whitening,
        correction=found.correction,
        n_rows=matrix.shape[0] - found.finding.n_dropped,
        n_dropped=found.finding.n_dropped,
        nodes=found.finding.nodes,
        identity_residual=found.finding.residual,
        method=found.method,
        reads=found.reads,
        beta=found.beta,
        token=matrix.token,
        parts=(matrix.token,),
        rule_token=matrix.rule_token,
        columns=matrix.columns,
    )
