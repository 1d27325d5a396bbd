"""R-only QR, Cholesky, rank, whitener and leverage of a tall matrix.

Leverage is never read off an explicit Q, which is wrong under rank deficiency and as large as the
data, nor off a Gram matrix with an eigenvalue cut-off: where Cholesky breaks, there is no R (Benson et al.
2013, "Direct QR factorizations for tall-and-skinny matrices in MapReduce architectures", for the R-only tree;
Yamamoto et al. 2015, "Roundoff error analysis of the CholeskyQR2 algorithm", for two Gram matrices in a row).
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_cupy_array, is_numpy_array
from scipy.linalg import solve_triangular

from dask_nlis.kernels.products import Triangular, times

Array = Any

#: R factors stacked before one more QR; part of the fixed tree, so of the bits of the result.
FAN_IN = 4


def r_factor(a: Array) -> Array:
    """R of a QR factorisation, (m, p) -> (p, p): upper triangular, diagonal >= 0, zero rows where m < p."""
    xp = array_namespace(a)
    # The standard knows no R alone; CuPy does, and gets the call from NumPy.
    direct = is_numpy_array(a) or is_cupy_array(a)
    r: Array = np.linalg.qr(a, mode="r") if direct else xp.linalg.qr(a, mode="reduced").R
    rows, p = r.shape
    # LAPACK leaves mixed signs that change with the chunking; R is unique once they are fixed.
    diagonal = xp.linalg.diagonal(r)
    signs = xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))
    r = r * signs[:, None]
    if rows < p:
        r = xp.concat([r, xp.zeros((p - rows, p), dtype=r.dtype)], axis=0)
    return r


def merge_r(factors: Iterable[Array]) -> Array:
    """R of the rows behind several R factors: neighbours are stacked `FAN_IN` at a time, level by level.

    Each is merged as soon as its neighbours are there, so that of an iterator few are held at a time.
    """
    levels: list[list[Array]] = [[]]
    for factor in factors:
        levels[0].append(factor)
        k = 0
        while len(levels[k]) == FAN_IN:
            if k + 1 == len(levels):
                levels.append([])
            levels[k + 1].append(_stacked_r(levels[k]))
            levels[k] = []
            k += 1
    for lower, upper in pairwise(levels):
        if lower:
            upper.append(_stacked_r(lower))
    return _stacked_r(levels[-1])


def _stacked_r(factors: list[Array]) -> Array:
    return factors[0] if len(factors) == 1 else r_factor(array_namespace(factors[0]).concat(factors, axis=0))


def squared_row_norms(a: Array) -> Array:
    """Squared Euclidean norm of each row, (m, p) -> (m,)."""
    xp = array_namespace(a)
    if is_numpy_array(a):
        return np.vecdot(a, a)
    return xp.sum(a * a, axis=1)


def whitened(
    rows: Array, whitener: Array | Triangular, correction: Array | Triangular | None, *, room: np.ndarray | None = None
) -> Array:
    """F W, or (F W) C: rows that are orthonormal together, (m, p) -> (m, rank).

    W C is never formed: C was made from F W as rounded, and undoes that rounding only when applied to it. W and C
    from `triangular` take half the time; `room` as in `times`.
    """
    first = times(rows, whitener, room)
    if correction is None:
        return first
    return times(first, correction, room if first.shape == rows.shape else None)


def leverage(
    rows: Array,
    whitener: Array | Triangular,
    correction: Array | Triangular | None = None,
    *,
    room: np.ndarray | None = None,
) -> Array:
    """Leverage of rows of F: squared row norms of F W C, (m, p) -> (m,); arguments as in `whitened`."""
    if isinstance(whitener, Triangular) and correction is None:
        whitener = whitener._replace(columns=slice(None))  # zero columns add nothing
    return squared_row_norms(whitened(rows, whitener, correction, room=room))


class Spectrum(NamedTuple):
    """Rank decision on a p x p R factor (see `spectrum`)."""

    rank: int
    singular_values: np.ndarray  # (p,), descending, of R after column scaling
    condition: float  # largest over smallest kept singular value
    exponents: np.ndarray  # (p,), columns were divided by 2^exponents
    vectors: np.ndarray  # (p, p), right singular vectors of the scaled columns
    whitener: np.ndarray  # (p, rank)
    unwhitener: np.ndarray  # (rank, p), the inverse of W, without the shift and the scale of the columns
    shift: np.ndarray  # (rank,), powers of two left out of the whitener; 0 but at the ends of float64's range
    ambiguous: tuple[float, ...]  # singular values near the tolerance, relative to the largest
    involved: tuple[int, ...]  # columns with a part in their singular vectors

    @property
    def column_scale(self) -> np.ndarray:
        """Powers of two that bring the column norms into [0.5, 1), (p,)."""
        # 2^1023 is the largest power there is: subnormal columns stay below 1/2.
        return np.ldexp(1.0, np.minimum(-self.exponents, 1023))

    @property
    def null_space(self) -> np.ndarray:
        """Directions of no length, (p, p - rank), in scaled columns."""
        return self.vectors[:, self.rank :]

    @property
    def correction(self) -> np.ndarray | None:
        """What F W still has to be multiplied by when powers of two were left out of W, (rank, rank)."""
        return np.diag(np.ldexp(1.0, self.shift)) if self.shift.any() else None


def spectrum(r: np.ndarray, exponents: np.ndarray | None = None, *, triangular: bool = False) -> Spectrum:
    """Decide the rank of R and form the whitener W, so that F W has orthonormal columns.

    Columns are first scaled by powers of two to norms in [0.5, 1), which costs no digit and takes
    pure column scale out of the condition; singular values below 10 p eps of the largest are zero.
    The tolerance does not depend on the number of rows. `r` holds columns divided by 2^exponents, where given.
    W is V / s of the singular value decomposition; or, with `triangular`, R^-1 where R has full rank: products with
    it take half the time, and it is accurate to eps kappa as well (solved column by column, R R^-1 is close to 1).
    """
    p = r.shape[1]
    own = column_exponents(r)
    scaled = np.ldexp(r, -own)
    _, s, vt = np.linalg.svd(scaled)
    exponents = own if exponents is None else own + exponents
    tolerance = 10 * p * np.finfo(np.float64).eps
    largest = s[0] if p else 0.0
    kept = s > tolerance * largest if largest > 0 else np.zeros(p, dtype=bool)
    rank = int(kept.sum())
    if triangular and rank == p:
        values, back = np.triu(solve_triangular(scaled, np.eye(p), check_finite=False)), scaled
    else:
        values, back = vt[:rank].T / s[:rank], s[:rank, None] * vt[:rank]
    whitener, shift = _within_range(values, -exponents)
    relative = s / largest if largest > 0 else s
    floor = max(tolerance / 10, 8 * np.finfo(np.float64).eps)
    near = np.where(kept, relative < 1000 * tolerance, relative > floor)
    return Spectrum(
        rank=rank,
        singular_values=s,
        condition=float(largest / s[rank - 1]) if rank else float("nan"),
        exponents=exponents,
        vectors=vt.T,
        whitener=whitener,
        unwhitener=back,
        shift=shift,
        ambiguous=tuple(float(v) for v in relative[near]),
        involved=tuple(int(j) for j in np.flatnonzero(np.abs(vt[near]).max(axis=0, initial=0.0) > 0.1)),
    )


def with_zero_columns(decided: Spectrum, kept: np.ndarray) -> Spectrum:
    """The decision on a matrix with zero columns, from that on its other columns `kept` (p,)."""
    p, k = len(kept), int(kept.sum())
    if k == p:
        return decided
    vectors = np.zeros((p, p))
    vectors[np.ix_(kept, np.arange(p) < k)] = decided.vectors
    vectors[np.flatnonzero(~kept), np.arange(k, p)] = 1.0
    exponents, whitener = np.zeros(p, dtype=np.int64), np.zeros((p, decided.rank))
    exponents[kept], whitener[kept] = decided.exponents, decided.whitener
    unwhitener = np.zeros((decided.rank, p))
    unwhitener[:, kept] = decided.unwhitener
    return decided._replace(
        singular_values=np.append(decided.singular_values, np.zeros(p - k)),
        exponents=exponents,
        vectors=vectors,
        whitener=whitener,
        unwhitener=unwhitener,
        involved=tuple(int(np.flatnonzero(kept)[j]) for j in decided.involved),
    )


def _within_range(values: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows times 2^exponents, and per column the power of two left out to stay within float64.

    The inverse of a column near 1e-310 has no float64, nor all of its digits that of a column near 1e308.
    """
    _, tops = np.frexp(np.abs(values))
    tops = np.where(values != 0, tops + exponents[:, None], -(2**20)).max(axis=0, initial=-(2**20))
    shift = tops - np.clip(tops, -960, 960)
    return np.ldexp(values, exponents[:, None] - shift), shift


def r_of_gram(gram: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """R of a Gram matrix by Cholesky, upper triangular, of columns divided by the exponents that come with it.

    `gram` (p, p) is that of columns divided by 2^exponents, none of them zero. None where Cholesky breaks: the
    columns are linearly dependent, or their condition is beyond what a Gram matrix keeps (about 1e8).
    """
    _, own = np.frexp(np.sqrt(np.diagonal(gram)))
    try:
        lower = np.linalg.cholesky(np.ldexp(gram, -(own[:, None] + own)))
    except np.linalg.LinAlgError:
        return None
    return np.ascontiguousarray(lower.T), exponents + own


def before_whitening(first: Spectrum, second: np.ndarray) -> np.ndarray:
    """R of F with columns divided by 2^first.exponents, from the R factor `second` of F W, F of the rank of W."""
    # F W = Q R2 gives F D = Q (R2 2^shift U), U the inverse of W in columns scaled by D.
    return r_factor(np.ldexp(second, first.shift) @ first.unwhitener)


def frobenius_norm(r: np.ndarray) -> float:
    """Frobenius norm, brought near 1 by a power of two first so that squares neither over- nor underflow."""
    _, top = np.frexp(np.abs(r).max(initial=0.0))
    return float(np.ldexp(np.linalg.norm(np.ldexp(r, -top)), top))


def column_exponents(r: np.ndarray) -> np.ndarray:
    """Exponents (p,) such that columns divided by 2^exponents have norms in [0.5, 1); 0 for zero columns."""
    largest = np.abs(r).max(axis=0, initial=0.0)
    _, top = np.frexp(largest)
    # Norms of columns brought near 1 first: 1e200 squared would overflow, 1e-200 vanish.
    norms = np.sqrt((np.ldexp(r, -top) ** 2).sum(axis=0))
    _, rest = np.frexp(norms)
    return np.where(largest > 0, top + rest, 0)
