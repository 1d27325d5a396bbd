"""Where rows lie in an array of any number of dimensions that is cut into blocks: block after block, in C order inside each."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from dask_nlis.blocks import block_rows, row_chunks, starts

#: A block by its place along every dimension.
Place = tuple[int, ...]


class Grid(NamedTuple):
    """Dimensions whose cells are rows, and the blocks that they are cut into.

    >>> grid = Grid(("time", "place"), ((2, 1), (3, 2)))
    >>> grid.shape, grid.row_chunks
    ((3, 5), (6, 4, 3, 2))
    >>> [rows.tolist() for rows in grid.positions(np.array([0, 5, 6, 14]))]
    [[0, 1, 0, 2], [0, 2, 3, 4]]
    """

    dims: tuple[Hashable, ...]
    chunks: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return tuple(map(sum, self.chunks))

    @property
    def n_rows(self) -> int:
        """Cells."""
        return math.prod(self.shape)

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Blocks along each dimension."""
        return tuple(map(len, self.chunks))

    @property
    def row_chunks(self) -> tuple[int, ...]:
        """Rows of each block, in the order of the blocks."""
        lengths = (np.array(sizes, dtype=np.int64) for sizes in self.chunks)
        return tuple(reduce(np.multiply.outer, lengths).ravel().tolist())

    def blocks(self) -> Iterator[tuple[Place, tuple[int, ...]]]:
        """Place and shape of each block, in C order."""
        return zip(product(*map(range, self.numblocks)), product(*self.chunks), strict=True)

    def slices(self) -> Iterator[tuple[slice, ...]]:
        """The cells of each block, in C order."""
        edges = (zip(starts(sizes).tolist(), sizes, strict=True) for sizes in self.chunks)
        return product(*([slice(first, first + size) for first, size in each] for each in edges))

    def positions(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Position along each dimension of some rows (m,), as arrays (m,)."""
        first = starts(self.row_chunks)
        block = np.searchsorted(first, rows, side="right") - 1
        within = rows - first[block]
        found: list[np.ndarray] = []
        places = np.unravel_index(block, self.numblocks)
        # From the last dimension, which runs fastest.
        for place, sizes in zip(reversed(places), reversed(self.chunks), strict=True):
            length = np.array(sizes, dtype=np.int64)[place]
            found.append(starts(sizes)[place] + within % length)
            within = within // length
        return tuple(reversed(found))


def laid_out(
    sizes: Mapping[Hashable, int],
    known: Mapping[Hashable, tuple[int, ...]],
    units: Mapping[Hashable, int],
    row_bytes: int,
    target: int,
) -> Grid:
    """Cut dimensions into blocks of about `target` bytes, the first ones first; those whose chunks are known keep them.

    Without known chunks and units, rows block after block are all cells in C order.

    >>> laid_out({"time": 10, "place": 100}, {}, {}, row_bytes=8, target=3200).chunks
    ((4, 4, 2), (100,))
    >>> laid_out({"time": 2, "place": 100}, {}, {}, row_bytes=8, target=400).chunks
    ((1, 1), (50, 50))
    >>> laid_out({"time": 10, "place": 100}, {"place": (90, 10)}, {"time": 3}, row_bytes=8, target=3200).chunks
    ((3, 3, 3, 1), (90, 10))
    """
    lengths = {dim: max(known.get(dim, (size,))) for dim, size in sizes.items()}
    chunks: list[tuple[int, ...]] = []
    for dim, size in sizes.items():
        if dim not in known:
            rest = row_bytes * math.prod(length for other, length in lengths.items() if other != dim)
            lengths[dim] = block_rows(size, rest, min(units.get(dim, 1), size), target)
        chunks.append(known.get(dim) or row_chunks(size, lengths[dim]))
    return Grid(tuple(sizes), tuple(chunks))


def in_words(chunks: Sequence[int]) -> str:
    """Chunks along a dimension as messages show them.

    >>> in_words((4, 4, 2)), in_words((1,) * 9)
    ('(4, 4, 2)', '(1, 1, 1, ... 9 in all)')
    """
    return str(tuple(chunks)) if len(chunks) <= 4 else f"({', '.join(map(str, chunks[:3]))}, ... {len(chunks)} in all)"
