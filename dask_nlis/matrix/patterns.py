"""Rows of a network of rectified units, by activation pattern: short rows in place of rows of p columns.

With z_j = <b_j, x> and s_j = r'(z_j), which is one of two numbers, the row is c [s_j z_j ; a_j s_j x] for each unit,
c one number, and of a dual row f(0) after them: one linear map of c x for all rows whose units are active alike. The column
of a_j is that of x's part times b_j / a_j, so it is left out; where a_j is 0 its unit has no other column, and c z_j
stands among the short rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_nlis.activations import Identity, LeakyRelu, Relu
from dask_nlis.matrix.rules import Dual, Rule, Tangent
from dask_nlis.models import ReluNetwork
from dask_nlis.problem import has_closed_form

#: Sizes of weights, other than 0, between which neither their products nor their ratios leave float64's range.
SMALLEST, LARGEST = 2.0**-200, 2.0**200


class Units(NamedTuple):
    """The units of a network at theta: outer weights a (m,), inner weights b (m, q), slope of an inactive unit.

    `bordered` rows have a last column, f(0), besides those of the units: dual rows have, tangent rows have not. The basis B
    is the columns of the matrix F without those of a_j where a_j is not 0, and of b_j where it is: F = B T.
    """

    a: np.ndarray
    b: np.ndarray
    left: float
    bordered: bool = True

    @property
    def width(self) -> int:
        """Length of a short row: q, and one for each unit with a_j = 0."""
        return self.b.shape[1] + int((self.a == 0).sum())

    @property
    def basis(self) -> np.ndarray:
        """Columns of the matrix that form the basis, the last one of bordered rows included; ascending."""
        size = 1 + self.b.shape[1]
        parts = [j * size + (np.arange(1, size) if a else np.zeros(1, dtype=np.int64)) for j, a in enumerate(self.a)]
        return np.concatenate([*parts, np.full(int(self.bordered), len(self.a) * size)])

    def places(self) -> Iterator[tuple[slice, slice, float]]:
        """For each unit: where it is in the basis, where in a short row, and what the short row is multiplied by."""
        q, first, extra = self.b.shape[1], 0, self.b.shape[1]
        for a in self.a:
            if a:
                yield slice(first, first + q), slice(0, q), float(a)
                first += q
            else:
                yield slice(first, first + 1), slice(extra, extra + 1), 1.0
                first, extra = first + 1, extra + 1

    def widening(self) -> np.ndarray:
        """T (k, p), of which a basis of k columns makes all columns."""
        basis, size = self.basis, 1 + self.b.shape[1]
        t = np.zeros((len(basis), len(self.a) * size + self.bordered))
        t[np.arange(len(basis)), basis] = 1.0
        for j, (place, _, _) in enumerate(self.places()):
            if self.a[j]:
                t[place, j * size] = self.b[j] / self.a[j]
        return t

    def narrowed(self, whitener: np.ndarray) -> np.ndarray:
        """T W: (p, rank) -> (k, rank), so that F W = B (T W)."""
        out = whitener[self.basis]
        for j, (place, _, _) in enumerate(self.places()):
            if self.a[j]:
                out[place] += (self.b[j] / self.a[j])[:, None] * whitener[j * (1 + self.b.shape[1])]
        return out

    def split(self, narrow: np.ndarray) -> np.ndarray:
        """Rows of a matrix on the basis (k, rank) that a short row meets in each unit, times a_j: (m, width, rank)."""
        out = np.zeros((len(self.a), self.width, narrow.shape[1]))
        for j, (place, inner, factor) in enumerate(self.places()):
            np.multiply(narrow[place], factor, out=out[j, inner])
        return out

    def short(self, x: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Short rows of data rows x (n, d), each times its factor (n,): (n, width)."""
        d, q, zero = x.shape[1], self.b.shape[1], self.a == 0
        if d == self.width:
            return x * factor[:, None]
        rows = np.ones((len(x), self.width))  # the bias, and what is written over
        rows[:, :d] = x
        rows[:, q:] = rows[:, :q] @ self.b[zero].T
        rows *= factor[:, None]
        return rows

    def rows(self, short: np.ndarray, slopes: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Rows in the basis, formed: (n, width), slopes (n, m), last (n,) if bordered -> (n, k)."""
        out = np.empty((len(short), len(self.basis)))
        for j, (place, inner, factor) in enumerate(self.places()):
            np.multiply(short[:, inner], (factor * slopes[:, j])[:, None], out=out[:, place])
        if self.bordered:
            out[:, -1] = last
        return out


def units_of(rule: Rule, labelled: bool) -> Units | None:
    """Units of the network behind a dual or tangent matrix; None where its rows are no linear map by pattern.

    They are for rectified or leaky units with the activation on their sum (or none on each), unless weights are
    so large or small that their ratios could leave the range of float64.
    """
    if not isinstance(rule, Dual | Tangent) or not isinstance(rule.problem.model, ReluNetwork):
        return None
    model, bordered = rule.problem.model, isinstance(rule, Dual)
    summed = not model.per_unit or isinstance(model.activation, Identity)
    if not summed or not isinstance(model.unit, Relu | LeakyRelu):
        return None
    if bordered and not has_closed_form(rule.problem, labelled):
        return None
    a, b = model.unpack(np.asarray(rule.theta)).values()
    used = np.abs(np.concatenate([a, b.max(axis=1), b.min(axis=1)]))
    used = used[used > 0]
    if not ((used > SMALLEST) & (used < LARGEST)).all():
        return None
    return Units(a, b, model.unit.slope if isinstance(model.unit, LeakyRelu) else 0.0, bordered)
