"""How far a fit to a sample may be from the fit to all rows: the sandwich H^-1 M H^-1 of the design of the sample."""

from typing import NamedTuple

import numpy as np

from dask_nlis.activations import Identity
from dask_nlis.constraints.quadratic import unit_diagonal
from dask_nlis.models import Linear, SingleIndex
from dask_nlis.refit.objective import Objective
from dask_nlis.sample import Sample

Vector = np.ndarray

#: Smallest eigenvalue of the Hessian, scaled to a unit diagonal, at which the optimum counts as unique.
_UNIQUE = 1e-10

#: A row that decides its own residual has h near 1; 1 - h is not taken for less than this.
_LEAST = 1e-2


class Spread(NamedTuple):
    """Covariance of theta around the fit to all rows, what to add for the population, and why there is none."""

    covariance: Vector  # (p, p), NaN where it is withheld
    population: Vector  # (p, p)
    withheld: str


def spread(objective: Objective, theta: Vector, sample: Sample | None, *, ok: bool, active: tuple[str, ...]) -> Spread:
    """Covariance of a fit; in memory, one pass over the rows taken.

    H is the Hessian of the weighted loss (with second derivatives of the prediction for models of one linear index,
    where that is positive definite; Gauss-Newton otherwise). M adds up over the design of the sample; rows count with
    their gradient over 1 - h, h their leverage in the fit (MacKinnon & White 1985, HC3).

    - multinomial: draws centred within their stage; independent rows of one's own weights likewise.
    - stratified: half squared differences of successive slices within a stage, which see what the slices gain.
    - poisson, pooled: variance weights times squared gradients, uncentred.
    - systematic: successive differences times sqrt(1 - pi), rows drawn for certain left out.
    """
    p = len(theta)
    none = np.full((p, p), np.nan)
    if not ok:
        return Spread(none, none, "the fit is not ok")
    if active:
        return Spread(none, none, f"a constraint is active ({active[0]})")
    rows, slopes, bend = _pieces(objective, theta)
    inverse = _inverse(objective, theta, rows, slopes, bend)
    if inverse is None:
        return Spread(
            none, none, "the optimum is not unique (the Hessian is singular: dependent columns, or too few rows)"
        )
    # Weights of the design, of one draw each, and row weights of the data: together they are objective.weights.
    design = np.ones(len(rows)) if sample is None else sample.weights
    counts = np.ones(len(rows)) if sample is None else sample.counts
    data = objective.weights / design
    gradients = (data * slopes)[:, None] * rows
    leverage = data * np.maximum(bend, 0.0) * np.einsum("ij,jk,ik->i", rows, inverse, rows)
    reduced = gradients / np.maximum(1.0 - design / counts * leverage, _LEAST)[:, None]
    # Weights of one's own: one independent draw a row.
    middle = _centred(reduced) if sample is None else _of_design(sample, reduced)
    population = inverse @ ((design[:, None] * gradients).T @ gradients) @ inverse
    covariance = inverse @ middle @ inverse
    return Spread((covariance + covariance.T) / 2, (population + population.T) / 2, "")


def _pieces(objective: Objective, theta: Vector) -> tuple[Vector, Vector, Vector]:
    """Derivative of each prediction (s, p), and first and second derivative of its loss, (s,)."""
    model, loss = objective.problem.model, objective.problem.loss
    with np.errstate(all="ignore"):
        prediction = model.predict(theta, objective.X)
        return (
            model.jacobian(theta, objective.X),
            loss.derivative(prediction, objective.y),
            loss.curvature(prediction, objective.y),
        )


def _inverse(objective: Objective, theta: Vector, rows: Vector, slopes: Vector, bend: Vector) -> Vector | None:
    """Inverse Hessian of the objective, None where the optimum is not unique."""
    model, weights = objective.problem.model, objective.weights
    ridge = np.diag(np.broadcast_to(2 * objective.ridge, theta.shape))
    candidates = []
    if isinstance(model, Linear | SingleIndex) and not isinstance(model.activation, Identity):
        inputs = model.inputs(objective.X)
        second = model.activation.second_derivative(model.index(theta, objective.X))
        whole = rows.T @ ((weights * bend)[:, None] * rows) + inputs.T @ ((weights * slopes * second)[:, None] * inputs)
        candidates.append(whole + ridge)
    candidates.append(rows.T @ ((weights * np.maximum(bend, 0.0))[:, None] * rows) + ridge)
    for hessian in candidates:
        if not np.isfinite(hessian).all() or np.diagonal(hessian).min() < 0:  # not positive definite
            continue
        scale = unit_diagonal(hessian)
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2 * np.outer(scale, scale))
        if values[0] > _UNIQUE * max(values[-1], 1.0):
            half = scale[:, None] * vectors / np.sqrt(values)
            return half @ half.T
    return None


def _of_design(sample: Sample, gradients: Vector) -> Vector:
    """M of the draws of a sample, gradients (m, p) of its distinct rows."""
    p = gradients.shape[1]
    if sample.scheme in ("poisson", "pooled"):
        return gradients.T @ (sample.variance_weights[:, None] * gradients)
    each = (sample.weights / sample.counts)[:, None] * gradients
    total = np.zeros((p, p))
    for stage in np.unique(sample.stage):
        draws = sample.draws[sample.stage == stage]
        if sample.scheme == "systematic":
            draws = draws[sample.probabilities[draws] < 1.0]
        if len(draws) < 2:
            continue
        if sample.scheme == "multinomial":
            total += _centred(each[draws])
            continue
        steps = np.diff(each[draws], axis=0)
        if sample.scheme == "systematic":
            out = 1.0 - sample.probabilities[draws]
            steps *= np.sqrt((out[1:] + out[:-1]) / 2)[:, None]
        total += len(draws) / (2 * len(steps)) * (steps.T @ steps)
    return total


def _centred(each: Vector) -> Vector:
    """m / (m - 1) sum of squares around the mean."""
    m = len(each)
    around = each - each.mean(axis=0)
    return m / max(m - 1, 1) * (around.T @ around)
