"""Models of one output and of several: their gradients, pulled back."""

from typing import Any

from array_api_compat import array_namespace

from dask_nlis.models import Model, pulls_back

Array = Any


def pulled(model: Model, theta: Array, x: Array, cotangent: Array) -> Array:
    """Gradients in theta of each row's predictions times a cotangent, (m,) or (m, n_outputs) -> (m, p)."""
    if pulls_back(model):
        return model.pullback(theta, x, cotangent)
    return cotangent[:, None] * model.jacobian(theta, x)


def jacobians(model: Model, theta: Array, x: Array) -> Array:
    """Gradients in theta of each prediction of each row, (m, n_outputs, p)."""
    xp = array_namespace(x)
    if not pulls_back(model):
        return model.jacobian(theta, x)[:, None, :]
    units = xp.eye(model.n_outputs, dtype=x.dtype)
    each = [xp.broadcast_to(units[c, :][None, :], (x.shape[0], model.n_outputs)) for c in range(model.n_outputs)]
    return xp.stack([model.pullback(theta, x, unit) for unit in each], axis=1)
