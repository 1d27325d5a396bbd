"""The weighted loss of a sample with its gradient and Gauss-Newton matrix, and what stationarity means."""

from typing import NamedTuple

import numpy as np

from dask_nlis.constraints import Constraint, piece, smallest_step
from dask_nlis.losses import LossOfSeveral, is_of_several
from dask_nlis.nouns import items, noun
from dask_nlis.problem import Problem, jacobians, pulled

Vector = np.ndarray

#: Least curvature of a row, as a share of the Gauss-Newton curvature 2 root'^2 = l'^2 / (2 l) of its signed root.
#: Where l is straight (Huber, a saturated class) the second derivative is 0 and a Newton step would be endless;
#: near the optimum of a smooth loss the share is too small to slow Newton's method down.
_SHARE = 1e-2


class Local(NamedTuple):
    """Second-order picture of the objective at a point."""

    value: float
    gradient: Vector  # (p,)
    hessian: Vector  # (p, p), sum of w c J J', c = l'' or a share of its Gauss-Newton form


@noun
class Objective:
    """sum_i w_i l(prediction_i(theta), y_i) + sum_j ridge_j theta_j^2, rows X (s, d), y (s,) or (s, k), w (s,); ridge (p,) or 0."""

    problem: Problem
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    ridge: np.ndarray | float = 0.0

    def value(self, theta: Vector) -> float:
        """Weighted loss and ridge; infinity where it is not a number, so that a line search backs off."""
        with np.errstate(all="ignore"):
            total = self.loss(theta) + float((self.ridge * theta**2).sum())
        return total if np.isfinite(total) else np.inf

    def loss(self, theta: Vector) -> float:
        """Weighted loss alone."""
        with np.errstate(all="ignore"):
            prediction = self.problem.model.predict(theta, self.X)
            return float(self.weights @ self.problem.row_loss.value(prediction, self.y))

    def first(self, theta: Vector) -> tuple[float, Vector]:
        """Value and gradient."""
        model, loss = self.problem.model, self.problem.row_loss
        with np.errstate(all="ignore"):
            prediction = model.predict(theta, self.X)
            slopes = loss.derivative(prediction, self.y)
            if slopes.ndim == 1:
                gradient = model.jacobian(theta, self.X).T @ (self.weights * slopes)
            else:
                gradient = pulled(model, theta, self.X, self.weights[:, None] * slopes).sum(axis=0)
            gradient = gradient + 2 * self.ridge * theta
            value = float(self.weights @ loss.value(prediction, self.y)) + float((self.ridge * theta**2).sum())
        return value, gradient

    def at(self, theta: Vector) -> Local:
        """Value, gradient and a positive semidefinite Hessian."""
        model, loss = self.problem.model, self.problem.row_loss
        if is_of_several(loss):
            return self._of_several(loss, theta)
        with np.errstate(all="ignore"):
            prediction = model.predict(theta, self.X)
            rows = model.jacobian(theta, self.X)
            values, slopes = loss.value(prediction, self.y), loss.derivative(prediction, self.y)
            gradient = rows.T @ (self.weights * slopes)
            positive = values > 0
            root_slopes = np.where(positive, slopes, 0.0) / np.sqrt(np.where(positive, values, 1.0))
            bend = np.maximum(self.problem.one_loss.curvature(prediction, self.y), _SHARE * root_slopes**2 / 2)
            hessian = rows.T @ ((self.weights * bend)[:, None] * rows)
            value = float(self.weights @ values) + float((self.ridge * theta**2).sum())
            gradient = gradient + 2 * self.ridge * theta
            hessian = (hessian + hessian.T) / 2 + np.diag(np.broadcast_to(2 * self.ridge, theta.shape))
        return Local(value, gradient, hessian)

    def _of_several(self, loss: LossOfSeveral, theta: Vector) -> Local:
        """The same of several predictions a row: J' S'S J, and the share along the slopes of the loss."""
        model = self.problem.model
        with np.errstate(all="ignore"):
            prediction = model.predict(theta, self.X)
            values, slopes = loss.value(prediction, self.y), loss.derivative(prediction, self.y)
            gradients = pulled(model, theta, self.X, slopes)
            half = loss.curvature_root(prediction, self.y)
            rows = np.sqrt(self.weights)[:, None, None] * (half @ jacobians(model, theta, self.X))
            rows = rows.reshape(-1, len(theta))
            squares = np.vecdot(slopes, slopes)
            some = (squares > 0) & (values > 0)
            along = half @ slopes[:, :, None]
            bend = np.where(some, np.vecdot(along[:, :, 0], along[:, :, 0]) / np.where(some, squares, 1.0), 0.0)
            least = np.where(some, _SHARE * squares / (2 * np.where(some, values, 1.0)), 0.0)
            missing = np.where(some, np.maximum(least - bend, 0.0) / np.where(some, squares, 1.0), 0.0)
            hessian = rows.T @ rows + gradients.T @ ((self.weights * missing)[:, None] * gradients)
            value = float(self.weights @ values) + float((self.ridge * theta**2).sum())
            gradient = gradients.T @ self.weights + 2 * self.ridge * theta
            hessian = (hessian + hessian.T) / 2 + np.diag(np.broadcast_to(2 * self.ridge, theta.shape))
        return Local(value, gradient, hessian)


def within(objective: Objective, constraint: Constraint | None) -> Objective:
    """Return the objective over another set."""
    problem = objective.problem
    return Objective(**items(objective) | {"problem": Problem(problem.model, problem.loss, constraint=constraint)})


def on_piece(objective: Objective, theta: Vector) -> Objective:
    """Return the objective over the convex piece of its set nearest to theta; itself where the set is convex."""
    constraint = objective.problem.constraint
    part = piece(constraint, theta)
    return objective if part is constraint else within(objective, part)


def best_step(constraint: Constraint | None, local: Local, theta: Vector) -> tuple[Vector, float]:
    """Minimise the local quadratic over the set: the step to its minimum and the decrease it promises, >= 0.

    The promised decrease does not change when parameters are rescaled, so it judges badly scaled problems fairly;
    without a set it is half the squared Newton decrement.
    """
    if constraint is None:
        target = theta + smallest_step(local.hessian, local.gradient)
    else:
        target = constraint.minimize_quadratic(local.hessian, local.gradient, theta)
    step = target - theta
    return step, max(0.0, -float(local.gradient @ step + step @ local.hessian @ step / 2))
