"""Symmetric and triangular products, with half the work of general ones, where BLAS has them: on NumPy arrays.

A C-ordered array (m, p) is a Fortran-ordered (p, m), so that BLAS takes rows as they are, without a copy.
"""

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.linalg.blas import dsyrk, dtrmm

Array = Any


class Triangular(NamedTuple):
    """An upper triangular W as BLAS takes it: square, in Fortran order, with zero columns beside its zero rows."""

    values: np.ndarray  # (p, p)
    columns: slice | np.ndarray  # those of W among them


def lower_gram(a: Array) -> Array:
    """Gram matrix of the columns, (m, p) -> (p, p); of NumPy arrays the lower triangle alone, zeros above it."""
    if is_numpy_array(a) and a.size:
        return dsyrk(1.0, a.T).T
    return gram(a)


def gram(a: Array) -> Array:
    """Gram matrix of the columns, (m, p) -> (p, p), both triangles."""
    # NumPy sees that both factors are one array and takes the symmetric product, half the work.
    return array_namespace(a).matrix_transpose(a) @ a


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix of a lower triangle, (p, p)."""
    whole: np.ndarray = np.tril(lower) + np.tril(lower, -1).T
    return whole


def triangular(w: Array) -> Array | Triangular:
    """W (p, k) as `times` takes it fastest: Triangular if it is, zero rows aside, a NumPy array of that kind; else W."""
    if not is_numpy_array(w):
        return w
    kept = w.any(axis=1)
    p, k = w.shape
    if kept.sum() != k or np.tril(w[kept], -1).any():
        return w
    if p == k:
        return Triangular(np.asfortranarray(w), slice(None))
    values = np.zeros((p, p), order="F")
    values[:, kept] = w
    return Triangular(values, np.flatnonzero(kept))


def times(rows: Array, w: Array | Triangular, room: np.ndarray | None = None) -> Array:
    """Rows W, (m, p) -> (m, k), with W from `triangular`; written to the first m rows of `room` (.., p) where it can be.

    The rows may lie in `room` themselves, and are overwritten then.
    """
    if not isinstance(w, Triangular):
        return rows @ w
    if room is not None:
        own = room[: len(rows)]
        if rows.base is not room:  # whose first rows they are otherwise
            np.copyto(own, rows)
        rows = own
    found = dtrmm(1.0, w.values, rows.T, trans_a=1, overwrite_b=room is not None).T
    return found if isinstance(w.columns, slice) else found[:, w.columns]
