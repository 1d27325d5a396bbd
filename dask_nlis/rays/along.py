"""The adjoint by quadrature along the ray: f* = integral over t in [0, 1] of the gradient of f at t theta.

The gradient is taken at t theta. Differentiating f(t theta) in theta instead brings in a factor t and breaks
f(theta) = f(0) + <theta, f*>; that identity is what every row is judged by. It sees the integral in the direction of
theta alone: entries of f* where theta is 0, or errors that cancel, pass it unseen. Hence the number of nodes it starts
from is that at which all entries of some pilot rows have settled. A model made of layers has its nodes in each piece
between kinks, and where it is a polynomial there as many as make the integral exact.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.quadrature import legendre
from dask_nlis.losses import is_of_several
from dask_nlis.models import LayeredModel, Model, is_layered, pulls_back
from dask_nlis.rays import bisected, layered
from dask_nlis.rays.roots import Root, root_of, root_slopes

Array = Any

#: Nodes tried, in turn, and the identity residual at which doubling ends.
_NODES, _GOAL = (8, 16, 32, 64, 128, 256), 1e-12

#: Nodes a piece from which on pieces are halved rather than given more.
_HALVED_FROM = 32

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


def along_ray(model: Model, loss: Root, theta: Array, x: Array, y: Array | None) -> Ray:
    """Adjoint rows of f = root(prediction, y), or of the prediction without labels: (m, d) -> (m, p).

    Starts from the nodes at which the entries of the pilot rows have settled and doubles them until the identity
    residual is below 1e-12 in every row, or 256 are reached; what is left is for the caller to judge.
    """
    exact = layered.exact_nodes(model, loss, y is not None) if is_layered(model) else None
    if exact is not None:
        rows = _integral(model, loss, theta, x, y, exact)
        return Ray(rows, exact, identity_residual(model, loss, theta, x, y, rows))

    def made(part: Array, labels: Array | None, n: int, breaks: Array | None) -> tuple[Array, Array]:
        rows = _integral(model, loss, theta, part, labels, n, breaks)
        return rows, identity_residual(model, loss, theta, part, labels, rows)

    return Ray(*_doubled(made, model, loss, theta, x, y))


def norms_along_ray(model: LayeredModel, loss: Root, theta: Array, x: Array, y: Array | None) -> RayNorms:
    """Squared norms of the rows of `along_ray`, without forming them: from signals there and back."""

    def made(part: Array, labels: Array | None, n: int, breaks: Array | None) -> tuple[Array, Array]:
        norms, products = layered.norms_and_products(model, loss, theta, part, labels, n, breaks)
        return norms, _residual(model, loss, theta, part, labels, products)

    exact = layered.exact_nodes(model, loss, y is not None)
    if exact is not None:
        norms, residual = made(x, y, exact, None)
        return RayNorms(norms, exact, residual)
    return RayNorms(*_doubled(made, model, loss, theta, x, y))


_Made = Callable[[Array, Array | None, int, Array | None], tuple[Array, Array]]


def _doubled(
    made: _Made, model: Model, loss: Root, theta: Array, x: Array, y: Array | None
) -> tuple[Array, int, Array]:
    """What is made of each row with the nodes of the pilot, or more where its residual asks for them; the most it took.

    Of layers every row has pieces of its own, which are halved where more nodes help little.
    """
    xp, n = array_namespace(x), _settled(model, loss, theta, x, y)
    values, residual = made(x, y, n, None)
    place = xp.arange(x.shape[0])
    left, rest = x, y
    for more in _NODES[_NODES.index(n) + 1 :]:
        # A row that is not finite is none that nodes could help.
        some = xp.nonzero(xp.take(residual, place, axis=0) > _GOAL)[0]
        if not some.shape[0]:
            break
        place, left = xp.take(place, some, axis=0), xp.take(left, some, axis=0)
        rest = None if rest is None else xp.take(rest, some, axis=0)
        halved = is_layered(model) and more > _HALVED_FROM
        breaks = bisected.breaks(model, loss, theta, left, rest) if halved and is_layered(model) else None
        again, missed = made(left, rest, bisected.NODES if halved else more, breaks)
        values, residual = _put(values, place, again), _put(residual, place, missed)
        n = max(n, bisected.NODES if halved else more)
        if halved:
            break
    return values, n, residual


def _put(values: Array, place: Array, some: Array) -> Array:
    """Values (m, ...) with other rows at some places (k,)."""
    xp = array_namespace(values)
    if is_numpy_array(values):
        values[place] = some
        return values
    # Without assignment by index: each row of the result by its number among rows of both.
    source = xp.arange(values.shape[0])
    new = xp.astype(xp.searchsorted(place, source), source.dtype)
    new = xp.where(new < place.shape[0], new, xp.zeros_like(new))
    changed = xp.take(place, new, axis=0) == source
    chosen = xp.where(changed, values.shape[0] + new, source)
    return xp.take(xp.concat([values, some], axis=0), chosen, axis=0)


def _settled(model: Model, loss: Root, theta: Array, x: Array, y: Array | None) -> int:
    """Nodes at which the rows of a pilot change no more, entry by entry; of layers no more than before pieces are halved."""
    xp = array_namespace(x)
    tried = [n for n in _NODES if not is_layered(model) or n <= _HALVED_FROM]
    half = max(1, min(_PILOT, _PILOT_BYTES // (8 * theta.shape[0])))
    if x.shape[0] > 2 * half:
        longest = xp.argsort(squared_row_norms(x), descending=True, stable=True)[:half]
        spaced = xp.arange(half, dtype=longest.dtype) * (x.shape[0] // half)
        pilot = xp.concat([longest, spaced])
        x, y = xp.take(x, pilot, axis=0), None if y is None else xp.take(y, pilot, axis=0)
    before = None
    for n in tried:
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
    return tried[-1]


def _integral(
    model: Model, loss: Root, theta: Array, x: Array, y: Array | None, n: int, breaks: Array | None = None
) -> Array:
    if is_layered(model):
        return layered.integral(model, loss, theta, x, y, n, breaks)
    return functools.reduce(lambda total, part: total + part, _parts(model, loss, theta, x, y, n))


def _parts(model: Model, loss: Root, theta: Array, x: Array, y: Array | None, n: int) -> Iterator[Array]:
    """Weighted gradients of f at the nodes, whose sum is the integral."""
    if is_layered(model):
        yield from layered.parts(model, loss, theta, x, y, n)
        return
    for node, weight in zip(*legendre(n), strict=True):
        point = node * theta
        if is_of_several(loss):
            assert pulls_back(model)
            yield weight * model.pullback(point, x, root_slopes(loss, model.predict(point, x), y))
            continue
        rows = model.jacobian(point, x)
        if y is not None:
            rows = root_slopes(loss, model.predict(point, x), y)[:, None] * rows
        yield weight * rows


def identity_residual(model: Model, loss: Root, theta: Array, x: Array, y: Array | None, rows: Array) -> Array:
    """|f(theta) - f(0) - <theta, f*>| over 1 + |f(theta)| + |f(0)|, shape (m,)."""
    return _residual(model, loss, theta, x, y, rows @ theta)


def _residual(model: Model, loss: Root, theta: Array, x: Array, y: Array | None, products: Array) -> Array:
    xp = array_namespace(x)
    here, zero = root_of(loss, model.predict(theta, x), y), root_of(loss, model.at_zero(x), y)
    return xp.abs(here - zero - products) / (1 + xp.abs(here) + xp.abs(zero))
