"""Counts and sums of positive numbers by fine bins of equal width in their bits, as fine as their range allows.

The bits of positive float64, read as whole numbers, are in the order of the numbers and nearly linear in their logarithm.
A bin is all numbers with the same bits but for the last `shift`; `shift` is the smallest for which at most `MOST` bins
cover the range. It depends on the range alone, so that parts of the data joined in any order give the same bins.
"""

from typing import Any, NamedTuple

import numpy as np

#: Bins a range is cut into, at most; half of them at least, where the numbers have that many bits.
MOST = 4096

#: Bits of infinity: the end of the last bin there is.
_END = int(np.float64(np.inf).view(np.int64))


class LogBins(NamedTuple):
    """Rows by the bin of their number: how many, and a sum over them; rows that have no place in a bin apart."""

    shift: int
    first: int  # the first bin: bits of its lower edge, shifted
    counts: np.ndarray  # (k,) int64
    sums: np.ndarray  # (k,), of the numbers, or of what is beside them
    n_zero: int
    n_non_finite: int
    negative: int | None  # the first row below zero

    @property
    def edges(self) -> np.ndarray:
        """Edges of the bins, (k + 1,); they begin at the smallest float64 above zero and end at the largest."""
        bits = np.clip((self.first + np.arange(len(self.counts) + 1)) << self.shift, 1, _END - 1)
        return bits.view(np.float64)

    @property
    def n_positive(self) -> int:
        """Rows with a positive finite number."""
        return int(self.counts.sum())


#: The bins of nothing.
NONE = LogBins(0, 0, np.zeros(0, np.int64), np.zeros(0), 0, 0, None)


def log_bins(values: np.ndarray, start: int = 0, beside: np.ndarray | None = None) -> LogBins:
    """Bins of a block of numbers (m,), whose first row is `start`; sums are of the numbers, or of those `beside` (m,)."""
    finite = np.isfinite(values)
    inside = finite & (values > 0)
    below = np.flatnonzero(finite & (values < 0))[:1].tolist()
    nowhere: dict[str, Any] = {
        "n_zero": int(np.count_nonzero(values == 0)),
        "n_non_finite": len(values) - int(np.count_nonzero(finite)),
        "negative": start + below[0] if below else None,
    }
    if not inside.any():
        return NONE._replace(**nowhere)
    positive = np.ascontiguousarray(values[inside])
    bits = positive.view(np.int64)
    low, high = int(bits.min()), int(bits.max())
    shift = shift_for(low, high, MOST)
    place = (bits >> shift) - (low >> shift)
    sums = np.bincount(place, positive if beside is None else beside[inside])
    return LogBins(shift, low >> shift, np.bincount(place), sums, **nowhere)


def shift_for(low: int, high: int, most: int) -> int:
    """Smallest shift by which whole numbers from low to high become at most so many different ones."""
    shift = max(0, (high - low).bit_length() - most.bit_length())
    while (high >> shift) - (low >> shift) >= most:
        shift += 1
    return shift


def joined(a: LogBins, b: LogBins) -> LogBins:
    """Bins of two parts of the data together."""
    nowhere: dict[str, Any] = {
        "n_zero": a.n_zero + b.n_zero,
        "n_non_finite": a.n_non_finite + b.n_non_finite,
        "negative": min((row for row in (a.negative, b.negative) if row is not None), default=None),
    }
    parts = [part for part in (a, b) if len(part.counts)]
    if len(parts) < 2:
        return (parts[0] if parts else NONE)._replace(**nowhere)
    shift = max(a.shift, b.shift)
    low = min(part.first >> (shift - part.shift) for part in parts)
    high = max((part.first + len(part.counts) - 1) >> (shift - part.shift) for part in parts)
    more = shift_for(low, high, MOST)
    shift, low, high = shift + more, low >> more, high >> more
    counts, sums = np.zeros(high - low + 1, dtype=np.int64), np.zeros(high - low + 1)
    for part in parts:
        place = ((part.first + np.arange(len(part.counts))) >> (shift - part.shift)) - low
        np.add.at(counts, place, part.counts)
        with np.errstate(over="ignore"):  # infinite, as a sum in one block would be
            np.add.at(sums, place, part.sums)
    return LogBins(shift, low, counts, sums, **nowhere)


def bars(bins: LogBins, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (k,) and edges (k + 1,) of up to `most` bars, about equal on a log axis: exact, for edges of bars are edges of bins."""
    edges = bins.edges
    if len(bins.counts) < 2:
        return bins.counts, edges
    wanted = np.linspace(np.log(edges[0]), np.log(edges[-1]), most + 1)
    place = np.unique(np.abs(np.subtract.outer(wanted, np.log(edges))).argmin(axis=1))
    return np.add.reduceat(bins.counts, place[:-1]), edges[place]


def beyond(bins: LogBins, share: float) -> float:
    """The lowest edge of a bin beyond which rows hold at most this share of the sums."""
    above = np.append(np.cumsum(bins.sums[::-1])[::-1], 0.0)
    return float(bins.edges[np.flatnonzero(above <= share * above[0])[0]])
