"""Rows scored once: at a theta that is given, or at a pilot fit whose own rows are drawn besides."""

from typing import Any

from dask_nlis.factor import Factor, factorize, factorize_together
from dask_nlis.matrix import TallMatrix, dual_matrix, tangent_matrix
from dask_nlis.pipeline.pilot import rough_fit
from dask_nlis.pipeline.shelf import Keep, check_total, look_at
from dask_nlis.pipeline.stages import Design, Staged
from dask_nlis.refit import Fit
from dask_nlis.scores import lazy_influence, lazy_leverage, lazy_norms


def scored_once(
    reference: TallMatrix,
    design: Design,
    X: Any,
    y: Any,
    options: dict[str, Any],
    scores: str,
    theta: Any,
    keep: Keep,
) -> Staged:
    """Score all rows once by leverage, norm or influence. Reads X twice where the factor takes one, and for a pilot twice more."""
    problem = reference.problem
    assert problem is not None
    reads: dict[str, int] = {}
    pilot: Fit | None = None
    if theta is None:
        # The pilot is stage 0 of the same seed, so that its rows and those of the sample are drawn independently.
        assert design.first is not None
        weight = options["sample_weight"]
        drawn: dict[str, Any] = {"scheme": design.scheme, "seed": design.seed, "argument": "pilot_size"}
        pilot, used = rough_fit(reference, X, y, weight, design.first, **drawn)
        theta, reads["pilot"] = pilot.theta, used
    dual = dual_matrix(problem, X, y, theta=theta, **options)
    factor: Factor | None = None
    if scores == "norm":
        lazy = lazy_norms(dual)
    elif scores == "leverage":
        factor = factorize(dual)
        reads["factor"] = factor.reads
        lazy = lazy_leverage(dual, factor)
    else:
        tangent = tangent_matrix(problem, X, y, theta=theta, **options)
        (factor, second), reads["factor"] = factorize_together([dual, tangent])
        lazy = lazy_influence(tangent, second)
    kept = keep(lazy, dual)
    reads["scores"] = 1
    if factor is not None and scores == "leverage":
        check_total(kept.records, factor)
    n_rows = dual.shape[0] if design.target is None else sum(look.n_positive for look in look_at(kept.scores))
    return Staged(dual, factor, kept, (), pilot, reads, None, "", 0 if pilot is None else 1, n_rows)
