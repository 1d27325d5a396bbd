"""Rows in the order of half-octave bins: sums by block and bin, and the places of targets among them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dask_nlis.kernels import draw as kernel, wide


class Wanted(NamedTuple):
    """Targets that fall into one block: their numbers, their bins, and how far within block and bin they lie."""

    numbers: np.ndarray  # (k,) int64
    bins: np.ndarray  # (k,) uint8
    targets: np.ndarray  # (k, 2) words


class Placed(Mapping[int, Wanted]):
    """What is wanted of each block, cut out of arrays over all targets when asked for."""

    def __init__(self, blocks: np.ndarray, bins: np.ndarray, targets: np.ndarray) -> None:
        self._order = np.argsort(blocks, kind="stable")
        self._bins, self._targets = bins, targets
        touched, first = np.unique(blocks[self._order], return_index=True)
        self._touched, self._cuts = touched, np.append(first, len(blocks))

    def __getitem__(self, block: int) -> Wanted:
        k = int(np.searchsorted(self._touched, block))
        if k == len(self._touched) or self._touched[k] != block:
            raise KeyError(block)
        numbers = self._order[self._cuts[k] : self._cuts[k + 1]]
        return Wanted(numbers, self._bins[numbers], self._targets[numbers])

    def __iter__(self) -> Iterator[int]:
        return iter(self._touched.tolist())

    def __len__(self) -> int:
        return len(self._touched)


class BinTable:
    """The sum of the whole numbers q in every block and half-octave bin, 12 bytes each.

    Rows are ordered by bin, lowest scores first, then by row number. In that order `place` finds the block and
    bin of targets below the total. Bins no block holds take no memory, for their zeros are never written.
    """

    def __init__(self, blocks: Sequence[int]) -> None:
        self._blocks = np.array(blocks, dtype=np.int64)  # ascending
        shape = (kernel.LAST_BIN + 1, len(self._blocks))
        self._high = np.zeros(shape, dtype=np.uint64)  # sums are high 2^31 + low
        self._low = np.zeros(shape, dtype=np.uint32)
        self._held = np.zeros(shape[0], dtype=bool)

    def add(self, block: int, sums: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Take in one block's `kernel.bin_sums`."""
        bins, high, low = sums
        k = np.searchsorted(self._blocks, block)
        self._high[bins, k], self._low[bins, k] = high, low
        self._held[bins] = True

    def _bins(self) -> list[int]:
        return np.flatnonzero(self._held).tolist()

    def _sum(self, bin_: int) -> int:
        """Sum over the blocks of a bin."""
        return kernel.limb_sum(self._high[bin_]) * 2**31 + int(self._low[bin_].sum(dtype=np.uint64))

    def total(self) -> int:
        """Sum over all blocks and bins."""
        return sum(map(self._sum, self._bins()))

    def place(self, targets: np.ndarray) -> Placed:
        """Find the blocks of ascending targets, words (k, 2)."""
        blocks = np.empty(len(targets), dtype=np.int64)
        bins = np.empty(len(targets), dtype=np.uint8)
        inside = np.empty_like(targets)
        held = self._bins()
        edges = wide.from_whole(list(accumulate(map(self._sum, held), initial=0)))
        cuts = wide.search(targets, edges, side="left").tolist()
        for k, bin_ in enumerate(held):
            if cuts[k] == cuts[k + 1]:
                continue
            mine = slice(cuts[k], cuts[k + 1])
            ends = wide.running_sums(self._high[bin_], self._low[bin_])
            within = wide.minus(targets[mine], edges[k : k + 1])
            block = wide.search(ends, within, side="right")
            begins = np.concatenate([np.zeros((1, 2), dtype=np.uint64), ends[:-1]])
            blocks[mine], bins[mine], inside[mine] = self._blocks[block], bin_, wide.minus(within, begins[block])
        return Placed(blocks, bins, inside)


def located(q: np.ndarray, bins: np.ndarray, wanted: Wanted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Within one block: the row of each target, and how much of its q lies from the target on and before it."""
    order = np.argsort(bins, kind="stable")
    in_order = q[order]
    # Bins one after the other: a target lies the sums of the bins before it further on.
    counts = np.bincount(bins, minlength=kernel.LAST_BIN + 1)
    begins = np.zeros((kernel.LAST_BIN + 1, 2), dtype=np.uint64)
    begins[1:] = wide.running_sums(*kernel.group_sums(in_order, counts[:-1]))
    targets = wide.plus(wanted.targets, begins[wanted.bins])
    ascending = wide.in_order(targets)
    found, onward = np.empty(len(targets), dtype=np.int64), np.empty(len(targets), dtype=np.uint64)
    found[ascending], onward[ascending] = kernel.locate_targets(in_order, targets[ascending])
    rows = order[found]
    return rows, onward, q[rows] - onward
