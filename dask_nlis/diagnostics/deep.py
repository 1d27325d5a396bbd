"""One read of all rows beside their scores: what only all rows can tell of a sample."""

from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis import phase
from dask_nlis.device import choose
from dask_nlis.diagnostics.total_loss import summed
from dask_nlis.errors import InputError
from dask_nlis.factor import Factor
from dask_nlis.intake import open_array
from dask_nlis.kernels import exact_sums
from dask_nlis.kernels.linalg import leverage
from dask_nlis.matrix import Dual, Finding, Job, Leaf, TallMatrix, boxed, check_finite, leaves, map_boxes
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.pieces import Gathered
from dask_nlis.matrix.rules import array_like, summed_over
from dask_nlis.matrix.tasks import matrix_rows, naming_rows
from dask_nlis.problem import Problem, dual_values
from dask_nlis.scores.leverage import placed, shared_whitener
from dask_nlis.scores.losses import losses_of

Array = Any

#: Leverage below which a row is nothing but rounding.
_NONE = 1e-12


class Deep(NamedTuple):
    """What all rows tell."""

    ratio: Fraction  # smallest score over leverage
    total: Fraction  # sum of the scores, which float64 need not hold
    residual: float
    unreachable_rows: int
    unreachable_loss: float
    losses: tuple[float, ...]  # at each theta


class Part(NamedTuple):
    """What one block tells."""

    ratio: Fraction | None  # None where no row has leverage
    sums: dict[int, tuple[int, int]]
    residual: float
    unreachable_rows: int
    unreachable_loss: float
    losses: tuple[float, ...]
    finding: Finding


def read_deep(matrix: TallMatrix, factor: Factor, scores: Any, points: Any) -> Deep:
    """One read of X beside the scores (n,)."""
    source = matrix.source
    lazy = open_array("scores", scores, None, source.chunks).array
    if lazy.shape != (matrix.shape[0],):
        raise InputError(f"scores have shape {lazy.shape}, A has {matrix.shape[0]:,} rows; give one score a row")
    if lazy.chunks[0] != source.chunks:
        lazy = lazy.rechunk({0: source.chunks}, method="tasks")
    blocks = map_boxes(
        matrix,
        deep_block,
        "nlis-certificate",
        beside=lazy,
        whitener=shared_whitener(factor),
        problem=matrix.problem,
        thetas=tuple(points.known),
    )
    found = phase.blocks_of(blocks, "nlis-certificate", n_rows=source.n_rows, n_bytes=source.n_bytes)
    parts: list[Part] = [block[0, 0] for block in found]
    check_finite(reduce(Finding.plus, (part.finding for part in parts)), source.names, "in all")
    return Deep(
        ratio=min(part.ratio for part in parts if part.ratio is not None),
        total=exact_sums.exact_total(exact_sums.merge_sums([part.sums for part in parts])),
        residual=max(part.residual for part in parts),
        unreachable_rows=sum(part.unreachable_rows for part in parts),
        unreachable_loss=summed(part.unreachable_loss for part in parts),
        losses=tuple(summed(column) for column in zip(*(part.losses for part in parts), strict=True)),
    )


@on_device
def deep_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    scores: np.ndarray,
    *,
    job: Job,
    whitener: tuple[np.ndarray, np.ndarray | None],
    problem: Problem | None,
    thetas: tuple[np.ndarray, ...],
) -> np.ndarray:
    """What one block tells, a Part in a 1 x 1 object array."""
    device = choose(job.device)
    target = placed(whitener, device)
    points = [device.put(theta) for theta in thetas]
    values = np.asarray(scores, dtype=np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(start) + int(np.argmax(wrong))
        raise InputError(f"scores are negative or not finite at row {row}; give finite scores >= 0")
    gathered = Gathered(device, (len(x), 1 + len(thetas)))  # leverage, and the losses at each theta
    residual, found = 0.0, Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows, finding = matrix_rows(leaf, job)
            h = summed_over(leverage(rows, *target), leaf.x.shape[0])
            xp = array_namespace(h)
            if isinstance(job.rule, Dual) and leaf.counts:
                residual = max(residual, float(xp.max(_residual(leaf, rows, job.rule))))
            losses = [] if problem is None else [losses_of(leaf, problem, theta) for theta in points]
            gathered.add(leaf.place, xp.stack([h, *losses], axis=1))
            found = found.plus(finding)
        h, *losses = np.ascontiguousarray(gathered.host().T)
    bad = (
        overflow(h, int(start))
        if not np.isfinite(h).all()
        else overflow(np.reshape(losses, (len(thetas), len(x))).T, int(start))
    )
    found = found if found.n_bad else found.plus(bad)
    counts = h > _NONE
    unreachable = (values == 0) & (losses[-1] > 0) if thetas else (values == 0) & counts
    part = Part(
        _smallest_ratio(values[counts], h[counts]),
        exact_sums.exponent_sums(values),
        residual,
        int(unreachable.sum()),
        _sum(losses[-1][unreachable]) if thetas else 0.0,
        tuple(map(_sum, losses)),
        found,
    )
    return boxed(part)


def _smallest_ratio(values: np.ndarray, leverages: np.ndarray) -> Fraction | None:
    """Smallest quotient, exact: one of scores near 1e308 or 1e-308 need be no float64."""
    if not len(values):
        return None
    mantissas, exponents = np.frexp(values)
    quotients, more = np.frexp(mantissas / leverages)
    exponents = np.where(quotients > 0, exponents + more, -(2**20))
    lowest = np.flatnonzero(exponents == exponents.min())
    k = lowest[np.argmin(quotients[lowest])]
    return Fraction(float(values[k])) / Fraction(float(leverages[k]))


def _sum(losses: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(losses.sum())


def _residual(leaf: Leaf, rows: Array, rule: Dual) -> Array:
    """|f(theta) - f(0) - <theta, f*>| over 1 + |f(theta)| + |f(0)| of each row of the matrix."""
    xp = array_namespace(rows)
    theta = array_like(rule.theta, rows)
    with naming_rows(leaf):
        here = leaf.weighted(dual_values(rule.problem, theta, leaf.x, leaf.y))
    zero = rows[:, -1]
    return xp.abs(here - zero - rows[:, :-1] @ theta) / (1 + xp.abs(here) + xp.abs(zero))
