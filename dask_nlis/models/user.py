"""Models given by two functions: a homogeneous index, or any prediction integrated along the ray."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity
from dask_nlis.errors import InputError, InputTypeError, NotHomogeneousError
from dask_nlis.kernels.calls import called, name_of
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.numbers import as_float, is_number, is_whole
from dask_nlis.models import checks, indexed
from dask_nlis.models.differences import second_derivatives
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any

#: Rows of a block on which homogeneity is checked, and how exactly it has to hold.
_CHECKED_ROWS, _CHECKED_TO = 16, 1e-8

#: How exactly Euler's <gradient, theta> = degree * value has to hold, relative to the terms of the sum: gradients by
#: differences pass.
_EULER_TO = 1e-5


def check_function(model: str, name: str, function: object) -> None:
    """Raise unless a user's function can be called (that it can be sent to workers is seen by the matrix)."""
    if not callable(function):
        raise InputTypeError(f"{model} {name}={function!r} is not callable; give a function of (theta, x)")


def checked_count(model: str, n_params: Any) -> int | Callable[[int], int]:
    """Return the number of parameters, a positive integer or a function of d, or raise."""
    if callable(n_params):
        return n_params
    if not is_whole(n_params):
        raise InputTypeError(f"{model} n_params={n_params!r} is not allowed; give an integer or a function of d")
    if n_params < 1:
        raise InputError(f"{model} n_params={n_params!r} is not allowed; give a positive integer or a function of d")
    return int(n_params)


def count(n_params: int | Callable[[int], int], d: int) -> int:
    """Length of theta for d features."""
    if not callable(n_params):
        return n_params
    found = n_params(d)
    if not is_whole(found) or found < 1:
        raise InputError(f"n_params {name_of(n_params)} returned {found!r} for d={d}; return a positive integer")
    return int(found)


def only_theta(parts: dict[str, object]) -> np.ndarray:
    """Return the one part, theta, as float64; others are refused."""
    if set(parts) != {"theta"}:
        raise InputError(f"pack got {', '.join(sorted(parts)) or 'nothing'}; give theta")
    return np.array(parts["theta"], dtype=np.float64)


def plain_names(n_params: int | Callable[[int], int], feature_names: Sequence[str]) -> tuple[str, ...]:
    """theta[0], theta[1], ...: a user's function has no names for its parameters."""
    return tuple(f"theta[{j}]" for j in range(count(n_params, len(feature_names))))


@noun
class Homogeneous:
    """prediction = phi(u(theta, x)) with a user's index u, positively homogeneous in theta.

    Parameters
    ----------
    value : callable
        u(theta (p,), x (m, d)) -> (m,), in the array API of its arguments.
    gradient : callable
        Gradient of u in theta, (theta, x) -> (m, p).
    degree : float
        alpha > 0 with u(t theta, x) = t^alpha u(theta, x) for t > 0; spot-checked on the first rows of each block.
    n_params : int or callable
        Length of theta, or a function of d that gives it.
    activation : Activation, default Identity()
        phi.

    Raises
    ------
    InputTypeError
        If a function cannot be called, or `n_params` or `activation` is not of its kind.
    InputError
        If `degree` is no positive number, or `n_params` not positive.
    NotHomogeneousError
        From the task that sees it, if u is not homogeneous of that degree.

    Notes
    -----
    The adjoint of a row is the secant of g over the degree, times the gradient of u (Rajmohan & Roosta, ICML 2025,
    Proposition 3.1). What is checked is Euler's theorem, <gradient, theta> = degree * value.

    Examples
    --------
    >>> import numpy as np
    >>> model = Homogeneous(lambda theta, x: x @ theta, lambda theta, x: x, degree=1, n_params=2)
    >>> model.predict(np.array([1.0, 2.0]), np.array([[3.0, 4.0]]))
    array([11.])
    """

    value: Callable[[Array, Array], Array]
    gradient: Callable[[Array, Array], Array]
    degree: float
    n_params: int | Callable[[int], int]
    activation: Activation = Identity()

    n_outputs = 1
    form: ClassVar[Form] = "index"
    predict = indexed.predict
    jacobian = indexed.jacobian
    hessian = indexed.hessian
    at_zero = indexed.at_zero

    def __post_init__(self) -> None:
        for name in ("value", "gradient"):
            check_function("Homogeneous", name, getattr(self, name))
        object.__setattr__(self, "n_params", checked_count("Homogeneous", self.n_params))
        if not is_number(self.degree) or not 0 < as_float(self.degree) < np.inf:
            raise InputError(f"Homogeneous degree={self.degree!r} is not allowed; give a positive number")
        object.__setattr__(self, "degree", float(self.degree))
        checks.check_activation("Homogeneous", self.activation)

    def n_parameters(self, d: int) -> int:
        """As given."""
        return count(self.n_params, d)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """theta[0], theta[1], ..."""
        return plain_names(self.n_params, feature_names)

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """One part, theta."""
        return {"theta": theta}

    def pack(self, **parts: object) -> np.ndarray:
        """Return the part theta."""
        return only_theta(parts)

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: a user's model may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def index(self, theta: Array, x: Array) -> Array:
        """The user's value, checked for homogeneity on the first rows."""
        u = self._value(theta, x)
        some = slice(0, min(_CHECKED_ROWS, x.shape[0]))
        self._spot_check(theta, x[some, :], u[some])
        return u

    def _value(self, theta: Array, x: Array) -> Array:
        return called("Homogeneous value", self.value, theta, x, shape=(x.shape[0],))

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """The user's gradient, checked on the first rows by Euler's theorem: <gradient, theta> = degree * value."""
        rows = called("Homogeneous gradient", self.gradient, theta, x, shape=(x.shape[0], theta.shape[0]))
        some = slice(0, min(_CHECKED_ROWS, x.shape[0]))
        self._check_gradient(theta, x[some, :], rows[some, :])
        return rows

    def index_hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Differences of the user's gradient."""
        return second_derivatives(self.index_gradient, theta, x, weights)

    def index_and_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> tuple[Array, Array]:
        """The user's value, and squared norms of the user's gradient rows."""
        return self.index(theta, x), squared_row_norms(self.index_gradient(theta, x))

    def _spot_check(self, theta: Array, x: Array, u: Array) -> None:
        xp = array_namespace(x)
        for t in (0.5, 2.0):
            scaled = self._value(t * theta, x)
            factor = float(np.float64(t) ** self.degree)
            size = xp.max(xp.abs(u)) * factor
            if float(xp.max(xp.abs(scaled - factor * u))) > _CHECKED_TO * float(size):
                k = int(xp.argmax(xp.abs(u)))
                ratio = float(scaled[k]) / float(u[k]) if float(u[k]) else float("nan")
                measured = f"{np.log(ratio) / np.log(t):.3g}" if ratio > 0 else "none"
                raise NotHomogeneousError(
                    f"value is not homogeneous of degree {self.degree:g} in theta (measured {measured} at t={t:g}); "
                    "give the right degree, or use Numerical"
                )

    def _check_gradient(self, theta: Array, x: Array, rows: Array) -> None:
        xp = array_namespace(x)
        expected = self.degree * self._value(theta, x)
        miss = xp.abs(rows @ theta - expected)
        scale = xp.max(xp.abs(rows) @ xp.abs(theta) + xp.abs(expected))
        if float(xp.max(miss)) > _EULER_TO * float(scale):
            k = int(xp.argmax(miss))
            raise NotHomogeneousError(
                f"gradient {name_of(self.gradient)} is not that of value {name_of(self.value)}: <gradient, theta> is "
                f"{float((rows @ theta)[k]):.6g} where degree * value is {float(expected[k]):.6g}; correct either"
            )


@noun
class Numerical:
    """Any prediction that is absolutely continuous along the ray from 0 to theta; its adjoint is integrated.

    Gauss-Legendre nodes are doubled until f(theta) = f(0) + <theta, f*> holds to `tolerance` in every row; kinks along
    the ray (rectifiers with inner biases, deeper than one layer) need many nodes. The gradient is taken at t theta.

    Parameters
    ----------
    value : callable
        Prediction (theta (p,), x (m, d)) -> (m,), in the array API of its arguments.
    gradient : callable
        Gradient of the prediction in theta, (theta, x) -> (m, p).
    n_params : int or callable
        Length of theta, or a function of d that gives it.
    tolerance : float, default 1e-6
        Largest identity residual, relative to 1 + |f(theta)| + |f(0)|, that is accepted.

    Raises
    ------
    InputTypeError
        If a function cannot be called, or `n_params` is no integer.
    InputError
        If `tolerance` is no number between 0 and 1, or `n_params` not positive.
    IdentityResidualError
        From the task that sees it, if no number of nodes reaches `tolerance`.

    Notes
    -----
    The adjoint is the mean of the gradient along the ray (Rajmohan & Roosta, ICML 2025, Definition 3.2), by Gauss-Legendre
    nodes: a polynomial of degree 2 k - 1 along the ray is exact with k nodes.

    Examples
    --------
    >>> import numpy as np
    >>> model = Numerical(lambda theta, x: (x @ theta) ** 3, lambda theta, x: 3 * (x @ theta)[:, None] ** 2 * x, n_params=2)
    >>> model.jacobian(np.array([1.0, 1.0]), np.array([[1.0, 0.0]]))
    array([[3., 0.]])
    """

    value: Callable[[Array, Array], Array]
    gradient: Callable[[Array, Array], Array]
    n_params: int | Callable[[int], int]
    tolerance: float = 1e-6

    n_outputs = 1
    default_tolerance: ClassVar[float] = 1e-6
    form: ClassVar[Form] = "ray"

    def __post_init__(self) -> None:
        for name in ("value", "gradient"):
            check_function("Numerical", name, getattr(self, name))
        object.__setattr__(self, "n_params", checked_count("Numerical", self.n_params))
        if not is_number(self.tolerance) or not 0 < self.tolerance < 1:
            raise InputError(f"Numerical tolerance={self.tolerance!r} is not allowed; give a number between 0 and 1")
        object.__setattr__(self, "tolerance", float(self.tolerance))

    def n_parameters(self, d: int) -> int:
        """As given."""
        return count(self.n_params, d)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """theta[0], theta[1], ..."""
        return plain_names(self.n_params, feature_names)

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """One part, theta."""
        return {"theta": theta}

    def pack(self, **parts: object) -> np.ndarray:
        """Return the part theta."""
        return only_theta(parts)

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: a user's model may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def predict(self, theta: Array, x: Array) -> Array:
        """The user's value."""
        return called("Numerical value", self.value, theta, x, shape=(x.shape[0],))

    def jacobian(self, theta: Array, x: Array) -> Array:
        """The user's gradient."""
        return called("Numerical gradient", self.gradient, theta, x, shape=(x.shape[0], theta.shape[0]))

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Differences of the user's gradient."""
        return second_derivatives(self.jacobian, theta, x, weights)

    def at_zero(self, x: Array) -> Array:
        """The user's value at theta = 0."""
        xp = array_namespace(x)
        return self.predict(xp.zeros((self.n_parameters(x.shape[1]),), dtype=x.dtype), x)
