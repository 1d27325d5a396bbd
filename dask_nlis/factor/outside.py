"""Rows of another matrix beside a factor: whether they may be compared, and how much of them it has never seen."""

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis.device import choose
from dask_nlis.errors import InputError, MatrixMismatchError
from dask_nlis.kernels.complement import outside_share
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, map_blocks
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tall import one_a_row
from dask_nlis.matrix.tasks import matrix_rows, row_values

Array = Any


def difference(a: Sequence[str], b: Sequence[str]) -> str:
    """How two lists of column names differ, in words; nothing where they are equal."""
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} columns"
    apart = [pair for pair in zip(a, b, strict=True) if pair[0] != pair[1]]
    return "columns {!r} and {!r}".format(*apart[0]) if apart else ""


def check_comparable(matrix: TallMatrix, columns: Sequence[str], rule_token: str) -> None:
    """Raise unless the rows of a matrix were made as those behind a factor: the same columns, problem and theta."""
    apart = difference(matrix.columns, columns)
    if apart:
        raise InputError(f"A and the factor have {apart}; give the factor of a matrix with the same columns")
    if matrix.rule_token != rule_token:
        raise MatrixMismatchError(
            "the factor belongs to a matrix with another problem or theta; make both matrices with the same ones"
        )


def lazy_outside(matrix: TallMatrix, outward: np.ndarray) -> da.Array:
    """Share of each squared row norm along the directions `outward` (p, k), as a lazy Dask array (n,)."""
    lazy = map_blocks(matrix, outside_block, "nlis-score", meta=np.empty((0, 0)), job=matrix.job, outward=outward)
    return one_a_row(matrix, lazy)


@on_device
def outside_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    outward: np.ndarray,
) -> np.ndarray:
    """Outside share of the rows of one block, (m,)."""
    device = choose(job.device)
    target = device.put(outward)

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        rows, finding = matrix_rows(leaf, job)
        return outside_share(rows, target, job.rule.each), finding

    return row_values(x, y, weight, start, job, device, values)
