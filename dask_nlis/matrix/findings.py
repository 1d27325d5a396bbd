"""What a task finds wrong with the rows of its block, added up over the blocks and said in one line."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.errors import InputError, NonFiniteError

#: Columns that are not features, in a Finding.
Y, WEIGHT, ROW, LABEL = -1, -2, -3, -4

#: Values of y that a message names.
NAMED = 5


class Finding(NamedTuple):
    """Cells of some rows that are not finite or not allowed: how many rows, the first (global) row, its column.

    With them the rows dropped and, for labels that the loss does not allow, what they are, a remedy, and some of them,
    the first first; for rows that a user's function spoils, its name. For rows that are integrals: the most nodes that
    one took, and the largest identity residual.
    """

    n_bad: int = 0
    row: int = -1
    column: int = 0
    n_dropped: int = 0
    fault: tuple[str, str] = ("", "")
    values: tuple[float, ...] = ()
    nodes: int = 0
    residual: float = 0.0

    def plus(self, other: "Finding") -> "Finding":
        """Findings of two sets of rows together."""
        known = sorted((f for f in (self, other) if f.n_bad), key=lambda f: f.row)
        first = known[0] if known else self
        values = tuple(dict.fromkeys(value for f in known for value in f.values))[:NAMED]
        return Finding(
            self.n_bad + other.n_bad,
            first.row,
            first.column,
            self.n_dropped + other.n_dropped,
            first.fault,
            values if first.column == LABEL else (),
            max(self.nodes, other.nodes),
            max(self.residual, other.residual),
        )


def check_finite(finding: Finding, names: Sequence[str], scope: str = "in its block") -> None:
    """Raise an error naming the first row, its column and the number of rows that are not as they must be, if any.

    NonFiniteError for cells, weights and rows that are not finite, InputError for labels that the loss does not allow.
    """
    if not finding.n_bad:
        return
    count = f"{finding.n_bad:,} row{'s' if finding.n_bad > 1 else ''} {scope}"
    if finding.column == ROW and finding.fault[0]:
        raise NonFiniteError(
            f"{finding.fault[0]} returned NaN at row {finding.row}, where X and y are finite ({count}); return numbers, or "
            "leave such rows out"
        )
    if finding.column == ROW:
        raise NonFiniteError(
            f"X, finite at row {finding.row}, overflows in the model ({count}); bring theta, y, sample_weight or the columns to smaller units"
        )
    if finding.column == WEIGHT:
        raise NonFiniteError(
            f"sample_weight is negative or not finite, or an integer beyond 2^53, at row {finding.row} ({count}); give weights >= 0"
        )
    if finding.column == LABEL:
        first, *others = (f"{value:g}" for value in finding.values)
        more = f", also {', '.join(others)}" if others else ""
        raise InputError(
            f"y holds labels {finding.fault[0]} first at row {finding.row} (value {first}{more}; {count}); "
            f"{finding.fault[1]}"
        )
    where = "y" if finding.column == Y else f"X, column {finding.column} ({names[finding.column]!r}),"
    raise NonFiniteError(
        f"{where} is not finite, or too large an integer for float64, at row {finding.row} ({count}); "
        "clean it or give missing='drop'"
    )


def overflow(rows: Any, start: int, each: int = 1) -> Finding:
    """Report rows (or values of rows), on any device, that are not finite though their input was; `each` a data row."""
    xp = array_namespace(rows)
    bad = ~xp.isfinite(rows) if rows.ndim == 1 else ~xp.all(xp.isfinite(rows), axis=1)
    if not bool(xp.any(bad)):
        return Finding()
    if each > 1:
        bad = xp.any(xp.reshape(bad, (-1, each)), axis=1)
    return Finding(int(xp.count_nonzero(bad)), start + int(xp.argmax(xp.astype(bad, xp.int8))), ROW)
