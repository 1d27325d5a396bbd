"""Exact sums of scores by exponent, in any order and in any parts; and the scale of a Poisson draw that follows from them.

A sum of float64 scores is a sum of whole significands for each exponent, so that blocks, chunks and workers do not show.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dask_nlis.kernels import wide
from dask_nlis.kernels.draw import PIECE, limb_sum

#: Bits of a float64 significand; those behind the point, as stored; those of its lower half.
_MANTISSA, _STORED, _HALF = 53, 52, 26

#: Lowest frexp exponent of a float64, and how many there are.
_LOWEST, _EXPONENTS = -1073, 2098

#: What is added to the exponent of frexp, whose mantissas are in [1/2, 1), where it is stored.
_BIAS = 1022


def exponent_sums(scores: np.ndarray) -> dict[int, tuple[int, int]]:
    """Per frexp exponent of positive scores: how many, and the exact sum of their 53-bit significands."""
    counts = np.zeros(_EXPONENTS, dtype=np.int64)
    upper, lower = np.zeros(_EXPONENTS, dtype=np.uint64), np.zeros(_EXPONENTS, dtype=np.uint64)
    for k in range(0, len(scores), PIECE):
        piece = scores[k : k + PIECE]
        if piece.min() >= np.finfo(np.float64).tiny and piece.flags.c_contiguous:
            bits = piece.view(np.int64)  # of positive float64 they are in the order of their values
        else:
            mantissa, exponent = np.frexp(piece[piece > 0])
            whole = np.ldexp(mantissa, _MANTISSA).astype(np.int64)
            # As if the exponent were stored in one digit more, so that none is subnormal.
            bits = (exponent.astype(np.int64) + _BIAS << _STORED) + (whole - 2**_STORED)
            if not len(bits):
                continue
        low = int(bits.min() >> _STORED)
        mine = slice(low - _BIAS - _LOWEST, int(bits.max() >> _STORED) - _BIAS - _LOWEST + 1)
        place = (bits >> _STORED) - low
        counts[mine] += np.bincount(place)
        # Two halves, so that every sum is below 2^53 and float64 adds exactly.
        upper[mine] += np.bincount(place, bits >> _HALF & (2**_HALF - 1)).astype(np.uint64)
        lower[mine] += np.bincount(place, bits & (2**_HALF - 1)).astype(np.uint64)
    # The first digit of a significand is not stored: it counts once for each row.
    return {
        k + _LOWEST: (int(counts[k]), (int(counts[k]) << _STORED) + (int(upper[k]) << _HALF) + int(lower[k]))
        for k in np.flatnonzero(counts).tolist()
    }


def weighted_sums(values: np.ndarray, shares: np.ndarray) -> dict[int, tuple[int, int]]:
    """`exponent_sums` where each positive score counts for a share in [0, 1] of a row only: order-free.

    Counts are in units of 2^-53; a total is that of the products, each cut off below the 53rd digit of its score.
    """
    positive = values > 0
    mantissa, exponent = np.frexp(values[positive])
    parts = np.ldexp(shares[positive], _MANTISSA).astype(np.uint64)
    products = np.floor(np.ldexp(mantissa, _MANTISSA) * shares[positive]).astype(np.uint64)
    out = {}
    for e in np.unique(exponent).tolist():
        mine = exponent == e
        out[e] = limb_sum(parts[mine]), limb_sum(products[mine])
    return out


def packed(sums: Mapping[int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`exponent_sums` in little memory, 26 bytes an exponent: exponents, counts and totals as words (k, 2)."""
    counts, totals = zip(*sums.values(), strict=True) if sums else ((), ())
    return np.array(list(sums), np.int16), np.array(counts, np.int64), wide.from_whole(totals)


def unpacked(parts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[int, tuple[int, int]]:
    """`exponent_sums` from `packed`."""
    exponents, counts, totals = parts
    pairs = zip(counts.tolist(), wide.to_whole(totals), strict=True)
    return dict(zip(exponents.tolist(), pairs, strict=True))


def merge_sums(parts: Sequence[Mapping[int, tuple[int, int]]]) -> dict[int, tuple[int, int]]:
    """Add up `exponent_sums` of several blocks."""
    out: dict[int, tuple[int, int]] = {}
    for part in parts:
        for exponent, (count, total) in part.items():
            before = out.get(exponent, (0, 0))
            out[exponent] = (before[0] + count, before[1] + total)
    return out


def exact_total(sums: Mapping[int, tuple[int, int]]) -> Fraction:
    """Exact sum of the scores behind `exponent_sums`."""
    if not sums:
        return Fraction(0)
    low = min(sums)
    whole = sum(total << (exponent - low) for exponent, (_, total) in sums.items())
    shift = low - _MANTISSA
    return Fraction(whole << shift) if shift >= 0 else Fraction(whole, 1 << -shift)


def boundary_bin(sums: Mapping[int, tuple[Any, int]], size: Any) -> tuple[int, bool]:
    """Frexp exponent of the highest bin whose scores are not all certain, and whether some of them are.

    Bin e holds the scores in [2^(e-1), 2^e). With threshold t = 1/c the expected size is
    #(scores >= t) + (sum of scores < t) / t, which falls in t; all bins above the threshold are certain. Where
    the threshold lies inside a bin, that bin holds at most 2 size scores.
    """
    above, below = 0, exact_total(sums)
    for exponent in sorted(sums, reverse=True):
        count, total = sums[exponent]
        inside = exact_total({exponent: (count, total)})
        top, bottom = Fraction(2) ** exponent, Fraction(2) ** (exponent - 1)
        if above + below / top > size:
            return exponent, False
        if above + count + (below - inside) / bottom > size:
            return exponent, True
        above, below = above + count, below - inside
    return min(sums), True


def poisson_scale(
    sums: Mapping[int, tuple[Any, int]],
    size: Any,
    boundary: int,
    inside: np.ndarray,
    unit: int = 0,
    shares: np.ndarray | None = None,
) -> float:
    """Solve sum of share min(1, c score 2^-unit) = size for c, shares 1 by default; exact arithmetic, rounded once.

    Scores of bins above `boundary` are certain, those of lower bins are not; of the scores `inside` the boundary
    bin the largest are certain, as many as make the solution consistent. With the `shares` of those, sums are those of
    `weighted_sums`, their counts divided by 2^53.
    """
    low = min(sums)
    certain = sum(count for exponent, (count, _) in sums.items() if exponent > boundary)
    rest = sum(total << (exponent - low) for exponent, (_, total) in sums.items() if exponent <= boundary)
    for k in np.argsort(inside, kind="stable")[::-1]:
        whole = int(np.ldexp(inside[k], _MANTISSA - boundary)) << (boundary - low)
        if whole * (size - certain) <= rest:
            break
        if shares is None:
            certain, rest = certain + 1, rest - whole
        else:
            product = int(np.floor(np.ldexp(inside[k], _MANTISSA - boundary) * shares[k]))
            certain += Fraction(int(np.ldexp(shares[k], _MANTISSA)), 2**_MANTISSA)
            rest -= product << (boundary - low)
    if shares is not None and (rest <= 0 or certain >= size):  # all that is there, up to rounding
        return float(Fraction(2) ** (unit - boundary + 1))
    return float(Fraction(size - certain, rest) / Fraction(2) ** (low - _MANTISSA - unit))


def certain_whole(
    sums: Mapping[int, tuple[int, int]], size: int, boundary: int, inside: np.ndarray
) -> tuple[int, int, int]:
    """Whole numbers q that are certain in a systematic draw of `size`: (smallest certain, how many, sum of the rest).

    The largest is set apart while q times what is left to draw reaches the sum of what is left. Arguments as in
    `poisson_scale`, for whole numbers in place of scores.
    """
    n_certain = sum(count for exponent, (count, _) in sums.items() if exponent > boundary)
    rest = int(exact_total({e: part for e, part in sums.items() if e <= boundary}))
    smallest = 1 << boundary  # all above the boundary bin
    for q in map(int, np.sort(inside)[::-1]):
        if n_certain == size or q * (size - n_certain) < rest:
            break
        n_certain, rest, smallest = n_certain + 1, rest - q, q
    return smallest, n_certain, rest
