"""Networks of dense layers with biases: of any depth, width, unit and number of outputs."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity, Relu
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.dense import Dense
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.kernels.stack import Layer
from dask_nlis.models import checks, layered
from dask_nlis.models.gates import gate
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any


@noun
class MultilayerPerceptron:
    """prediction = phi(W_L unit(... unit(W_1 x + b_1) ...) + b_L): dense layers, one output or several.

    Parameters
    ----------
    widths : sequence of int
        Units of each hidden layer, from the input on; () is a linear model.
    activation : Activation, default Identity()
        phi, applied to each output.
    unit : Activation, default Relu()
        What each hidden unit applies to its sum.
    bias : bool, default True
        Whether layers have biases.
    n_outputs : int, default 1
        Predictions a row.

    Raises
    ------
    InputError
        If a width or the number of outputs is no positive integer.
    InputTypeError
        If an argument is not of its kind.

    Notes
    -----
    theta is W1 (widths[0], d), flattened row by row, b1 (widths[0],), W2, b2, ...: the order of
    ``torch.nn.Sequential(...).parameters()``. The adjoint is integrated along the ray: exactly where units are rectifiers,
    whose kinks along the ray are found and between which the integrand is a polynomial; to the identity residual of 1e-12
    otherwise (Rajmohan & Roosta, ICML 2025, Definition 3.2). Norm scores need no row of the matrix. Without biases and with one output `DeepReluNetwork` is the same
    model with a closed form.

    Examples
    --------
    >>> import numpy as np
    >>> model = MultilayerPerceptron((2,))
    >>> theta = model.pack(W1=np.eye(2), b1=[0.0, 1.0], W2=[[1.0, 1.0]], b2=[0.5])
    >>> model.predict(theta, np.array([[3.0, -2.0]]))
    array([3.5])
    """

    widths: tuple[int, ...]
    activation: Activation = Identity()
    unit: Activation = Relu()
    bias: bool = True
    n_outputs: int = 1

    form: ClassVar[Form] = "layers"
    predict = layered.predict
    jacobian = layered.jacobian
    pullback = layered.pullback
    hessian = layered.hessian

    def __post_init__(self) -> None:
        widths: Any = self.widths
        if isinstance(widths, np.ndarray) and widths.ndim == 1:
            widths = widths.tolist()
        if not isinstance(widths, list | tuple):
            raise InputTypeError(f"MultilayerPerceptron widths={widths!r} is no sequence; give one such as (64, 32)")
        if any(not is_whole(w) or w < 1 for w in widths):
            raise InputError(f"MultilayerPerceptron widths={self.widths!r} is not allowed; give positive integers")
        object.__setattr__(self, "widths", tuple(map(int, widths)))
        if not is_whole(self.n_outputs) or self.n_outputs < 1:
            raise InputError(
                f"MultilayerPerceptron n_outputs={self.n_outputs!r} is not allowed; give a positive integer"
            )
        object.__setattr__(self, "n_outputs", int(self.n_outputs))
        object.__setattr__(self, "bias", checks.flag("MultilayerPerceptron", "bias", self.bias))
        checks.check_activation("MultilayerPerceptron", self.activation)
        checks.check_activation("MultilayerPerceptron", self.unit, "unit")

    @property
    def nodes(self) -> int | None:
        """One more than half the hidden layers, where all units are rectifiers and the outputs as they come."""
        bent = [gate(self.activation), *([gate(self.unit)] if self.widths else [])]
        straight = bent[0] is None and all(each is None or each.left is not None for each in bent)
        return len(self.widths) // 2 + 1 if straight else None

    def _shapes(self, d: int) -> list[tuple[int, int]]:
        return list(zip((*self.widths, self.n_outputs), (d, *self.widths), strict=True))

    def n_parameters(self, d: int) -> int:
        """Entries of all W and b."""
        return sum(rows * (columns + self.bias) for rows, columns in self._shapes(d))

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """W1[unit, feature], ..., b1[unit], ..."""
        names: list[str] = []
        for k, (rows, columns) in enumerate(self._shapes(len(feature_names)), start=1):
            inner = feature_names if k == 1 else [str(c) for c in range(1, columns + 1)]
            names += [f"W{k}[{r},{c}]" for r in range(1, rows + 1) for c in inner]
            names += [f"b{k}[{r}]" for r in range(1, rows + 1)] if self.bias else []
        return tuple(names)

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into W1, b1, W2, b2, ..."""
        flat = checks.vector(theta)
        behind = sum(rows * (columns + self.bias) for rows, columns in self._shapes(0)[1:])
        first = (*self.widths, self.n_outputs)[0]
        d, left = divmod(len(flat) - behind - first * self.bias, first)
        if d < 1 or left:
            raise InputError(f"theta has {len(flat)} entries; give {first} d + {behind + first * self.bias}, d >= 1")
        return self._parts(flat, d)

    def _parts(self, theta: Array, d: int) -> dict[str, Array]:
        xp, start, parts = array_namespace(theta), 0, {}
        for k, (rows, columns) in enumerate(self._shapes(d), start=1):
            parts[f"W{k}"] = xp.reshape(theta[start : start + rows * columns], (rows, columns))
            start += rows * columns
            if self.bias:
                parts[f"b{k}"] = theta[start : start + rows]
                start += rows
        return parts

    def pack(self, **parts: object) -> np.ndarray:
        """Join W1, b1, W2, b2, ... into theta."""
        numbers = range(1, len(self.widths) + 2)
        wanted = [name for k in numbers for name in (f"W{k}", *((f"b{k}",) if self.bias else ()))]
        checks.check_parts(parts, wanted)
        arrays = {name: np.asarray(parts[name], dtype=np.float64) for name in wanted}
        d = arrays["W1"].shape[1] if arrays["W1"].ndim == 2 else 0
        for k, shape in enumerate(self._shapes(d), start=1):
            for name, expected in ((f"W{k}", shape), (f"b{k}", shape[:1])):
                if name in arrays and (arrays[name].shape != expected or not arrays[name].size):
                    raise InputError(
                        f"pack got {name} of shape {arrays[name].shape}; give {expected if d else (shape[0], 'd')}"
                    )
        return np.concatenate([arrays[name].ravel() for name in wanted])

    def inputs(self, x: Array) -> Array:
        """x, with a 1 appended where there are biases."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1) if self.bias else x

    def at_zero(self, x: Array) -> Array:
        """phi(0): (m,), or (m, n_outputs)."""
        shape = (x.shape[0],) if self.n_outputs == 1 else (x.shape[0], self.n_outputs)
        return array_namespace(x).full(shape, self.activation.at_zero, dtype=x.dtype)

    def signal_width(self, d: int) -> int:
        """Features, units and outputs."""
        return d + sum(self.widths) + self.n_outputs

    def layers(self, theta: Array, x: Array) -> list[Layer]:
        """Dense layers with their units behind them."""
        parts = self._parts(theta, x.shape[1])
        last = len(self.widths) + 1
        return [
            Layer(
                Dense(parts[f"W{k}"]),
                parts[f"b{k}"][None, None, :] if self.bias else None,
                gate(self.activation if k == last else self.unit),
            )
            for k in range(1, last + 1)
        ]

    def shaped(self, x: Array) -> Array:
        """Return x: a layer takes rows of features."""
        return x
