"""Where the root of a loss bends sharply along the ray: pieces are halved until each holds the identity by itself.

The length of several residuals bends where they nearly vanish together, a Huber loss where it turns straight. On each
piece [a, b] of the ray of a row the integral of the slope has to be root(b theta) - root(a theta), which is known: a
piece that misses it is cut in two. A bend of width w so costs about log2(1/w) halvings, and other rows nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.kernels import stack
from dask_nlis.kernels.quadrature import legendre
from dask_nlis.models import LayeredModel
from dask_nlis.models.layered import HELD, n_signals
from dask_nlis.rays.roots import Root, root_of, slopes_at

Array = Any

#: Nodes a piece; at what a piece misses, relative to 1 + its roots, it is whole; and the shortest one that is halved.
NODES, _GOAL, _SHORTEST = 16, 1e-13, 2.0**-50

#: What rounding leaves of a prediction, relative to it, and how many pieces of a row more than it has kinks may be too
#: coarse at a time. A bend takes two; where rounding is taken for bends, all do.
_ROUNDING, _AT_A_TIME = 2.0**-48, 64


def breaks(model: LayeredModel, loss: Root, theta: Array, x: Array, y: Array | None) -> Array:
    """Kinks of each row and ends of the pieces that its root needs between them, (m, K), ascending; 1 beyond."""
    xp, layers, inputs = array_namespace(x), model.layers(theta, x), model.shaped(x)
    kinks = stack.kinks(layers, inputs)
    edges = stack.edges_of(kinks)
    m, pieces = x.shape[0], edges.shape[1] - 1
    row = xp.reshape(xp.broadcast_to(xp.arange(m)[:, None], (m, pieces)), (-1,))
    low, high = xp.reshape(edges[:, :-1], (-1,)), xp.reshape(edges[:, 1:], (-1,))
    row, low, high = _chosen(low < high, row, low, high)
    found, owner = [xp.reshape(kinks, (-1,))], [_numbers(kinks)]
    allowed = pieces + _AT_A_TIME
    while row.shape[0]:
        coarse = xp.concat([_misses(layers, loss, *part) for part in _some(layers, inputs, y, row, low, high)])
        row, low, high = _chosen(coarse & (high - low > _SHORTEST), row, low, high)
        row, low, high = _chosen(_how_many(row) <= allowed, row, low, high)
        middle = (low + high) / 2
        found.append(middle)
        owner.append(row)
        row, low, high = xp.concat([row, row]), xp.concat([low, middle]), xp.concat([middle, high])
    return _by_row(xp.concat(owner), xp.concat(found), m)


def _numbers(kinks: Array) -> Array:
    xp = array_namespace(kinks)
    return xp.reshape(xp.broadcast_to(xp.arange(kinks.shape[0])[:, None], kinks.shape), (-1,))


def _chosen(mask: Array, *parts: Array) -> list[Array]:
    xp = array_namespace(mask)
    place = xp.nonzero(mask)[0]
    return [xp.take(part, place, axis=0) for part in parts]


def _some(layers: Sequence[stack.Layer], inputs: Array, y: Array | None, row: Array, low: Array, high: Array) -> Any:
    """As many pieces at a time as signals may be held for: inputs, labels and ends of each."""
    xp = array_namespace(low)
    step = max(1, HELD // (n_signals(list(layers), inputs) * NODES))
    for first in range(0, row.shape[0], step):
        part = slice(first, min(first + step, row.shape[0]))
        mine = xp.take(inputs, row[part], axis=0)
        yield mine, None if y is None else xp.take(y, row[part], axis=0), low[part], high[part]


def _how_many(row: Array) -> Array:
    """How many of the pieces are of the row of each."""
    xp = array_namespace(row)
    ascending = xp.sort(row)
    return xp.searchsorted(ascending, row, side="right") - xp.searchsorted(ascending, row)


def _misses(layers: Sequence[stack.Layer], loss: Root, x: Array, y: Array | None, low: Array, high: Array) -> Array:
    """Whether the integral over each piece misses the difference of the roots at its ends, by more than rounding may."""
    xp = array_namespace(x)
    node, weight = (xp.asarray(np.array(part), dtype=low.dtype) for part in legendre(NODES))
    t = low[:, None] + (high - low)[:, None] * node
    found = stack.signals(layers, x, t)
    share = (high - low)[:, None] * weight
    cotangent = slopes_at(loss, found.prediction, y) * xp.reshape(
        share, (*share.shape, *(1 for _ in found.prediction.shape[2:]))
    )
    over = stack.along(layers, found, stack.backward(layers, found, cotangent, t))
    ends = stack.signals(layers, x, xp.stack([low, high], axis=1)).prediction
    ends = xp.reshape(ends, (x.shape[0], 2, -1))
    one = ends.shape[2] == 1
    first, last = (root_of(loss, ends[:, k, 0] if one else ends[:, k, :], y) for k in (0, 1))
    rounding = _ROUNDING * xp.max(xp.abs(xp.reshape(ends, (x.shape[0], -1))), axis=1)
    return xp.abs(last - first - over) > _GOAL * (1 + xp.abs(first) + xp.abs(last)) + rounding


def _by_row(owner: Array, values: Array, m: int) -> Array:
    """Values of each row in ascending order, (m, K), 1 where it has fewer than others."""
    xp = array_namespace(values)
    inside = values < 1
    owner, values = _chosen(inside, owner, values)
    order = xp.argsort(values, stable=True)
    owner, values = xp.take(owner, order, axis=0), xp.take(values, order, axis=0)
    order = xp.argsort(owner, stable=True)
    owner, values = xp.take(owner, order, axis=0), xp.take(values, order, axis=0)
    numbers = xp.arange(m, dtype=owner.dtype)
    start, stop = xp.searchsorted(owner, numbers), xp.searchsorted(owner, numbers, side="right")
    width = int(xp.max(stop - start)) if m else 0
    place = start[:, None] + xp.arange(width, dtype=start.dtype)[None, :]
    known = place < stop[:, None]
    if not width:
        return xp.ones((m, 0), dtype=values.dtype)
    taken = xp.take(values, xp.reshape(xp.where(known, place, xp.zeros_like(place)), (-1,)), axis=0)
    return xp.where(known, xp.reshape(taken, (m, width)), xp.ones((m, width), dtype=values.dtype))
