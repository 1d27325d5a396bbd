"""A Poisson stage beside earlier ones: sized by the rows it adds to theirs."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import dask.array as da
import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.kernels import draw as kernel, wide
from dask_nlis.sample import GroupScale, Sample, Scale
from dask_nlis.sampling.passes import BESIDE, Design, Part, Pass, carry_out
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.poisson import block_coins
from dask_nlis.sampling.summary import Summary, check_scores, summary_of

#: Shares of rows are counted in units of 2^-53.
_UNIT = 2**53


class Stage(NamedTuple):
    """An earlier Poisson stage: its sample, and the scores (n,) of all rows that it was drawn by, held."""

    sample: Sample
    scores: da.Array


def draw_beside(held: da.Array, earlier: Sequence[Stage], n_more: int, seed: int, stage: int) -> Sample:
    """Draw a Poisson stage by held scores (n,) whose union with earlier stages has `n_more` more distinct rows, expected.

    With pi_k the chances of a row in the earlier stages, c solves sum prod_k (1 - pi_k) min(1, c score) = n_more.
    `n_draws` of the sample is that number; rows that an earlier stage drew may be among its own.
    """
    pairs = _beside(held, earlier)
    summary = carry_out(pairs, {0: summary_of(held.numblocks[0])})[0]
    check_scores([summary])
    plan = Plan("poisson", n_more, 0.0, seed, stage, summary)
    return carry_out(pairs, {0: _design(plan)})[0]


def _beside(held: da.Array, earlier: Sequence[Stage]) -> da.Array:
    scales = tuple((each.sample.scale, each.sample.n_draws) for each in earlier)
    return da.map_blocks(
        _block_beside,
        held,
        *(each.scores.rechunk(held.chunks, method="tasks") for each in earlier),
        scales=scales,
        dtype=BESIDE,
        meta=np.empty(0, dtype=BESIDE),
        token="nlis-draw",
    )


def _block_beside(
    scores: np.ndarray, *before: np.ndarray, scales: Sequence[tuple[Scale | GroupScale, int]]
) -> np.ndarray:
    """Scores of a block beside the chance that earlier stages missed each row, from their scores `before`."""
    out = np.empty(len(scores), dtype=BESIDE)
    out["score"], out["missed"] = scores, 1.0
    for (scale, n_draws), values in zip(scales, before, strict=True):
        out["missed"] *= 1.0 - scale.expected_count(values, n_draws)
    return out


def _design(plan: Plan) -> Design[Sample]:
    sums: dict[int, tuple[int, int]] = {}

    def add(_: int, answer: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        nonlocal sums
        exponents, counts, totals = answer
        pairs = zip(wide.to_whole(counts), wide.to_whole(totals), strict=True)
        sums = kernel.merge_sums([sums, dict(zip(exponents.tolist(), pairs, strict=True))])

    yield Pass(_block_sums, plan.blocks, add)
    shares = {e: (Fraction(count, _UNIT), total) for e, (count, total) in sums.items()}
    reachable = sum((count for count, _ in shares.values()), Fraction(0))
    _check(plan.n_draws, plan.summary, reachable)
    boundary, _ = kernel.boundary_bin(shares, plan.n_draws)
    inside: list[tuple[np.ndarray, np.ndarray]] = []
    yield Pass(_block_inside, plan.blocks, lambda _, answer: inside.append(answer), (boundary,))
    scores, missed = (np.concatenate([part[k] for part in inside]) for k in (0, 1))
    factor = kernel.poisson_scale(shares, plan.n_draws, boundary, scores, boundary, missed)
    scale = replace(plan.scale(), exponent=boundary, factor=factor)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    yield Pass(block_coins, plan.blocks, lambda _, answer: found.append(answer), (scale, plan.key))
    rows, drawn = (np.concatenate([part[k] for part in found]) for k in (0, 1))
    return plan.distinct(scale, rows, drawn)


def _check(n_more: int, summary: Summary, reachable: Fraction) -> None:
    if n_more > reachable * (1 + Fraction(1, 10**9)):
        raise InputError(
            f"size asks for {n_more:,} rows besides those of earlier stages, but only {float(reachable):,.1f} of "
            f"{summary.n_positive:,} rows with positive scores are left on average; give a smaller size"
        )


def _block_sums(part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert part.missed is not None
    sums = kernel.weighted_sums(part.scores, part.missed)
    counts, totals = zip(*sums.values(), strict=True) if sums else ((), ())
    return np.array(list(sums), np.int16), wide.from_whole(counts), wide.from_whole(totals)


def _block_inside(part: Part, boundary: int) -> tuple[np.ndarray, np.ndarray]:
    assert part.missed is not None
    mine = (part.scores > 0) & (np.frexp(part.scores)[1] == boundary)
    return part.scores[mine], part.missed[mine]
