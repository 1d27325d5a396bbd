"""Rows drawn in stages: by the reference leverage first, then by scores at the fit to what is there already.

The first stage needs no theta: leverage of the reference matrix. Its fit is where the second is scored, by a mixture of
leverage, influence and a constant; both p x p factors come from the same reads. Two Poisson stages make one union design
with the expected number of distinct rows asked for; stages of other schemes are pooled by the balance heuristic.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.checkpoints import recalled, recalled_noun
from dask_nlis.constraints import is_bounded
from dask_nlis.errors import ConvergenceWarning, InputError
from dask_nlis.factor import Factor, factorize_together
from dask_nlis.intake import default_names
from dask_nlis.losses import AbsoluteError, LogisticLoss, SoftmaxLoss, is_of_several
from dask_nlis.matrix import TallMatrix, dual_matrix, tangent_matrix
from dask_nlis.pipeline.design import Design, Known, Scored, Setting, Stage, Wanted, Way, counted
from dask_nlis.pipeline.drawn import Drawn, fit_drawn
from dask_nlis.pipeline.shelf import check_total
from dask_nlis.problem import Problem, loss_gradients, set_for
from dask_nlis.refit import STATIONARY, Fit
from dask_nlis.sample import Sample
from dask_nlis.sampling import check_enough
from dask_nlis.scores import Scorer, Share, gradient_lengths, leverage_scorer, mixture_scorer

#: Shares of leverage, influence and a constant in the scores of later stages: below ten rows a parameter, and above, where
#: leverage has its say in the first stage.
SMALL, LARGE = (0.45, 0.45, 0.10), (0.0, 0.90, 0.10)

#: Rows a parameter, of all stages, below which leverage takes part in every stage.
_FEW = 10

#: Rows a parameter of a pilot fit beyond which more of them are worth less than rows by better scores.
_ENOUGH = 10


class Staged(NamedTuple):
    """Where the stages end: everything but the last sample, which may still grow."""

    scored: Scored  # the last stage
    factor: Factor | None  # None for norm scores
    earlier: tuple[Stage, ...]  # stages before the last
    pilot: Fit | None
    reads: dict[str, int]
    shares: tuple[float, ...] | None  # of the last stage; None for one stage
    why: str  # why there is one stage where two were asked for; else empty
    matrix: TallMatrix  # what the certificate is about: the dual matrix at the last theta, or the reference matrix


def stages(reference: TallMatrix, setting: Setting, way: Way) -> Staged:
    """Score, draw and fit all stages but the drawing of the last one. Reads X 2 times a stage where factors take one."""
    design, d = setting.design, reference.source.n_columns
    problem = reference.problem
    assert problem is not None
    saved = setting.saved
    ((factor,), _) = factorize_together([reference], saved.below("factors-0"))
    first = None if design.rounds == 1 else first_rows(problem, design, d)
    alone = first is None
    scorer = leverage_scorer(reference, factor)
    scored = way(setting, Wanted(reference, scorer, first or design.size, 0, total=float(factor.rank), last=alone))
    check_total(scored.summary.total, factor)
    n_rows = scored.summary.n_positive
    if design.target is not None:
        design = design._replace(size=min(design.size, max(1, n_rows // 2)))
        first = None if design.rounds == 1 else first_rows(problem, design, d)
    check_enough(n_rows, design.size, design.scheme)
    reads = {"factor": factor.reads, "scores": 1}
    why = ""
    if first is None:
        if design.rounds > 1:
            why = f"size={design.size:,} leaves no room for a pilot of {least_rows(problem, d):,} rows"
        more = 0
        if not alone:
            scored, more = scored.ended(design.size)
        return Staged(scored, factor, (), None, counted(reads, "scores", more), None, why, reference)
    stage = scored.drawn(first)
    reads = counted(reads, "gather", stage.reads)
    sample, taken = stage.sample, stage.scored.taken(stage.sample)
    why = _unfit(problem, taken)
    fit = None if why else rough(setting, 0, problem, sample, taken, reference.source.names)
    if fit is None or not serves(fit):
        why = why or f"the pilot fit is not ok: {fit.reasons[0] if fit is not None else ''}"
        scored, more = scored.ended(design.size)
        return Staged(scored, factor, (), None, counted(reads, "scores", more), None, why, reference)
    pilot = fit
    scored = stage.scored.spent()
    earlier: tuple[Stage, ...] = (stage._replace(scored=scored),)
    del stage  # with the rows that it kept
    reads = {"pilot": factor.reads + 1} | {name: count for name, count in reads.items() if name == "gather"}
    for turn in range(1, design.rounds):
        dual, tangent = _matrices(setting, problem, taken, fit.theta)
        wanted = [dual] if tangent is None else [dual, tangent]
        factors, used = factorize_together(wanted, saved.below(f"factors-{turn}"))
        shares = design.shares or (SMALL if design.size < _FEW * len(fit.theta) else LARGE)
        # Kept, since on another machine the same sum may round to other bits.
        total: float = recalled(
            saved,
            f"influence-{turn}",
            partial(_influence_total, dual, tangent, factors, shares, sample, taken, fit.theta),
        )
        scorer, shares = _mixture(dual, tangent, factors, shares, total, n_rows)
        reads = counted(counted(reads, "factor", used), "scores", 1)
        # Rows of all stages up to this one.
        size = first + round((design.size - first) * turn / (design.rounds - 1))
        n_more = size - sum(each.sample.n_draws for each in earlier)
        last, known = turn == design.rounds - 1, Known(sample, taken)
        scored = way(setting, Wanted(dual, scorer, n_more, turn, earlier=earlier, last=last), known)
        if last:
            break
        stage = scored.drawn(n_more)
        reads = counted(reads, "gather", stage.reads)
        sample = united(stage.scored, stage.sample)
        taken = stage.scored.taken(sample)
        scored = stage.scored.spent()
        earlier = (*earlier, stage._replace(scored=scored))
        del stage
        better = rough(setting, turn, problem, sample, taken, reference.source.names, fit.theta)
        fit = better if serves(better) else fit
    return Staged(scored, factors[0], earlier, pilot, reads, shares, "", dual)


def least_rows(problem: Problem, d: int) -> int:
    """Rows that a pilot fit needs: five a parameter, or two more than parameters in a bounded set."""
    p = problem.model.n_parameters(d)
    return p + 2 if is_bounded(problem.constraint) else 5 * p


def first_rows(problem: Problem, design: Design, d: int) -> int | None:
    """Rows of the first of several stages; None where there is room for one only. Raises where a round gets no row.

    By default a quarter of all, and up to half of them where a quarter is less than ten a parameter: scores at a rough
    fit are worth less than the rows that make it a better one (`examples/guide/two_stages.md` has the figures).
    """
    enough = min(design.size // 2, _ENOUGH * problem.model.n_parameters(d))
    first = max(round(design.size / 4), enough, least_rows(problem, d)) if design.first is None else design.first
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


def united(scored: Scored, last: Sample) -> Sample:
    """All stages as one sample, with the names of the features."""
    names = scored.wanted.matrix.source.names
    named = () if names == default_names(len(names)) else names
    return replace(scored.united(last), feature_names=named, seed=last.seed)


def _matrices(
    setting: Setting, problem: Problem, taken: Drawn, theta: np.ndarray
) -> tuple[TallMatrix, TallMatrix | None]:
    """The dual matrix at theta, and the tangent matrix where there is influence."""
    X, y, options = setting.X, setting.y, setting.options
    dual = dual_matrix(problem, X, y, theta=theta, **options)
    return dual, tangent_matrix(problem, X, y, theta=theta, **options) if _bends(problem, taken, theta) else None


def _unfit(problem: Problem, taken: Drawn) -> str:
    if not len(taken.y):
        return "the pilot drew no row"
    if isinstance(problem.loss, LogisticLoss) and len(np.unique(taken.y)) < 2:
        return "the pilot drew rows of one class only"
    if isinstance(problem.loss, SoftmaxLoss) and (drawn := len(np.unique(taken.y))) < problem.loss.n_classes:
        return f"the pilot drew rows of {drawn} of {problem.loss.n_classes} classes"
    return ""


def rough(
    setting: Setting,
    turn: int,
    problem: Problem,
    sample: Sample,
    taken: Drawn,
    names: tuple[str, ...],
    start: Any = None,
) -> Fit:
    """A fit on the way; whether it is ok is asked of it, and needs no warning."""

    def make() -> Fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return fit_drawn(problem, sample, taken, names, start=start)

    fit: Fit = recalled_noun(setting.saved, f"fit-{turn}", make, Fit)
    return fit


def serves(fit: Fit) -> bool:
    """Whether rows may be scored at a fit: it is ok, or merely not stationary, as in a kink, where no slope vanishes."""
    constraint = set_for(fit.problem, len(fit.feature_names))
    inside = constraint is None or constraint.contains(fit.theta)
    return fit.ok or (inside and STATIONARY < fit.stationarity < np.inf)


def _bends(problem: Problem, taken: Drawn, theta: np.ndarray) -> bool:
    """Whether the loss has curvature at any of the drawn rows, so that there is influence."""
    if isinstance(problem.loss, AbsoluteError):
        return False
    with np.errstate(all="ignore"):
        prediction = problem.model.predict(theta, taken.X)
        loss = problem.row_loss
        if is_of_several(loss):
            return bool(loss.curvature_root(prediction, taken.y).any())
        bend = problem.one_loss.curvature(prediction, taken.y)
    return bool((bend > 0).any())


def _influence_total(
    dual: TallMatrix,
    tangent: TallMatrix | None,
    factors: Sequence[Factor],
    shares: tuple[float, ...],
    sample: Sample,
    taken: Drawn,
    theta: np.ndarray,
) -> float:
    """Sum of influence over all rows, estimated on those drawn so far; 0 where it has no share.

    An error in it changes the shares a little and nothing else.
    """
    if not shares[1] or tangent is None:
        return 0.0
    problem = dual.problem
    assert problem is not None
    with np.errstate(all="ignore"):
        gradients = loss_gradients(problem, theta, taken.X, taken.y)
        lengths = gradient_lengths(gradients, factors[1].whitener, factors[1].correction)
    return float(sample.weights @ (lengths if taken.weight is None else taken.weight * lengths))


def _mixture(
    dual: TallMatrix,
    tangent: TallMatrix | None,
    factors: Sequence[Factor],
    shares: tuple[float, ...],
    total: float,
    n_rows: int,
) -> tuple[Scorer, tuple[float, ...]]:
    """How rows are scored by shares, each score over its sum: the rank, the `total` of influence, the rows that count."""
    leverage, influence, uniform = shares
    # Shares of a total below the normal numbers would overflow.
    if not np.finfo(np.float64).tiny <= total < np.inf:  # no influence anywhere, as for AbsoluteError or a perfect fit
        leverage, influence = leverage + influence, 0.0
    share = Share(leverage / factors[0].rank, influence / total if influence else 0.0, uniform / n_rows)
    pair = (factors[0], factors[-1])
    return mixture_scorer(dual, tangent if influence else None, pair, share), (leverage, influence, uniform)
