"""Second derivatives of a user's model, whose functions give first ones: by differences of its gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

Array = Any

_EPS = float(np.finfo(np.float64).eps)

#: Rows whose differences on both sides disagree by more than this share have a kink on one of them.
_KINK = 0.1


def hessian_of(model: Any, theta: Array, x: Array, weights: Array) -> Array:
    """Differences of the gradient of a model of one output, weights (m,), or of several, (m, n_outputs) -> (p, p)."""
    if weights.ndim == 1:
        return second_derivatives(model.jacobian, theta, x, weights)
    ones = array_namespace(x).ones((x.shape[0],), dtype=x.dtype)
    return second_derivatives(lambda point, rows: model.pullback(point, rows, weights), theta, x, ones)


def second_derivatives(gradient: Callable[[Array, Array], Array], theta: Array, x: Array, weights: Array) -> Array:
    """Weighted sum over rows of the derivative of a gradient (theta, x) -> (m, p), symmetric (p, p); 2 p + 1 calls.

    Central differences with a step of eps^(1/3) of the entry of theta, or of what an entry of typical effect on the
    prediction would have in its units: good to about 1e-9, whatever the units of the columns. A row with a kink within the step (a rectifier that changes side) would add its jump over the
    step; there the smaller of the two one-sided differences is the one that misses the kink.
    """
    xp = array_namespace(x)
    middle = gradient(theta, x)
    p = theta.shape[0]
    size, reach = xp.abs(theta), xp.sqrt(xp.mean(middle * middle, axis=0))
    typical = float(xp.mean(size * reach)) or 1.0
    total = xp.zeros((p, p), dtype=x.dtype)
    for j in range(p):
        unit = xp.astype(xp.arange(p) == j, x.dtype)
        natural = typical / float(reach[j]) if float(reach[j]) > 0 else 0.0
        step = _EPS ** (1 / 3) * (max(float(size[j]), natural) or 1.0)
        up, down = theta + step * unit, theta - step * unit
        ahead, behind = gradient(up, x) - middle, middle - gradient(down, x)
        ahead, behind = ahead / float(up[j] - theta[j]), behind / float(theta[j] - down[j])
        long_ahead, long_behind = xp.max(xp.abs(ahead), axis=1), xp.max(xp.abs(behind), axis=1)
        larger = xp.where(long_ahead > long_behind, long_ahead, long_behind)
        kink = xp.max(xp.abs(ahead - behind), axis=1) > _KINK * larger
        chosen = xp.where((long_ahead < long_behind)[:, None], ahead, behind)
        rows = xp.where(kink[:, None], chosen, (ahead + behind) / 2)
        total[j, :] = weights @ rows
    return (total + xp.permute_dims(total, (1, 0))) / 2
