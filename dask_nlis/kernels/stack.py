"""A prediction made of affine layers with a function of each number between them, along the ray t theta.

Every row is looked at from several points of the ray at once, its own: arrays of signals have shape (m, k, ...), m rows
and k points, or (m, 1, ...) where all points share them. At t theta a layer is t A h + t b, if both are in theta. The
gradient in A of what comes out is the outer product of the signal that comes back to the layer with the one that went
in, so that rows of gradients, sums of them over points, and the lengths of these need no gradient of a whole row.

Between kinks, the points at which a rectifier changes side, all of it is a polynomial in t. In a net whose biases are in
theta the input of a unit is t times a polynomial whose degree is the number of layers before it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.kernels.crossings import crossings, value

Array = Any


class Linear(Protocol):
    """A linear map of a signal (m, k, *in) -> (m, k, *out), with the parameters in it, if any."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what comes out of it, without m and k."""

    @property
    def size(self) -> int:
        """How many parameters it has."""

    def apply(self, signal: Array) -> Array:
        """(m, k, *in) -> (m, k, *out)."""

    def pull(self, signal: Array) -> Array:
        """Transposed: (m, k, *out) -> (m, k, *in)."""

    def outer(self, back: Array, ahead: Array) -> Array:
        """Sum over the points of the gradient in the parameters: (m, k, *out), (m, k or 1, *in) -> (m, size)."""

    def outer_norms(self, back: Array, ahead: Array) -> Array:
        """Squared lengths of these, (m,)."""

    def shared(self, back: Array) -> Array:
        """Sum over the points of the gradient in the bias: (m, k, *out) -> (m, number of biases)."""


class Gate(NamedTuple):
    """A function of each number, with its slope; `left` is the slope for t <= 0 where it is a rectifier, 1 beyond."""

    value: Any
    derivative: Any
    left: float | None = None


class Layer(NamedTuple):
    """t A h + t b, each times t only if it is in theta, then a gate; `bias` (1, 1, *out) or None."""

    linear: Linear
    bias: Array | None
    gate: Gate | None
    moves: bool = True  # A is in theta
    bias_moves: bool = True


class Signals(NamedTuple):
    """What goes into each layer, the slopes of the gates behind it, and what comes out at the end, (m, k, n_outputs)."""

    ahead: list[Array]
    slopes: list[Array | None]
    prediction: Array


def signals(layers: Sequence[Layer], x: Array, t: Array) -> Signals:
    """Send rows x (m, *in) through the layers at the points t (m, k)."""
    ahead, slopes = [], []
    signal = x[:, None, ...]
    for layer in layers:
        ahead.append(signal)
        signal = _after(layer, signal, t)
        slopes.append(None if layer.gate is None else layer.gate.derivative(signal))
        signal = signal if layer.gate is None else layer.gate.value(signal)
    xp = array_namespace(x)
    return Signals(ahead, slopes, xp.broadcast_to(signal, (*t.shape, *signal.shape[2:])))


def _over(t: Array, shape: tuple[int, ...]) -> Array:
    """T (m, k) beside signals whose numbers have that shape."""
    return array_namespace(t).reshape(t, (*t.shape, *(1 for _ in shape)))


def _after(layer: Layer, signal: Array, t: Array) -> Array:
    out = layer.linear.apply(signal)
    scale = _over(t, layer.linear.shape)
    if layer.moves:
        out = out * scale
    if layer.bias is not None:
        out = out + (layer.bias * scale if layer.bias_moves else layer.bias)
    return out


def backward(layers: Sequence[Layer], found: Signals, cotangent: Array, t: Array) -> list[Array | None]:
    """What comes back to each layer whose parameters are in theta, from a cotangent (m, k, *out); None for others."""
    back: list[Array | None] = []
    signal = cotangent
    first = next(k for k, layer in enumerate(layers) if layer.moves or (layer.bias is not None and layer.bias_moves))
    for k in range(len(layers) - 1, first - 1, -1):
        layer, slope = layers[k], found.slopes[k]
        signal = signal if slope is None else signal * slope
        wanted = layer.moves or (layer.bias is not None and layer.bias_moves)
        back.append(signal if wanted else None)
        if k > first:
            signal = layer.linear.pull(signal)
            signal = signal * _over(t, tuple(signal.shape[2:])) if layer.moves else signal
    return [*(None for _ in range(first)), *reversed(back)]


def rows(layers: Sequence[Layer], found: Signals, back: Sequence[Array | None]) -> Array:
    """Gradients in theta summed over the points, (m, p): layer by layer A, then b, of those that are in theta."""
    parts = []
    for layer, ahead, signal in zip(layers, found.ahead, back, strict=True):
        if signal is not None and layer.moves and layer.linear.size:
            parts.append(layer.linear.outer(signal, ahead))
        if signal is not None and layer.bias is not None and layer.bias_moves:
            parts.append(layer.linear.shared(signal))
    return array_namespace(parts[0]).concat(parts, axis=1)


def norms(layers: Sequence[Layer], found: Signals, back: Sequence[Array | None]) -> Array:
    """Squared lengths of `rows`, (m,), without forming them."""
    total: Array = 0.0
    for layer, ahead, signal in zip(layers, found.ahead, back, strict=True):
        if signal is not None and layer.moves and layer.linear.size:
            total = total + layer.linear.outer_norms(signal, ahead)
        if signal is not None and layer.bias is not None and layer.bias_moves:
            shared = layer.linear.shared(signal)
            total = total + array_namespace(shared).sum(shared * shared, axis=1)
    return total


def along(layers: Sequence[Layer], found: Signals, back: Sequence[Array | None]) -> Array:
    """Products of `rows` with theta, (m,), without forming them: the integral of the slope of f(t theta) in t."""
    total: Array = 0.0
    for layer, ahead, signal in zip(layers, found.ahead, back, strict=True):
        if signal is None:
            continue
        moved = layer.linear.apply(ahead) if layer.moves else 0.0 * signal
        moved = moved + layer.bias if layer.bias is not None and layer.bias_moves else moved
        total = total + array_namespace(signal).sum(signal * moved, axis=tuple(range(1, signal.ndim)))
    return total


def kinks(layers: Sequence[Layer], x: Array) -> Array:
    """Points 0 < t < 1 at which a rectifier changes side, x (m, *in) -> (m, K), ascending; 1 where there are fewer.

    Layer by layer: between the kinks found so far the numbers that enter the next gate are polynomials in t; behind a
    gate that is no rectifier they are not, and kinks there stay unknown.
    """
    xp = array_namespace(x)
    found = xp.ones((x.shape[0], 0), dtype=x.dtype)
    for k, layer in enumerate(layers):
        if layer.gate is None:
            continue
        if layer.gate.left is None:
            break
        edges = edges_of(found)
        low, high = edges[:, :-1], edges[:, 1:]
        entering = _polynomials(layers[: k + 1], x, (low + high) / 2)  # (m, pieces, *shape, degree + 1)
        if entering.shape[-1] == 1:
            continue
        m, pieces = low.shape
        flat = xp.reshape(entering, (m, pieces, -1, entering.shape[-1]))
        shape = flat.shape[:-1]
        roots = crossings(flat, xp.broadcast_to(low[..., None], shape), xp.broadcast_to(high[..., None], shape))
        roots = xp.where(roots < high[..., None, None], roots, xp.ones_like(roots))
        found = xp.sort(xp.concat([found, xp.reshape(roots, (m, -1))], axis=1), axis=1)
        found = found[:, : int(xp.max(xp.count_nonzero(found < 1, axis=1))) if m else 0]
    return found


def edges_of(breaks: Array) -> Array:
    """0, the kinks (m, K), 1: the ends of the pieces of the ray, (m, K + 2)."""
    xp = array_namespace(breaks)
    column = xp.zeros((breaks.shape[0], 1), dtype=breaks.dtype)
    return xp.concat([column, breaks, column + 1], axis=1)


def _polynomials(layers: Sequence[Layer], x: Array, t: Array) -> Array:
    """What enters the last gate as polynomials in t, those of the piece of the ray that t (m, pieces) lies in.

    Divided by t where all of it has that factor, which changes no sign: the degree is lower by one.
    """
    xp = array_namespace(x)
    coefficients = [x[:, None, ...]]  # of t^0, t^1, ...
    for k, layer in enumerate(layers):
        coefficients = [layer.linear.apply(each) for each in coefficients]
        if layer.moves:
            coefficients = [0.0 * coefficients[0], *coefficients]
        if layer.bias is not None:
            at = int(layer.bias_moves)
            while len(coefficients) <= at:
                coefficients.append(0.0 * coefficients[0])
            coefficients[at] = coefficients[at] + layer.bias
        common = layer.moves and (layer.bias is None or layer.bias_moves)
        joined = xp.stack(xp.broadcast_arrays(*coefficients), axis=-1)
        if k == len(layers) - 1:
            return joined[..., 1:] if common else joined
        if layer.gate is not None:
            assert layer.gate.left is not None
            sign = value(joined[..., 1:] if common else joined, _over(t, layer.linear.shape))
            slope = xp.where(sign > 0, xp.ones_like(sign), layer.gate.left * xp.ones_like(sign))
            coefficients = [slope * each for each in coefficients]
    raise AssertionError  # the last layer returns


class Points(NamedTuple):
    """Points of the ray of each row with their weights, (m, k)."""

    t: Array
    weight: Array


def points(breaks: Array, nodes: Sequence[float], weights: Sequence[float]) -> Points:
    """Nodes and weights on [0, 1], in every piece between kinks (m, K): k = (K + 1) len(nodes)."""
    xp = array_namespace(breaks)
    edges = edges_of(breaks)
    low, length = edges[:, :-1, None], (edges[:, 1:] - edges[:, :-1])[..., None]
    node, share = (xp.asarray(np.array(part), dtype=breaks.dtype) for part in (nodes, weights))
    shape = (breaks.shape[0], -1)
    return Points(xp.reshape(low + length * node, shape), xp.reshape(length * share, shape))
