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
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, as_matrix, check_finite, shared, summed_over
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.patterns import LARGEST, SMALLEST, Units, units_of
from dask_nlis.matrix.tasks import matrix_rows, room_for, row_values
from dask_nlis.scores.patterns import Form, Whitener, form_of, pattern_leverage
from dask_nlis.scores.scorer import Scorer, lazy_scores
from dask_nlis.scores.unscaled import unscaled_leverage

Array = Any

#: Methods whose factor of a network is made by pattern; others' whiteners serve so too up to this condition.
_BY_PATTERN, _PLAIN_UP_TO = ("patterns", "cholesky-qr2", "sketch"), 1e3


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
    InputError, InputTypeError
        If an argument has another shape or type than it should.
    MatrixMismatchError
        If the factor belongs to another matrix.
    NonFiniteError
        When computed, if a row is not finite.
    MissingDataError
        If a path was given and nothing is stored there.

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
    return lazy_scores(matrix, leverage_scorer(matrix, factor))


def leverage_scorer(matrix: TallMatrix, factor: Factor) -> Scorer:
    """How rows are scored by leverage."""
    given: dict[str, Any] = {"tolerance": factor.score_tolerance, "by_pattern": serves_by_pattern(factor)}
    given |= {"whitener": shared_whitener(factor), "form": shared_form(matrix, factor)}
    return Scorer(leverage_block, {"job": matrix.job, **given})


def serves_by_pattern(factor: Factor) -> bool:
    """Whether F W of a network may be made by pattern: a correction belongs to F W as it was made before it."""
    return factor.method in _BY_PATTERN or (factor.correction is None and factor.condition <= _PLAIN_UP_TO)


def shared_form(matrix: TallMatrix, factor: Factor) -> Any:
    """Give the quadratic form by activation pattern a key and a task of its own; None where it does not serve."""
    wanted = wanted_form(matrix, factor)
    if wanted is None:
        return None
    return delayed(form_of)(*wanted, dask_key_name=f"nlis-whitener-form-{tokenize(*wanted)}")


def wanted_form(matrix: TallMatrix, factor: Factor) -> tuple[Units, np.ndarray] | None:
    """What the quadratic form by activation pattern is made of; None where it does not serve."""
    units = units_of(matrix.rule, matrix.has_labels)
    sizes = factor.column_scale[factor.column_scale != 1]
    if units is None or factor.method != "patterns" or ((sizes < SMALLEST) | (sizes > LARGEST)).any():
        return None
    return units, factor.whitener


def shared_whitener(factor: Factor) -> Any:
    """Give whitener and correction a key of their own, so that they travel once and not with every task."""
    return shared((factor.whitener, factor.correction), "nlis-whitener")


@on_device
def leverage_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: Whitener,
    tolerance: float,
    by_pattern: bool = False,
    form: Form | None = None,
) -> np.ndarray:
    """Leverage of one block, (m,), checked against [0, 1] and clipped; [0, k] where a data row is k rows of the matrix."""
    device = choose(job.device)
    if by_pattern:
        (grouped,) = groupings(x, y, weight, int(start), [Sought(job)], device)
        found = pattern_leverage(grouped, whitener, form, tolerance, int(start))
        if found is not None and grouped is not None:
            check_finite(grouped.finding, job.names)
            return at_most(found, tolerance, int(start))
    target, room = placed(whitener, device), room_for(len(x), job, device)
    whole = unscaled_leverage(x, y, weight, job, target[0], room) if target[1] is None else None
    if whole is not None:
        return at_most(whole, tolerance, int(start))

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        rows, finding = matrix_rows(leaf, job, room)
        return summed_over(leverage(rows, *target, room=room), leaf.x.shape[0]), finding

    return at_most(row_values(x, y, weight, start, job, device, values), tolerance, int(start), job.rule.each)


def placed(whitener: Whitener, device: Device) -> list[Array | None]:
    """Whitener and correction on the device, as `leverage` takes them fastest."""
    return [None if part is None else triangular(device.put(part)) for part in whitener]


def at_most(found: Array, tolerance: float, start: int, most: int = 1) -> Array:
    """Leverages (m,) of rows from `start` on, clipped to `most`; raises where that is more than rounding."""
    xp = array_namespace(found)
    if found.shape[0] and (largest := float(xp.max(found))) > most * (1 + tolerance):
        row = start + int(xp.argmax(found))
        raise NonFiniteError(
            f"leverage {largest:.6g} of row {row} exceeds {most}: X or y changed since factorize; factorize again"
        )
    return xp.where(found > most, most * xp.ones_like(found), found)
