"""The adjoint by quadrature along the ray: f* = integral over t in [0, 1] of the gradient of f at t theta.

The gradient is taken at t theta. Differentiating f(t theta) in theta instead brings in a factor t and breaks
f(theta) = f(0) + <theta, f*>; that identity is what decides on the number of nodes here.
"""

from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.kernels.quadrature import legendre
from dask_nlis.losses import Loss
from dask_nlis.models import Model

Array = Any

#: Nodes tried, in turn, and the identity residual at which doubling ends.
_NODES, _GOAL = (8, 16, 32, 64, 128, 256), 1e-12


class Ray(NamedTuple):
    """Rows integrated along the ray (m, p), the nodes it took, and the identity residual that is left, (m,)."""

    rows: Array
    nodes: int
    residual: Array


def along_ray(model: Model, loss: Loss | None, theta: Array, x: Array, y: Array | None) -> Ray:
    """Adjoint rows of f = root(prediction, y), or of the prediction without labels: (m, d) -> (m, p).

    Doubles the nodes until the identity residual is below 1e-12 in every row, or 256 are reached; what is left is
    for the caller to judge.
    """
    for n in _NODES:
        rows = _integral(model, loss, theta, x, y, n)
        residual = identity_residual(model, loss, theta, x, y, rows)
        if float(array_namespace(x).max(residual)) <= _GOAL:
            break
    return Ray(rows, n, residual)


def _integral(model: Model, loss: Loss | None, theta: Array, x: Array, y: Array | None, n: int) -> Array:
    total = None
    for node, weight in zip(*legendre(n), strict=True):
        point = node * theta
        rows = model.jacobian(point, x)
        if loss is not None and y is not None:
            prediction = model.predict(point, x)
            rows = loss.root_slope(prediction, prediction, y)[:, None] * rows
        total = weight * rows if total is None else total + weight * rows
    return total


def identity_residual(model: Model, loss: Loss | None, theta: Array, x: Array, y: Array | None, rows: Array) -> Array:
    """|f(theta) - f(0) - <theta, f*>| over 1 + |f(theta)| + |f(0)|, shape (m,)."""
    xp = array_namespace(x)
    here, zero = model.predict(theta, x), model.at_zero(x)
    if loss is not None and y is not None:
        here, zero = loss.root(here, y), loss.root(zero, y)
    return xp.abs(here - zero - rows @ theta) / (1 + xp.abs(here) + xp.abs(zero))
