"""Leverage of a network's dual rows by activation pattern: a quadratic form of short rows, or a slice of the whitener.

For rows of one pattern the squared norm of F W is v' A v + 2 f(0) q' v + f(0)^2 w' w with one small matrix A = sum_j,k
s_j s_k L_j' W W' L_k: n w^2 multiplications in place of n p^2. It squares the condition, as a Gram matrix does, and is
used where one Gram matrix was enough. Otherwise the rows of F W are made from slices of W, to eps kappa.
"""

from typing import NamedTuple

import numpy as np

from dask_nlis.device import Device
from dask_nlis.errors import NonFiniteError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.patterns import batches, pair_slopes, pairs, row_forms, windows, worth_a_form
from dask_nlis.matrix import Finding, Job
from dask_nlis.matrix.patterns import Grouping, Units, grouping
from dask_nlis.matrix.sliced import multiplied, sliced


class Form(NamedTuple):
    """W W' by pairs of units: for j <= k the matrix A is summed from (m (m + 1) / 2, w^2), q from (m, w), and w' w."""

    inner: np.ndarray
    border: np.ndarray
    corner: float


def form_of(units: Units, whitener: np.ndarray) -> Form:
    """Quadratic form of short rows that gives the leverage, from the whitener (p, rank). O(p^2 rank)."""
    narrow = units.narrowed(whitener)
    parts, w, m = units.split(narrow), units.width, len(units.a)
    j, k = pairs(m)
    flat = parts.reshape(m * w, -1)
    products = (flat @ flat.T).reshape(m, w, m, w)
    # Both triangles of A at once: a form does not see the order.
    inner = products[j, :, k, :] * np.where(j == k, 1.0, 2.0)[:, None, None]
    return Form(inner.reshape(len(j), w * w), parts @ narrow[-1], float(narrow[-1] @ narrow[-1]))


def pattern_leverage(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    job: Job,
    device: Device,
    units: Units,
    whitener: tuple[np.ndarray, np.ndarray | None],
    form: Form | None,
    tolerance: float,
) -> tuple[np.ndarray, Finding] | None:
    """Leverage of one block, (m,), and what was found in it; None where a row is not finite: form the rows then."""
    groups, finding = grouping(x, y, weight, start, job, device, units)
    if groups is None:
        return None
    out = np.zeros(len(x))
    if form is not None:
        narrow = units.narrowed(whitener[0])
        worth = worth_a_form(groups.sizes, len(units.a), units.width, *narrow.shape)
        add_forms(out, groups.only(worth), form)
        for place, rows in multiplied(groups.only(~worth), narrow):
            out[place] = squared_row_norms(rows)
        if out.min(initial=0.0) < -tolerance:
            raise NonFiniteError(
                f"leverage {out.min():.6g} of row {start + int(np.argmin(out))} is negative: the factor is not one of "
                "this matrix; factorize again"
            )
        return np.maximum(out, 0.0), finding
    first, correction = whitener
    narrow = units.narrowed(first)
    for place, rows in sliced(groups, narrow, 256):
        out[place] = squared_row_norms(rows if correction is None else rows @ correction)
    return out, finding


def add_forms(out: np.ndarray, groups: Grouping, form: Form) -> None:
    """Write the form of each row of the groups into out (n,)."""
    w = groups.units.width
    bordered = bool(form.border.any() and groups.last[groups.order].any())
    for batch in batches(len(groups.slopes), w * w):
        edges, slopes = groups.edges[batch.start : batch.stop + 1], groups.slopes[batch]
        matrices = (pair_slopes(slopes) @ form.inner).reshape(-1, w, w)
        borders = slopes @ form.border
        for first, end, members in windows(edges, w):
            rows, place = groups.short(first, end), groups.order[first:end]
            last = groups.last[place]
            values = row_forms(rows, matrices, members)
            if bordered:
                beside = np.concatenate([rows[part] @ borders[group] for group, part in members])
                values += last * (2 * beside + last * form.corner)
            else:
                values += last * last * form.corner
            out[place] = values
