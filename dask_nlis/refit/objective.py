"""The weighted loss of a sample with its gradient and Gauss-Newton matrix, and what stationarity means."""

from typing import NamedTuple

import numpy as np

from dask_nlis.constraints import Constraint, smallest_step
from dask_nlis.nouns import noun
from dask_nlis.problem import Problem

Vector = np.ndarray


class Local(NamedTuple):
    """Second-order picture of the objective at a point."""

    value: float
    gradient: Vector  # (p,)
    hessian: Vector  # (p, p), Gauss-Newton: sum of w max(l'', 0) J J'


@noun
class Objective:
    """sum_i w_i l(prediction_i(theta), y_i) over the rows of a sample, X (s, d), y (s,), w (s,)."""

    problem: Problem
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def value(self, theta: Vector) -> float:
        """Weighted loss; infinity where it is not a number, so that a line search backs off."""
        model, loss = self.problem.model, self.problem.loss
        with np.errstate(all="ignore"):
            prediction = model.predict(theta, self.X)
            total = float(self.weights @ loss.value(prediction, self.y))
        return total if np.isfinite(total) else np.inf

    def at(self, theta: Vector) -> Local:
        """Value, gradient and Gauss-Newton matrix."""
        model, loss = self.problem.model, self.problem.loss
        with np.errstate(all="ignore"):
            prediction = model.predict(theta, self.X)
            rows = model.jacobian(theta, self.X)
            gradient = rows.T @ (self.weights * loss.derivative(prediction, self.y))
            curvature = self.weights * np.maximum(loss.curvature(prediction, self.y), 0.0)
            hessian = rows.T @ (curvature[:, None] * rows)
            value = float(self.weights @ loss.value(prediction, self.y))
        return Local(value, gradient, (hessian + hessian.T) / 2)


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
