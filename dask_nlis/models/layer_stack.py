"""A network of layers one after the other, some of whose parameters are theta and the others fixed."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity
from dask_nlis.device import like
from dask_nlis.errors import InputError
from dask_nlis.kernels.convolution import Convolution, Reshaped
from dask_nlis.kernels.dense import Dense
from dask_nlis.kernels.stack import Layer, Linear
from dask_nlis.models import checks, layered
from dask_nlis.models.gates import gate
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any


#: Dimensions of the kernel of each kind of layer.
_DIMENSIONS = {"dense": 2, "convolution": 4, "reshape": 0}


@noun
class LayerOf:
    """One layer: a kernel and a bias with their names, whether they are in theta, and the function behind it."""

    kind: Literal["dense", "convolution", "reshape"]
    kernel: np.ndarray | None = None  # (out, in), or (out, channels, height, width)
    bias: np.ndarray | None = None  # (out,)
    kernel_name: str = ""
    bias_name: str = ""
    moves: bool = False
    bias_moves: bool = False
    unit: Activation = Identity()
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if self.kind not in _DIMENSIONS:
            raise InputError(f"LayerOf kind={self.kind!r} is not known; give {', '.join(map(repr, _DIMENSIONS))}")
        checks.check_activation("LayerOf", self.unit, "unit")
        for name in ("kernel", "bias"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value, dtype=np.float64))
        if (0 if self.kernel is None else self.kernel.ndim) != _DIMENSIONS[self.kind]:
            raise InputError(
                f"LayerOf {self.kind} has a kernel of another number of dimensions than {_DIMENSIONS[self.kind]}"
            )

    def check(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what comes out of signals of a shape, or raise."""
        if self.kernel is not None and (self.kernel.shape[1] != shape[0] or len(shape) != self.kernel.ndim - 1):
            raise InputError(
                f"LayerOf {self.kind} takes no signals of shape {shape}; give layers that follow one another"
            )
        out = self.linear(self.kernel, shape).shape
        if min(out, default=0) < 1 or (self.bias is not None and self.bias.shape != out[:1]):
            raise InputError(
                f"LayerOf {self.kind} makes signals of shape {out} of {shape}; give a bias for each of them"
            )
        return out

    def linear(self, kernel: Array, shape: tuple[int, ...]) -> Linear:
        """The linear map with a kernel, of signals of a shape."""
        if self.kind == "dense":
            return Dense(kernel)
        if self.kind == "reshape":
            return Reshaped(shape, (math.prod(shape),))
        channels, height, width = shape
        return Convolution(kernel, (channels, height, width), self.stride, self.padding, self.dilation)


@noun
class LayerStack:
    """prediction = what comes out of layers one after the other: dense ones and convolutions; made by `from_torch`.

    Rectifiers between them are followed along the ray, kink by kink, so that the adjoint is exact; of others it is
    integrated to the identity residual of 1e-12. Norm scores need no row of the matrix. NumPy and CuPy alone run.

    Attributes
    ----------
    stack : tuple of LayerOf
        The layers, from the input on.
    input_shape : tuple of int
        What a row of X is reshaped to.
    theta : ndarray of shape (p,)
        Parameters as they came: those that are theta, in the order of the layers, kernel before bias, C-flattened.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_nlis.models import LayerOf
    >>> model = LayerStack((LayerOf("dense", np.array([[1.0, 2.0]]), kernel_name="weight", moves=True),), (2,))
    >>> model.predict(model.theta, np.array([[3.0, 4.0]]))
    array([11.])
    """

    stack: tuple[LayerOf, ...]
    input_shape: tuple[int, ...]

    activation = Identity()
    form: ClassVar[Form] = "layers"
    predict = layered.predict
    jacobian = layered.jacobian
    pullback = layered.pullback
    hessian = layered.hessian

    def __post_init__(self) -> None:
        if not self.stack or not all(isinstance(layer, LayerOf) for layer in self.stack):
            raise InputError("LayerStack stack holds something else than layers; give a tuple of LayerOf")
        shape = self.input_shape
        for layer in self.stack:
            shape = layer.check(shape)
        if not self._moving():
            raise InputError("LayerStack has no parameter in theta; give a layer that moves")

    @property
    def theta(self) -> np.ndarray:
        """Parameters as they came, (p,)."""
        return np.concatenate([values.ravel() for _, values in self._moving()])

    def _moving(self) -> list[tuple[str, np.ndarray]]:
        found = []
        for layer in self.stack:
            if layer.moves and layer.kernel is not None:
                found.append((layer.kernel_name, layer.kernel))
            if layer.bias_moves and layer.bias is not None:
                found.append((layer.bias_name, layer.bias))
        return found

    @property
    def n_outputs(self) -> int:
        """Predictions a row."""
        return math.prod(self._shapes()[-1])

    @property
    def nodes(self) -> int | None:
        """Half the degree of the gradient along the ray, where all units are rectifiers."""
        degree = 0
        for layer in self.stack:
            bent = gate(layer.unit)
            if bent is not None and bent.left is None:
                return None
            degree = max(degree + layer.moves, int(layer.bias_moves))
        return (max(1, degree) - 1) // 2 + 1

    def _shapes(self) -> list[tuple[int, ...]]:
        """Shapes of what comes out of each layer."""
        shapes, shape = [], self.input_shape
        for layer in self.stack:
            shape = layer.linear(layer.kernel, shape).shape
            shapes.append(shape)
        return shapes

    def n_parameters(self, d: int) -> int:
        """Length of theta; raises unless d numbers are a row."""
        if d != math.prod(self.input_shape):
            raise InputError(
                f"X has {d} columns, but the module takes {math.prod(self.input_shape)} numbers a row (input_shape "
                f"{self.input_shape}); give that many"
            )
        return sum(values.size for _, values in self._moving())

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Names of the module's parameters with their indices: fc.weight[0,1]."""
        return tuple(
            f"{name}[{','.join(map(str, index))}]"
            for name, values in self._moving()
            for index in np.ndindex(values.shape)
        )

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into the module's parameters, by name."""
        flat, parts, start = checks.vector(theta), {}, 0
        p = sum(values.size for _, values in self._moving())
        if len(flat) != p:
            raise InputError(f"theta has {len(flat)} entries; give {p}")
        for name, values in self._moving():
            parts[name] = flat[start : start + values.size].reshape(values.shape)
            start += values.size
        return parts

    def pack(self, **parts: object) -> np.ndarray:
        """Join the module's parameters, by name, into theta."""
        moving = self._moving()
        checks.check_parts(parts, [name for name, _ in moving])
        arrays = [np.asarray(parts[name], dtype=np.float64) for name, _ in moving]
        for (name, values), array in zip(moving, arrays, strict=True):
            if array.shape != values.shape:
                raise InputError(f"pack got {name} of shape {array.shape}; give {values.shape}")
        return np.concatenate([array.ravel() for array in arrays])

    def inputs(self, x: Array) -> Array:
        """x, with a 1 appended where any bias is in theta."""
        xp = array_namespace(x)
        if not any(layer.bias_moves for layer in self.stack):
            return x
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def at_zero(self, x: Array) -> Array:
        """Prediction at theta = 0, where the fixed parameters stay: (m,) or (m, n_outputs)."""
        return self.predict(array_namespace(x).zeros((self.n_parameters(x.shape[1]),), dtype=x.dtype), x)

    def signal_width(self, d: int) -> int:
        """Numbers that a row is in all layers."""
        return d + sum(map(math.prod, self._shapes()))

    def layers(self, theta: Array, x: Array) -> list[Layer]:
        """The layers, those in theta of its entries."""
        xp, found, start = array_namespace(x), [], 0
        shapes = self._shapes()
        for layer, before, shape in zip(self.stack, [self.input_shape, *shapes], shapes, strict=False):
            kernel, bias = layer.kernel, layer.bias
            if kernel is not None:
                kernel, start = _taken(kernel, layer.moves, theta, start, x)
            if bias is not None:
                bias, start = _taken(bias, layer.bias_moves, theta, start, x)
                bias = xp.reshape(bias, (1, 1, -1, *(1 for _ in shape[1:])))
            moves = layer.moves and kernel is not None
            found.append(Layer(layer.linear(kernel, before), bias, gate(layer.unit), moves, layer.bias_moves))
        return found

    def shaped(self, x: Array) -> Array:
        """Rows (m, d) -> (m, *input_shape)."""
        return array_namespace(x).reshape(x, (x.shape[0], *self.input_shape))

    def _summary(self) -> dict[str, Any]:
        kinds = [
            f"{layer.kind}{'' if isinstance(layer.unit, Identity) else ' ' + type(layer.unit).__name__}"
            for layer in self.stack
        ]
        return {
            "input_shape": self.input_shape,
            "layers": tuple(kinds),
            "n_outputs": self.n_outputs,
            "parameters": tuple(name for name, _ in self._moving()),
            "p": len(self.theta),
        }


def _taken(values: np.ndarray, moves: bool, theta: Array, start: int, x: Array) -> tuple[Array, int]:
    """Parameters from theta where they are in it, and where the next ones begin there."""
    if not moves:
        return like(values, x), start
    return array_namespace(x).reshape(theta[start : start + values.size], values.shape), start + values.size
