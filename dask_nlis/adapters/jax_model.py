"""A function of JAX as a model: its prediction and per-row gradients, compiled in float64, integrated along the ray."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.activations import Identity
from dask_nlis.errors import InputError
from dask_nlis.kernels.calls import name_of
from dask_nlis.models import Numerical, checks
from dask_nlis.models.differences import hessian_of
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any


@noun
class JaxModel:
    """prediction = function(theta, x) of JAX; made by `from_jax`.

    Attributes
    ----------
    function : callable
        As it was given.
    template : pytree of ndarray
        Parameters as they came, in float64.
    names : tuple of str
        Path of each array in it.
    theta : ndarray of shape (p,)
        The same, flattened array by array, each in C order.
    token : str
        Equal for equal functions and parameters.
    tolerance : float
        Largest identity residual, relative to 1 + |f(theta)| + |f(0)|, that is accepted.
    n_outputs : int
        Predictions a row.

    Examples
    --------
    >>> import jax, numpy as np, dask_nlis as nlis
    >>> nlis.from_jax(lambda theta, x: jax.numpy.tanh(x @ theta["w"]), {"w": np.ones(2)})
    JaxModel(function='<lambda>', arrays=("['w']",), p=2)
    """

    function: Callable[[Any, Any], Any]
    template: Any
    names: tuple[str, ...]
    theta: np.ndarray
    token: str
    tolerance: float = Numerical.default_tolerance
    n_outputs: int = 1

    activation = Identity()
    form: ClassVar[Form] = "ray"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("JaxModel", self.token, self.tolerance, self.n_outputs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JaxModel) and self.__dask_tokenize__() == other.__dask_tokenize__()

    def __hash__(self) -> int:
        return hash(self.__dask_tokenize__())

    def _arrays(self) -> list[np.ndarray]:
        import jax

        found: list[np.ndarray] = jax.tree_util.tree_leaves(self.template)
        return found

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(array.shape for array in self._arrays())

    def n_parameters(self, d: int) -> int:
        """As many as came."""
        return len(self.theta)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Path of each array with the indices in it: ['w'][0]."""
        return tuple(
            f"{name}[{','.join(map(str, index))}]" if shape else name
            for name, shape in zip(self.names, self._shapes(), strict=True)
            for index in np.ndindex(shape)
        )

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into its arrays, by path."""
        flat = checks.vector(theta)
        if len(flat) != len(self.theta):
            raise InputError(f"theta has {len(flat)} entries; give {len(self.theta)}")
        return dict(zip(self.names, self._split(flat), strict=True))

    def _split(self, theta: Any) -> list[Any]:
        found, start = [], 0
        for shape in self._shapes():
            size = int(np.prod(shape))
            found.append(theta[start : start + size].reshape(shape))
            start += size
        return found

    def pack(self, **parts: object) -> np.ndarray:
        """Join its arrays, by path, into theta."""
        checks.check_parts(parts, self.names)
        arrays = [np.asarray(parts[name], dtype=np.float64) for name in self.names]
        for name, array, shape in zip(self.names, arrays, self._shapes(), strict=True):
            if array.shape != shape:
                raise InputError(f"pack got {name} of shape {array.shape}; give {shape}")
        return np.concatenate([array.ravel() for array in arrays])

    def tree(self, theta: Any) -> Any:
        """Theta (p,) as the function takes it."""
        import jax

        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(self.template), self._split(theta))

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: the function may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def predict(self, theta: Array, x: Array) -> Array:
        """What the function returns, (m,) or (m, n_outputs)."""
        return _called(_values(self), theta, x)

    def jacobian(self, theta: Array, x: Array) -> Array:
        """Gradients of what the function of one output returns, row by row, (m, p)."""
        return self.pullback(theta, x, array_namespace(x).ones((x.shape[0], 1), dtype=x.dtype))

    def pullback(self, theta: Array, x: Array, cotangent: Array) -> Array:
        """Gradient in theta of the sum of each row's outputs times a cotangent, (m, n_outputs) -> (m, p)."""
        return _called(_gradients(self), theta, x, cotangent)

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Differences of the gradient, weights (m,) or (m, n_outputs) -> (p, p)."""
        return hessian_of(self, theta, x, weights)

    def at_zero(self, x: Array) -> Array:
        """What the function returns where theta is 0, (m,)."""
        return self.predict(array_namespace(x).zeros((len(self.theta),), dtype=x.dtype), x)

    def _summary(self) -> dict[str, Any]:
        return {"function": name_of(self.function), "arrays": self.names, "p": len(self.theta)}


@lru_cache(maxsize=16)
def _values(model: JaxModel) -> Callable[[Any, Any], Any]:
    """The prediction of a batch, compiled once a process and shape."""
    import jax

    return jax.jit(lambda theta, x: _checked(model, model.function(model.tree(theta), x), x.shape[0]))


@lru_cache(maxsize=16)
def _gradients(model: JaxModel) -> Callable[[Any, Any], Any]:
    """Gradients of a batch, row by row."""
    import jax

    def one(theta: Any, row: Any, weights: Any) -> Any:
        return (_checked(model, model.function(model.tree(theta), row[None, :]), 1).reshape(-1) * weights).sum()

    return jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0, 0)))


def _checked(model: JaxModel, found: Any, m: int) -> Any:
    shape, k = getattr(found, "shape", None), model.n_outputs
    if shape != (m, k) and (k > 1 or shape != (m,)):
        came = type(found).__name__ if shape is None else f"shape {shape}"
        wanted = f"one number a row, ({m},) or ({m}, 1)" if k == 1 else f"n_outputs={k} numbers a row, ({m}, {k})"
        raise InputError(f"function {name_of(model.function)} returned {came} for {m} rows; return {wanted}")
    return found.reshape(-1) if k == 1 else found


def _called(function: Callable[..., Any], *arrays: Array) -> Array:
    """Arrays of the host or of a card through a function of JAX in float64, and back where they came from."""
    import jax

    # The setting is one of the thread; it had another place before.
    in_float64: Any = vars(jax)["enable_x64"] if "enable_x64" in vars(jax) else vars(jax.experimental)["enable_x64"]
    if all(map(is_numpy_array, arrays)):
        with in_float64(True), jax.default_device(jax.devices("cpu")[0]):
            return np.array(function(*map(jax.numpy.asarray, arrays)))
    with in_float64(True):
        found = function(*map(jax.dlpack.from_dlpack, arrays))
        return array_namespace(*arrays).from_dlpack(found)
