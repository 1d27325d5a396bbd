"""The index u = <coef, x> + intercept, shared by Linear and SingleIndex; theta = coef (d,), then intercept."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.errors import InputError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.models import checks

Array = Any


class HasIntercept(Protocol):
    """What the functions here need to know of a model."""

    @property
    def intercept(self) -> bool:
        """Whether a constant is added to the index."""


def n_parameters(model: HasIntercept, d: int) -> int:
    """Length of theta: d, plus 1 with an intercept."""
    return d + model.intercept


def parameter_names(model: HasIntercept, feature_names: Sequence[str]) -> tuple[str, ...]:
    """Feature names, then "intercept"."""
    return (*feature_names, *(("intercept",) if model.intercept else ()))


def unpack(model: HasIntercept, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Split theta into coef (d,) and, where there is one, intercept ()."""
    theta = checks.vector(theta)
    return {"coef": theta[:-1], "intercept": theta[-1]} if model.intercept else {"coef": theta}


def pack(model: HasIntercept, **parts: object) -> np.ndarray:
    """Join coef and intercept into theta."""
    wanted = {"coef", "intercept"} if model.intercept else {"coef"}
    checks.check_parts(parts, sorted(wanted))
    coef = np.array(parts["coef"], dtype=np.float64)
    intercept = np.asarray(parts.get("intercept", ()), dtype=np.float64)
    if coef.ndim != 1 or intercept.size != model.intercept:
        also = f" and intercept {intercept.shape}; give (d,) and one number" if model.intercept else "; give (d,)"
        raise InputError(f"pack got coef {coef.shape}{also}")
    return np.append(coef, intercept)


def inputs(model: HasIntercept, x: Array) -> Array:
    """[x, 1] with an intercept, x without."""
    xp = array_namespace(x)
    return xp.concat([x, xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1) if model.intercept else x


def index(model: HasIntercept, theta: Array, x: Array) -> Array:
    """<coef, x> + intercept."""
    return x @ theta[:-1] + theta[-1] if model.intercept else x @ theta


def index_gradient(model: HasIntercept, theta: Array, x: Array) -> Array:
    """[x, 1]: the gradient does not depend on theta."""
    return inputs(model, x)


def index_hessian(model: HasIntercept, theta: Array, x: Array, weights: Array) -> Array:
    """Zeros: the index is linear in theta."""
    return array_namespace(x).zeros((theta.shape[0], theta.shape[0]), dtype=x.dtype)


def index_and_norms(model: HasIntercept, theta: Array, x: Array, lengths: Array | None = None) -> tuple[Array, Array]:
    """The index, and |x|^2 + 1."""
    squares = squared_row_norms(x) if lengths is None else lengths
    return index(model, theta, x), squares + int(model.intercept)
