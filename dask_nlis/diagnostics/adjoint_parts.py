"""What a block tells of its adjoints F* beside the gradients G of the index: one R factor, and the ends of the index."""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import choose
from dask_nlis.kernels.linalg import merge_r, r_factor
from dask_nlis.matrix import Finding, Job, Leaf, boxed, leaves
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import matrix_rows, naming_rows
from dask_nlis.models import IndexModel
from dask_nlis.nouns import noun

Array = Any


@noun
class Part:
    """What a block contributes: R of its rows [G, F*], the ends of its index and labels, and its counts."""

    r: np.ndarray
    lowest: tuple[float, float]  # of the index and of the labels
    highest: tuple[float, float]
    n_rows: int
    n_active: int
    finding: Finding

    def plus(self, other: "Part") -> "Part":
        """Both blocks together."""
        return Part(
            r_factor(np.concatenate([self.r, other.r])),
            (min(self.lowest[0], other.lowest[0]), min(self.lowest[1], other.lowest[1])),
            (max(self.highest[0], other.highest[0]), max(self.highest[1], other.highest[1])),
            self.n_rows + other.n_rows,
            self.n_active + other.n_active,
            self.finding.plus(other.finding),
        )


@on_device
def part_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    model: IndexModel,
    theta: np.ndarray,
) -> np.ndarray:
    """One block as a Part in a 1 x 1 object array; sub-block by sub-block on the device."""
    device = choose(job.device)
    p = len(theta)
    at = device.put(theta)
    found = Finding()
    factors: list[Array] = []
    lowest, highest = [], []
    n_rows = n_active = 0
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device, reducing=True):
            both, index, finding = _leaf_rows(leaf, job, model, at)
            xp = array_namespace(both)
            r = r_factor(both)
            found = found.plus(finding)
            if overflow(r, 0).n_bad:
                found = found.plus(overflow(both, int(start) + leaf.place.start))
            factors += [r] if factors else [xp.zeros((2 * p, 2 * p), dtype=r.dtype), r]
            if not leaf.counts:
                continue
            n_rows += both.shape[0] if leaf.root_weight is None else int(xp.count_nonzero(leaf.root_weight > 0))
            n_active += int(xp.count_nonzero(xp.any(both[:, :p] != 0, axis=1)))  # rows of weight 0 are 0 here
            ends = [index] + ([] if leaf.y is None else [leaf.y])
            lowest.append([float(xp.min(values)) for values in ends])
            highest.append([float(xp.max(values)) for values in ends])
        merged = device.fetch(merge_r(factors)) if factors else np.zeros((2 * p, 2 * p))
    return boxed(
        Part(
            merged,
            _ends(np.array(lowest).min(axis=0) if lowest else np.array([]), math.inf),
            _ends(np.array(highest).max(axis=0) if highest else np.array([]), -math.inf),
            n_rows,
            n_active,
            found,
        )
    )


def _leaf_rows(leaf: Leaf, job: Job, model: IndexModel, theta: Array) -> tuple[Array, Array, Finding]:
    """Rows [G, F*] of a leaf, (m, 2p), its indices, (m,), and what was found in it."""
    xp = array_namespace(leaf.x)
    rows, finding = matrix_rows(leaf, job)
    adjoints = rows[:, :-1]
    if not leaf.counts:
        return xp.concat([adjoints, adjoints], axis=1), adjoints[:, 0], finding
    with naming_rows(leaf):
        gradient = leaf.weighted(model.index_gradient(theta, leaf.x) / model.degree)
        return xp.concat([gradient, adjoints], axis=1), model.index(theta, leaf.x), finding


def _ends(found: np.ndarray, without: float) -> tuple[float, float]:
    """Ends of the index and of the labels, `without` where a block has none."""
    filled = [*map(float, found), without, without]
    return filled[0], filled[1]
