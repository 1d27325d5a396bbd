"""How the rows of a matrix are scored, apart from what becomes of the scores."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis.matrix import TallMatrix, map_blocks
from dask_nlis.matrix.tall import one_a_row


class Scorer(NamedTuple):
    """The scores (m,) of a block are `block(x, y, weight, start, **arguments)`: of its data alone, in every bit."""

    block: Callable[..., np.ndarray]
    arguments: Mapping[str, Any]


def lazy_scores(matrix: TallMatrix, scorer: Scorer) -> da.Array:
    """Scores as a lazy Dask array (n,) with one task a block."""
    lazy = map_blocks(matrix, scorer.block, "nlis-score", meta=np.empty((0, 0)), **scorer.arguments)
    return one_a_row(matrix, lazy)
