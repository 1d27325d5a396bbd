"""Integer arithmetic of the draws, exact and so independent of chunking, order and worker count.

Scores become integers q_i = max(1, floor(score_i 2^(62 - e))), e the exponent of the largest score, and
tau_i = q_i / Q by definition. A block sums two limbs of 31 bits in uint64; prefixes and Q are Python
integers. Poisson sampling uses no integers of this kind but the exact sum of the float64 scores.
"""

from itertools import pairwise

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


def limb_sum(q: np.ndarray) -> int:
    """Exact sum of q as a Python integer; safe up to 2^33 rows a block."""
    high = int((q >> np.uint64(_LIMB)).sum(dtype=np.uint64)) << _LIMB
    # The low limbs sum to less than 2^64: what the sum modulo 2^64 leaves of them is all.
    return high + (int(q.sum(dtype=np.uint64)) - high) % 2**64


def distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`numpy.unique` of rows (m,) with index, inverse and counts, at half its price; the index is of any of the equal ones."""
    order = np.argsort(rows)
    ascending = rows[order]
    new = np.ones(len(rows), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    first = np.flatnonzero(new)
    inverse = np.empty(len(rows), dtype=np.int64)
    inverse[order] = np.cumsum(new) - 1
    return ascending[first], order[first], inverse, np.diff(np.append(first, len(rows)))


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
    # As int64, which the values are too, they become float64 twice as fast.
    return (raw >> np.uint64(64 - _MANTISSA)).view(np.int64) * 2.0**-_MANTISSA
