"""The sketch of a tall matrix: S F with some ten rows a column, added up over the blocks in one read."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.checkpoints import NOWHERE, Checkpoints, kinds_of
from dask_nlis.device import choose
from dask_nlis.factor.sums import check_finite_factor, read_sum
from dask_nlis.kernels.linalg import Spectrum, r_factor
from dask_nlis.kernels.sketch import BANDS, STREAMS, entries, sketch_size, sketched, sketched_multiples
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, boxed, leaves
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.grouping import Sought, parts
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.patterns import Units, units_of
from dask_nlis.matrix.tasks import matrix_rows

Array = Any


class Sketch(NamedTuple):
    """Sketches of some rows, one a stream, and what was wrong with the rows."""

    values: np.ndarray  # (streams, size, p)
    finding: Finding

    def plus(self, other: "Sketch") -> "Sketch":
        """Sketches of both sets of rows."""
        return Sketch(self.values + other.values, self.finding.plus(other.finding))


def read_sketch(
    matrix: TallMatrix, n_streams: int, units: Units | None = None, saved: Checkpoints = NOWHERE
) -> tuple[list[np.ndarray], Finding]:
    """One read of X: the R factors of `n_streams` independent sketches of F, each an estimate of that of F.

    With the units of a network the columns are those of the basis.
    """
    p = matrix.shape[1] if units is None else len(units.basis)
    size = sketch_size(p)
    width = math.isqrt(n_streams * size * p)
    found: Sketch = read_sum(
        matrix,
        sketch_block,
        width,
        saved,
        kinds_of(Sketch, Finding),
        streams=STREAMS[:n_streams],
        size=size,
        narrow=units is not None,
    )
    factors = [r_factor(values) / math.sqrt(BANDS) for values in found.values]
    for r in factors:
        check_finite_factor(r)
    return factors, found.finding


@on_device
def sketch_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    streams: tuple[int, ...],
    size: int,
    narrow: bool = False,
) -> np.ndarray:
    """Sketches of one block, as a Sketch in a 1 x 1 object array; sub-block by sub-block on the device.

    `narrow` asks for the columns of the basis alone: on the CPU unit by unit, without forming rows.
    """
    device = choose(job.device)
    units = units_of(job.rule, y is not None) if narrow else None
    by_unit = units is not None and device.kind == "cpu"
    total = np.zeros((len(streams), size, job.n_matrix_columns if units is None else len(units.basis)))
    there: dict[int, Any] = {}  # sums that stay on a device
    found = Finding()
    # The sketch of a leaf has `size` rows, so that a leaf has no fewer where its rows are short.
    cut = replace(job, n_matrix_columns=size // 2) if by_unit else job
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), cut, device, reducing=True):
            if units is not None and by_unit:
                found = found.plus(leaf.finding)
                _add_by_unit(total, leaf, job, units, streams)
                continue
            rows, finding = matrix_rows(leaf, job)
            if units is not None:
                xp = array_namespace(rows)
                rows = xp.take(rows, xp.asarray(units.basis), axis=1)
            for k, stream in enumerate(streams):
                part = sketched(rows, *entries(stream, leaf.row, rows.shape[0], size), size)
                if device.kind == "cpu":
                    total[k] += part
                else:
                    there[k] = there[k] + part if k in there else part
            found = found.plus(finding)
        if there:
            total += device.fetch(array_namespace(part).stack(list(there.values())))
        if not np.isfinite(total).all():  # NaN or an infinity in a row, which says where; or a sum too large
            for leaf in leaves(x, y, weight, int(start), job, device, reducing=True):
                rows = matrix_rows(leaf, job)[0]
                found = found.plus(overflow(rows, int(start) + leaf.place.start, job.rule.each))
    return boxed(Sketch(total, found))


def _add_by_unit(total: np.ndarray, leaf: Leaf, job: Job, units: Units, streams: tuple[int, ...]) -> None:
    """Add the sketches of a leaf to total (streams, size, columns of the basis), a unit at a time."""
    if not leaf.counts:
        return
    active, ((factor, last),) = parts(leaf, units, [Sought(job)])
    short, slopes = units.short(leaf.x, factor), np.where(active, 1.0, units.left)
    size = total.shape[1]
    for sketch, stream in zip(total, streams, strict=True):
        nonzeros = entries(stream, leaf.row, len(short), size)
        for j, (place, inner, times) in enumerate(units.places()):
            sketch[:, place] += sketched_multiples(short[:, inner], times * slopes[:, j], *nonzeros, size)
        if units.bordered:
            sketch[:, -1:] += sketched(np.asarray(last)[:, None], *nonzeros, size)


def measured_beta(first: Spectrum, second: np.ndarray) -> float:
    """Smallest ratio of sketched to exact leverage, each divided by its sum: measured, less three standard errors.

    With G the Gram matrix of F W, W whitening the first sketch, the ratio lies between the extreme eigenvalues of
    G divided by their mean. The second sketch stands for F here: in any direction its squared length is off by a
    standard error of at most sqrt(2 / size) (Nelson & Nguyen 2013), in the mean over r
    directions by 1 / sqrt(r) of that.
    """
    basis = first.vectors[:, : first.rank] / first.singular_values[: first.rank]
    lengths = np.linalg.svd(np.ldexp(second, -first.exponents) @ basis, compute_uv=False) ** 2
    error = math.sqrt(2 / sketch_size(second.shape[1]))
    surely = (1 + 3 * error) * (1 + 3 * error / math.sqrt(first.rank))
    return float(lengths[-1] / lengths.mean() / surely)
