"""The ray of a model made of layers: every row has points of its own, in each piece between its kinks.

A rectified net is a polynomial there, so that few nodes a piece make the integral exact, however many kinks there are.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.kernels import stack
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.quadrature import legendre
from dask_nlis.losses import OneOutput, SquaredError
from dask_nlis.models import LayeredModel
from dask_nlis.models.layered import HELD, n_signals
from dask_nlis.rays.roots import Root, slopes_at

Array = Any


def exact_nodes(model: LayeredModel, loss: Root, labelled: bool) -> int | None:
    """Nodes a piece at which the integral is exact; None where the integrand is no polynomial between kinks."""
    root = loss.loss if isinstance(loss, OneOutput) else loss
    return model.nodes if isinstance(root, SquaredError) or not labelled else None


def integral(
    model: LayeredModel, loss: Root, theta: Array, x: Array, y: Array | None, n: int, breaks: Array | None = None
) -> Array:
    """Integral of the gradient of f along the ray with n nodes a piece, (m, p); between the kinks, or given breaks (m, K)."""
    nodes, weights = legendre(n)
    return _summed(model, loss, theta, x, y, nodes, weights, _rows, breaks)


def parts(model: LayeredModel, loss: Root, theta: Array, x: Array, y: Array | None, n: int) -> Iterator[Array]:
    """The same, one node of every piece after the other: their sum is the integral."""
    for node, weight in zip(*legendre(n), strict=True):
        yield _summed(model, loss, theta, x, y, [node], [weight], _rows)


def norms_and_products(
    model: LayeredModel, loss: Root, theta: Array, x: Array, y: Array | None, n: int, breaks: Array | None = None
) -> tuple[Array, Array]:
    """Squared norms of the rows of `integral` and their products with theta, (m,) each, from the signals alone."""
    nodes, weights = legendre(n)
    both = _summed(model, loss, theta, x, y, nodes, weights, _norms, breaks)
    return both[:, 0], both[:, 1]


_Made = Callable[[Sequence[stack.Layer], Iterator[tuple[stack.Signals, Any]]], Array]


def _rows(layers: Sequence[stack.Layer], groups: Iterator[tuple[stack.Signals, Any]]) -> Array:
    """Rows, summed over groups of points."""
    total: Array = 0.0
    for found, back in groups:
        total = total + stack.rows(layers, found, back)
    return total


def _norms(layers: Sequence[stack.Layer], groups: Iterator[tuple[stack.Signals, Any]]) -> Array:
    """Squared norms and products with theta; where the points of a row are several groups, by rows that are formed."""
    first = next(groups)
    xp, products, second = array_namespace(first[0].prediction), stack.along(layers, *first), next(groups, None)
    if second is None:
        return xp.stack([stack.norms(layers, *first), products], axis=1)
    total = stack.rows(layers, *first)
    for each in itertools.chain([second], groups):
        total, products = total + stack.rows(layers, *each), products + stack.along(layers, *each)
    return xp.stack([squared_row_norms(total), products], axis=1)


def _summed(
    model: LayeredModel,
    loss: Root,
    theta: Array,
    x: Array,
    y: Array | None,
    nodes: Sequence[float],
    weights: Sequence[float],
    made: _Made,
    given: Array | None = None,
) -> Array:
    """What is made of the signals of each row: rows with about as many kinks together, as many as may be held."""
    xp, layers = array_namespace(x), model.layers(theta, x)
    inputs = model.shaped(x)
    size = n_signals(layers, inputs)
    out: list[Array] = []
    order: list[Array] = []
    for place, breaks in _by_kinks(layers, inputs) if given is None else [_ascending(given)]:
        row, m = 0, place.shape[0]
        while row < m:
            # The first has the fewest kinks of those that follow: as many rows as its share allows, or fewer.
            stop = row + _step(breaks, row, len(nodes), size)
            some = place[row:stop]
            used = int(xp.max(xp.count_nonzero(breaks[row:stop, :] < 1, axis=1)))
            at = stack.points(breaks[row:stop, :used], nodes, weights)
            label = None if y is None else xp.take(y, some, axis=0)
            out.append(made(layers, _groups(layers, loss, xp.take(inputs, some, axis=0), label, at, size)))
            order.append(some)
            row = stop
    joined = out[0] if len(out) == 1 else xp.concat(out, axis=0)
    return xp.take(joined, xp.argsort(order[0] if len(order) == 1 else xp.concat(order, axis=0)), axis=0)


def _step(breaks: Array, row: int, n: int, size: int) -> int:
    """Rows from `row` on whose signals may be held at once: they come with ascending numbers of kinks."""
    xp = array_namespace(breaks)
    counts = xp.count_nonzero(breaks[row:, :] < 1, axis=1) + 1
    held = (counts * n) * (xp.arange(counts.shape[0], dtype=counts.dtype) + 1) * size
    return max(1, int(xp.count_nonzero(held <= HELD)))


def _by_kinks(layers: Sequence[stack.Layer], x: Array) -> Iterator[tuple[Array, Array]]:
    """Rows (numbers) in ascending order of the kinks they have, with these (m, K); as many as may be held."""
    units = [int(np.prod(layer.linear.shape)) for layer in layers if layer.gate is not None]
    # Behind the second gate each piece is looked at: a unit has a kink for about every third row.
    pieces = 1 if len(units) < 3 else 2 + sum(units) // 3
    step = max(1, HELD // (len(layers) * max(1, sum(units)) * pieces))
    for first in range(0, max(1, x.shape[0]), step):
        breaks = stack.kinks(layers, x[first : min(first + step, x.shape[0]), ...])
        place, breaks = _ascending(breaks)
        yield place + first, breaks


def _ascending(breaks: Array) -> tuple[Array, Array]:
    """Numbers of the rows in ascending order of how many breaks (m, K) they have, with these."""
    xp = array_namespace(breaks)
    order = xp.argsort(xp.count_nonzero(breaks < 1, axis=1), stable=True)
    return order, xp.take(breaks, order, axis=0)


def _groups(
    layers: Sequence[stack.Layer], loss: Root, x: Array, y: Array | None, at: stack.Points, size: int
) -> Iterator[tuple[stack.Signals, Any]]:
    """Signals there and back at the points; groups of these where one row's are more than may be held."""
    together = max(1, HELD // (size * x.shape[0]))
    for first in range(0, at.t.shape[1], together):
        t, weight = (part[:, first : min(first + together, part.shape[1])] for part in at)
        found = stack.signals(layers, x, t)
        cotangent = slopes_at(loss, found.prediction, y) * array_namespace(t).reshape(
            weight, (*weight.shape, *(1 for _ in found.prediction.shape[2:]))
        )
        yield found, stack.backward(layers, found, cotangent, t)
