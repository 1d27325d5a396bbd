"""Bias-free rectified networks of any depth: homogeneous of degree L in theta, so with a closed-form adjoint."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.models import checks, indexed
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any


@noun
class DeepReluNetwork:
    """prediction = phi(a . relu(W_k ... relu(W_1 x))), without biases.

    Parameters
    ----------
    widths : sequence of int
        Units of each hidden layer, from the input on.
    activation : Activation, default Identity()
        phi.

    Raises
    ------
    InputError
        If a width is no positive integer, or there is none.
    InputTypeError
        If `widths` is no sequence, or `activation` none.

    Notes
    -----
    theta is W1 (widths[0], d), W2, ..., each flattened row by row, then a. The index is homogeneous of degree
    len(widths) + 1 in theta (Rajmohan & Roosta, ICML 2025, Proposition 3.1). Norm scores come from activations and back-propagated signals, layer by layer, without
    per-row gradients.

    Examples
    --------
    >>> import numpy as np
    >>> model = DeepReluNetwork((2, 2))
    >>> theta = model.pack(W1=np.eye(2), W2=np.eye(2), a=[1.0, 1.0])
    >>> model.predict(theta, np.array([[3.0, -1.0]])), model.degree
    (array([3.]), 3.0)
    """

    widths: tuple[int, ...]
    activation: Activation = Identity()

    n_outputs = 1
    form: ClassVar[Form] = "index"
    predict = indexed.predict
    jacobian = indexed.jacobian
    hessian = indexed.hessian
    at_zero = indexed.at_zero

    def __post_init__(self) -> None:
        widths: Any = self.widths
        if isinstance(widths, np.ndarray) and widths.ndim == 1:
            widths = widths.tolist()
        if not isinstance(widths, list | tuple):
            raise InputTypeError(f"DeepReluNetwork widths={widths!r} is no sequence; give one such as (64, 32)")
        if not widths or any(not is_whole(w) or w < 1 for w in widths):
            raise InputError(f"DeepReluNetwork widths={self.widths!r} is not allowed; give positive integers")
        object.__setattr__(self, "widths", tuple(map(int, widths)))
        checks.check_activation("DeepReluNetwork", self.activation)

    @property
    def degree(self) -> float:
        """Number of layers."""
        return float(len(self.widths) + 1)

    def _shapes(self, d: int) -> list[tuple[int, int]]:
        return [*zip(self.widths, (d, *self.widths[:-1]), strict=True), (1, self.widths[-1])]

    def layer_width(self, d: int) -> int:
        """Numbers in the widest layer, the d features counted: what norms of rows hold of a row at a time."""
        return max(d, *self.widths)

    def n_parameters(self, d: int) -> int:
        """Sum of the sizes of the layers."""
        return sum(rows * columns for rows, columns in self._shapes(d))

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """W1[unit, feature], ..., a[unit]."""
        names: list[str] = []
        for k, (rows, columns) in enumerate(self._shapes(len(feature_names)), start=1):
            inner = feature_names if k == 1 else [str(c) for c in range(1, columns + 1)]
            last = k > len(self.widths)
            names += [f"a[{c}]" if last else f"W{k}[{r + 1},{c}]" for r in range(rows) for c in inner]
        return tuple(names)

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into W1, W2, ..., a."""
        flat = checks.vector(theta)
        layers = self._layers(flat)
        if sum(layer.size for layer in layers) != len(flat) or not layers[0].size:
            raise InputError(
                f"theta has {len(flat)} entries; give {self.widths[0]} d + {self._behind_the_first()}, d >= 1"
            )
        named = {f"W{k}": layer for k, layer in enumerate(layers[:-1], start=1)}
        return named | {"a": layers[-1][0]}

    def pack(self, **parts: object) -> np.ndarray:
        """Join W1, W2, ..., a into theta."""
        wanted = [*(f"W{k}" for k in range(1, len(self.widths) + 1)), "a"]
        checks.check_parts(parts, wanted)
        layers = [np.asarray(parts[name], dtype=np.float64) for name in wanted]
        d = layers[0].shape[1] if layers[0].ndim == 2 else 0
        for name, layer, shape in zip(wanted, layers, self._shapes(d), strict=True):
            expected = shape[1:] if name == "a" else shape
            if layer.shape != expected or not layer.size:
                raise InputError(
                    f"pack got {name} of shape {layer.shape}; give {expected if d else (self.widths[0], 'd')}"
                )
        return np.concatenate([layer.ravel() for layer in layers])

    def _behind_the_first(self) -> int:
        """Parameters of all layers but the first."""
        return sum(w * v for w, v in zip(self.widths[1:], self.widths[:-1], strict=True)) + self.widths[-1]

    def _layers(self, theta: Array) -> list[Array]:
        xp = array_namespace(theta)
        d = max(0, theta.shape[0] - self._behind_the_first()) // self.widths[0]
        layers, start = [], 0
        for rows, columns in self._shapes(d):
            layers.append(xp.reshape(theta[start : start + rows * columns], (rows, columns)))
            start += rows * columns
        return layers

    def inputs(self, x: Array) -> Array:
        """Return x: there is no bias."""
        return x

    def _signals(self, theta: Array, x: Array) -> list[tuple[Array, Array]]:
        """For each layer the gradient of u in its output (rows, w) and its input (rows, v)."""
        xp = array_namespace(x)
        layers = self._layers(theta)
        inputs, gates = [x], []
        for layer in layers[:-1]:
            z = inputs[-1] @ xp.permute_dims(layer, (1, 0))
            gates.append(xp.astype(z > 0, x.dtype))
            inputs.append(z * gates[-1])
        signal = xp.ones((x.shape[0], 1), dtype=x.dtype)
        signals = [signal]
        for layer, gate in zip(reversed(layers[1:]), reversed(gates), strict=True):
            signal = (signal @ layer) * gate
            signals.append(signal)
        return list(zip(reversed(signals), inputs, strict=True))

    def index(self, theta: Array, x: Array) -> Array:
        """a . relu(W_k ... relu(W_1 x))."""
        xp = array_namespace(x)
        layers = self._layers(theta)
        hidden = x
        for layer in layers[:-1]:
            z = hidden @ xp.permute_dims(layer, (1, 0))
            hidden = xp.where(z > 0, z, xp.zeros_like(z))
        return hidden @ layers[-1][0, :]

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """Outer products of signal and input, layer by layer."""
        xp = array_namespace(x)
        return xp.concat(
            [xp.reshape(s[:, :, None] * h[:, None, :], (x.shape[0], -1)) for s, h in self._signals(theta, x)], axis=1
        )

    def index_hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Layers k < m: signal of m times the change of its input with the output of k times the input of k.

        Where no unit changes side the index is linear in each layer, so that there is nothing within a layer.
        """
        xp = array_namespace(x)
        p = theta.shape[0]
        total = xp.zeros((p, p), dtype=x.dtype)
        # Rows at a time, so that changes of inputs times inputs stay at 32 MB.
        at_once = max(1, 2**22 // (p * max(self.widths)))
        for first in range(0, x.shape[0], at_once):
            some = slice(first, min(first + at_once, x.shape[0]))
            total = total + self._between_layers(theta, x[some, :], weights[some])
        return total + xp.permute_dims(total, (1, 0))

    def _between_layers(self, theta: Array, x: Array, weights: Array) -> Array:
        """Upper triangle of blocks of `index_hessian`, over all rows at once."""
        xp = array_namespace(x)
        layers, signals = self._layers(theta), self._signals(theta, x)
        starts = [0]
        for layer in layers:
            starts.append(starts[-1] + layer.shape[0] * layer.shape[1])
        total = xp.zeros((theta.shape[0], theta.shape[0]), dtype=x.dtype)
        for k in range(len(layers) - 1):
            into = signals[k][1][:, None, None, :]
            change = xp.eye(layers[k].shape[0], dtype=x.dtype)[None, :, :]  # of the output of k, with itself
            for m in range(k + 1, len(layers)):
                signal, hidden = signals[m]
                change = change * xp.astype(hidden > 0, x.dtype)[:, :, None]
                moved = xp.reshape(change[:, :, :, None] * into, (x.shape[0], -1))
                block = xp.permute_dims(weights[:, None] * signal, (1, 0)) @ moved
                shape = (starts[m + 1] - starts[m], starts[k + 1] - starts[k])
                upper = xp.permute_dims(xp.reshape(block, shape), (1, 0))
                total[starts[k] : starts[k + 1], starts[m] : starts[m + 1]] = upper
                change = layers[m][None, :, :] @ change
        return total

    def index_and_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> tuple[Array, Array]:
        """The index, and the sum over layers of |signal|^2 |input|^2."""
        signals = self._signals(theta, x)
        total = squared_row_norms(signals[0][0]) * (squared_row_norms(x) if lengths is None else lengths)
        for signal, hidden in signals[1:]:
            total = total + squared_row_norms(signal) * squared_row_norms(hidden)
        return signals[-1][1] @ self._layers(theta)[-1][0, :], total
