"""Deletion residuals: what a row would cost were it not there itself to pull the fit towards it."""

from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import choose
from dask_nlis.factor import Factor
from dask_nlis.kernels.linalg import leverage
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, summed_over
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import matrix_rows, row_values
from dask_nlis.scores.leverage import leverage_scorer, placed
from dask_nlis.scores.losses import fitted, losses_of
from dask_nlis.scores.patterns import Form, Whitener, pattern_leverage
from dask_nlis.scores.scorer import Scorer, lazy_scores

Array = Any


def lazy_deletion(matrix: TallMatrix, factor: Factor) -> da.Array:
    """Loss over (1 - leverage)^2 as a lazy Dask array (n,) with one task a block, which forms the rows once, if at all.

    1 - leverage is known to `factor.score_tolerance` and counts as no less. So a row with leverage 1, about which the
    others say nothing, has a large finite score if it has a loss, and 0 if it has none.
    """
    return lazy_scores(matrix, Scorer(deletion_block, leverage_scorer(matrix, factor).arguments))


@on_device
def deletion_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: Whitener,
    tolerance: float,
    by_pattern: bool = False,
    form: Form | None = None,
) -> np.ndarray:
    """Deletion residuals of one block, (m,)."""
    device = choose(job.device)
    target = placed(whitener, device)
    problem, theta = fitted(job, device)
    known: np.ndarray | None = None
    if by_pattern:
        (grouped,) = groupings(x, y, weight, int(start), [Sought(job)], device)
        known = pattern_leverage(grouped, whitener, form, tolerance, int(start))

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        if known is None:
            rows, finding = matrix_rows(leaf, job)
            free = 1 - summed_over(leverage(rows, *target), leaf.x.shape[0])
        else:
            free, finding = 1 - known[leaf.place], leaf.finding
        xp = array_namespace(free)
        free = xp.where(free < tolerance, xp.full_like(free, tolerance), free)
        # Divided twice: the square of what is left may underflow.
        return losses_of(leaf, problem, theta) / free / free, finding

    return row_values(x, y, weight, start, job, device, values)
