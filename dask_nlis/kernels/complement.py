"""The directions that the rows of a matrix never take, from its R factor; and the part of other rows along them."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.kernels.linalg import squared_row_norms

Array = Any


def complement(r: np.ndarray, rank: int, column_scale: np.ndarray) -> np.ndarray:
    """Orthonormal basis (p, p - rank) of the null space of R, in the units of its columns.

    The rank is decided, and the null space found, in scaled columns. There it is cleaned of rounding before it is
    brought to the units of the data, which would make much of an entry of 1e-16 in a column of large units: zero
    columns stand for themselves, and columns that take part in no linear dependency are left out.
    """
    p = r.shape[1]
    kept = r.any(axis=0)
    zero = np.eye(p)[:, ~kept]
    n_dependent = int(kept.sum()) - rank
    if not n_dependent:
        return zero
    _, s, vt = np.linalg.svd(r[:, kept] * column_scale[kept])
    noise = max(1e-8, 10 * float(s[0] / s[rank - 1]) * np.finfo(np.float64).eps)
    found = np.zeros((p, n_dependent))
    found[kept] = np.where(np.abs(vt[rank:].T).max(axis=1, keepdims=True) > noise, vt[rank:].T, 0.0)
    taking_part = found.any(axis=1)
    # F c n = 0 for the n of scaled columns, so that c n is the direction of F; c is brought near 1 first.
    units = column_scale[taking_part]
    basis = np.zeros((p, n_dependent))
    basis[taking_part] = np.linalg.qr(found[taking_part] * (units / units.max())[:, None])[0]
    return np.concatenate([zero, basis], axis=1)


def inside(rows: Array, outward: Array) -> Array:
    """Rows without their part along the orthonormal directions `outward` (p, k), (m, p) -> (m, p)."""
    xp = array_namespace(rows)
    return rows - (rows @ outward) @ xp.matrix_transpose(outward)


def outside_share(rows: Array, outward: Array, each: int = 1) -> Array:
    """Share of the squared norm of each row along the directions `outward`, (m, p) -> (m,), in [0, 1]; 0 of a zero row.

    Of several rows together, (m each, p) -> (m,), where `each` follow one another.
    """
    xp = array_namespace(rows)
    if each > 1:  # their squared norms add up, inside and outside: as one long row
        m, p = rows.shape[0] // each, rows.shape[1]
        outside = xp.reshape(rows @ outward, (m, -1))
        rows = xp.reshape(rows, (m, each * p))
        largest = xp.max(xp.abs(rows), axis=1)
        scale = xp.where(largest > 0, largest, xp.ones_like(largest))[:, None]
        whole = squared_row_norms(rows / scale)
        share = squared_row_norms(outside / scale) / xp.where(whole > 0, whole, xp.ones_like(whole))
        return xp.minimum(share, xp.ones_like(share))
    largest = xp.max(xp.abs(rows), axis=1)
    # Squares of rows brought near 1 neither over- nor underflow.
    rows = rows / xp.where(largest > 0, largest, xp.ones_like(largest))[:, None]
    whole = squared_row_norms(rows)
    share = squared_row_norms(rows @ outward) / xp.where(whole > 0, whole, xp.ones_like(whole))
    return xp.minimum(share, xp.ones_like(share))
