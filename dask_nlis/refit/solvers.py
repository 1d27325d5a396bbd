"""The two solvers: spectral projected gradient, which needs a projection only, and Gauss-Newton in the set."""

from collections import deque

import numpy as np

from dask_nlis.constraints import Constraint
from dask_nlis.refit.objective import Objective, best_step

Vector = np.ndarray

#: Share of the predicted decrease that a step has to deliver (Armijo).
_SUFFICIENT = 1e-4

#: A share of a step below which the quadratic is taken to hold near its origin only; the least share of its diagonal
#: that is added then, and the ratio of neighbouring ones.
_SHORT, _LEAST, _RAISE = 0.2, 1e-3, 4.0


def project(constraint: Constraint | None, theta: Vector) -> Vector:
    """Nearest point of the set; theta itself without one."""
    return theta if constraint is None else constraint.project(theta)


def spectral_projected_gradient(
    objective: Objective, constraint: Constraint | None, start: Vector, max_iterations: int = 100
) -> Vector:
    """Birgin, Martinez & Raydan (2000), algorithm SPG2: Barzilai-Borwein step, non-monotone line search.

    Stops when the projected gradient step, in units of theta, is below 1e-6, or after `max_iterations`.
    """
    theta = project(constraint, start)
    local = objective.at(theta)
    if not np.isfinite(local.value):
        return theta
    recent = deque([local.value], maxlen=10)
    best, best_value = theta, local.value
    largest = np.linalg.eigvalsh(local.hessian)[-1] if np.isfinite(local.hessian).all() else 0.0
    step = 1 / largest if largest > 0 else 1.0
    gradient = local.gradient
    for _ in range(max_iterations):
        with np.errstate(all="ignore"):
            direction = project(constraint, theta - step * gradient) - theta
            slope = float(gradient @ direction)
        if np.abs(direction).max(initial=0.0) <= 1e-6 * (1 + np.abs(theta).max(initial=0.0)) or not slope < 0:
            break
        share = _backtrack(objective, theta, direction, slope, max(recent))
        if share == 0.0:
            break
        moved = share * direction
        theta = theta + moved
        value, fresh = objective.first(theta)
        change, gradient = fresh - gradient, fresh
        curvature = float(moved @ change)
        step = float(np.clip(moved @ moved / curvature, 1e-12, 1e12)) if curvature > 0 else step * 10
        recent.append(value)
        if value < best_value:
            best, best_value = theta, value
    return best


def gauss_newton(
    objective: Objective, constraint: Constraint | None, start: Vector, max_iterations: int = 60
) -> Vector:
    """Minimise the Gauss-Newton quadratic over the set, then search along the step; feasible throughout.

    Where the search has to shorten steps much, the quadratic holds near theta only: its diagonal is raised (Marquardt
    1963), which turns steps towards the gradient instead, and lowered again once whole steps are good. Stops when the
    promised decrease is below 1e-14 of the value, or the line search finds none.
    """
    theta = project(constraint, start)
    raised = 0.0
    for _ in range(max_iterations):
        local = objective.at(theta)
        if not np.isfinite(local.value) or not np.isfinite(local.hessian).all():
            break
        damped = local._replace(hessian=local.hessian + raised * np.diag(np.diagonal(local.hessian)))
        step, promised = best_step(constraint, damped, theta)
        if promised <= 1e-14 * local.value or not np.isfinite(step).all():
            break
        share = _backtrack(objective, theta, step, float(local.gradient @ step), local.value)
        if share == 0.0:
            break
        theta = project(constraint, theta + share * step)
        if share < _SHORT:
            raised = max(_RAISE * raised, _LEAST)
        elif share == 1.0:
            raised = raised / _RAISE if raised > _LEAST else 0.0
    return theta


def _backtrack(objective: Objective, theta: Vector, direction: Vector, slope: float, reference: float) -> float:
    """Largest share 2^-k of the direction with sufficient decrease against `reference`; 0 when there is none."""
    share = 1.0
    for _ in range(40):
        if objective.value(theta + share * direction) <= reference + _SUFFICIENT * share * slope:
            return share
        share /= 2
    return 0.0
