"""Counts of rows by cells of a plane: one way in the bits of a positive number, the other in equal steps of any number.

As in `log_bins`, cells are as fine as the range allows, and depend on the range alone: each is a power of two wide.
"""

import math
from typing import NamedTuple

import numpy as np

from dask_nlis.plots.log_bins import shift_for

#: Cells each way, at most; half of them at least, where the numbers have that many digits.
MOST = 96

#: Bits of a float64 significand behind the first, and the exponent of the finest step.
_DIGITS, _FINEST = 52, -1074


class Cells(NamedTuple):
    """Sums over the rows in each cell."""

    shift: int  # across: last bits left out
    left: int  # first cell across
    exponent: int  # up: cells are 2^exponent high
    bottom: int  # first cell up
    sums: np.ndarray  # (across, up)

    @property
    def across(self) -> np.ndarray:
        """Edges of the cells, (across + 1,)."""
        bits = (self.left + np.arange(self.sums.shape[0] + 1)) << self.shift
        return np.maximum(bits, 1).view(np.float64)

    @property
    def up(self) -> np.ndarray:
        """Edges of the cells, (up + 1,)."""
        return np.ldexp((self.bottom + np.arange(self.sums.shape[1] + 1)).astype(np.float64), self.exponent)


def cells(positive: np.ndarray, values: np.ndarray, weights: np.ndarray) -> Cells | None:
    """Cells of the rows (m,) with finite numbers: positive ones across, any up, sums of weights; None of no row."""
    if not len(positive):
        return None
    bits = np.ascontiguousarray(positive).view(np.int64)
    low, high = int(bits.min()), int(bits.max())
    shift = shift_for(low, high, MOST)
    exponent = _exponent(float(values.min()), float(values.max()))
    across, up = (bits >> shift) - (low >> shift), _steps(values, exponent)
    bottom = int(up.min())
    wide, high_up = int(across.max()) + 1, int(up.max()) - bottom + 1
    sums = np.bincount(across * high_up + (up - bottom), weights, minlength=wide * high_up)
    return Cells(shift, low >> shift, exponent, bottom, sums.reshape(wide, high_up))


def _exponent(low: float, high: float) -> int:
    """Smallest exponent of steps of which at most `MOST` cover the range, and whose numbers float64 holds exactly."""
    largest = max(abs(low), abs(high))
    exponent = max(_FINEST, math.frexp(largest)[1] - _DIGITS) if largest else _FINEST
    start = math.frexp(high / 2 - low / 2)[1] + 1 - MOST.bit_length() if high > low else exponent
    exponent = max(exponent, start, _FINEST)
    while math.floor(math.ldexp(high, -exponent)) - math.floor(math.ldexp(low, -exponent)) >= MOST:
        exponent += 1
    return exponent


def _steps(values: np.ndarray, exponent: int) -> np.ndarray:
    return np.floor(np.ldexp(values, -exponent)).astype(np.int64)


def joined(a: Cells | None, b: Cells | None) -> Cells | None:
    """Cells of two parts of the data together."""
    if a is None or b is None:
        return b if a is None else a
    shift, left, wide = _common((a.shift, a.left, a.sums.shape[0]), (b.shift, b.left, b.sums.shape[0]))
    exponent, bottom, high = _common((a.exponent, a.bottom, a.sums.shape[1]), (b.exponent, b.bottom, b.sums.shape[1]))
    sums = np.zeros((wide, high))
    for part in (a, b):
        across = _coarser(part.left + np.arange(part.sums.shape[0]), shift - part.shift) - left
        up = _coarser(part.bottom + np.arange(part.sums.shape[1]), exponent - part.exponent) - bottom
        np.add.at(sums, np.ix_(across, up), part.sums)
    return Cells(shift, left, exponent, bottom, sums)


def _common(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    """Scale, first cell and number of cells that cover two ranges, each given so."""
    scale = max(a[0], b[0])
    low = min(first >> (scale - own) for own, first, _ in (a, b))
    high = max((first + many - 1) >> (scale - own) for own, first, many in (a, b))
    more = shift_for(low, high, MOST)
    return scale + more, low >> more, (high >> more) - (low >> more) + 1


def _coarser(places: np.ndarray, shift: int) -> np.ndarray:
    """Numbers of cells at a coarser scale; all of them have fewer than 62 bits."""
    return places >> min(shift, 62)
