"""Influence: how far the fit would move, in its own metric, with a row counted once more."""

from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import choose
from dask_nlis.errors import InputTypeError
from dask_nlis.factor import Factor
from dask_nlis.intake import give_back
from dask_nlis.kernels.linalg import leverage
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, Tangent, check_finite
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import gradient_rows, row_values
from dask_nlis.scores.leverage import check_factor, placed, serves_by_pattern, shared_form, shared_whitener
from dask_nlis.scores.patterns import Form, Whitener, pattern_lengths
from dask_nlis.scores.scorer import Scorer, lazy_scores

Array = Any


def influence_scores(T: TallMatrix, factor: Factor) -> Any:
    """Influence of every row of a tangent matrix T (n, p), given its factor -> (n,), non-negative.

    sqrt(psi_i' H^+ psi_i), psi_i the gradient of the row's loss in theta and H = T'T the Gauss-Newton Hessian of all
    rows: the length, in the metric of H, of the step that theta would take if the row counted once more. For squared
    error sqrt(2) |residual| sqrt(leverage of J). Lazy for Dask, Zarr and lazy xarray input; computed at the call for
    NumPy and pandas. One read of X when computed, one task a block.

    Drawing rows by these scores at the fit makes the error of a fit to the sample smallest, among all scores, in the
    metric of H. Rows without a residual score 0 and would never be drawn: `draw(mix=0.1)` or `blend` with leverage
    keeps rows in reach.

    Parameters
    ----------
    T : TallMatrix
        Made by `tangent_matrix`.
    factor : Factor
        `factorize(T)`.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    InputTypeError
        If T is no tangent matrix.
    MatrixMismatchError
        If the factor belongs to another matrix.
    NonFiniteError
        When computed, if a row is not finite.

    Notes
    -----
    Optimal subsampling in the sense of Wang, Zhu & Ma (2018), with H^(-1/2) in place of their H^-1: the error of what
    is predicted counts, whatever the units of the parameters.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X, y = np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    >>> T = nlis.tangent_matrix(nlis.Problem(nlis.Linear(intercept=False)), X, y, theta=[1.5])
    >>> nlis.influence_scores(T, nlis.factorize(T)).round(12)
    array([0.28867513, 0.28867513, 0.        ])
    """
    rule_of(T)
    check_factor(T, factor)
    return give_back(T.source.container, lazy_influence(T, factor), "influence", "nlis-score")


def rule_of(T: object) -> Tangent:
    """The rule of a tangent matrix, or an error."""
    if not isinstance(T, TallMatrix) or not isinstance(T.rule, Tangent):
        what = f"a {type(T.rule).__name__.lower()} matrix" if isinstance(T, TallMatrix) else type(T).__name__
        raise InputTypeError(f"T is {what}; give tangent_matrix(problem, X, y, theta=...)")
    return T.rule


def lazy_influence(matrix: TallMatrix, factor: Factor) -> da.Array:
    """Influence as a lazy Dask array (n,) with one task a block."""
    return lazy_scores(matrix, influence_scorer(matrix, factor))


def influence_scorer(matrix: TallMatrix, factor: Factor) -> Scorer:
    """How rows are scored by influence."""
    shared: dict[str, Any] = {"whitener": shared_whitener(factor), "form": shared_form(matrix, factor)}
    return Scorer(influence_block, {"job": matrix.job, **shared, "by_pattern": serves_by_pattern(factor)})


@on_device
def influence_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: Whitener,
    by_pattern: bool = False,
    form: Form | None = None,
) -> np.ndarray:
    """Influence of one block, (m,)."""
    device = choose(job.device)
    if by_pattern:
        (grouped,) = groupings(x, y, weight, int(start), [Sought(job, gradients=True)], device)
        lengths = pattern_lengths(grouped, whitener, form)
        if lengths is not None and grouped is not None:
            check_finite(grouped.finding, job.names)
            return lengths
    target, rule = placed(whitener, device), job.rule
    assert isinstance(rule, Tangent)

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        return gradient_lengths(gradient_rows(leaf, rule), *target), leaf.finding

    return row_values(x, y, weight, start, job, device, values)


def gradient_lengths(gradients: Array, whitener: Array, correction: Array | None = None) -> Array:
    """sqrt(psi' H^+ psi) of rows psi (m, p), H^+ = W W': (m,)."""
    xp = array_namespace(gradients)
    return xp.sqrt(leverage(gradients, whitener, correction))
