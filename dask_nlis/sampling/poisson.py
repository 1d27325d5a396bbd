"""Each row in or out by its own coin, distinct rows, a random number of them."""

from dataclasses import replace

import numpy as np

from dask_nlis.kernels import exact_sums
from dask_nlis.sample import Sample, Scale
from dask_nlis.sampling.passes import Design, Part, Pass
from dask_nlis.sampling.plan import Plan


def poisson(plan: Plan) -> Design[Sample]:
    """Draw in one to three passes: the scores near certainty where there are any, then the coins.

    With mix one pass more sums the blended scores.
    """
    scale, sums = plan.scale(), plan.summary.sums
    if plan.mix:
        parts: list[dict[int, tuple[int, int]]] = [{}]

        def add(_: int, answer: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            parts[0] = exact_sums.merge_sums([parts[0], exact_sums.unpacked(answer)])

        yield Pass(_block_sums, plan.blocks, add, (scale,))
        sums = parts[0]
    boundary, some_certain = exact_sums.boundary_bin(sums, plan.n_draws)
    inside: list[np.ndarray] = [np.empty(0)]
    if some_certain:
        yield Pass(_block_inside, plan.blocks, lambda _, answer: inside.append(answer), (scale, boundary))
    # In the unit of the scores on the verge of certainty c is neither huge nor tiny, whatever the scores.
    factor = exact_sums.poisson_scale(sums, plan.n_draws, boundary, np.concatenate(inside), boundary)
    unit = replace(scale, lift=boundary) if plan.mix else replace(scale, exponent=boundary)
    scale = replace(unit, factor=factor)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    yield Pass(block_coins, plan.blocks, lambda _, answer: found.append(answer), (scale, plan.key))
    rows, scores = (np.concatenate([part[k] for part in found]) for k in (0, 1))
    return plan.distinct(scale, rows, scores)


def _block_sums(part: Part, scale: Scale) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return exact_sums.packed(exact_sums.exponent_sums(scale.blended(part.scores)))


def _block_inside(part: Part, scale: Scale, boundary: int) -> np.ndarray:
    counted = scale.blended(part.scores) if scale.mix else part.scores
    return counted[(counted > 0) & (np.frexp(counted)[1] == boundary)]


def block_coins(part: Part, scale: Scale, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a block whose coin says so, and their scores."""
    found = [np.flatnonzero(piece.uniforms(key) < scale.probabilities(piece.scores)) + k for k, piece in part.pieces()]
    chosen = np.concatenate([np.empty(0, dtype=np.int64), *found])
    return part.rows(chosen), part.scores[chosen]
