"""What every model made of layers has in common: prediction and gradient are signals at theta itself, t = 1."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.kernels import stack
from dask_nlis.models.differences import hessian_of
from dask_nlis.models.protocol import LayeredModel

Array = Any

#: Numbers of signals that are held at a time.
HELD = 2**21


def predict(model: LayeredModel, theta: Array, x: Array) -> Array:
    """What comes out of the layers, (m,) or (m, n_outputs)."""
    xp, layers = array_namespace(x), model.layers(theta, x)
    parts = [_ahead(layers, part).prediction[:, 0, ...] for part in _some(layers, model.shaped(x))]
    out = xp.reshape(parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), (x.shape[0], model.n_outputs))
    return out[:, 0] if model.n_outputs == 1 else out


def jacobian(model: LayeredModel, theta: Array, x: Array) -> Array:
    """Gradient of the prediction in theta of a model with one output, (m, p)."""
    return pullback(model, theta, x, array_namespace(x).ones((x.shape[0], 1), dtype=x.dtype))


def pullback(model: LayeredModel, theta: Array, x: Array, cotangent: Array) -> Array:
    """Gradient in theta of the sum of each row's outputs times a cotangent, (m, n_outputs) -> (m, p)."""
    xp, layers, start, parts = array_namespace(x), model.layers(theta, x), 0, []
    for part in _some(layers, model.shaped(x)):
        found, stop = _ahead(layers, part), start + part.shape[0]
        signal = xp.reshape(cotangent[start:stop, :], found.prediction.shape)
        back = stack.backward(layers, found, signal, xp.ones((part.shape[0], 1), dtype=x.dtype))
        parts.append(stack.rows(layers, found, back))
        start = stop
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def hessian(model: LayeredModel, theta: Array, x: Array, weights: Array) -> Array:
    """Differences of the gradient, weights (m,) or (m, n_outputs) -> (p, p)."""
    return hessian_of(model, theta, x, weights)


def n_signals(layers: list[stack.Layer], x: Array) -> int:
    """Numbers that one row is in all layers, at one point of the ray."""
    return int(np.prod(x.shape[1:])) + sum(int(np.prod(layer.linear.shape)) for layer in layers)


def _ahead(layers: list[stack.Layer], x: Array) -> stack.Signals:
    return stack.signals(layers, x, array_namespace(x).ones((x.shape[0], 1), dtype=x.dtype))


def _some(layers: list[stack.Layer], x: Array) -> Iterator[Array]:
    """As many rows at a time as signals may be held for."""
    step = max(1, HELD // n_signals(layers, x))
    for first in range(0, max(1, x.shape[0]), step):
        yield x[first : min(first + step, x.shape[0]), ...]
