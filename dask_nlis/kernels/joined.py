"""Rows put together from their parts: features, a constant, a factor for both, a last column. In one buffer on NumPy."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

Array = Any


def joined(
    x: Array, factor: Array | None, last: Array | None, *, constant: bool, out: np.ndarray | None = None
) -> Array:
    """Rows [factor (x, 1) | last], x (m, d), factor (m,) and last (m,) where given, the 1 with `constant`.

    On NumPy each entry is written once, to the first m rows of `out` where it is given; elsewhere parts are copied.
    """
    m, d = x.shape
    if not is_numpy_array(x):
        xp = array_namespace(x)
        inputs = xp.concat([x, xp.ones((m, 1), dtype=x.dtype)], axis=1) if constant else x
        rows = inputs if factor is None else factor[:, None] * inputs
        return rows if last is None else xp.concat([rows, last[:, None]], axis=1)
    width = d + constant + (last is not None)
    rows = np.empty((m, width)) if out is None else out[:m]
    if factor is None:
        rows[:, :d] = x
        if constant:
            rows[:, d] = 1.0
    else:
        np.einsum("ij,i->ij", x, factor, out=rows[:, :d])  # twice as fast as a product that broadcasts
        if constant:
            rows[:, d] = factor
    if last is not None:
        rows[:, width - 1] = last
    return rows
