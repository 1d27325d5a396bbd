"""Absolute error, which has no curvature, through Huber losses of shrinking width.

Huber(delta) / (2 delta) lies below |t| by delta / 2 at most, so its minimum bounds that of the absolute error from
below, and what is left between the two at the last width is the error of the fit (Madsen & Nielsen 1993).
"""

import numpy as np

from dask_nlis.losses import Huber
from dask_nlis.nouns import items
from dask_nlis.problem import Problem
from dask_nlis.refit.objective import Objective
from dask_nlis.refit.solvers import gauss_newton, spectral_projected_gradient

Vector = np.ndarray

#: The last width, as a share of the mean absolute error: below the 1e-8 at which a fit counts as stationary.
_LAST = 1e-9

#: Ratio of neighbouring widths.
_RATIO = 0.1


def smoothed(objective: Objective, width: float) -> Objective:
    """Objective with Huber(width) / (2 width) in place of the absolute error."""
    problem = objective.problem
    smooth = Problem(problem.model, Huber(width), constraint=problem.constraint)
    return Objective(**items(objective) | {"problem": smooth, "weights": objective.weights / (2 * width)})


def last_width(objective: Objective, theta: Vector) -> float:
    """Width at which the gap is far below the loss at theta; of a perfect fit, below the loss of predicting nothing."""
    nothing = objective.value(np.zeros_like(theta))
    scale = max(objective.value(theta), np.finfo(np.float64).eps * (nothing if np.isfinite(nothing) else 0.0))
    width = _LAST * scale / objective.weights.sum()
    return float(max(width, np.finfo(np.float64).tiny))


def least_absolute(objective: Objective, start: Vector) -> Vector:
    """Minimise the absolute error over the set from a start: a wide Huber loss first, ten times narrower each time."""
    constraint = objective.problem.constraint
    theta = start
    if not objective.value(theta):  # no error at all, and none to tell a width from
        return theta
    width = 1e9 * last_width(objective, theta)
    theta = spectral_projected_gradient(smoothed(objective, width), constraint, theta)
    for _ in range(60):
        theta = gauss_newton(smoothed(objective, width), constraint, theta)
        if not objective.value(theta):
            break
        last = last_width(objective, theta)
        if width <= last:
            break
        width = max(_RATIO * width, last)
    return theta
