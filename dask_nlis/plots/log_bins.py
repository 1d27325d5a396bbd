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
    """Counts of rows by the bin of their number, and sums of their numbers; zeros and what is no number apart."""

    shift: int
    first: int  # the first bin: bits of its lower edge, shifted
    counts: np.ndarray  # (k,) int64 or float64
    sums: np.ndarray  # (k,)
    n_rows: int
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
        return self.n_rows - self.n_zero - self.n_non_finite


#: The bins of nothing.
NONE = LogBins(0, 0, np.zeros(0, np.int64), np.zeros(0), 0, 0, 0, None)


def log_bins(values: np.ndarray, start: int = 0) -> LogBins:
    """Bins of a block of numbers (m,), whose first row is `start`."""
    finite = np.isfinite(values)
    positive = values[finite & (values > 0)]
    below = np.flatnonzero(finite & (values < 0))[:1]
    n_zero = int(np.count_nonzero(values == 0))
    rest: dict[str, Any] = {
        "n_rows": len(values),
        "n_zero": n_zero,
        "n_non_finite": int(len(values) - np.count_nonzero(finite)),
        "negative": start + int(below[0]) if len(below) else None,
    }
    if not len(positive):
        return NONE._replace(**rest)
    bits = np.ascontiguousarray(positive).view(np.int64)
    low, high = int(bits.min()), int(bits.max())
    shift = shift_for(low, high)
    first = low >> shift
    place = (bits >> shift) - first
    return LogBins(shift, first, np.bincount(place), np.bincount(place, positive), **rest)


def shift_for(low: int, high: int) -> int:
    """Smallest shift by which whole numbers from low to high fall into at most `MOST` bins."""
    shift = max(0, (high - low).bit_length() - MOST.bit_length())
    while (high >> shift) - (low >> shift) >= MOST:
        shift += 1
    return shift


def joined(a: LogBins, b: LogBins) -> LogBins:
    """Bins of two parts of the data together."""
    rest: dict[str, Any] = {
        "n_rows": a.n_rows + b.n_rows,
        "n_zero": a.n_zero + b.n_zero,
        "n_non_finite": a.n_non_finite + b.n_non_finite,
        "negative": min((n for n in (a.negative, b.negative) if n is not None), default=None),
    }
    parts = [part for part in (a, b) if len(part.counts)]
    if len(parts) < 2:
        return (parts[0] if parts else NONE)._replace(**rest)
    shift = max(a.shift, b.shift)
    while _span(parts, shift)[1] - _span(parts, shift)[0] > MOST:
        shift += 1
    first, end = _span(parts, shift)
    counts = np.zeros(end - first, dtype=np.result_type(a.counts, b.counts))
    sums = np.zeros(end - first)
    for part in parts:
        place = ((part.first + np.arange(len(part.counts))) >> (shift - part.shift)) - first
        np.add.at(counts, place, part.counts)
        np.add.at(sums, place, part.sums)
    return LogBins(shift, first, counts, sums, **rest)


def _span(parts: list[LogBins], shift: int) -> tuple[int, int]:
    """First bin of all parts at this shift, and the one after the last."""
    first = min(part.first >> (shift - part.shift) for part in parts)
    return first, max((part.first + len(part.counts) - 1) >> (shift - part.shift) for part in parts) + 1


def histogram(bins: LogBins, n_bars: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (k,) and edges (k + 1,) of at most `n_bars` bars, about equal on a log axis: exact, as edges are edges of bins."""
    edges = bins.edges
    if len(bins.counts) < 2:
        return bins.counts, edges
    wanted = np.geomspace(edges[0], edges[-1], n_bars + 1)
    place = np.unique(np.abs(np.subtract.outer(np.log(wanted), np.log(edges))).argmin(axis=1))
    return np.add.reduceat(bins.counts, place[:-1]), edges[place]
