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


def at_zero(model: IndexModel, x: Array) -> Array:
    """phi(0) for every row, for u(0) = 0; shape (m,)."""
    return array_namespace(x).full((x.shape[0],), model.activation.at_zero, dtype=x.dtype)
