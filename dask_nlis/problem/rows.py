"""Rows of the matrices of a problem: the model and the loss become one scalar g of u.

f_i(theta) = g_i(u_i(theta)), u_i homogeneous of degree alpha: the adjoint is
f*_i = (secant(g_i, u_i) / alpha) grad u_i and f_i(theta) = f_i(0) + <theta, f*_i(theta)> (Proposition 3.1).
The secant of g = root(phi(u), y) is composed by divided differences,
root_slope(phi(u), phi(0), y) * phi.secant(u), so that nothing is 0/0 at u = 0.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.activations import Activation
from dask_nlis.kernels.joined import joined
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.losses import Loss, OneOutput, SquaredError, is_of_several
from dask_nlis.models import Linear, Model, SingleIndex, is_adjoint, is_index, is_layered
from dask_nlis.problem.noun import Problem
from dask_nlis.problem.outputs import jacobians, pulled
from dask_nlis.rays import Ray, RayNorms, along_ray, norms_along_ray, root_of

Array = Any


def at_zero(problem: Problem, y: Array | None, x: Array) -> Array:
    """f_i(0): the root of the loss at the prediction for theta = 0, or that prediction itself without labels; (m,).

    Of several predictions without labels their length.
    """
    prediction = problem.model.at_zero(x)
    loss = problem.row_loss
    if is_of_several(loss) and y is None:
        return _lengths(prediction)
    return prediction if y is None else loss.root(prediction, y)


def _lengths(predictions: Array) -> Array:
    xp = array_namespace(predictions)
    return xp.sqrt(xp.sum(predictions * predictions, axis=1))


def slope(problem: Problem, phi: Activation, u: Array, y: Array | None) -> Array:
    """secant(g_i, u_i) of g = root(phi(u), y), shape (m,), by divided differences; NaN where u has overflowed.

    Activations that level off have a finite value and a secant of 0 there, which would pass for a row of zeros.
    """
    xp = array_namespace(u)
    inner, known = phi.secant(u), xp.isfinite(u)
    if not (is_numpy_array(u) and known.all()):
        inner = xp.where(known, inner, xp.nan * xp.ones_like(u))
    if y is None or isinstance(problem.loss, SquaredError):  # whose root has slope 1
        return inner
    return problem.one_loss.root_slope(phi.value(u), xp.full(u.shape, phi.at_zero, dtype=u.dtype), y) * inner


def has_closed_form(problem: Problem, labelled: bool) -> bool:
    """Whether the adjoint is a formula: one index, or a sum of them under a root that is linear in the prediction."""
    linear_root = isinstance(problem.loss, SquaredError) or not labelled
    return is_index(problem.model) or (is_adjoint(problem.model) and linear_root)


def adjoint(problem: Problem, theta: Array, x: Array, y: Array | None) -> Array:
    """Adjoint f*_i at theta, x (m, d) -> (m, p): closed form where there is one, else along the ray."""
    model = problem.model
    if is_index(model):
        factor = slope(problem, model.activation, model.index(theta, x), y) / model.degree
        return factor[:, None] * model.index_gradient(theta, x)
    if is_adjoint(model) and has_closed_form(problem, y is not None):
        return model.adjoint(theta, x)
    return along_ray(model, problem.row_loss, theta, x, y).rows


def singular(problem: Problem, theta: Array, x: Array, y: Array) -> Array:
    """Mask (m,) of rows whose root has no slope between the prediction at 0 and theirs, so that they have no adjoint."""
    here, zero = problem.model.predict(theta, x), problem.model.at_zero(x)
    if rows_each(problem) > 1:
        return array_namespace(x).any(problem.loss.singular(here, zero, y), axis=1)
    return problem.row_loss.singular(here, zero, y)


def rows_each(problem: Problem) -> int:
    """Rows of the dual matrix that a data row is: one, or one an output."""
    return problem.model.n_outputs if problem.outputs == "separate" else 1


def dual_rows(problem: Problem, theta: Array, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
    """Rows [f*_i ; f_i(0)] of the dual matrix (Definition 3.2), x (m, d) -> (m, p + 1); `out` as in `joined`."""
    model, xp = problem.model, array_namespace(x)
    if isinstance(model, Linear | SingleIndex):
        factor, last = dual_parts(problem, theta, x, y)
        return joined(x, factor, last, constant=model.intercept, out=out)
    if not has_closed_form(problem, y is not None):
        return dual_ray(problem, theta, x, y).rows
    return xp.concat([adjoint(problem, theta, x, y), at_zero(problem, y, x)[:, None]], axis=1)


def dual_parts(problem: Problem, theta: Array, x: Array, y: Array | None) -> tuple[Array, Array]:
    """Factor s (m,) and last entry g (m,) of the rows [s (x, 1) | g] that `dual_rows` has for a model of one index."""
    model = problem.model
    assert isinstance(model, Linear | SingleIndex)  # of degree 1
    return slope(problem, model.activation, model.index(theta, x), y), at_zero(problem, y, x)


def dual_squared_norms(
    problem: Problem, theta: Array, x: Array, y: Array | None, lengths: Array | None = None
) -> Array:
    """Squared norms of the rows of `dual_rows`, (m, d) -> (m,), from those of x if given; not formed where possible."""
    model, xp = problem.model, array_namespace(x)
    last = at_zero(problem, y, x)
    if is_index(model):
        u, squares = model.index_and_norms(theta, x, lengths)
        # Squared last: the factor alone may be too small for its square where the row is not.
        lengths = slope(problem, model.activation, u, y) / model.degree * xp.sqrt(squares)
        return lengths * lengths + last * last
    if is_adjoint(model) and has_closed_form(problem, y is not None):
        return model.adjoint_norms(theta, x, lengths) + last * last
    return squared_row_norms(dual_rows(problem, theta, x, y))


def dual_ray(problem: Problem, theta: Array, x: Array, y: Array | None) -> Ray:
    """Rows of `dual_rows` by quadrature, with the nodes it took and how well f(theta) = f(0) + <theta, f*> holds.

    Where outputs are separate these are (m k, p + 1), the k of a data row one after the other; residuals are the largest
    of each data row.
    """
    xp = array_namespace(x)
    if rows_each(problem) == 1:
        found = along_ray(problem.model, problem.row_loss, theta, x, y)
        return found._replace(rows=xp.concat([found.rows, at_zero(problem, y, x)[:, None]], axis=1))
    zero = problem.model.at_zero(x)
    rays, rows = [], []
    for root in _roots(problem):
        rays.append(along_ray(problem.model, root, theta, x, y))
        rows.append(xp.concat([rays[-1].rows, root.root(zero, y)[:, None]], axis=1))
    return Ray(
        xp.reshape(xp.stack(rows, axis=1), (-1, rows[0].shape[1])),
        max(ray.nodes for ray in rays),
        xp.max(xp.stack([ray.residual for ray in rays]), axis=0),
    )


def dual_values(problem: Problem, theta: Array, x: Array, y: Array | None) -> Array:
    """f_i(theta), of which `dual_rows` are the adjoints, of each of these rows: (m,), or (m k,) of separate outputs."""
    prediction = problem.model.predict(theta, x)
    if rows_each(problem) == 1:
        return root_of(problem.row_loss, prediction, y)
    roots = [root.root(prediction, y) for root in _roots(problem)]
    return array_namespace(x).reshape(array_namespace(x).stack(roots, axis=1), (-1,))


def _roots(problem: Problem) -> list[OneOutput]:
    """What is integrated where outputs are separate."""
    k = problem.model.n_outputs
    return [OneOutput(problem.one_loss, output, k) for output in range(k)]


def dual_ray_norms(problem: Problem, theta: Array, x: Array, y: Array | None) -> RayNorms:
    """Squared norms of the rows of `dual_ray` of a model made of layers, without forming them."""
    assert is_layered(problem.model)
    if rows_each(problem) == 1:
        found = norms_along_ray(problem.model, problem.row_loss, theta, x, y)
        last = at_zero(problem, y, x)
        return found._replace(norms=found.norms + last * last)
    xp, zero, total = array_namespace(x), problem.model.at_zero(x), 0.0
    rays = []
    for root in _roots(problem):
        rays.append(norms_along_ray(problem.model, root, theta, x, y))
        last = root.root(zero, y)
        total = total + rays[-1].norms + last * last
    return RayNorms(total, max(ray.nodes for ray in rays), xp.max(xp.stack([ray.residual for ray in rays]), axis=0))


def tangent_rows(problem: Problem, theta: Array, x: Array, y: Array, out: np.ndarray | None = None) -> Array:
    """Rows sqrt(max(l''_i, 0)) J_i, J the gradient of the prediction, (m, d) -> (m, p): H = sum max(l''_i, 0) J_i J_i'.

    Of several predictions S_i J_i with S_i'S_i the Hessian of l_i, (m, d) -> (m k, p), those of a data row one after the
    other.
    """
    model = problem.model
    if isinstance(model, Linear | SingleIndex):
        u = model.index(theta, x)
        root = root_of_curvature(problem.one_loss, model.activation.value(u), y)
        return joined(x, root * model.activation.derivative(u), None, constant=model.intercept, out=out)
    return bent_rows(problem, theta, x, y)


def bent_rows(problem: Problem, theta: Array, x: Array, y: Array, sign: int = 1) -> Array:
    """Rows of the part of the Gauss-Newton Hessian that bends up, or down for sign -1: `tangent_rows`."""
    loss, prediction = problem.row_loss, problem.model.predict(theta, x)
    if is_of_several(loss):
        rows = loss.curvature_root(prediction, y, sign) @ jacobians(problem.model, theta, x)
        return array_namespace(x).reshape(rows, (-1, rows.shape[2]))
    return root_of_curvature(problem.one_loss, prediction, y, sign)[:, None] * problem.model.jacobian(theta, x)


def root_of_curvature(loss: Loss, prediction: Array, y: Array, sign: int = 1) -> Array:
    """sqrt(max(l'', 0)) at a prediction, (m,), or of -l'' for sign -1."""
    xp, bend = array_namespace(prediction), sign * loss.curvature(prediction, y)
    return xp.sqrt(xp.where(bend > 0, bend, xp.zeros_like(bend)))


def loss_gradients(problem: Problem, theta: Array, x: Array, y: Array) -> Array:
    """Gradients psi_i = l'_i J_i of the loss of each row in theta, (m, d) -> (m, p)."""
    return pulled(problem.model, theta, x, problem.row_loss.derivative(problem.model.predict(theta, x), y))


def reference_rows(problem: Problem, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
    """Rows [x_i, 1 | f_i(0)] of the reference matrix: every slope replaced by its sign, (m, d) -> (m, q + 1)."""
    return joined(x, None, at_zero(problem, y, x), constant=_has_bias(problem.model, x), out=out)


def _has_bias(model: Model, x: Array) -> bool:
    """Whether the model sees [x, 1] in place of x."""
    return model.inputs(x[:1, :]).shape[1] > x.shape[1]


def reference_squared_norms(problem: Problem, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
    """Squared norms of the rows of `reference_rows`, (m, d) -> (m,), from those of x if given."""
    lengths = squared_row_norms(x) if lengths is None else lengths
    last = at_zero(problem, y, x)
    return lengths + int(_has_bias(problem.model, x)) + last * last
