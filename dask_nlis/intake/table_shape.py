"""What a part of a table says of the whole of it, as an array that is sliced: rows of float64 columns, or one of them."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Part(Protocol):
    """A part that knows the rows of the whole table and the columns that are read."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns."""

    @property
    def flat(self) -> bool:
        """Whether it is one column, (n,)."""

    @property
    def n_rows(self) -> int:
        """Rows of the whole table."""


def shape(part: Part) -> tuple[int, ...]:
    """(n,) or (n, d)."""
    return (part.n_rows,) if part.flat else (part.n_rows, len(part.columns))


def dtype(part: Part) -> np.dtype[Any]:
    """What all columns are read as."""
    return np.dtype(np.float64)


def ndim(part: Part) -> int:
    """1 or 2."""
    return len(shape(part))
