"""The loss of each row at the theta of a dual matrix."""

from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import Device, choose
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import give_back
from dask_nlis.matrix import Dual, Job, Leaf, Plain, TallMatrix, as_matrix
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import naming_rows, row_values
from dask_nlis.problem import Problem
from dask_nlis.scores.scorer import Scorer, lazy_scores

Array = Any


def loss_scores(A: Any) -> Any:
    """Loss of every row at the theta of a dual matrix A (n, p) with labels -> (n,), >= 0; sum = total_loss. Lazy.

    In closed form from the prediction, without forming the rows; times the row weights. Rows dropped by
    missing="drop" score 0. Large losses point at label errors; rows with unusual features need not have any, and
    those `leverage_scores` finds. One read of X when computed, one task a block.

    Parameters
    ----------
    A : TallMatrix of shape (n, p)
        `dual_matrix(problem, X, y, theta=...)`.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    InputTypeError
        If A is a plain array, a reference matrix or another one without theta.
    InputError
        If A has no labels.
    NonFiniteError
        When computed, if a cell is not finite, or a loss is not.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    f_i(theta)^2 of Rajmohan & Roosta (ICML 2025), which by Proposition 3.1 is (f_i(0) + <theta, f*_i>)^2.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.Linear(intercept=False))
    >>> A = nlis.dual_matrix(problem, np.array([[1.0], [2.0]]), np.array([1.0, 5.0]), theta=[1.0])
    >>> nlis.loss_scores(A)
    array([0., 9.])
    """
    matrix = as_matrix(A)
    check_has_loss(matrix, "loss_scores")
    return give_back(matrix.source.container, lazy_losses(matrix), "loss", "nlis-score")


def check_has_loss(matrix: TallMatrix, verb: str) -> None:
    """Raise unless the rows of a matrix have a loss: a problem, a theta and labels."""
    if not isinstance(matrix.rule, Dual):
        kind = "a plain array" if isinstance(matrix.rule, Plain) else f"a {type(matrix.rule).__name__.lower()} matrix"
        raise InputTypeError(f"A is {kind}, of which {verb} knows no loss; give dual_matrix(problem, X, y, theta=...)")
    if not matrix.has_labels:
        raise InputError(
            f"A has no labels, so that {verb} knows no loss; give y to dual_matrix(problem, X, y, theta=...)"
        )


def lazy_losses(matrix: TallMatrix) -> da.Array:
    """Losses as a lazy Dask array (n,) with one task a block."""
    return lazy_scores(matrix, Scorer(loss_block, {"job": matrix.job}))


@on_device
def loss_block(x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, *, job: Job) -> np.ndarray:
    """Losses of one block, (m,)."""
    device = choose(job.device)
    problem, theta = fitted(job, device)
    return row_values(x, y, weight, start, job, device, lambda leaf: (losses_of(leaf, problem, theta), leaf.finding))


def fitted(job: Job, device: Device) -> tuple[Problem, Array]:
    """Problem and theta, on a device, of a job on a dual matrix."""
    assert isinstance(job.rule, Dual)  # checked before the graph was built
    return job.rule.problem, device.put(job.rule.theta)


def losses_of(leaf: Leaf, problem: Problem, theta: Array) -> Array:
    """Losses of the rows of a leaf times their weights, (m,), on its device as theta is."""
    if not leaf.counts:  # no function of the user meets rows that do not count
        return array_namespace(leaf.x).zeros((leaf.x.shape[0],), dtype=leaf.x.dtype)
    with naming_rows(leaf):
        return leaf.weighted(problem.row_loss.value(problem.model.predict(theta, leaf.x), leaf.y), 2)
