"""From the factor of some columns to that of all: zero columns, and columns that are known combinations of the others."""

import numpy as np

from dask_nlis.kernels.linalg import Spectrum, r_factor, spectrum, with_zero_columns
from dask_nlis.matrix.patterns import Units


def spread(r: np.ndarray, exponents: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """R in the units of the data and with the zero columns in their places."""
    out = np.zeros((len(kept), len(kept)))
    with np.errstate(over="ignore"):  # an infinity is reported by factorize
        out[np.ix_(kept, kept)] = np.ldexp(r, exponents)
    return out


def widened(
    r: np.ndarray, exponents: np.ndarray, kept: np.ndarray, units: Units
) -> tuple[np.ndarray, np.ndarray, Spectrum, np.ndarray]:
    """R of all columns that are not zero, from that of the columns `kept` of the basis (k, k).

    Both are of columns divided by 2^exponents; returned are R, its exponents, the decision on it and the columns it
    has, as a mask (p,). R has k rows that are not zero, so that the columns of a_j, which are combinations of others by
    construction, add nothing to the rank, not even by rounding.
    """
    wide = units.widening()[kept]
    # A column has the largest exponent among its parts, so that those of the basis keep theirs.
    _, own = np.frexp(np.where(wide == 1, 0.5, wide))
    used = np.asarray((wide != 0).any(axis=0))
    tops = np.where(wide != 0, own + exponents[:, None], -(2**20)).max(axis=0, initial=-(2**20))[used]
    all_columns = r_factor(r @ np.ldexp(wide[:, used], exponents[:, None] - tops))
    return all_columns, tops, spectrum(all_columns, tops), used


def of_all_columns(r: np.ndarray, kept: np.ndarray, units: Units) -> tuple[np.ndarray, Spectrum]:
    """R of all columns (p, p) and the decision on it, from an R of the columns `kept` of the basis, of any rank."""
    wide, exponents, decided, used = widened(r, np.zeros(len(r), dtype=np.int64), kept, units)
    return spread(wide, exponents, used), with_zero_columns(decided, used)


def condition_of(gram: np.ndarray) -> float:
    """Condition of the columns behind a Gram matrix, scaled to norm 1 and without zero columns; infinite above 1e8."""
    squares = np.diagonal(gram)
    kept = squares > 0
    scale = np.sqrt(squares[kept])
    values = np.linalg.eigvalsh(gram[np.ix_(kept, kept)] / scale / scale[:, None])
    return float(np.sqrt(values[-1] / values[0])) if values[0] > 0 else float("inf")
