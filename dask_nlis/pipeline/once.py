"""Rows scored once: at a theta that is given, or at a pilot fit whose own rows are drawn besides."""

from typing import Any

from dask_nlis.factor import Factor, factorize_together
from dask_nlis.matrix import TallMatrix, dual_matrix, tangent_matrix
from dask_nlis.pipeline.design import Known, Setting, Wanted, Way
from dask_nlis.pipeline.pilot import rough_fit
from dask_nlis.pipeline.shelf import check_total
from dask_nlis.pipeline.stages import Staged
from dask_nlis.refit import Fit
from dask_nlis.scores import influence_scorer, leverage_scorer, norm_scorer


def scored_once(reference: TallMatrix, setting: Setting, way: Way, scores: str, theta: Any) -> Staged:
    """Score all rows once by leverage, norm or influence. Reads X twice where the factor takes one, and for a pilot twice more."""
    problem, design = reference.problem, setting.design
    assert problem is not None
    reads: dict[str, int] = {}
    pilot: Fit | None = None
    known: Known | None = None
    if theta is None:
        # The pilot is stage 0 of the same seed, so that its rows and those of the sample are drawn independently.
        assert design.first is not None
        pilot, known, reads = rough_fit(reference, setting, way, design.first, argument="pilot_size")
        theta = pilot.theta
    dual = dual_matrix(problem, setting.X, setting.y, theta=theta, **setting.options)
    factor: Factor | None = None
    matrix, total = dual, 0.0
    if scores == "norm":
        # Not told by known rows: whether norms vanish is a question to all rows of a block.
        scorer, known = norm_scorer(dual), None
    elif scores == "leverage":
        ((factor,), _) = factorize_together([dual], setting.saved.below("factors-1"))
        reads["factor"] = factor.reads
        scorer, total = leverage_scorer(dual, factor), float(factor.rank)
    else:
        matrix = tangent_matrix(problem, setting.X, setting.y, theta=theta, **setting.options)
        (factor, second), reads["factor"] = factorize_together([dual, matrix], setting.saved.below("factors-1"))
        scorer = influence_scorer(matrix, second)
    wanted = Wanted(matrix, scorer, design.size, 0 if pilot is None else 1, total=total, last=True)
    scored = way(setting, wanted, known)
    reads["scores"] = 1
    if factor is not None and scores == "leverage":
        check_total(scored.summary.total, factor)
    return Staged(scored, factor, (), pilot, reads, None, "", dual)
