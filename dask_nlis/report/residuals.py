"""Residual and leverage of the drawn rows, which the run holds: no data are read."""

from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import NlisError
from dask_nlis.intake import with_names
from dask_nlis.losses import SquaredError
from dask_nlis.matrix import dual_matrix, reference_matrix
from dask_nlis.scores import cross_leverage_scores

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Rows of a block.
_ROWS = 4096


class Residuals(NamedTuple):
    """Residuals and leverage of the drawn rows."""

    residuals: np.ndarray  # (m,)
    leverage: np.ndarray  # (m,), the mean over outputs that are separate
    what: str  # what a residual is


def residuals_of(run: "Run") -> Residuals | None:
    """Signed roots of the losses at the fit (y - prediction for squared error), and leverage where the rows were scored.

    None where the run has no factor, or none whose rows can be made again.
    """
    matrix = _matrix(run)
    if matrix is None or run.factor is None:
        return None
    try:
        lazy = cross_leverage_scores(matrix, run.factor)
    except NlisError:  # a factor of another theta, as of more stages than the manifest tells
        return None
    leverage = np.concatenate(phase.blocks_of(lazy, "nlis-score")) / matrix.rule.each
    with np.errstate(all="ignore"):
        predictions = run.problem.model.predict(run.fit.theta, run.sample_X)
        residuals = -np.asarray(run.problem.row_loss.root(predictions, run.sample_y), dtype=np.float64)
    if run.problem.model.n_outputs > 1:
        return Residuals(-residuals, leverage, "the root of the row's loss over all outputs")
    plain = isinstance(run.problem.loss, SquaredError)
    return Residuals(residuals, leverage, "label minus prediction" if plain else "the signed root of the row's loss")


def _matrix(run: "Run") -> Any:
    """The matrix behind the run's factor, of the drawn rows; None where its theta is not known any more."""
    theta = run.manifest["theta"]
    options: dict[str, Any] = {"sample_weight": run.sample_weight, "device": "cpu"}
    x = with_names(da.from_array(run.sample_X, chunks=(_ROWS, -1)), run.fit.feature_names)
    if theta is None:
        return reference_matrix(run.problem, x, run.sample_y, **options)
    if isinstance(theta, str):  # too long for a manifest
        theta = None if run.pilot is None else run.pilot.theta
    return None if theta is None else dual_matrix(run.problem, x, run.sample_y, theta=theta, **options)
