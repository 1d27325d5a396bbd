"""Rows of a block grouped by activation pattern: once for all that is made of rows with the same units.

Dual rows, tangent rows and gradients of the losses are the same short rows, times numbers of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dask_nlis.device import Device
from dask_nlis.kernels import patterns as kernels
from dask_nlis.matrix.findings import Finding
from dask_nlis.matrix.leaf import Leaf, float64
from dask_nlis.matrix.patterns import Units, units_of
from dask_nlis.matrix.rules import Dual, Tangent
from dask_nlis.matrix.tasks import Job, check_slopes, leaves, naming_rows
from dask_nlis.models import ReluNetwork
from dask_nlis.problem import at_zero, root_of_curvature, slope


class Sought(NamedTuple):
    """Which rows are to be grouped: those of the matrix of a job, or the `gradients` beside the rows of a tangent matrix."""

    job: Job
    gradients: bool = False


class Grouping(NamedTuple):
    """Rows of a block grouped by pattern: group i is order[edges[i]:edges[i + 1]], its slopes those of its units."""

    x: np.ndarray  # (n, d), as it came
    units: Units
    factor: np.ndarray  # (n,), c times the root of the weight, of gradients times the weight
    last: np.ndarray  # (n,), f(0) times the root of the weight; 0 where rows have no border
    order: np.ndarray  # rows
    edges: np.ndarray  # (g + 1,)
    slopes: np.ndarray  # (g, m)

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each group."""
        return np.diff(self.edges)

    def only(self, mask: np.ndarray) -> "Grouping":
        """Some of the groups."""
        sizes = self.sizes
        return self._replace(
            order=self.order[np.repeat(mask, sizes)],
            edges=np.concatenate([[0], np.cumsum(sizes[mask])]),
            slopes=self.slopes[mask],
        )

    def nonzero(self) -> "Grouping":
        """The groups without rows that are zero: as if the others alone had been grouped."""
        keep = ((self.factor != 0) | (self.last != 0))[self.order]
        if keep.all():
            return self
        sizes = np.add.reduceat(keep, self.edges[:-1], dtype=np.int64)
        edges = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
        return self._replace(order=self.order[keep], edges=edges, slopes=self.slopes[sizes > 0])

    def short(self, first: int, last: int) -> np.ndarray:
        """Short rows first ... last - 1 of the order, (last - first, width)."""
        place = self.order[first:last]
        return self.units.short(float64(np.take(self.x, place, axis=0)), self.factor[place])

    def formed(self, step: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows in the basis, `step` at a time, with their places in the block."""
        slopes = np.repeat(self.slopes, self.sizes, axis=0)
        for first in range(0, len(self.order), step):
            last = min(first + step, len(self.order))
            place = self.order[first:last]
            yield place, self.units.rows(self.short(first, last), slopes[first:last], self.last[place])


class Grouped(NamedTuple):
    """What became of rows that were to be grouped: None where one of them is not finite; and what was found in the block."""

    groups: Grouping | None
    finding: Finding


@np.errstate(all="ignore")
def groupings(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    sought: Sequence[Sought | None],
    device: Device,
) -> list[Grouped | None]:
    """Group a block by pattern for each of these; None where rows are no linear map by pattern, or none are sought.

    None on a GPU, where rows are formed.
    Rows that are zero are in no group. Those of the same problem and theta share one read of the block, in sub-blocks, one
    sort, and m bits a row; each has two numbers and a place a row of its own.
    """
    out: list[Grouped | None] = [None] * len(sought)
    if device.kind != "cpu":
        return out
    units = [None if each is None else units_of(each.job.rule, y is not None) for each in sought]
    left = [k for k, found in enumerate(units) if found is not None]
    while left:
        together = [k for k in left if _alike(sought[left[0]], sought[k])]
        wanted = [
            (each, found) for k in together if (each := sought[k]) is not None and (found := units[k]) is not None
        ]
        for k, grouped in zip(together, _together(x, y, weight, start, wanted, device), strict=True):
            out[k] = grouped
        left = [k for k in left if k not in together]
    return out


def _alike(a: Sought | None, b: Sought | None) -> bool:
    """Whether units are active in the same rows, and the same labels are allowed and the same rows dropped."""
    assert a is not None
    assert b is not None
    one, other = a.job.rule, b.job.rule
    assert isinstance(one, Dual | Tangent)
    assert isinstance(other, Dual | Tangent)
    same = one.problem == other.problem and a.job.missing == b.job.missing  # equal: jobs reach a worker one by one
    return same and np.array_equal(one.theta, other.theta)


def _together(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    wanted: Sequence[tuple[Sought, Units]],
    device: Device,
) -> list[Grouped]:
    n, (first, units) = len(x), wanted[0]
    active, found = np.zeros((n, len(units.a)), dtype=bool), Finding()
    factors, lasts = np.zeros((len(wanted), n)), np.zeros((len(wanted), n))
    for leaf in leaves(x, y, weight, start, narrow(first.job, units), device):
        found = found.plus(leaf.finding)
        if leaf.counts:
            active[leaf.place], values = parts(leaf, units, [each for each, _ in wanted])
            for k, (factor, last) in enumerate(values):
                factors[k, leaf.place], lasts[k, leaf.place] = factor, last
    rows = np.flatnonzero(factors.any(axis=0) | lasts.any(axis=0))
    order, edges = kernels.grouped(active, rows)
    slopes = np.where(active[order[edges[:-1]]], 1.0, units.left)
    return [
        Grouped(
            Grouping(x, each, factor, last, order, edges, slopes).nonzero()
            if np.isfinite(factor).all() and np.isfinite(last).all()
            else None,
            found,
        )
        for (_, each), factor, last in zip(wanted, factors, lasts, strict=True)
    ]


def narrow(job: Job, units: Units) -> Job:
    """The job for sub-blocks of short rows."""
    return replace(job, n_matrix_columns=units.width)


def parts(
    leaf: Leaf, units: Units, sought: Sequence[Sought]
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray | float]]]:
    """Which units are active in each row of a leaf, (n, m); for each of these c (n,) and f(0) (n,), with their weights."""
    rule = sought[0].job.rule
    assert isinstance(rule, Dual | Tangent)
    model = rule.problem.model
    assert isinstance(model, ReluNetwork)
    with naming_rows(leaf):
        z = model.inputs(leaf.x) @ units.b.T
        u = model.unit.value(z) @ units.a
        return z > 0, [_numbers(leaf, each, model, u) for each in sought]


def _numbers(leaf: Leaf, sought: Sought, model: ReluNetwork, u: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
    """Of each row of a leaf with index u the number c that its short row is multiplied by, and f(0); times the weights."""
    rule = sought.job.rule
    if isinstance(rule, Dual):
        check_slopes(rule, leaf)
        c = slope(rule.problem, model.activation, u, leaf.y) / model.degree
        return leaf.weighted(c), leaf.weighted(at_zero(rule.problem, leaf.y, leaf.x))
    assert isinstance(rule, Tangent)
    loss, phi = rule.problem.one_loss, model.activation
    prediction = phi.value(u)
    outer = loss.derivative(prediction, leaf.y) if sought.gradients else root_of_curvature(loss, prediction, leaf.y)
    # Activations that level off hide an index that has overflowed; formed rows tell what becomes of it.
    c = np.where(np.isfinite(u), outer * phi.derivative(u), np.nan)
    return leaf.weighted(c, 2 if sought.gradients else 1), 0.0
