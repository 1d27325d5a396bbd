"""Rows drawn in stages: by the reference leverage first, then by scores at the fit to what is there already.

The first stage needs no theta: leverage of the reference matrix. Its fit is where the second is scored, by a mixture of
leverage, influence and a constant; both p x p factors come from the same reads. Two Poisson stages make one union design
with the expected number of distinct rows asked for; stages of other schemes are pooled by the balance heuristic.
"""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis.constraints import is_bounded
from dask_nlis.errors import ConvergenceWarning, InputError
from dask_nlis.factor import Factor, factorize, factorize_together
from dask_nlis.intake import default_names
from dask_nlis.losses import AbsoluteError, LogisticLoss
from dask_nlis.matrix import TallMatrix, dual_matrix, tangent_matrix
from dask_nlis.pipeline.drawn import Drawn, fit_drawn, take_drawn
from dask_nlis.pipeline.shelf import Keep, Kept, check_total, look_at
from dask_nlis.problem import Problem, loss_gradients, set_for
from dask_nlis.refit import STATIONARY, Fit
from dask_nlis.sample import Sample, pool
from dask_nlis.sampling import Stage, check_enough, draw_beside, draw_held, hold
from dask_nlis.scores import Share, gradient_lengths, lazy_leverage, lazy_mixture

#: Shares of leverage, influence and a constant in the scores of later stages: below ten rows a parameter, and above, where
#: leverage has its say in the first stage.
SMALL, LARGE = (0.45, 0.45, 0.10), (0.0, 0.90, 0.10)


class Design(NamedTuple):
    """What was asked for, checked."""

    size: int
    scheme: str
    seed: int
    shares: tuple[float, ...] | None
    rounds: int
    first: int | None  # rows of the first stage, where given
    target: float | None = None  # epsilon to reach where the size may grow


class Staged(NamedTuple):
    """Where the stages end: everything but the sample, which may still grow."""

    matrix: TallMatrix  # what the certificate is about: the dual matrix at the last theta, or the reference matrix
    factor: Factor | None  # None for norm scores
    kept: Kept  # the scores of the last stage
    earlier: tuple[Stage, ...]  # stages before the last
    pilot: Fit | None
    reads: dict[str, int]
    shares: tuple[float, ...] | None  # of the last stage; None for one stage
    why: str  # why there is one stage where two were asked for; else empty
    stage: int  # number of the last stage
    n_rows: int  # rows that may be drawn


def stages(
    reference: TallMatrix,
    design: Design,
    X: Any,
    y: Any,
    options: dict[str, Any],
    keep: Keep,
    scratch: ExitStack,
) -> Staged:
    """Score, draw and fit all stages but the drawing of the last one. Reads X 2 times a stage where factors take one."""
    factor = factorize(reference)
    problem = reference.problem
    assert problem is not None
    held = _held(lazy_leverage(reference, factor), scratch)
    looks = look_at(held)
    check_total(looks, factor)
    n_rows = sum(look.n_positive for look in looks)
    if design.target is not None:
        design = design._replace(size=min(design.size, max(1, n_rows // 2)))
    check_enough(n_rows, design.size, design.scheme)
    reads = {"pilot": factor.reads + 1}
    if design.rounds == 1:
        return _one(reference, factor, held, keep, "", n_rows)
    first = first_rows(problem, design, reference.source.n_columns)
    if first is None:
        why = f"size={design.size:,} leaves no room for a pilot of {least_rows(problem, reference.source.n_columns):,} rows"
        return _one(reference, factor, held, keep, why, n_rows)
    sample = draw_held(held, first, design.scheme, design.seed, 0)
    taken = take_drawn(sample, X, y, options["sample_weight"])
    why = _unfit(problem, taken)
    fit = None if why else _rough(problem, sample, taken, reference.source.names)
    if fit is None or not _serves(fit):
        why = why or f"the pilot fit is not ok: {fit.reasons[0] if fit is not None else ''}"
        return _one(reference, factor, held, keep, why, n_rows)
    pilot = fit
    earlier: tuple[Stage, ...] = (Stage(sample, held),)
    turn = 0
    while True:
        turn += 1
        dual = dual_matrix(problem, X, y, theta=fit.theta, **options)
        tangent = (
            tangent_matrix(problem, X, y, theta=fit.theta, **options) if _bends(problem, taken, fit.theta) else None
        )
        factors, used = factorize_together([dual] if tangent is None else [dual, tangent])
        shares = design.shares or (SMALL if design.size < 10 * len(fit.theta) else LARGE)
        scores, shares = _mixture(dual, tangent, factors, shares, sample, taken, fit.theta, n_rows)
        reads["factor"] = reads.get("factor", 0) + used
        reads["scores"] = reads.get("scores", 0) + 1
        last = turn == design.rounds - 1
        kept = keep(scores, dual) if last else Kept(_held(scores, scratch), [], None)
        staged = Staged(dual, factors[0], kept, earlier, pilot, reads, shares, "", turn, n_rows)
        if last:
            return staged
        stage = last_stage(staged, first + round((design.size - first) * turn / (design.rounds - 1)), design)
        sample = united(staged, stage)
        earlier = (*earlier, Stage(stage, kept.scores))
        taken = take_drawn(sample, X, y, options["sample_weight"])
        better = _rough(problem, sample, taken, reference.source.names, fit.theta)
        fit = better if _serves(better) else fit


def least_rows(problem: Problem, d: int) -> int:
    """Rows that a pilot fit needs: five a parameter, or two more than parameters in a bounded set."""
    p = problem.model.n_parameters(d)
    return p + 2 if is_bounded(problem.constraint) else 5 * p


def first_rows(problem: Problem, design: Design, d: int) -> int | None:
    """Rows of the first of several stages; None where there is room for one only. Raises where a round gets no row."""
    first = max(round(design.size / 4), least_rows(problem, d)) if design.first is None else design.first
    if 2 * first > design.size and design.first is None:
        return None
    left = design.size - first
    if left < 1:
        raise InputError(f"pilot_size={first:,} leaves nothing of size={design.size:,}; give a smaller one")
    if left < design.rounds - 1:
        raise InputError(
            f"rounds={design.rounds:,} leaves a round without rows: a pilot of {first:,} leaves {left:,} of "
            f"size={design.size:,}; give rounds <= {left + 1:,}"
        )
    return first


def last_stage(staged: Staged, size: int, design: Design) -> Sample:
    """Draw the last stage so that all stages together have `size` rows, expected, or draws."""
    if not staged.earlier:
        return draw_held(staged.kept.scores, size, design.scheme, design.seed, staged.stage)
    n_more = size - sum(each.sample.n_draws for each in staged.earlier)
    if design.scheme == "poisson":
        return draw_beside(staged.kept.scores, staged.earlier, n_more, design.seed, staged.stage)
    return draw_held(staged.kept.scores, n_more, design.scheme, design.seed, staged.stage)


def united(staged: Staged, last: Sample) -> Sample:
    """All stages as one sample, with the names of the features."""
    names = staged.matrix.source.names
    named = () if names == default_names(len(names)) else names
    if not staged.earlier:
        return replace(last, feature_names=named)
    combine = "union" if last.scheme == "poisson" else "balance"
    samples = [*(each.sample for each in staged.earlier), last]
    pooled = pool(samples, [*(each.scores for each in staged.earlier), staged.kept.scores], combine=combine)
    return replace(pooled, feature_names=named, seed=last.seed)


def _one(reference: TallMatrix, factor: Factor, held: da.Array, keep: Keep, why: str, n_rows: int) -> Staged:
    reads = {"factor": factor.reads, "scores": 1}
    return Staged(reference, factor, keep(held, reference), (), None, reads, None, why, 0, n_rows)


def _held(lazy: da.Array, scratch: ExitStack) -> da.Array:
    held, folder = hold(lazy)
    if folder is not None:
        scratch.callback(folder.cleanup)
    return held


def _unfit(problem: Problem, taken: Drawn) -> str:
    if not len(taken.y):
        return "the pilot drew no row"
    if isinstance(problem.loss, LogisticLoss) and len(np.unique(taken.y)) < 2:
        return "the pilot drew rows of one class only"
    return ""


def _rough(problem: Problem, sample: Sample, taken: Drawn, names: tuple[str, ...], start: Any = None) -> Fit:
    """A fit on the way; whether it is ok is asked of it, and needs no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit_drawn(problem, sample, taken, names, start=start)


def _serves(fit: Fit) -> bool:
    """Whether rows may be scored at a fit: it is ok, or merely not stationary, as in a kink, where no slope vanishes."""
    constraint = set_for(fit.problem, len(fit.feature_names))
    inside = constraint is None or constraint.contains(fit.theta)
    return fit.ok or (inside and STATIONARY < fit.stationarity < np.inf)


def _bends(problem: Problem, taken: Drawn, theta: np.ndarray) -> bool:
    """Whether the loss has curvature at any of the drawn rows, so that there is influence."""
    if isinstance(problem.loss, AbsoluteError):
        return False
    with np.errstate(all="ignore"):
        bend = problem.loss.curvature(problem.model.predict(theta, taken.X), taken.y)
    return bool((bend > 0).any())


def _mixture(
    dual: TallMatrix,
    tangent: TallMatrix | None,
    factors: Sequence[Factor],
    shares: tuple[float, ...],
    sample: Sample,
    taken: Drawn,
    theta: np.ndarray,
    n_rows: int,
) -> tuple[da.Array, tuple[float, ...]]:
    """Lazy scores by shares, each score over its sum: the rank, the rows that count, and for influence an estimate.

    The sum of influence over all rows is estimated on the rows drawn so far; an error in it changes the shares a
    little and nothing else.
    """
    leverage, influence, uniform = shares
    total = 0.0
    if influence and tangent is not None:
        problem = dual.problem
        assert problem is not None
        with np.errstate(all="ignore"):
            gradients = loss_gradients(problem, theta, taken.X, taken.y)
            lengths = gradient_lengths(gradients, factors[1].whitener, factors[1].correction)
        total = float(sample.weights @ (lengths if taken.weight is None else taken.weight * lengths))
    # Shares of a total below the normal numbers would overflow.
    if not np.finfo(np.float64).tiny <= total < np.inf:  # no influence anywhere, as for AbsoluteError or a perfect fit
        leverage, influence = leverage + influence, 0.0
    share = Share(leverage / factors[0].rank, influence / total if influence else 0.0, uniform / n_rows)
    pair = (factors[0], factors[-1])
    return lazy_mixture(dual, tangent if influence else None, pair, share), (leverage, influence, uniform)
