"""Row layout in integers: how many rows a block takes, where blocks start, which block holds a row."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

#: Neighbouring read results stacked into one chunk before the merge.
STACK = 16

#: Consecutive blocks whose factors are merged and kept together, and the bytes their factors may take.
_GROUP, _GROUP_BYTES = 1024, 2**30

#: Groups that are read without waiting for one another.
_TOGETHER = 20


def block_rows(n_rows: int, row_bytes: int, unit: int, target: int) -> int:
    """Rows of a block: whole units (chunks or shards) near `target` bytes, never less than one unit.

    >>> block_rows(1_000_000, row_bytes=80, unit=1_000, target=8_000_000)
    100000
    >>> block_rows(1_000_000, row_bytes=80, unit=300_000, target=8_000_000)
    300000
    >>> block_rows(50, row_bytes=80, unit=1_000, target=8_000_000)
    50
    """
    units = max(1, target // max(1, row_bytes * unit))
    return max(1, min(n_rows, units * unit))


def row_chunks(n_rows: int, rows: int) -> tuple[int, ...]:
    """Chunk lengths of n rows in blocks of `rows`, the last one short.

    >>> row_chunks(10, 4)
    (4, 4, 2)
    """
    full, rest = divmod(n_rows, rows)
    return (rows,) * full + ((rest,) if rest else ())


def group_blocks(p: int) -> int:
    """Blocks in a group for p columns: whole stacks, fewer for wide matrices; part of the fixed tree.

    >>> group_blocks(10), group_blocks(1000)
    (1024, 128)
    """
    return max(STACK, min(_GROUP, _GROUP_BYTES // (8 * p * p) // STACK * STACK))


def groups_together(p: int) -> int:
    """Groups whose factors may be kept at a time while others are read: about 20,000 blocks, fewer of wide matrices.

    >>> groups_together(10), groups_together(100), groups_together(1000)
    (20, 13, 1)
    """
    return max(1, min(_TOGETHER, _GROUP_BYTES // (8 * p * p * group_blocks(p))))


def starts(chunks: Sequence[int]) -> np.ndarray:
    """First global row of each block.

    >>> starts((4, 4, 2))
    array([0, 4, 8])
    """
    return np.array([0, *accumulate(chunks)][: len(chunks)], dtype=np.int64)


def locate(indices: np.ndarray, chunks: Sequence[int]) -> list[tuple[int, int, int]]:
    """Blocks touched by ascending global rows, as (block, first, last) with `indices[first:last]` inside.

    >>> locate(np.array([1, 3, 8]), (4, 4, 2))
    [(0, 0, 2), (2, 2, 3)]
    """
    edges = np.searchsorted(indices, np.append(starts(chunks), sum(chunks)))
    return [(k, int(a), int(b)) for k, (a, b) in enumerate(pairwise(edges)) if b > a]


def is_regular(chunks: Sequence[int]) -> bool:
    """Whether all blocks but the last have one length and the last is no longer.

    >>> is_regular((4, 4, 2)), is_regular((4, 2, 4))
    (True, False)
    """
    return all(c == chunks[0] for c in chunks[:-1]) and (not chunks or 0 < chunks[-1] <= chunks[0])
