"""Rows of a problem drawn by leverage: pilot, matrix, factor, scores and draw in one call."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from dask_nlis import phase
from dask_nlis.errors import ConvergenceWarning, InputTypeError
from dask_nlis.factor import factorize
from dask_nlis.kernels.numbers import is_lazy
from dask_nlis.losses import SquaredError
from dask_nlis.matrix import dual_matrix, reference_matrix
from dask_nlis.models import Linear
from dask_nlis.pipeline import pilot, serves
from dask_nlis.problem import Problem, check_theta
from dask_nlis.sample import Sample
from dask_nlis.sampling import check_draw, checked_seed, draw
from dask_nlis.scores import leverage_scores

#: Rows a parameter that a pilot is given by default.
_PILOT_ROWS = 10


class Given(NamedTuple):
    """X, labels as the loss takes them, labels as they came, and row weights: what is scored and drawn."""

    X: Any
    y: Any  # None where scores know no labels
    classes: Any  # None where there are none
    weights: Any


class Asked(NamedTuple):
    """How rows are to be drawn, unchecked."""

    size: Any
    scheme: Any
    mix: Any
    theta: Any
    pilot_size: Any
    min_per_group: Any
    seed: Any


class Found(NamedTuple):
    """The scores of all rows, where they were made (None: they needed no theta), and the sample."""

    theta: np.ndarray | None
    scores: Any
    sample: Sample
    n_columns: int


def drawn_by_leverage(problem: Problem, rows: Given, asked: Asked) -> Found:
    """Score rows (n, d) by the leverage of their dual matrix, or of the reference matrix, and draw some of them."""
    options = {"sample_weight": rows.weights}
    matrix = reference_matrix(problem, rows.X, rows.y, **options)
    n, d = matrix.source.n_rows, matrix.source.n_columns
    seed = checked_seed(asked.seed, "random_state")
    size, _ = check_draw(asked.size, asked.scheme, n, seed)
    by = _groups(rows.classes, asked.min_per_group)
    pilot_size = _pilot_rows(problem, asked.pilot_size, n, d, size)
    theta = asked.theta if asked.theta is None else check_theta(problem, asked.theta, d, matrix.source.names)
    if theta is None and rows.y is not None and not _is_constant(problem):
        theta = _pilot_theta(problem, rows, pilot_size, seed)
    if theta is not None:
        matrix = dual_matrix(problem, rows.X, rows.y, theta=theta, **options)
    scores = leverage_scores(matrix, factorize(matrix))
    sample = draw(scores, size, scheme=asked.scheme, mix=asked.mix, seed=seed, **by)
    return Found(matrix.theta, scores, sample, d)


def pilot_seed(seed: int) -> int:
    """The seed of the pilot that goes with a draw of this seed: rows of the two are independent."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])


def _is_constant(problem: Problem) -> bool:
    """Whether the dual matrix is the same at every theta, and that of reference."""
    return isinstance(problem.model, Linear) and isinstance(problem.loss, SquaredError)


def _pilot_rows(problem: Problem, asked: Any, n: int, d: int, size: int) -> int:
    if asked is not None:
        return check_draw(asked, "multinomial", n, 0, "pilot_size")[0]
    return min(n, max(size // 4, _PILOT_ROWS * problem.model.n_parameters(d)))


def _pilot_theta(problem: Problem, rows: Given, size: int, seed: int) -> np.ndarray | None:
    """Theta of a fit to rows drawn by reference leverage; None, with a warning, where it does not serve."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # whether it serves is asked below
        rough = pilot(problem, rows.X, rows.y, size, seed=pilot_seed(seed), sample_weight=rows.weights)
    if serves(rough):
        return rough.theta
    phase.warn(
        f"the pilot fit is not ok: {rough.reasons[0].partition(';')[0]}; so rows are scored by leverage that needs no theta; "
        "give theta, a constraint or a larger pilot_size",
        ConvergenceWarning,
    )
    return None


def _groups(classes: Any, least: Any) -> dict[str, Any]:
    """The arguments of `draw` that give each class its rows."""
    if least is None:
        return {}
    if classes is None or is_lazy(classes) or classes.ndim != 1:
        raise InputTypeError("min_per_group is given, but y is no array (n,) in memory; give one class a row")
    return {"by": np.unique(classes, return_inverse=True)[1], "min_per_group": least}
