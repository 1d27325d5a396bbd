"""Leverage and influence of a network's rows by activation pattern: quadratic forms of short rows, or slices of W.

For rows of one pattern the squared norm of F W is v' A v + 2 f(0) q' v + f(0)^2 w' w with one small matrix A = sum_j,k
s_j s_k L_j' W W' L_k, and v' A v where rows have no border, as the gradients psi of influence |W' psi|: n w^2
multiplications in place of n p^2. It squares the condition, as a Gram matrix does, and is used where one Gram matrix was
enough. Otherwise the rows of F W are made from slices of W, to eps kappa.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_nlis.errors import NonFiniteError
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.patterns import batches, pair_slopes, pairs, row_forms, windows, worth_a_form
from dask_nlis.matrix.grouping import Grouped, Grouping
from dask_nlis.matrix.patterns import Units
from dask_nlis.matrix.sliced import multiplied, sliced

#: Whitener and correction of a factor.
Whitener = tuple[np.ndarray, np.ndarray | None]


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
    last = narrow[-1] if units.bordered else np.zeros(narrow.shape[1])
    return Form(inner.reshape(len(j), w * w), parts @ last, float(last @ last))


def forms_of(wanted: Sequence[tuple[Units, np.ndarray] | None]) -> list[Form | None]:
    """Several forms at once, of units and whitener each; None where none is wanted."""
    return [None if each is None else form_of(*each) for each in wanted]


def pattern_leverage(
    grouped: Grouped | None, whitener: Whitener, form: Form | None, tolerance: float, start: int
) -> np.ndarray | None:
    """Leverage of the rows of one block, (m,); None where it is not by pattern, or not finite: form the rows then."""
    out = _squares(grouped, whitener, form)
    if out is None:
        return None
    if out.min(initial=0.0) < -tolerance:
        raise NonFiniteError(
            f"leverage {out.min():.6g} of row {start + int(np.argmin(out))} is negative: the factor is not one of "
            "this matrix; factorize again"
        )
    return np.maximum(out, 0.0)


def pattern_lengths(grouped: Grouped | None, whitener: Whitener, form: Form | None) -> np.ndarray | None:
    """sqrt(psi' W W' psi) of the gradients of one block, (m,); None as in `pattern_leverage`."""
    out = _squares(grouped, whitener, form)
    return None if out is None else np.sqrt(np.maximum(out, 0.0))  # rounding may bring a form below 0


def _squares(grouped: Grouped | None, whitener: Whitener, form: Form | None) -> np.ndarray | None:
    """Squared norms of the rows times the whitener, (m,): as forms, or from slices where there is no form."""
    if grouped is None or grouped.groups is None:
        return None
    with np.errstate(all="ignore"):
        out = _of_groups(grouped.groups, whitener, form)
    return out if np.isfinite(out).all() else None


def _of_groups(groups: Grouping, whitener: Whitener, form: Form | None) -> np.ndarray:
    first, correction = whitener
    units, out, narrow = groups.units, np.zeros(len(groups.x)), groups.units.narrowed(first)
    if form is not None:
        worth = worth_a_form(groups.sizes, len(units.a), units.width, *narrow.shape)
        add_forms(out, groups.only(worth), form)
        for place, rows in multiplied(groups.only(~worth), narrow):
            out[place] = squared_row_norms(rows)
        return out
    for place, rows in sliced(groups, narrow, 256):
        out[place] = squared_row_norms(rows if correction is None else rows @ correction)
    return out


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
