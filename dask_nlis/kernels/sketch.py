"""Sparse-sign sketch S F of a tall matrix: every row is added, with signs, to eight rows of the sketch.

The entries of S come from a Philox stream keyed by the global row number, so S does not know how the rows are
cut into blocks. One nonzero in each of `BANDS` bands of rows (Nelson & Nguyen 2013, "OSNAP", block construction):
a single one, as in CountSketch, loses a direction whenever two rows of leverage 1 meet.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse import csr_array

Array = Any

#: Nonzeros of S a row of F: the eight 32-bit words of one Philox counter, a bucket and a sign each.
BANDS = 8

#: Philox keys of the sketch and of an independent second one, which measures the first; never change.
STREAMS = (0x6E6C69732D736B31, 0x6E6C69732D736B32)


def sketch_size(p: int) -> int:
    """Rows of the sketch for p columns: 10 p, at least 128, in whole bands."""
    return BANDS * max(16, -(-5 * p // 4))


def entries(stream: int, start: int, n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Nonzeros of S for global rows start ... start + n - 1: sketch rows (n, 8) and signs (n, 8) of +1 or -1."""
    words = np.random.Philox(key=stream, counter=start).random_raw(4 * n)
    halves = np.stack([words & np.uint64(2**32 - 1), words >> np.uint64(32)], axis=1).reshape(n, BANDS)
    width = size // BANDS
    # The upper 31 bits times the width: a uniform bucket to 2^-31, without the bias of a remainder.
    within = ((halves >> np.uint64(1)) * np.uint64(width)) >> np.uint64(31)
    buckets = within.astype(np.int64) + width * np.arange(BANDS)
    return buckets, 1.0 - 2.0 * (halves & np.uint64(1))


def sketched(rows: Array, buckets: np.ndarray, signs: np.ndarray, size: int) -> Array:
    """S F for rows of F and their nonzeros, (m, p) -> (size, p); without the factor 1 / sqrt(8)."""
    m = rows.shape[0]
    if is_numpy_array(rows):
        s = csr_array((signs.ravel(), buckets.ravel(), np.arange(0, BANDS * m + 1, BANDS)), shape=(m, size))
        return s.T @ rows
    xp = array_namespace(rows)
    table = xp.asarray(_gather_table(buckets, signs, size))
    signed = xp.concat([rows, -rows, xp.zeros((1, rows.shape[1]), dtype=rows.dtype)], axis=0)
    width, most = size // BANDS, table.shape[1]
    bands = []
    for k in range(BANDS):  # each row is in every band once, so that one of them is not much larger than the rows
        place = xp.reshape(table[k * width : (k + 1) * width, :], (-1,))
        gathered = xp.reshape(xp.take(signed, place, axis=0), (width, most, rows.shape[1]))
        bands.append(xp.sum(gathered, axis=1))
    return xp.concat(bands, axis=0)


def sketched_multiples(
    rows: np.ndarray, multiples: np.ndarray, buckets: np.ndarray, signs: np.ndarray, size: int
) -> np.ndarray:
    """S diag(multiples) rows: (m, q), (m,) -> (size, q), a block of the sketch of a row-wise Khatri-Rao product.

    That product is not formed, and rows whose multiple is 0 cost nothing. NumPy only.
    """
    used = multiples != 0
    entries = (signs[used] * multiples[used, None]).ravel(), buckets[used].ravel()
    s = csr_array((*entries, np.append(0, np.cumsum(BANDS * used))), shape=(len(rows), size))
    return s.T @ rows


def _gather_table(buckets: np.ndarray, signs: np.ndarray, size: int) -> np.ndarray:
    """For each sketch row the places, in [rows, -rows, 0], of what goes into it, in order, padded: (size, most).

    Array namespaces can gather but not scatter; nor does the order of a sum depend on chance then.
    """
    m = len(buckets)
    flat = buckets.ravel()
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat, minlength=size)
    place = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((size, int(counts.max(initial=0))), 2 * m, dtype=np.int32)
    table[flat[order], place] = order // BANDS + np.where(signs.ravel()[order] > 0, 0, m)
    return table
