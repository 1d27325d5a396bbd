"""The draws by their definitions, in Python integers and fractions, one row at a time."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dask_nlis.kernels.draw import STREAMS


class Plain(NamedTuple):
    """What a draw comes to: rows in their order, and for every row its expected count; shares of the slices."""

    rows: list[int]
    expected: list[Fraction]
    shares: list[Fraction] | None = None


def key_of(seed: int, scheme: str, stage: int = 0) -> np.ndarray:
    return np.random.SeedSequence([seed, stage, STREAMS[scheme]]).generate_state(2, np.uint64)


def plain_targets(total: int, size: int, key: np.ndarray) -> list[int]:
    """Pairs of Philox words times the total over 2^128, those left out whose remainder favours some number."""
    philox = np.random.Philox(key=key)
    found: list[int] = []
    while len(found) < size:
        high, low = (int(word) for word in philox.random_raw(2))
        candidate, remainder = divmod((high << 64 | low) * total, 2**128)
        if remainder >= 2**128 % total:
            found.append(candidate)
    return found


def blend(scores: Sequence[float], mix: float) -> list[float]:
    """(1 - mix) score / mean + mix for positive scores, the factor on the score rounded once."""
    if not mix:
        return list(scores)
    exponent = math.frexp(max(scores))[1]
    positive = [Fraction(s) for s in scores if s > 0]
    mean = sum(positive) / len(positive) / Fraction(2) ** exponent
    gain = float((1 - Fraction(mix)) / mean)
    return [gain * math.ldexp(s, -exponent) + mix if s > 0 else 0.0 for s in scores]


def whole(scores: Sequence[float]) -> list[int]:
    exponent = math.frexp(max(scores))[1]
    return [max(1, math.floor(Fraction(s) * Fraction(2) ** (62 - exponent))) if s else 0 for s in scores]


def bin_of(score: float) -> int:
    """Two bins an octave, split at sqrt(1/2) of its upper end."""
    mantissa, exponent = math.frexp(score)
    return 2 * exponent + (2 * Fraction(mantissa) ** 2 >= 1)


def in_bins(scores: Sequence[float]) -> list[int]:
    """Rows by bin, all bins below 2^-32 of the largest score as one, and then by number."""
    lowest = bin_of(max(scores)) - 64
    return sorted((k for k, s in enumerate(scores) if s > 0), key=lambda k: (max(bin_of(scores[k]), lowest), k))


def row_at(q: Sequence[int], order: Sequence[int], target: int) -> tuple[int, int]:
    """The row in whose stretch a target lies, and where that stretch begins."""
    base = 0
    for row in order:
        if target < base + q[row]:
            return row, base
        base += q[row]
    raise AssertionError("no row")


def plain_draw(scores: Sequence[float], size: int, scheme: str, *, mix: float = 0.0, seed: int = 0) -> Plain:
    """Draw by the definition of the scheme."""
    scores = [float(s) for s in scores]
    counted = blend(scores, mix)
    return globals()[scheme](scores, counted, size, key_of(seed, scheme))


def multinomial(scores, counted, size, key) -> Plain:
    q = whole(counted)
    ends = list(accumulate(q))
    targets = plain_targets(ends[-1], size, key)
    rows = [next(k for k, end in enumerate(ends) if end > t) for t in targets]
    return Plain(rows, [Fraction(size * v, ends[-1]) for v in q])


def stratified(scores, counted, size, key) -> Plain:
    q, order = whole(counted), in_bins(scores)
    total = sum(q)
    rows, shares = [], []
    for k, r in enumerate(plain_targets(total, size, key)):
        row, base = row_at(q, order, (k * total + r) // size)
        rows.append(row)
        inside = min((base + q[row]) * size, (k + 1) * total) - max(base * size, k * total)
        shares.append(Fraction(inside, total))
    return Plain(rows, [Fraction(size * v, total) for v in q], shares)


def systematic(scores, counted, size, key) -> Plain:
    q, certain = whole(counted), set()
    left = list(q)
    while True:
        total, free = sum(left), size - len(certain)
        more = {k for k, v in enumerate(left) if v and v * free >= total}
        if not more:
            break
        certain |= more
        left = [0 if k in certain else v for k, v in enumerate(left)]
    order = [k for k in in_bins(scores) if k not in certain]
    rows = []
    if free:
        (r,) = plain_targets(total, 1, key)
        rows = [row_at(left, order, (k * total + r) // free)[0] for k in range(free)]
    expected = [Fraction(1) if k in certain else Fraction(v * free, total or 1) for k, v in enumerate(left)]
    return Plain(rows + sorted(certain), expected)


def poisson(scores, counted, size, key) -> Plain:
    ordered = sorted((Fraction(s) for s in counted if s > 0), reverse=True)
    rest = sum(ordered)
    for certain, largest in enumerate(ordered):
        factor = (size - certain) / rest
        if factor * largest <= 1:
            break
        rest -= largest
    expected = [min(Fraction(1), factor * Fraction(s)) for s in counted]
    words = np.random.Philox(key=key).random_raw(4 * (-(-len(scores) // 4))).tolist()
    uniforms = [Fraction(w >> 11, 2**53) for w in words]
    return Plain([k for k, p in enumerate(expected) if uniforms[k] < p], expected)
