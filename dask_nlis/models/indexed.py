"""What every index model has in common: prediction, its gradient and its value at theta = 0 follow from the index."""

from typing import Any

from array_api_compat import array_namespace

from dask_nlis.models.protocol import IndexModel

Array = Any


def predict(model: IndexModel, theta: Array, x: Array) -> Array:
    """phi(u), shape (m,)."""
    return model.activation.value(model.index(theta, x))


def jacobian(model: IndexModel, theta: Array, x: Array) -> Array:
    """phi'(u) grad u, shape (m, p)."""
    return model.activation.derivative(model.index(theta, x))[:, None] * model.index_gradient(theta, x)


def hessian(model: IndexModel, theta: Array, x: Array, weights: Array) -> Array:
    """sum_i weights_i (phi''(u_i) grad u_i grad u_i' + phi'(u_i) u_i''), shape (p, p)."""
    u, rows = model.index(theta, x), model.index_gradient(theta, x)
    bend = weights * model.activation.second_derivative(u)
    outer = array_namespace(x).permute_dims(rows, (1, 0)) @ (bend[:, None] * rows)
    return outer + model.index_hessian(theta, x, weights * model.activation.derivative(u))


def at_zero(model: IndexModel, x: Array) -> Array:
    """phi(0) for every row, for u(0) = 0; shape (m,)."""
    return array_namespace(x).full((x.shape[0],), model.activation.at_zero, dtype=x.dtype)
