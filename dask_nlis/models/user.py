"""Models given by two functions: a homogeneous index, or any prediction integrated along the ray."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import Activation, Identity
from dask_nlis.errors import InputError, InputTypeError, NotHomogeneousError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.models import indexed
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any

#: Rows of a block on which homogeneity is checked, and how exactly it has to hold.
_CHECKED_ROWS, _CHECKED_TO = 16, 1e-8


def check_function(model: str, name: str, function: object) -> None:
    """Raise unless a user's function can be called (that it can be sent to workers is seen by the matrix)."""
    if not callable(function):
        raise InputTypeError(f"{model} {name}={function!r} is not callable; give a function of (theta, x)")


def check_count(model: str, n_parameters: object) -> None:
    """Raise unless the number of parameters is given as an integer or a function of d."""
    if isinstance(n_parameters, bool) or not (isinstance(n_parameters, int) or callable(n_parameters)):
        raise InputTypeError(f"{model} n_params={n_parameters!r} is not allowed; give an integer or a function of d")


def called(function: Callable[[Array, Array], Array], theta: Array, x: Array, shape: tuple[int, ...]) -> Array:
    """Call a user's function and compare the shape of what it returns."""
    found = function(theta, x)
    if tuple(found.shape) != shape:
        name = getattr(function, "__name__", repr(function))
        raise InputError(f"{name} returned shape {tuple(found.shape)} for x of shape {tuple(x.shape)}; return {shape}")
    return found


def count(n_params: int | Callable[[int], int], d: int) -> int:
    """Length of theta for d features."""
    return int(n_params(d)) if callable(n_params) else n_params


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
        If a function cannot be called.
    NotHomogeneousError
        From the task that sees it, if u is not homogeneous of that degree.

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
    at_zero = indexed.at_zero

    def __post_init__(self) -> None:
        for name in ("value", "gradient"):
            check_function("Homogeneous", name, getattr(self, name))
        check_count("Homogeneous", self.n_params)
        if isinstance(self.degree, bool) or not isinstance(self.degree, int | float) or not 0 < self.degree < np.inf:
            raise InputError(f"Homogeneous degree={self.degree!r} is not allowed; give a positive number")

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
        return np.array(parts["theta"], dtype=np.float64)

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: a user's model may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def index(self, theta: Array, x: Array) -> Array:
        """The user's value, checked for homogeneity on the first rows."""
        u = called(self.value, theta, x, (x.shape[0],))
        self._spot_check(theta, x[:_CHECKED_ROWS, :], u[:_CHECKED_ROWS])
        return u

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """The user's gradient."""
        return called(self.gradient, theta, x, (x.shape[0], theta.shape[0]))

    def index_gradient_norms(self, theta: Array, x: Array) -> Array:
        """Squared norms of the user's gradient rows."""
        return squared_row_norms(self.index_gradient(theta, x))

    def _spot_check(self, theta: Array, x: Array, u: Array) -> None:
        xp = array_namespace(x)
        for t in (0.5, 2.0):
            scaled = self.value(t * theta, x)
            size = xp.max(xp.abs(u)) * t**self.degree
            if float(xp.max(xp.abs(scaled - t**self.degree * u))) > _CHECKED_TO * float(size):
                k = int(xp.argmax(xp.abs(u)))
                ratio = float(scaled[k]) / float(u[k]) if float(u[k]) else float("nan")
                measured = f"{np.log(ratio) / np.log(t):.3g}" if ratio > 0 else "none"
                raise NotHomogeneousError(
                    f"value is not homogeneous of degree {self.degree:g} in theta (measured {measured} at t={t:g}); "
                    "give the right degree, or use Numerical"
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
        check_count("Numerical", self.n_params)
        if (
            isinstance(self.tolerance, bool)
            or not isinstance(self.tolerance, float | int)
            or not 0 < self.tolerance < 1
        ):
            raise InputError(f"Numerical tolerance={self.tolerance!r} is not allowed; give a number between 0 and 1")

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
        return np.array(parts["theta"], dtype=np.float64)

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: a user's model may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def predict(self, theta: Array, x: Array) -> Array:
        """The user's value."""
        return called(self.value, theta, x, (x.shape[0],))

    def jacobian(self, theta: Array, x: Array) -> Array:
        """The user's gradient."""
        return called(self.gradient, theta, x, (x.shape[0], theta.shape[0]))

    def at_zero(self, x: Array) -> Array:
        """The user's value at theta = 0."""
        xp = array_namespace(x)
        return self.predict(xp.zeros((self.n_parameters(x.shape[1]),), dtype=x.dtype), x)
