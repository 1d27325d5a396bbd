"""Whole numbers of up to 128 bits as pairs of uint64, (m, 2), high word first: many at once, exactly.

Prefix sums of the integers behind the scores need up to 96 bits and more. Every operation is one on columns of
uint64, where carries show as results smaller than a summand; Python integers come in and go out at the edges.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_WORD = 2**64

#: Numbers multiplied at a time, so that their digits stay in the cache of a core.
_PIECE = 2**13


def from_whole(values: Sequence[int]) -> np.ndarray:
    """Python integers in [0, 2^128) as words, (m, 2)."""
    words = np.array([divmod(value, _WORD) for value in values], dtype=np.uint64)
    return words.reshape(-1, 2)


def to_whole(words: np.ndarray) -> list[int]:
    """Words as Python integers.

    >>> to_whole(from_whole([3, 2**64 + 5]))
    [3, 18446744073709551621]
    """
    return [high * _WORD + low for high, low in words.tolist()]


def to_float(words: np.ndarray) -> np.ndarray:
    """Nearest-but-one float64, (m,)."""
    return words[:, 0] * float(_WORD) + words[:, 1]


def _pair(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    words = np.empty((len(low), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = high, low
    return words


def plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b modulo 2^128; either may be one number for all, (1, 2)."""
    low = a[:, 1] + b[:, 1]
    return _pair(a[:, 0] + b[:, 0] + (low < a[:, 1]), low)


def minus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b modulo 2^128; either may be one number for all, (1, 2)."""
    return _pair(a[:, 0] - b[:, 0] - (a[:, 1] < b[:, 1]), a[:, 1] - b[:, 1])


def less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where a < b, (m,) bool."""
    return (a[:, 0] < b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] < b[:, 1]))


def scaled(words: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """words times a factor below 2^128, in units of 2^128: whole part and remainder, each (m, 2).

    >>> whole, remainder = scaled(from_whole([2**127, 3]), 5)
    >>> to_whole(whole), to_whole(remainder) == [2**127, 15]
    ([2, 0], True)
    """
    if len(words) > _PIECE:
        parts = [scaled(words[k : k + _PIECE], factor) for k in range(0, len(words), _PIECE)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    digits = [words[:, 1] & _LOW, words[:, 1] >> _HALF, words[:, 0] & _LOW, words[:, 0] >> _HALF]
    columns = [np.zeros(len(words), dtype=np.uint64) for _ in range(8)]
    for j in range(4):
        digit = np.uint64(factor >> 32 * j & 2**32 - 1)
        for i in range(4):
            product = digits[i] * digit  # below 2^64; its halves are added up, at most eight of them
            columns[i + j] += product & _LOW
            columns[i + j + 1] += product >> _HALF
    for lower, upper in pairwise(columns):
        upper += lower >> _HALF
        lower &= _LOW
    low, next_low, high, next_high = (columns[2 * k] | columns[2 * k + 1] << _HALF for k in range(4))
    return _pair(next_high, high), _pair(next_low, low)


def in_order(words: np.ndarray) -> np.ndarray:
    """Positions that sort the numbers, ascending and stable, (m,)."""
    # The 64 highest digits that are in use tell most numbers apart, and sort ten times as fast.
    unused = np.uint64(64 - int(words[:, 0].max(initial=np.uint64(0))).bit_length())
    top = words[:, 0] if not unused else words[:, 1] if unused == 64 else _joined(words, unused)
    order = np.argsort(top)
    ascending = top[order]
    if (ascending[1:] == ascending[:-1]).any():
        return np.lexsort((words[:, 1], words[:, 0]))
    return order


def _joined(words: np.ndarray, shift: np.uint64) -> np.ndarray:
    """The words shifted to the left, of which no digit is lost, without their last 64 digits."""
    return words[:, 0] << shift | words[:, 1] >> (np.uint64(64) - shift)


def search(ascending: np.ndarray, words: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
    """`numpy.searchsorted` for words, (m,) int64."""
    return np.searchsorted(_text(ascending), _text(words), side=side)


def _text(words: np.ndarray) -> np.ndarray:
    """The 16 bytes of each number, the largest first: bytes compare as the numbers do."""
    return np.ascontiguousarray(words.astype(">u8")).view("S16").reshape(-1)


def running_sums(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Cumulated sums of high 2^31 + low as words, for high any uint64 and low any uint32, up to 2^31 summands."""
    small = np.cumsum(low, dtype=np.uint64)
    middle = np.cumsum(high & _LOW, dtype=np.uint64)  # counts 2^31
    large = np.cumsum(high >> _HALF, dtype=np.uint64)  # counts 2^63
    words = _pair(middle >> np.uint64(33), middle << np.uint64(31))
    words = plus(words, _pair(large >> np.uint64(1), large << np.uint64(63)))
    return plus(words, _pair(np.zeros_like(small), small))


def times(factor: int, numbers: np.ndarray) -> np.ndarray:
    """A whole number times numbers (m,) below 2^32, the products below 2^128: schoolbook multiplication, base 2^32."""
    digits = []
    carry = np.zeros(len(numbers), dtype=np.uint64)
    for place in range(4):
        product = numbers.astype(np.uint64) * np.uint64(factor >> (32 * place) & int(_LOW)) + carry
        digits.append(product & _LOW)
        carry = product >> _HALF
    return _pair(digits[3] << _HALF | digits[2], digits[1] << _HALF | digits[0])


def divided(words: np.ndarray, divisor: int) -> tuple[np.ndarray, np.ndarray]:
    """Quotients, (m, 2), and remainders, (m,), for a divisor below 2^32: long division, base 2^32."""
    by = np.uint64(divisor)
    rest = np.zeros(len(words), dtype=np.uint64)
    digits = []
    for digit in (words[:, 0] >> _HALF, words[:, 0] & _LOW, words[:, 1] >> _HALF, words[:, 1] & _LOW):
        part = rest << _HALF | digit
        digits.append(part // by)
        rest = part % by
    return _pair(digits[0] << _HALF | digits[1], digits[2] << _HALF | digits[3]), rest
