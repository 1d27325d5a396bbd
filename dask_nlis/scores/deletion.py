"""Deletion residuals: what a row would cost were it not there itself to pull the fit towards it."""

import dask.array as da
import numpy as np

from dask_nlis.device import choose
from dask_nlis.factor import Factor
from dask_nlis.kernels.linalg import leverage
from dask_nlis.matrix import Finding, Job, TallMatrix, check_finite, leaves, map_blocks
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.tall import one_a_row
from dask_nlis.matrix.tasks import matrix_rows
from dask_nlis.scores.leverage import shared_whitener
from dask_nlis.scores.losses import fitted, losses_of


def lazy_deletion(matrix: TallMatrix, factor: Factor) -> da.Array:
    """Loss over (1 - leverage)^2 as a lazy Dask array (n,) with one task a block, which forms the rows once.

    1 - leverage is known to `factor.score_tolerance` and counts as no less. So a row with leverage 1, about which the
    others say nothing, has a large finite score if it has a loss, and 0 if it has none.
    """
    lazy = map_blocks(
        matrix,
        deletion_block,
        "nlis-score",
        meta=np.empty((0, 0)),
        job=matrix.job,
        whitener=shared_whitener(factor),
        tolerance=factor.score_tolerance,
    )
    return one_a_row(matrix, lazy)


def deletion_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: tuple[np.ndarray, np.ndarray | None],
    tolerance: float,
) -> np.ndarray:
    """Deletion residuals of one block, (m,)."""
    device = choose(job.device)
    target = [None if part is None else device.put(part) for part in whitener]
    problem, theta = fitted(job, device)
    out = np.zeros(len(x))
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows, finding = matrix_rows(leaf, job)
            if leaf.counts:
                free = np.maximum(1 - device.fetch(leverage(rows, *target)), tolerance)
                # Divided twice: the square of what is left may underflow.
                out[leaf.place] = device.fetch(losses_of(leaf, problem, theta)) / free / free
            found = found.plus(finding)
    check_finite(found.plus(overflow(out, int(start))), job.names)
    return out
