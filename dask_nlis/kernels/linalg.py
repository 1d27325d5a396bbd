"""R-only QR, rank, whitener and leverage of a tall matrix.

Leverage is never read off an explicit Q, which is wrong under rank deficiency and as large as the
data, nor off a Gram matrix with an eigenvalue cut-off (Benson et al. 2013, "Direct QR factorizations
for tall-and-skinny matrices in MapReduce architectures", for the R-only tree).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

Array = Any

#: R factors stacked before one more QR; part of the fixed tree, so of the bits of the result.
FAN_IN = 16


def r_factor(a: Array) -> Array:
    """R of a QR factorisation, (m, p) -> (p, p): upper triangular, diagonal >= 0, zero rows where m < p."""
    xp = array_namespace(a)
    r: Array = np.linalg.qr(a, mode="r") if is_numpy_array(a) else xp.linalg.qr(a, mode="reduced").R
    rows, p = r.shape
    # LAPACK leaves mixed signs that change with the chunking; R is unique once they are fixed.
    diagonal = xp.linalg.diagonal(r)
    signs = xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))
    r = r * signs[:, None]
    if rows < p:
        r = xp.concat([r, xp.zeros((p - rows, p), dtype=r.dtype)], axis=0)
    return r


def merge_r(factors: Iterable[Array]) -> Array:
    """R of the rows behind several R factors: neighbours are stacked `FAN_IN` at a time, level by level."""
    level = list(factors)
    while len(level) > 1:
        xp = array_namespace(level[0])
        level = [
            r_factor(xp.concat(level[k : k + FAN_IN], axis=0)) if len(level[k : k + FAN_IN]) > 1 else level[k]
            for k in range(0, len(level), FAN_IN)
        ]
    return level[0]


def squared_row_norms(a: Array) -> Array:
    """Squared Euclidean norm of each row, (m, p) -> (m,)."""
    xp = array_namespace(a)
    if is_numpy_array(a):
        return np.einsum("ij,ij->i", a, a)
    return xp.sum(a * a, axis=1)


def whitened(rows: Array, whitener: Array, correction: Array | None) -> Array:
    """F W, or (F W) C: rows that are orthonormal together, (m, p) -> (m, rank).

    W C is never formed: C was made from F W as rounded, and undoes that rounding only when applied to it.
    """
    first = rows @ whitener
    return first if correction is None else first @ correction


def leverage(rows: Array, whitener: Array, correction: Array | None = None) -> Array:
    """Leverage of rows of F: squared row norms of F W C, (m, p) -> (m,)."""
    return squared_row_norms(whitened(rows, whitener, correction))


class Spectrum(NamedTuple):
    """Rank decision on a p x p R factor (see `spectrum`)."""

    rank: int
    singular_values: np.ndarray  # (p,), descending, of R after column scaling
    condition: float  # largest over smallest kept singular value
    column_scale: np.ndarray  # (p,), powers of two
    whitener: np.ndarray  # (p, rank)
    null_space: np.ndarray  # (p, p - rank), in scaled columns
    ambiguous: tuple[float, ...]  # singular values near the tolerance, relative to the largest
    involved: tuple[int, ...]  # columns with a part in their singular vectors


def spectrum(r: np.ndarray) -> Spectrum:
    """Decide the rank of R and form the whitener W, so that F W has orthonormal columns.

    Columns are first scaled by powers of two to norms in [0.5, 1), which costs no digit and takes
    pure column scale out of the condition; singular values below 10 p eps of the largest are zero.
    The tolerance does not depend on the number of rows.
    """
    p = r.shape[1]
    scale = power_of_two_scale(r)
    _, s, vt = np.linalg.svd(r * scale)
    tolerance = 10 * p * np.finfo(np.float64).eps
    largest = s[0] if p else 0.0
    kept = s > tolerance * largest if largest > 0 else np.zeros(p, dtype=bool)
    rank = int(kept.sum())
    with np.errstate(over="ignore"):  # columns below 1e-308 / sigma; the caller refuses them
        whitener = scale[:, None] * (vt[:rank].T / s[:rank])
    relative = s / largest if largest > 0 else s
    floor = max(tolerance / 10, 8 * np.finfo(np.float64).eps)
    near = np.where(kept, relative < 1000 * tolerance, relative > floor)
    return Spectrum(
        rank=rank,
        singular_values=s,
        condition=float(largest / s[rank - 1]) if rank else float("nan"),
        column_scale=scale,
        whitener=whitener,
        null_space=vt[rank:].T,
        ambiguous=tuple(float(v) for v in relative[near]),
        involved=tuple(int(j) for j in np.flatnonzero(np.abs(vt[near]).max(axis=0, initial=0.0) > 0.1)),
    )


def frobenius_norm(r: np.ndarray) -> float:
    """Frobenius norm, brought near 1 by a power of two first so that squares neither over- nor underflow."""
    _, top = np.frexp(np.abs(r).max(initial=0.0))
    return float(np.ldexp(np.linalg.norm(np.ldexp(r, -top)), top))


def power_of_two_scale(r: np.ndarray) -> np.ndarray:
    """Powers of two that bring the column norms of R into [0.5, 1); 1 for zero columns."""
    largest = np.abs(r).max(axis=0, initial=0.0)
    _, top = np.frexp(largest)
    # Norms of columns brought near 1 first: 1e200 squared would overflow, 1e-200 vanish.
    norms = np.sqrt((np.ldexp(r, -top) ** 2).sum(axis=0))
    _, rest = np.frexp(norms)
    # 2^1023 is the largest power there is: subnormal columns stay below 1/2.
    return np.where(largest > 0, np.ldexp(1.0, np.minimum(-(top + rest), 1023)), 1.0)
