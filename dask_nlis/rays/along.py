"""The adjoint by quadrature along the ray: f* = integral over t in [0, 1] of the gradient of f at t theta.

The gradient is taken at t theta. Differentiating f(t theta) in theta instead brings in a factor t and breaks
f(theta) = f(0) + <theta, f*>; that identity is what every row is judged by. It sees the integral in the direction of
theta alone: entries of f* where theta is 0, or errors that cancel, pass it unseen. Hence the number of nodes it starts
from is that at which all entries of some pilot rows have settled. A model made of layers has its nodes in each piece
between kinks, and where it is a polynomial there as many as make the integral exact.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.quadrature import legendre
from dask_nlis.losses import Loss
from dask_nlis.models import LayeredModel, Model, is_layered
from dask_nlis.rays import layered

Array = Any

#: Nodes tried, in turn, and the identity residual at which doubling ends.
_NODES, _GOAL = (8, 16, 32, 64, 128, 256), 1e-12

#: Change of the pilot's entries on doubling n, relative to the size of their column, at which n nodes are enough,
#: and at which 2n are: convergence is geometric, so that 2n nodes have about the square of the error of n.
_EXACT, _NEARLY = 1e-12, 1e-7

#: Pilot rows: as many of the longest, and as many evenly spaced; fewer where these take more bytes.
_PILOT, _PILOT_BYTES = 16, 2**25


class Ray(NamedTuple):
    """Rows integrated along the ray (m, p), the nodes it took a piece, and the identity residual that is left, (m,)."""

    rows: Array
    nodes: int
    residual: Array


class RayNorms(NamedTuple):
    """Squared norms of such rows (m,), the nodes they took a piece, and the identity residual that is left, (m,)."""

    norms: Array
    nodes: int
    residual: Array


def along_ray(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None) -> Ray:
    """Adjoint rows of f = root(prediction, y), or of the prediction without labels: (m, d) -> (m, p).

    Starts from the nodes at which the entries of the pilot rows have settled and doubles them until the identity
    residual is below 1e-12 in every row, or 256 are reached; what is left is for the caller to judge.
    """
    exact = layered.exact_nodes(model, loss, y is not None) if is_layered(model) else None
    if exact is not None:
        rows = _integral(model, loss, theta, x, y, exact)
        return Ray(rows, exact, identity_residual(model, loss, theta, x, y, rows))
    enough = _settled(model, loss, theta, x, y)
    for n in _NODES[_NODES.index(enough) :]:
        rows = _integral(model, loss, theta, x, y, n)
        residual = identity_residual(model, loss, theta, x, y, rows)
        if float(array_namespace(x).max(residual)) <= _GOAL:
            break
    return Ray(rows, n, residual)


def norms_along_ray(model: LayeredModel, loss: Loss, theta: Array, x: Array, y: Array | None) -> RayNorms:
    """Squared norms of the rows of `along_ray`, without forming them: from signals there and back."""
    exact = layered.exact_nodes(model, loss, y is not None)
    enough = _settled(model, loss, theta, x, y) if exact is None else exact
    for n in [enough] if exact is not None else _NODES[_NODES.index(enough) :]:
        norms, products = layered.norms_and_products(model, loss, theta, x, y, n)
        residual = _residual(model, loss, theta, x, y, products)
        if float(array_namespace(x).max(residual)) <= _GOAL:
            break
    return RayNorms(norms, n, residual)


def _settled(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None) -> int:
    """Nodes at which the rows of a pilot change no more, entry by entry."""
    xp = array_namespace(x)
    half = max(1, min(_PILOT, _PILOT_BYTES // (8 * theta.shape[0])))
    if x.shape[0] > 2 * half:
        longest = xp.argsort(squared_row_norms(x), descending=True, stable=True)[:half]
        spaced = xp.arange(half, dtype=longest.dtype) * (x.shape[0] // half)
        pilot = xp.concat([longest, spaced])
        x, y = xp.take(x, pilot, axis=0), None if y is None else xp.take(y, pilot, axis=0)
    before = None
    for n in _NODES:
        rows = size = xp.zeros((), dtype=x.dtype)
        for part in _parts(model, loss, theta, x, y, n):
            rows, size = rows + part, size + xp.abs(part)
        if before is not None:
            # Beside the integral of the absolute values, so that an integral that cancels to 0 settles too.
            largest, change = xp.max(size, axis=0), xp.max(xp.abs(rows - before), axis=0)
            if bool(xp.all(change <= _EXACT * largest)):
                return n // 2
            if bool(xp.all(change <= _NEARLY * largest)):
                return n
        before = rows
    return _NODES[-1]


def _integral(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None, n: int) -> Array:
    if is_layered(model):
        return layered.integral(model, loss, theta, x, y, n)
    return functools.reduce(lambda total, part: total + part, _parts(model, loss, theta, x, y, n))


def _parts(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None, n: int) -> Iterator[Array]:
    """Weighted gradients of f at the nodes, whose sum is the integral."""
    if is_layered(model):
        yield from layered.parts(model, loss, theta, x, y, n)
        return
    for node, weight in zip(*legendre(n), strict=True):
        point = node * theta
        rows = model.jacobian(point, x)
        if y is not None:
            prediction = model.predict(point, x)
            rows = loss.root_slope(prediction, prediction, y)[:, None] * rows
        yield weight * rows


def identity_residual(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None, rows: Array) -> Array:
    """|f(theta) - f(0) - <theta, f*>| over 1 + |f(theta)| + |f(0)|, shape (m,)."""
    return _residual(model, loss, theta, x, y, rows @ theta)


def _residual(model: Model, loss: Loss, theta: Array, x: Array, y: Array | None, products: Array) -> Array:
    xp = array_namespace(x)
    here, zero = model.predict(theta, x), model.at_zero(x)
    if y is not None:
        here, zero = loss.root(here, y), loss.root(zero, y)
    return xp.abs(here - zero - products) / (1 + xp.abs(here) + xp.abs(zero))
