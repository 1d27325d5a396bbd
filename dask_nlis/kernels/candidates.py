"""Rows that a Poisson draw may take, told before its c is known: those whose key u / score is below a cut.

A row of uniform u is drawn when u < min(1, c score), so that c <= cut makes every drawn row a candidate. Cuts and c
are pairs (exponent, mantissa in [1/2, 1)), which compare as the numbers m 2^e do and have no end of a range.
"""

from fractions import Fraction
from typing import Any

import numpy as np

#: m 2^e as (e, m).
Cut = tuple[int, float]

#: Below every c, and above.
NOTHING, EVERYTHING = (-(10**9), 0.5), (10**9, 0.5)

#: Keys are rounded, and so is c at each row that is certain: c counts as reached by a cut that is larger by this share.
_MARGIN = Fraction(1, 1024)

#: A key above it, of a score too far below others of its block to have one, says nothing.
_LARGEST_KEY = 2.0**900


def cut_of(value: float, exponent: int = 0) -> Cut:
    """The cut value 2^exponent of a value >= 0."""
    mantissa, own = np.frexp(value)
    return (int(own) + exponent, float(mantissa)) if value > 0 else NOTHING


def reaches(cut: Cut, c: Cut) -> bool:
    """Whether all that is drawn by c, and all that decides on c, is below the cut.

    `poisson_scale` finds c from exact sums over all rows and, one by one from the largest, the scores s of the bin in
    which certainty begins, while c s > 1, c growing with each. Let it be given the candidates alone. Since u < 1, all
    scores s >= 1 / cut are among them. At the first score where its way with all scores would have gone through one
    that is no candidate, s < 1 / cut and c s > 1: there c is above the cut already, and never falls back, but for
    roundings, which the margin holds. So a c below the cut is that of all scores, in every bit; and a row of
    u < c s has a key below the cut, and is a candidate.
    """
    mantissa, own = np.frexp(c[1] * float(1 + _MARGIN))
    return (c[0] + int(own), float(mantissa)) <= cut


def expected_scale(scores: np.ndarray, weights: np.ndarray, size: float) -> float:
    """Solve sum of weight min(1, c score) = size for c, near enough, for rows (m,) that stand for others; 0 if none counts.

    Where the weights do not sum to the size, c is where all scores are certain.
    """
    counts = (scores > 0) & (weights > 0)
    order = np.argsort(scores[counts])[::-1]
    scores, weights = scores[counts][order], weights[counts][order]
    if not len(scores):
        return 0.0
    with np.errstate(all="ignore"):
        certain = np.cumsum(weights) - weights
        rest = np.cumsum((weights * scores)[::-1])[::-1]
        scales = (size - certain) / rest
        found = np.flatnonzero(scales * scores <= 1)
        return float(scales[found[0]] if len(found) and scales[found[0]] > 0 else 1 / scores[-1])


def candidates(scores: np.ndarray, uniforms: np.ndarray, cut: Cut, most: int | None) -> tuple[np.ndarray, Cut]:
    """Positions of the rows (m,) with u / score below the cut, ascending, at most so many; and the cut they reach.

    Where there are more, those of the smallest keys are left, and the cut is the smallest key that is not.
    """
    exponent, mantissa = cut
    with np.errstate(over="ignore", under="ignore"):
        # A chance below 2^-53 draws rows of u = 0 and no others, also where the product is no more than zero.
        below = (uniforms < mantissa * np.ldexp(scores, exponent)) | (uniforms == 0)
    found = np.flatnonzero(below & (scores > 0))
    if most is None or len(found) <= most:
        return found, cut
    keys, unit = _keys(scores[found], uniforms[found])
    edge = min(float(np.partition(keys, most)[most]), _LARGEST_KEY)
    return found[keys < edge], cut_of(edge, -unit)


def _keys(scores: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, int]:
    """Keys u / score of positive scores in units of 2^-e, and e, the exponent of the largest score."""
    unit = int(np.frexp(scores.max())[1])
    with np.errstate(all="ignore"):
        keys: Any = np.where(uniforms > 0, uniforms / np.ldexp(scores, -unit), 0.0)
    return keys, unit
