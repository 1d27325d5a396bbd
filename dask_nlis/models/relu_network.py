"""One hidden layer of rectified units: prediction = phi(sum_j a_j r(<b_j, x>)), or sum_j phi(a_j r(<b_j, x>))."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity, LeakyRelu, Relu, SquaredRelu
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.kernels.relu_sums import relu_sums
from dask_nlis.models import checks, indexed
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any

#: Units r(z) that are positively homogeneous, r(tz) = t^k r(z), with their degree k.
_UNIT_DEGREE: dict[type, int] = {Relu: 1, LeakyRelu: 1, SquaredRelu: 2}


@noun
class ReluNetwork:
    """Network with one hidden layer of rectified units.

    Parameters
    ----------
    n_hidden : int
        Units m of the hidden layer.
    activation : Activation, default Identity()
        phi, on the sum of the units or, with `per_unit`, on each.
    per_unit : bool, default False
        prediction = sum_j phi(a_j r(z_j)) in place of phi(sum_j a_j r(z_j)). With squared error this has a closed
        form too (Example 3.4); with other losses the adjoint is integrated along the ray.
    hidden_bias : bool, default False
        Whether each b_j ends with a bias.
    unit : Activation, default Relu()
        r: `Relu()`, `LeakyRelu(...)` or `SquaredRelu()`.

    Raises
    ------
    InputError
        If `n_hidden` is no positive integer.
    InputTypeError
        If `unit` is none of the three, `activation` none, or a flag neither True nor False.

    Notes
    -----
    theta is a_1, b_1, ..., a_m, b_m, the bias last in b_j. The index sum_j a_j r(<b_j, x>) is homogeneous of degree
    2 (3 for squared units) in theta. The column of a_j is a combination of the columns of b_j, so the dual matrix
    has rank at most m d + 1 (m (d + 1) + 1 with biases), never full.

    Examples
    --------
    >>> import numpy as np
    >>> model = ReluNetwork(2)
    >>> theta = model.pack(a=[1.0, -1.0], b=[[1.0, 0.0], [0.0, 1.0]])
    >>> model.predict(theta, np.array([[3.0, 1.0], [-1.0, 2.0]]))
    array([ 2., -2.])
    """

    n_hidden: int
    activation: Activation = Identity()
    per_unit: bool = False
    hidden_bias: bool = False
    unit: Activation = Relu()

    n_outputs = 1

    def __post_init__(self) -> None:
        if not is_whole(self.n_hidden) or self.n_hidden < 1:
            raise InputError(f"ReluNetwork n_hidden={self.n_hidden!r} is not allowed; give a positive integer")
        object.__setattr__(self, "n_hidden", int(self.n_hidden))
        if type(self.unit) not in _UNIT_DEGREE:
            allowed = ", ".join(sorted(cls.__name__ for cls in _UNIT_DEGREE))
            raise InputTypeError(f"ReluNetwork unit={self.unit!r} is not positively homogeneous; give one of {allowed}")
        checks.check_activation("ReluNetwork", self.activation)
        for name in ("per_unit", "hidden_bias"):
            object.__setattr__(self, name, checks.flag("ReluNetwork", name, getattr(self, name)))

    @property
    def form(self) -> Form:
        """An index model, or a sum of index models when phi acts on each unit."""
        return "adjoint" if self.per_unit else "index"

    @property
    def degree(self) -> float:
        """1 for a_j and the degree of the unit for b_j."""
        return 1.0 + _UNIT_DEGREE[type(self.unit)]

    def layer_width(self, d: int) -> int:
        """Numbers in the widest layer, the d features counted: what norms of rows hold of a row at a time."""
        return max(d, self.n_hidden)

    def n_parameters(self, d: int) -> int:
        """m (1 + d), plus m with biases."""
        return self.n_hidden * (1 + d + self.hidden_bias)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """a1, b1[feature], ..., b1[bias], a2, ..."""
        inner = (*feature_names, *(("bias",) if self.hidden_bias else ()))
        return tuple(name for j in range(1, self.n_hidden + 1) for name in (f"a{j}", *(f"b{j}[{k}]" for k in inner)))

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into a (m,) and b (m, d), the bias as last column of b."""
        flat = checks.vector(theta)
        if len(flat) % self.n_hidden or len(flat) < self.n_hidden * (2 + self.hidden_bias):
            raise InputError(
                f"theta has {len(flat)} entries; give {self.n_hidden} (1 + d{' + 1' if self.hidden_bias else ''}), d >= 1"
            )
        table = flat.reshape(self.n_hidden, -1)
        return {"a": table[:, 0], "b": table[:, 1:]}

    def pack(self, **parts: object) -> np.ndarray:
        """Join a (m,) and b (m, d) into theta."""
        checks.check_parts(parts, ("a", "b"))
        a, b = (np.asarray(parts[name], dtype=np.float64) for name in ("a", "b"))
        if a.shape != (self.n_hidden,) or b.ndim != 2 or len(b) != self.n_hidden:
            raise InputError(f"pack got a {a.shape} and b {b.shape}; give ({self.n_hidden},) and ({self.n_hidden}, d)")
        return np.column_stack([a, b]).ravel()

    def inputs(self, x: Array) -> Array:
        """[x, 1] with biases, x without."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1) if self.hidden_bias else x

    def _units(self, theta: Array, x: Array) -> tuple[Array, Array, Array]:
        """Inputs (rows, q), outer weights a (m,) and pre-activations z (rows, m)."""
        xp = array_namespace(x)
        table = xp.reshape(theta, (self.n_hidden, -1))
        inner = self.inputs(x)
        return inner, table[:, 0], inner @ xp.permute_dims(table[:, 1:], (1, 0))

    def _blocks(self, theta: Array, x: Array, factor: Array | None = None) -> Array:
        """Rows of [r(z_j), a_j r'(z_j) x] for each unit, times `factor` (rows, m): (rows, p)."""
        xp = array_namespace(x)
        inner, a, z = self._units(theta, x)
        outer, slope = self.unit.value(z), a[None, :] * self.unit.derivative(z)
        if factor is not None:
            outer, slope = outer * factor, slope * factor
        blocks = xp.concat([outer[:, :, None], slope[:, :, None] * inner[:, None, :]], axis=2)
        return xp.reshape(blocks, (x.shape[0], -1))

    def index(self, theta: Array, x: Array) -> Array:
        """sum_j a_j r(z_j)."""
        _, a, z = self._units(theta, x)
        return self.unit.value(z) @ a

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """[r(z_j), a_j r'(z_j) x] for each unit."""
        return self._blocks(theta, x)

    def _bends(self, theta: Array, x: Array, weights: Array) -> Array:
        """Second derivatives of the outputs a_j r(z_j), summed over rows with weights (rows, m); units apart: (p, p)."""
        xp = array_namespace(x)
        inner, a, z = self._units(theta, x)
        across = xp.permute_dims(weights * self.unit.derivative(z), (1, 0)) @ inner  # of a_j and b_j
        within = weights * a[None, :] * self.unit.second_derivative(z)
        p, q = theta.shape[0], inner.shape[1]
        total = xp.zeros((p, p), dtype=x.dtype)
        for j in range(self.n_hidden):
            first = j * (1 + q)
            b = slice(first + 1, first + 1 + q)
            total[first, b] = across[j, :]
            total[b, first] = across[j, :]
            total[b, b] = xp.permute_dims(inner, (1, 0)) @ (within[:, j, None] * inner)
        return total

    def index_hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """r'(z_j) x between a_j and b_j, a_j r''(z_j) x x' within b_j; none between units."""
        xp = array_namespace(x)
        return self._bends(theta, x, weights[:, None] * xp.ones((1, self.n_hidden), dtype=x.dtype))

    def index_and_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> tuple[Array, Array]:
        """The index, and sum_j r(z_j)^2 + |x|^2 sum_j (a_j r'(z_j))^2: no (rows, p) array, no copy of x."""
        a, z, lengths = self._lengths(theta, x, lengths)
        if isinstance(self.unit, Relu):
            u, outer, inner = relu_sums(z, a)
            return u, outer + lengths * inner
        r, slope = self.unit.value(z), a[None, :] * self.unit.derivative(z)
        return r @ a, squared_row_norms(r) + lengths * squared_row_norms(slope)

    def adjoint_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> Array:
        """Squared norms of `adjoint`, as those of the index, each unit with a factor of its own."""
        a, z, lengths = self._lengths(theta, x, lengths)
        r, slope = self.unit.value(z), a[None, :] * self.unit.derivative(z)
        factor = self.activation.secant(_finite_or_nan(a[None, :] * r)) / self.degree
        return squared_row_norms(r * factor) + lengths * squared_row_norms(slope * factor)

    def _lengths(self, theta: Array, x: Array, lengths: Array | None) -> tuple[Array, Array, Array]:
        """Outer weights a (m,), pre-activations z (rows, m) and |x|^2 (rows,), a bias counted as a feature that is 1."""
        xp = array_namespace(x)
        table, d = xp.reshape(theta, (self.n_hidden, -1)), x.shape[1]
        z = x @ xp.permute_dims(table[:, 1 : d + 1], (1, 0))
        if self.hidden_bias:
            z = z + table[None, :, d + 1]
        lengths = squared_row_norms(x) if lengths is None else lengths
        return table[:, 0], z, lengths + int(self.hidden_bias)

    def _outputs(self, theta: Array, x: Array) -> Array:
        """a_j r(z_j), (rows, m); NaN where it overflows, since phi may level off and hide that."""
        _, a, z = self._units(theta, x)
        return _finite_or_nan(a[None, :] * self.unit.value(z))

    def predict(self, theta: Array, x: Array) -> Array:
        """phi of the sum, or the sum of phi."""
        if not self.per_unit:
            return indexed.predict(self, theta, x)
        _, a, z = self._units(theta, x)
        return array_namespace(x).sum(self.activation.value(a[None, :] * self.unit.value(z)), axis=1)

    def jacobian(self, theta: Array, x: Array) -> Array:
        """Gradient of the prediction."""
        if not self.per_unit:
            return indexed.jacobian(self, theta, x)
        return self._blocks(theta, x, self.activation.derivative(self._outputs(theta, x)))

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Second derivatives of the prediction; those of phi on each unit stay within the unit."""
        if not self.per_unit:
            return indexed.hessian(self, theta, x, weights)
        xp = array_namespace(x)
        outputs, rows = self._outputs(theta, x), self._blocks(theta, x)
        total = self._bends(theta, x, weights[:, None] * self.activation.derivative(outputs))
        bend = weights[:, None] * self.activation.second_derivative(outputs)
        size = theta.shape[0] // self.n_hidden
        for j in range(self.n_hidden):
            own = slice(j * size, (j + 1) * size)
            total[own, own] += xp.permute_dims(rows[:, own], (1, 0)) @ (bend[:, j, None] * rows[:, own])
        return total

    def adjoint(self, theta: Array, x: Array) -> Array:
        """Closed form of the per-unit network: each unit is an index model of its own parameters."""
        return self._blocks(theta, x, self.activation.secant(self._outputs(theta, x)) / self.degree)

    def at_zero(self, x: Array) -> Array:
        """phi(0), or m phi(0)."""
        units = self.n_hidden if self.per_unit else 1
        return array_namespace(x).full((x.shape[0],), units * self.activation.at_zero, dtype=x.dtype)


def _finite_or_nan(outputs: Array) -> Array:
    xp = array_namespace(outputs)
    return xp.where(xp.isfinite(outputs), outputs, xp.nan * xp.ones_like(outputs))
