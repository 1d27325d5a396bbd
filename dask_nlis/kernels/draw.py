"""Integer arithmetic of the draws, exact and so independent of chunking, order and worker count.

Scores become integers q_i = max(1, floor(score_i 2^(62 - e))), e the exponent of the largest score, and
tau_i = q_i / Q by definition. A block sums two limbs of 31 bits in uint64; prefixes and Q are Python
integers. Poisson sampling uses no integers of this kind but the exact sum of the float64 scores.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dask_nlis.kernels import wide

_LIMB = 31
_MASK = np.uint64(2**_LIMB - 1)

#: Scheme numbers in the seed of a stream; never renumber.
STREAMS = {"multinomial": 1, "stratified": 2, "poisson": 3, "systematic": 4}

#: Bits of a float64 significand.
_MANTISSA = 53

#: Powers of two by which float64 may be multiplied without a thought of the ends of its range.
_SAFE = 1000

#: Bits of a float64 behind the point, as stored.
_STORED = 52

#: Bits of the lower half of a significand.
_HALF = 26

#: Lowest frexp exponent of a float64, and how many there are.
_LOWEST, _EXPONENTS = -1073, 2098

#: Rows worked on at a time where a block would not stay in the cache of a core.
PIECE = 2**15

#: Mantissas in [1/2, 1) split in halves of an octave.
_ROOT_HALF = 0.5**0.5

#: What carries into the exponent when added to the bits of a mantissa of at least that.
_PAST_ROOT = 2**_STORED - (int(np.array(_ROOT_HALF).view(np.int64)) & (2**_STORED - 1))

#: Half-octave bin of the largest score; bin 0 takes all below 2^-32 of it.
LAST_BIN = 64


def stream_key(seed: int, stage: int, scheme: str, group: int | None = None) -> np.ndarray:
    """128-bit Philox key of one (seed, stage, scheme), or of one group of rows in it."""
    # Ends in what is no scheme, so that no group of one seed has the stream of another, longer seed.
    spawned = () if group is None else (group, 2**32 - 1)
    sequence = np.random.SeedSequence([seed, stage, STREAMS[scheme]], spawn_key=spawned)
    return sequence.generate_state(2, np.uint64)


def largest_exponent(largest: float) -> int:
    """Frexp exponent of the largest score."""
    return int(np.frexp(largest)[1])


def times_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Values times 2^exponent: what `numpy.ldexp` gives, at a third of its price where that power is a float64."""
    return values * 2.0**exponent if abs(exponent) <= _SAFE else np.ldexp(values, exponent)


def whole_numbers(scores: np.ndarray, exponent: int) -> np.ndarray:
    """Whole numbers q (m,), float64: floor(score 2^(62 - exponent)), at least 1 for a positive score, 0 for zero.

    Exact: the floor of a float64 is a float64.
    """
    with np.errstate(under="ignore", over="ignore"):
        q = np.floor(times_power(scores, 62 - exponent))
    if q.min(initial=1.0) < 1:
        np.maximum(q, scores > 0, out=q)
    return q


def quantise(scores: np.ndarray, exponent: int) -> np.ndarray:
    """The whole numbers of scores below 2^exponent as uint64, (m,)."""
    return whole_numbers(scores, exponent).astype(np.uint64)


def limb_sum(q: np.ndarray) -> int:
    """Exact sum of q as a Python integer; safe up to 2^33 rows a block."""
    return (int((q >> np.uint64(_LIMB)).sum(dtype=np.uint64)) << _LIMB) + int((q & _MASK).sum(dtype=np.uint64))


def locate_targets(q: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row of each target, (m,), and how far below the row's end it lies, uint64 (m,) in [1, q of the row].

    The row is the first i with q_0 + ... + q_i > target; targets are ascending words (m, 2) below the sum of q. Zero
    rows are never found, for their cumulated sum equals the one before.
    """
    if len(q) <= PIECE:
        return _located(q, targets)
    edges = [0]
    for k in range(0, len(q), PIECE):
        edges.append(edges[-1] + limb_sum(q[k : k + PIECE]))
    bases = wide.from_whole(edges)
    cuts = wide.search(targets, bases, side="left").tolist()
    rows, onward = np.empty(len(targets), dtype=np.int64), np.empty(len(targets), dtype=np.uint64)
    for k, (a, b) in enumerate(pairwise(cuts)):
        if b > a:
            begin = k * PIECE
            within = wide.minus(targets[a:b], bases[k : k + 1])
            rows[a:b], onward[a:b] = _located(q[begin : begin + PIECE], within)
            rows[a:b] += begin
    return rows, onward


def _located(q: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    high, low = np.cumsum(q >> np.uint64(_LIMB), dtype=np.uint64), np.cumsum(q & _MASK, dtype=np.uint64)
    high += low >> np.uint64(_LIMB)
    low &= _MASK
    t_high = targets[:, 0] << np.uint64(64 - _LIMB) | targets[:, 1] >> np.uint64(_LIMB)
    t_low = targets[:, 1] & _MASK
    rows = np.searchsorted(high, t_high, side="left")
    for k in np.flatnonzero(high[rows] == t_high):  # equal high limbs: the low limb decides
        last = np.searchsorted(high, t_high[k], side="right")
        rows[k] += np.searchsorted(low[rows[k] : last], t_low[k], side="right")
    # Modulo 2^64 exact, for the distance is below 2^62.
    return rows, ((high[rows] - t_high) << np.uint64(_LIMB)) + low[rows] - t_low


def uniform_targets(total: int, size: int, key: np.ndarray) -> np.ndarray:
    """`size` independent whole numbers uniform on [0, total), as words (size, 2); those of one key are nested in `size`.

    r, 128 bits of Philox, becomes floor(r total / 2^128), rejected, hardly ever, where that would favour some number
    (Lemire 2019). So a total that differs in its last digits, as sums of rounded scores do, moves every target in its
    last digits only; bits of the length of the total would all change where it crosses a power of two.
    """
    philox = np.random.Philox(key=key)
    favoured = wide.from_whole([2**128 % total])
    found, n_found = [np.empty((0, 2), dtype=np.uint64)], 0
    while n_found < size:
        candidates, remainders = wide.scaled(philox.random_raw(2 * (size - n_found)).reshape(-1, 2), total)
        found.append(candidates[~wide.less(remainders, favoured)])
        n_found += len(found[-1])
    return np.concatenate(found)


def slice_targets(total: int, size: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One target in each of `size` equal slices of [0, total): floor((k total + r_k) / size), ascending words.

    `offsets` are the r_k in [0, total), (size, 2), or one r for all slices, (1, 2). Over all r each whole number
    is hit exactly `size` times in all. Also returns (r_k - remainder) / total, (size,): where in its slice, as a
    share of the slice, the target begins.
    """
    number = np.arange(size, dtype=np.uint64)
    quotient, remainder = divmod(total, size)
    # Split so that nothing exceeds 128 bits: k total = size k quotient + k remainder.
    inner, rest = wide.divided(wide.plus(wide.times(remainder, number), offsets), size)
    where = (wide.to_float(offsets) - rest) / float(total)
    return wide.plus(wide.times(quotient, number), inner), where


def half_octaves(scores: np.ndarray, largest: float) -> np.ndarray:
    """Bin of each score, (m,) uint8: two bins an octave, their edges at 2^k and 2^k sqrt(1/2) whatever the scores.

    Counted so that the bin of the largest score is `LAST_BIN`; what lies deeper than 2^-32 below it shares bin 0.
    """
    if scores.flags.c_contiguous and largest > 2.0**-900:  # subnormal scores are in bin 0 then
        # The stored bits of a positive float64 grow with it: as an integer, exponent and mantissa in one.
        bits = scores.view(np.int64)
        place = _half_octave(bits)
        top = _half_octave(np.array([largest]).view(np.int64))
    else:
        mantissa, exponent = np.frexp(np.append(scores, largest))
        both = 2 * exponent.astype(np.int64) + (mantissa >= _ROOT_HALF)
        place, top = both[:-1], both[-1:]
    place -= top - LAST_BIN
    np.clip(place, 0, LAST_BIN, out=place)
    return place.astype(np.uint8)


def _half_octave(bits: np.ndarray) -> np.ndarray:
    """Number of the half-octave of positive float64, from their bits: twice the exponent, and 1 from the root of 1/2 on."""
    place = bits >> _STORED
    place += (bits + _PAST_ROOT) >> _STORED  # carries into the exponent from there on
    return place


def bin_sums(q: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Non-empty bins, (k,) uint8, and the sum of q in each as high 2^31 + low: (k,) uint64 and (k,) uint32."""
    high, low = np.zeros(LAST_BIN + 1, dtype=np.uint64), np.zeros(LAST_BIN + 1, dtype=np.uint64)
    for k in range(0, len(q), PIECE):
        piece = bins[k : k + PIECE]
        counts = np.bincount(piece, minlength=LAST_BIN + 1)
        sums = group_sums(q[k : k + PIECE][np.argsort(piece, kind="stable")], counts)
        high += sums[0]
        low += sums[1]
    high, low = high + (low >> np.uint64(_LIMB)), low & _MASK
    some = np.flatnonzero((high > 0) | (low > 0))
    return some.astype(np.uint8), high[some], low[some].astype(np.uint32)


def group_sums(q: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of consecutive groups of rows, so many rows each, as high 2^31 + low: (k,) and (k,) uint64, low below 2^31."""
    high, low = np.zeros(len(counts), dtype=np.uint64), np.zeros(len(counts), dtype=np.uint64)
    some = np.flatnonzero(counts)
    if not len(some):
        return high, low
    ends = np.cumsum(counts)
    first, rows = (ends - counts)[some], q[: ends[-1]]
    high[some] = np.add.reduceat(rows >> np.uint64(_LIMB), first, dtype=np.uint64)
    low[some] = np.add.reduceat(rows & _MASK, first, dtype=np.uint64)
    return high + (low >> np.uint64(_LIMB)), low & _MASK


def row_uniforms(key: np.ndarray, start: int, n: int) -> np.ndarray:
    """Uniforms on [0, 1) for global rows start ... start + n - 1: four to a Philox counter, so equal under any split."""
    first = start // 4
    philox = np.random.Philox(key=key, counter=first)
    raw = philox.random_raw(4 * (-(-(start + n) // 4) - first))[start - 4 * first :][:n]
    return (raw >> np.uint64(64 - _MANTISSA)) * 2.0**-_MANTISSA


def exponent_sums(scores: np.ndarray) -> dict[int, tuple[int, int]]:
    """Per frexp exponent of positive scores: how many, and the exact sum of their 53-bit significands."""
    counts = np.zeros(_EXPONENTS, dtype=np.int64)
    upper, lower = np.zeros(_EXPONENTS, dtype=np.uint64), np.zeros(_EXPONENTS, dtype=np.uint64)
    for k in range(0, len(scores), PIECE):
        piece = scores[k : k + PIECE]
        if not piece.min() >= np.finfo(np.float64).tiny or not piece.flags.c_contiguous:
            mantissa, exponent = np.frexp(piece[piece > 0])
            whole = np.ldexp(mantissa, _MANTISSA).astype(np.int64)
            place = exponent.astype(np.int64) - _LOWEST
        else:  # the same from the bits, in a third of the time
            bits = piece.view(np.int64)
            place = (bits >> _STORED) + (-1022 - _LOWEST)  # mantissas of frexp are in [1/2, 1), those stored in [1, 2)
            whole = bits & (2**_STORED - 1) | 2**_STORED
        counts += np.bincount(place, minlength=_EXPONENTS)
        # Two halves, so that every sum is below 2^53 and float64 adds exactly.
        upper += np.bincount(place, whole >> _HALF, _EXPONENTS).astype(np.uint64)
        lower += np.bincount(place, whole & (2**_HALF - 1), _EXPONENTS).astype(np.uint64)
    return {
        k + _LOWEST: (int(counts[k]), (int(upper[k]) << _HALF) + int(lower[k])) for k in np.flatnonzero(counts).tolist()
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
