"""Any torch module as a model: its prediction and per-row gradients by torch, integrated along the ray."""

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.activations import Identity
from dask_nlis.errors import InputError
from dask_nlis.models import checks
from dask_nlis.models.differences import hessian_of
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any

#: Bytes of gradients that torch makes at a time.
_HELD = 2**26

#: Copies of modules, one a thread: a call puts theta in place of parameters inside the module.
_own = threading.local()


@noun
class TorchModel:
    """prediction = module(x), theta those of its parameters that are asked for; made by `from_torch`.

    Attributes
    ----------
    module : torch.nn.Module
        A copy in float64 and evaluation mode.
    wrt : tuple of str
        Names of the parameters that are theta, in the order of the module.
    input_shape : tuple of int
        What a row of X is reshaped to.
    theta : ndarray of shape (p,)
        Parameters as they came, C-flattened.
    token : str
        Equal for modules of the same structure, code, parameters and buffers.
    tolerance : float
        Largest identity residual, relative to 1 + |f(theta)| + |f(0)|, that is accepted.
    n_outputs : int
        Predictions a row.

    Examples
    --------
    >>> import torch, dask_nlis as nlis
    >>> nlis.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Mish(), torch.nn.Linear(3, 1)), wrt="2")
    TorchModel(module='Sequential', input_shape=(2,), parameters=('2.weight', '2.bias'), p=4)
    """

    module: Any
    wrt: tuple[str, ...]
    input_shape: tuple[int, ...]
    theta: np.ndarray
    token: str
    tolerance: float = 1e-6
    n_outputs: int = 1

    activation = Identity()
    form: ClassVar[Form] = "ray"

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("TorchModel", self.token, self.wrt, self.input_shape, self.tolerance, self.n_outputs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchModel) and self.__dask_tokenize__() == other.__dask_tokenize__()

    def __hash__(self) -> int:
        return hash(self.__dask_tokenize__())

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        known = dict(self.module.named_parameters())
        return {name: tuple(known[name].shape) for name in self.wrt}

    def n_parameters(self, d: int) -> int:
        """Length of theta; raises unless d numbers are a row."""
        n = int(np.prod(self.input_shape))
        if d != n:
            raise InputError(
                f"X has {d} columns, but the module takes {n} numbers a row (input_shape {self.input_shape}); give that many"
            )
        return len(self.theta)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Names of the module's parameters with their indices: fc.weight[0,1]."""
        shapes = self._shapes().items()
        return tuple(f"{name}[{','.join(map(str, i))}]" for name, shape in shapes for i in np.ndindex(shape))

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into the module's parameters, by name."""
        flat, parts, start = checks.vector(theta), {}, 0
        if len(flat) != len(self.theta):
            raise InputError(f"theta has {len(flat)} entries; give {len(self.theta)}")
        for name, shape in self._shapes().items():
            size = int(np.prod(shape))
            parts[name] = flat[start : start + size].reshape(shape)
            start += size
        return parts

    def pack(self, **parts: object) -> np.ndarray:
        """Join the module's parameters, by name, into theta."""
        checks.check_parts(parts, self.wrt)
        arrays = {name: np.asarray(parts[name], dtype=np.float64) for name in self.wrt}
        for name, shape in self._shapes().items():
            if arrays[name].shape != shape:
                raise InputError(f"pack got {name} of shape {arrays[name].shape}; give {shape}")
        return np.concatenate([array.ravel() for array in arrays.values()])

    def inputs(self, x: Array) -> Array:
        """x, and a 1 appended: the module may hold a bias."""
        xp = array_namespace(x)
        return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)

    def predict(self, theta: Array, x: Array) -> Array:
        """What the module returns, (m,) or (m, n_outputs)."""
        import torch

        with torch.no_grad():
            found = self._called(_own_copy(self, x), self._parameters(_tensor(theta)), _tensor(x))
        return _array(found.reshape(-1) if self.n_outputs == 1 else found.reshape(-1, self.n_outputs), x)

    def jacobian(self, theta: Array, x: Array) -> Array:
        """Gradients of what the module of one output returns, row by row, (m, p): some rows at a time."""
        return self.pullback(theta, x, array_namespace(x).ones((x.shape[0], 1), dtype=x.dtype))

    def pullback(self, theta: Array, x: Array, cotangent: Array) -> Array:
        """Gradient in theta of the sum of each row's outputs times a cotangent, (m, n_outputs) -> (m, p)."""
        import torch

        module = _own_copy(self, x)

        def one(flat: Any, row: Any, weights: Any) -> Any:
            return (self._called(module, self._parameters(flat), row[None]).reshape(-1) * weights).sum()

        rows = max(1, _HELD // (8 * len(self.theta)))
        gradients = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0), chunk_size=rows)
        return _array(gradients(_tensor(theta), _tensor(x), _tensor(cotangent)), x)

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Differences of the gradient, weights (m,) or (m, n_outputs) -> (p, p)."""
        return hessian_of(self, theta, x, weights)

    def at_zero(self, x: Array) -> Array:
        """What the module returns where theta is 0 and its other parameters stay, (m,)."""
        return self.predict(array_namespace(x).zeros((len(self.theta),), dtype=x.dtype), x)

    def _called(self, module: Any, parameters: dict[str, Any], x: Any) -> Any:
        import torch

        return torch.func.functional_call(module, parameters, (x.reshape(-1, *self.input_shape),))

    def _parameters(self, theta: Any) -> dict[str, Any]:
        found, start = {}, 0
        for name, shape in self._shapes().items():
            size = int(np.prod(shape))
            found[name] = theta[start : start + size].reshape(shape)
            start += size
        return found

    def _summary(self) -> dict[str, Any]:
        return {
            "module": type(self.module).__name__,
            "input_shape": self.input_shape,
            "parameters": self.wrt,
            "p": len(self.theta),
        }


def _tensor(array: Array) -> Any:
    """An array where it lies; of the host a copy, since torch knows no arrays that are read-only."""
    import torch

    return torch.tensor(np.ascontiguousarray(array)) if is_numpy_array(array) else torch.utils.dlpack.from_dlpack(array)


def _array(tensor: Any, like: Array) -> Array:
    found = tensor.detach()
    return found.numpy() if is_numpy_array(like) else array_namespace(like).from_dlpack(found)


def _own_copy(model: TorchModel, x: Array) -> Any:
    """The module of this thread, where x lies."""
    import copy

    import torch

    kept = _own.__dict__.setdefault("modules", {})
    where = torch.device("cpu") if is_numpy_array(x) else torch.utils.dlpack.from_dlpack(x).device
    key = model.token, str(where)
    if key not in kept:
        kept.clear()  # one model at a time is in use
        kept[key] = copy.deepcopy(model.module).to(where)
    return kept[key]
