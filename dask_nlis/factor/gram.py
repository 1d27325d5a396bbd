"""The Gram matrix of a tall matrix, in float64 over sub-blocks of about a megabyte, at any scale of the columns.

Columns whose squares would leave float64's range are divided by powers of two first; partial sums carry the
exponents, so that 1e200 and 1e-310 are columns as any other. Ordinary columns cost nothing extra.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.checkpoints import NOWHERE, Checkpoints, kinds_of
from dask_nlis.device import Device, choose, like
from dask_nlis.factor.patterns import HIGHEST, LOWEST, pattern_gram
from dask_nlis.factor.sums import read_sum
from dask_nlis.kernels.products import lower_gram, mirrored, times, triangular
from dask_nlis.matrix import Finding, Job, TallMatrix, boxed, leaves
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.grouping import Grouped, Sought, groupings
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.patterns import Units, units_of
from dask_nlis.matrix.tasks import matrix_rows, room_for

Array = Any

#: Exponent of a column without entries, below that of any other.
_EMPTY = -(2**20)


class Gram(NamedTuple):
    """Gram matrix of some rows whose columns were divided by 2^exponents, and what was wrong with them."""

    values: np.ndarray  # (p, p)
    exponents: np.ndarray  # (p,)
    n_rows: int
    finding: Finding

    def plus(self, other: "Gram") -> "Gram":
        """Gram matrix of both sets of rows, at the larger exponent of each column."""
        exponents = np.maximum(self.exponents, other.exponents)
        values = self._at(exponents) + other._at(exponents)
        return Gram(values, exponents, self.n_rows + other.n_rows, self.finding.plus(other.finding))

    def _at(self, exponents: np.ndarray) -> np.ndarray:
        down = self.exponents - exponents
        return np.ldexp(self.values, down[:, None] + down) if down.any() else self.values


def read_gram(
    matrix: TallMatrix,
    whitener: np.ndarray | None = None,
    *,
    narrow: Units | None = None,
    saved: Checkpoints = NOWHERE,
) -> Gram:
    """One read of X: the Gram matrix of F, or of F W when a whitener is given.

    With the units of a network it is made by activation pattern where that pays, and that of F on the basis alone.
    """
    width = _width(matrix.shape[1], whitener, narrow)
    kinds = kinds_of(Gram, Finding)
    found: Gram = read_sum(matrix, gram_block, width, saved, kinds, whitener=whitener, narrow=narrow is not None)
    return found


def _width(p: int, whitener: np.ndarray | None, units: Units | None) -> int:
    return whitener.shape[1] if whitener is not None else p if units is None else len(units.basis)


class Grams(NamedTuple):
    """Gram matrices of several matrices of the same rows."""

    parts: tuple[Gram, ...]

    @property
    def finding(self) -> Finding:
        """What was wrong with the rows, of the first matrix that found any fault."""
        return next((part.finding for part in self.parts if part.finding.n_bad), self.parts[0].finding)

    def plus(self, other: "Grams") -> "Grams":
        """Gram matrices of both sets of rows."""
        return Grams(tuple(a.plus(b) for a, b in zip(self.parts, other.parts, strict=True)))


def read_grams(
    matrices: Sequence[TallMatrix],
    whiteners: Sequence[np.ndarray | None],
    units: Sequence[Units | None],
    saved: Checkpoints = NOWHERE,
) -> tuple[Gram, ...]:
    """One read of X: for each of these matrices of the same rows what `read_gram` gives."""
    shapes = [_width(matrix.shape[1], w, u) for matrix, w, u in zip(matrices, whiteners, units, strict=True)]
    found: Grams = read_sum(
        matrices[0],
        grams_block,
        math.ceil(math.hypot(*shapes)),
        saved,
        kinds_of(Gram, Grams, Finding),
        jobs=tuple(matrix.job for matrix in matrices),
        whiteners=list(whiteners),
        narrow=tuple(each is not None for each in units),
    )
    return found.parts


@on_device
def grams_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    jobs: Sequence[Job],
    whiteners: Sequence[np.ndarray | None],
    narrow: Sequence[bool],
) -> np.ndarray:
    """Gram matrices of one block by the rule of each job, as Grams in a 1 x 1 object array; grouped by pattern once."""
    device = choose(job.device)
    sought = [Sought(each) if basis else None for each, basis in zip(jobs, narrow, strict=True)]
    groups = groupings(x, y, weight, int(start), sought, device)
    wanted = zip(jobs, whiteners, narrow, groups, strict=True)
    blocks = [
        gram_block(x, y, weight, start, job=each, whitener=w, narrow=basis, grouped=found)
        for each, w, basis, found in wanted
    ]
    return boxed(Grams(tuple(block[0, 0] for block in blocks)))


@on_device
def gram_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: np.ndarray | None = None,
    narrow: bool = False,
    grouped: Grouped | None = None,
) -> np.ndarray:
    """Gram matrix of one block, as a Gram in a 1 x 1 object array; sub-block by sub-block on the device.

    `narrow` asks for the columns of the basis alone; on the CPU they are not formed but where patterns are rare. The block
    may have been `grouped` by pattern before.
    """
    device = choose(job.device)
    units = units_of(job.rule, y is not None) if narrow else None
    if units is not None:
        if grouped is None:
            (grouped,) = groupings(x, y, weight, int(start), [Sought(job)], device)
        with np.errstate(all="ignore"):
            by_pattern = None if grouped is None else pattern_gram(grouped, whitener)
        if by_pattern is not None:
            values, finding = by_pattern
            exponents = np.where(np.diagonal(values) > 0, 0, _EMPTY)
            return boxed(Gram(values, exponents, len(x), finding))
    p = _width(job.n_matrix_columns, whitener, units)
    target = None if whitener is None else triangular(device.put(whitener))
    basis = None if units is None or whitener is not None else units.basis
    room = room_for(len(x), job, device, reducing=True)
    total = Gram(np.zeros((p, p)), np.full(p, _EMPTY), 0, Finding())
    there: Array | None = None  # sum that stays on a device
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device, reducing=True):
            rows, finding = matrix_rows(leaf, job, room)
            if basis is not None:
                xp = array_namespace(rows)
                rows = xp.take(rows, xp.asarray(basis), axis=1)
            whitened = rows if target is None else times(rows, target, room)
            part = None if device.kind == "cpu" else _ordinary_gram(whitened)
            if part is not None:
                there = part if there is None else there + part
                total = total._replace(n_rows=total.n_rows + rows.shape[0], finding=total.finding.plus(finding))
                continue
            values, exponents = scaled_gram(whitened, device)
            if not np.isfinite(np.diagonal(values)).all():  # NaN or an infinity in a row; the rows say where
                finding = finding.plus(
                    overflow(matrix_rows(leaf, job)[0], int(start) + leaf.place.start, job.rule.each)
                )
            total = total.plus(Gram(values, exponents, rows.shape[0], finding))
    total = total._replace(values=mirrored(total.values))
    if there is not None:
        values = device.fetch(there)
        total = total.plus(Gram(values, np.where(np.diagonal(values) > 0, 0, _EMPTY), 0, Finding()))
    return boxed(total)


def _ordinary_gram(rows: Array) -> Array | None:
    """Gram matrix (p, p) where the rows lie, if no column that has entries needs an exponent; else None."""
    xp = array_namespace(rows)
    values = lower_gram(rows)
    squares = xp.linalg.diagonal(values)
    ordinary = (squares > LOWEST) & (squares < HIGHEST)
    if bool(xp.all(ordinary)) or bool(xp.all(ordinary | (xp.max(xp.abs(rows), axis=0) == 0))):
        return values
    return None


def scaled_gram(rows: Array, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Gram matrix of the columns divided by 2^exponents, and the exponents, on the host: (m, p) -> (p, p), (p,).

    The lower triangle alone counts. Its diagonal tells whether all of it is finite.
    """
    values = device.fetch(lower_gram(rows))
    squares = np.diagonal(values)
    exponents = np.zeros(len(squares), dtype=np.int64)
    ordinary = (squares > LOWEST) & (squares < HIGHEST)
    if ordinary.all():
        return values, exponents
    xp = array_namespace(rows)
    largest = device.fetch(xp.max(xp.abs(rows), axis=0))
    if not np.isfinite(largest).all():
        return np.full_like(values, np.nan), exponents
    empty = largest == 0
    if not (ordinary | empty).all():
        _, exponents = np.frexp(largest)
        exponents = np.maximum(exponents.astype(np.int64), -1023)  # 2^1023 is the largest power there is
        values = device.fetch(lower_gram(rows * like(np.ldexp(1.0, -exponents), rows)[None, :]))
    return values, np.where(empty, _EMPTY, exponents)
