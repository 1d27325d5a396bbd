"""The sums over rectified units that prediction and norms of a network need, from one array of pre-activations."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

Array = Any


def relu_sums(z: Array, a: Array) -> tuple[Array, Array, Array]:
    """sum_j a_j r_j, sum_j r_j^2 and sum_j a_j^2 [z_j > 0] for r = max(z, 0), z (m, units), a (units,): three times (m,).

    NumPy's z is overwritten; every pass over it costs as much as some columns of X.
    """
    squares = a * a
    if is_numpy_array(z):
        r = np.maximum(z, 0.0, out=z)
        first, second = r @ a, np.vecdot(r, r)
        r[...] = r > 0
        return first, second, r @ squares
    xp = array_namespace(z)
    active = z > 0
    r = xp.where(active, z, xp.zeros_like(z))
    return r @ a, xp.sum(r * r, axis=1), xp.astype(active, z.dtype) @ squares
