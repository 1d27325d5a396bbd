"""Special functions of the activations, and quotients f(t) / t that are not 0/0 at t = 0.

The array API standard has neither erf nor the normal distribution function: SciPy gives them on the host,
CuPy's copy of SciPy on the device; arrays of any other namespace go through the host.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from array_api_compat import array_namespace, device, is_cupy_array, is_numpy_array

Array = Any

#: Beyond this |t| the normal density is below the smallest subnormal, with room for a factor t^2.
NORMAL_LIMIT = 40.0

#: Below this |t| a quotient of float64 is its limit to the last bit.
_NEAR = math.sqrt(np.finfo(np.float64).tiny)


def expit(t: Array) -> Array:
    """1 / (1 + exp(-t)) with full relative accuracy in both tails."""
    xp = array_namespace(t)
    small = xp.exp(-xp.abs(t))
    return xp.where(t >= 0, xp.ones_like(t), small) / (1 + small)


def erf(t: Array) -> Array:
    """2 / sqrt(pi) times the integral of exp(-s^2) from 0 to t."""
    return _special("erf", t)


def normal_cdf(t: Array) -> Array:
    """Distribution function of the standard normal; the left tail keeps its relative accuracy."""
    return _special("ndtr", t)


def normal_density(t: Array) -> Array:
    """exp(-t^2 / 2) / sqrt(2 pi)."""
    near = array_namespace(t).clip(t, -NORMAL_LIMIT, NORMAL_LIMIT)  # the square of 1e200 overflows
    return array_namespace(t).exp(near * near * -0.5) * (1 / math.sqrt(2 * math.pi))


def quotient(numerator: Callable[[Array], Array], t: Array, limit: float) -> Array:
    """numerator(t) / t, and `limit` where |t| is so small that the quotient is its limit to the last bit.

    The numerator must be accurate near 0 (expm1, tanh, ...), and may halve t without loss: the switch lies at
    the root of the smallest normal number, far above the subnormal ones.
    """
    if is_numpy_array(t) and t.dtype == np.float64 and not (np.abs(t) < _NEAR).any():
        return numerator(t) / t
    xp = array_namespace(t)
    near = xp.abs(t) < math.sqrt(xp.finfo(t.dtype).smallest_normal)
    safe = xp.where(near, xp.ones_like(t), t)
    return xp.where(near, xp.full_like(t, limit), numerator(safe) / safe)


def _special(name: str, t: Array) -> Array:
    """Apply the function `name` of scipy.special to an array of any namespace."""
    if is_numpy_array(t):
        return getattr(scipy.special, name)(t)
    if is_cupy_array(t):
        from cupyx.scipy import special as on_device  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return getattr(on_device, name)(t)
    found = getattr(scipy.special, name)(np.asarray(t))
    return array_namespace(t).asarray(found, device=device(t))
