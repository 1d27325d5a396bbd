"""How far a fit to a sample may be from the fit to all rows: the sandwich H^-1 M H^-1 of the design of the sample."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dask_nlis.constraints.quadratic import unit_diagonal
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.losses import is_of_several
from dask_nlis.models import has_rectifiers
from dask_nlis.problem import bent_rows, pulled
from dask_nlis.refit.design import scatter
from dask_nlis.refit.objective import Objective
from dask_nlis.sample import Sample

Vector = np.ndarray

#: Smallest eigenvalue of the Hessian, scaled to a unit diagonal, at which the optimum counts as unique: a weighted
#: matrix of rows with condition 1e6 passes, while dependent columns come out at about p eps.
_UNIQUE = 1e-12

#: 1 - h of a row, h its leverage in the fit, at which it alone decides a parameter: its residual has no digits left.
_ALONE = 1e-6


class Spread(NamedTuple):
    """Covariance of theta around the fit to all rows, what to add for the population, and why there is none."""

    covariance: Vector  # (p, p), NaN where it is withheld
    population: Vector  # (p, p)
    withheld: str


def spread(objective: Objective, theta: Vector, drawn: Sample | Vector, *, ok: bool, active: tuple[str, ...]) -> Spread:
    """Covariance of a fit; in memory, O(s p^2 + p^3), and 2 p + 1 calls of the gradient of a user's model.

    H is the Hessian of the weighted objective: with the second derivatives of the prediction where that is positive
    definite, Gauss-Newton's otherwise. M is the variance of the weighted gradient under the design (`scatter`), each
    draw's gradient over 1 - h (MacKinnon & White 1985, HC3), where h is its leverage in the Gauss-Newton fit, which
    lies between 0 and 1. For the population H^-1 (sum w g g') H^-1 is added, g a row's gradient: what all rows vary
    by, estimated from the sample.

    Parameters
    ----------
    objective : Objective
        What was minimised over s rows; its weights are those of the draw times the row weights of the data.
    theta : ndarray of shape (p,)
        Its minimum.
    drawn : Sample or ndarray of shape (s,)
        The sample of the rows, or the weights of draws of one's own: one independent draw a row.
    ok : bool
        Whether the fit passed its checks.
    active : tuple of str
        Constraints on whose boundary theta lies.
    """
    reason = _reason(objective, ok, active)
    if reason:
        return _withheld(len(theta), reason)
    with np.errstate(all="ignore"):
        model, x, y = objective.problem.model, objective.X, objective.y
        slopes = objective.problem.row_loss.derivative(model.predict(theta, x), y)
        gradients = pulled(model, theta, x, slopes)
        up, down = (bent_rows(objective.problem, theta, x, y, sign) for sign in (1, -1))
    if not up.any() and not down.any():
        return _withheld(len(theta), "the loss has no curvature here, and no Hessian tells the errors")
    flat = _root_of_inverse(_gauss_newton(objective, theta, up))
    if flat is None:
        return _withheld(
            len(theta), "the optimum is not unique (the Hessian is singular: dependent columns, or too few rows)"
        )
    half = _root_of_inverse(_whole(objective, theta, slopes, up, down))
    half = flat if half is None else half
    design = drawn.weights if isinstance(drawn, Sample) else drawn
    counts = drawn.counts if isinstance(drawn, Sample) else np.ones(len(x))
    # Row weights of the data: with those of the design they make objective.weights.
    data = np.divide(objective.weights, design, out=np.zeros(len(x)), where=design > 0)
    by_chance = drawn.variance_weights > 0 if isinstance(drawn, Sample) else design > 0
    share = np.where(by_chance, objective.weights / counts, 0.0)
    left, deleted = _deleted(objective, theta, slopes, share, up @ flat)
    alone = by_chance & (left < _ALONE)
    if alone.any():
        return _withheld(
            len(theta), f"taken row {int(np.argmax(alone))} alone decides a parameter; draw more rows, or add a ridge"
        )
    # Gradients, in units in which H is the identity.
    whitened = data[:, None] * (gradients @ half)
    middle = scatter(drawn, whitened / left[:, None] if deleted is None else data[:, None] * (deleted() @ half))
    population = whitened.T @ (design[:, None] * whitened)
    return Spread(_sandwich(half, middle), _sandwich(half, population), "")


def _withheld(p: int, reason: str) -> Spread:
    none = np.full((p, p), np.nan)
    return Spread(none, none.copy(), reason)


def _reason(objective: Objective, ok: bool, active: tuple[str, ...]) -> str:
    """Why there can be no covariance, before any arithmetic; empty where there can be."""
    if not ok:
        return "the fit is not ok"
    if active:
        return f"a constraint is active ({active[0]})"
    if has_rectifiers(objective.problem.model) and not np.any(objective.ridge):
        return "the optimum is not unique (units of a network can be rescaled against their outputs; a ridge decides)"
    return ""


def _deleted(
    objective: Objective, theta: Vector, slopes: Vector, share: Vector, rows: Vector
) -> tuple[Vector, Callable[[], Vector] | None]:
    """What is left of each row (s,), 1 - h, in the fit without one of its draws; and the gradients then, of several outputs.

    `rows` are the curved rows (s, p), or (s k, p), in units in which H is the identity, `share` the weight of a draw. Of
    one output the gradient is that over 1 - h. Of several, h is a matrix of all outputs of the row: its slopes, as far as
    they are S'q with S'S the curvature, become S'(1 - h)^-1 q.
    """
    loss, x, y = objective.problem.row_loss, objective.X, objective.y
    if not is_of_several(loss):
        return 1.0 - share * squared_row_norms(rows), None
    model = objective.problem.model
    half = loss.curvature_root(model.predict(theta, x), y)
    each = rows.reshape(len(x), -1, rows.shape[1])
    left = np.eye(each.shape[1]) - share[:, None, None] * (each @ each.swapaxes(1, 2))
    smallest = np.linalg.eigvalsh(left)[:, 0]

    def deleted() -> Vector:
        back = half.swapaxes(1, 2)
        inside = np.linalg.pinv(back) @ slopes[:, :, None]
        straight = slopes[:, :, None] - back @ inside
        moved = back @ np.linalg.solve(left, inside) + straight
        return pulled(model, theta, x, moved[:, :, 0])

    return smallest, deleted


def _whole(objective: Objective, theta: Vector, slopes: Vector, up: Vector, down: Vector) -> Vector:
    """Hessian of the weighted objective, with the second derivatives of the prediction."""
    weights = objective.weights if slopes.ndim == 1 else objective.weights[:, None]
    with np.errstate(all="ignore"):
        second = objective.problem.model.hessian(theta, objective.X, weights * slopes)
        bent = _products(objective, up) - (_products(objective, down) if down.any() else 0.0)
        return bent + second + _ridge(objective, theta)


def _gauss_newton(objective: Objective, theta: Vector, up: Vector) -> Vector:
    """The same without them, and without what bends down: positive semidefinite."""
    with np.errstate(all="ignore"):
        return _products(objective, up) + _ridge(objective, theta)


def _products(objective: Objective, rows: Vector) -> Vector:
    """Weighted Gram matrix (p, p) of rows (s, p), or of several a data row, (s k, p)."""
    weights = np.repeat(objective.weights, len(rows) // len(objective.weights))
    return rows.T @ (weights[:, None] * rows)


def _ridge(objective: Objective, theta: Vector) -> Vector:
    return np.diag(np.broadcast_to(2 * objective.ridge, theta.shape))


def _root_of_inverse(hessian: Vector) -> Vector | None:
    """A matrix (p, p) whose product with its transpose is the inverse; None where it is not positive definite."""
    if not np.isfinite(hessian).all() or (np.diagonal(hessian) <= 0).any():
        return None
    scale = unit_diagonal(hessian)
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2 * np.outer(scale, scale))
    if not values[0] > _UNIQUE * values[-1]:
        return None
    root: Vector = scale[:, None] * vectors / np.sqrt(values)
    return root


def _sandwich(half: Vector, middle: Vector) -> Vector:
    """Half @ middle @ half', symmetric to the last bit."""
    found = half @ middle @ half.T
    return (found + found.T) / 2
