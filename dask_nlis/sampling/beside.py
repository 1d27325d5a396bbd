"""A Poisson stage beside earlier ones: sized by the rows it adds to theirs."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import dask.array as da
import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.kernels import exact_sums, wide
from dask_nlis.sample import GroupScale, Sample, Scale
from dask_nlis.sampling.passes import BESIDE, Design, Part, Pass, carry_out
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.poisson import block_coins
from dask_nlis.sampling.summary import Summary, check_scores, summarised

#: Shares of rows are counted in units of 2^-53.
_UNIT = 2**53


class Stage(NamedTuple):
    """An earlier Poisson stage: its sample, and the scores (n,) of all rows that it was drawn by, held."""

    sample: Sample
    scores: da.Array


#: Sums of scores that count in part only, by exponent: how many rows in units of 2^-53, and the sum.
Shared = dict[int, tuple[int, int]]


def draw_beside(
    held: da.Array, earlier: Sequence[Stage], n_more: int, seed: int, stage: int, summary: Summary | None = None
) -> Sample:
    """Draw a Poisson stage by held scores (n,) whose union with earlier stages has `n_more` more distinct rows, expected.

    With pi_k the chances of a row in the earlier stages, c solves sum prod_k (1 - pi_k) min(1, c score) = n_more.
    `n_draws` of the sample is that number; rows that an earlier stage drew may be among its own. A `summary` of the
    scores that is known saves a pass over them.
    """
    pairs = _beside(held, earlier)
    summary = summary or summarised(held)
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
        token="nlis-draw",  # noqa: S106 (a label of tasks)
    )


def _block_beside(
    scores: np.ndarray, *before: np.ndarray, scales: Sequence[tuple[Scale | GroupScale, int]]
) -> np.ndarray:
    """Scores of a block beside the chance that earlier stages missed each row, from their scores `before`."""
    out = np.empty(len(scores), dtype=BESIDE)
    out["score"], out["missed"] = scores, missed_by(scales, before, len(scores))
    return out


def missed_by(
    scales: Sequence[tuple[Scale | GroupScale, int]], before: Sequence[np.ndarray], n_rows: int
) -> np.ndarray:
    """Chance that Poisson stages of these scales and sizes missed each row, from the scores they drew by: (m,)."""
    missed = np.ones(n_rows)
    for (scale, n_draws), values in zip(scales, before, strict=True):
        missed *= 1.0 - scale.expected_count(values, n_draws)
    return missed


def _design(plan: Plan) -> Design[Sample]:
    sums: Shared = {}

    def add(_: int, answer: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        nonlocal sums
        sums = exact_sums.merge_sums([sums, unpacked(answer)])

    yield Pass(block_sums, plan.blocks, add)
    return (yield from beside(plan, sums))


def beside(plan: Plan, sums: Shared) -> Design[Sample]:
    """Draw in two passes, given the sums of the scores where each counts for the chance that it was missed."""
    shares = {e: (Fraction(count, _UNIT), total) for e, (count, total) in sums.items()}
    reachable = sum((count for count, _ in shares.values()), Fraction(0))
    _check(plan.n_draws, plan.summary, reachable)
    boundary, _ = exact_sums.boundary_bin(shares, plan.n_draws)
    inside: list[tuple[np.ndarray, np.ndarray]] = []
    yield Pass(_block_inside, plan.blocks, lambda _, answer: inside.append(answer), (boundary,))
    scores, missed = (np.concatenate([part[k] for part in inside]) for k in (0, 1))
    factor = exact_sums.poisson_scale(shares, plan.n_draws, boundary, scores, boundary, missed)
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


def block_sums(part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of the scores of a block where each counts for the chance that it was missed, in little memory."""
    assert part.missed is not None
    sums = exact_sums.weighted_sums(part.scores, part.missed)
    counts, totals = zip(*sums.values(), strict=True) if sums else ((), ())
    return np.array(list(sums), np.int16), wide.from_whole(counts), wide.from_whole(totals)


def unpacked(parts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Shared:
    """Sums from `block_sums`."""
    exponents, counts, totals = parts
    pairs = zip(wide.to_whole(counts), wide.to_whole(totals), strict=True)
    return dict(zip(exponents.tolist(), pairs, strict=True))


def _block_inside(part: Part, boundary: int) -> tuple[np.ndarray, np.ndarray]:
    assert part.missed is not None
    mine = (part.scores > 0) & (np.frexp(part.scores)[1] == boundary)
    return part.scores[mine], part.missed[mine]
