"""The first pass over a table: which columns make up what, and what they hold."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.adapters.cells import CATEGORY, NUMBER, Cells, Seen, as_kind
from dask_nlis.adapters.dataframes import choose
from dask_nlis.adapters.pieces import Source
from dask_nlis.errors import InputError, InputTypeError, NonFiniteError
from dask_nlis.intake import column_there, moments_of, together

#: Characters of the name of a feature.
_LONGEST_NAME = 1_000

_REMEDY = "name it in na where it stands for a missing cell, or the column in categorical to take all of it as text"


class Asked(NamedTuple):
    """What is made of which columns."""

    features: tuple[str, ...]
    target: str | None
    sample_weight: str | None
    categorical: tuple[str, ...]
    na: tuple[str, ...]

    @property
    def beside(self) -> dict[str, str]:
        """Columns that become arrays of their own, and the names of these."""
        pairs = ((self.target, "y"), (self.sample_weight, "weight"))
        return {column: name for column, name in pairs if column is not None}

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.features, *self.beside)


def asked_for(
    source: Source, target: Any, sample_weight: Any, columns: Any, exclude: Any, categorical: Any, na: Any
) -> Asked:
    """Which columns make up X, y and weights; raises where one is not there."""
    listed = {"exclude": exclude, "categorical": categorical, "na": na}
    lists = {name: _texts(name, value) for name, value in listed.items()}
    for argument in ("exclude", "categorical"):
        for name in lists[argument]:
            if name or name not in source.names:
                column_there(argument, name, source.names, "table")
    features = (
        choose(columns, target, sample_weight, [*source.names], "columns", "table") if columns is not None else None
    )
    if features is None:
        for each, name in (("target", target), ("sample_weight", sample_weight)):
            if name is not None:
                column_there(each, name, source.names, "table")
        kept = [name for name in source.names if name not in lists["exclude"] or name in (target, sample_weight)]
        features = choose(None, target, sample_weight, kept, "columns", "table")
    else:
        features = tuple(name for name in features if name not in lists["exclude"])
        if not features:
            raise InputError("columns are all among exclude; leave one at least")
    long = next((name for name in features if len(name) > _LONGEST_NAME), None)
    if long is not None:
        raise InputError(
            f"table has a column with a name of {len(long):,} characters; rename it, or leave it out (exclude)"
        )
    wrong = next((name for name in lists["categorical"] if name not in features), None)
    if wrong is not None:
        raise InputError(f"categorical names {wrong[:40]!r}, which is no column of X; leave it out")
    return Asked(features, target, sample_weight, lists["categorical"], lists["na"])


def _texts(argument: str, value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give text, or a list of texts")
    return tuple(given)


class Survey(NamedTuple):
    """What the first pass found."""

    n_rows: int
    n_incomplete: int  # rows with a missing cell
    first_missing: tuple[str, int] | None  # column and row
    seen: dict[str, Seen]
    moments: tuple[np.ndarray, np.ndarray] | None  # means and deviations of the features without words, in order


def surveyed(
    source: Source, asked: Asked, max_categories: int, standardize: bool, told: Callable[[int], None]
) -> Survey:
    """Read the table once; `told` is told the bytes that are read by then."""
    seen = {name: Seen(as_words=name in asked.categorical, typed=source.typed) for name in asked.used}
    n_rows = n_incomplete = 0
    first: tuple[str, int] | None = None
    moments = []
    for piece in source.pieces(asked.used, asked.categorical, asked.na):
        for name, cells in piece.cells.items():
            held = seen[name]
            held.add(cells, piece.first)
            if name in asked.beside and held.kind == CATEGORY and not held.is_mixed:  # words of labels are not counted
                _refuse_words(asked, name, held, cells, piece.first)
            held.check("table", name, max_categories, _REMEDY)
        incomplete = {name: cells.missing for name, cells in piece.cells.items()}
        rows = np.logical_or.reduce(list(incomplete.values()))
        if first is None and rows.any():
            row = int(np.argmax(rows))
            first = next(name for name in asked.used if incomplete[name][row]), piece.first + row
        if standardize and not rows.all():
            numbers = [as_kind(piece.cells[name], NUMBER) for name in asked.features if seen[name].kind != CATEGORY]
            moments.append(
                moments_of(np.stack([cells.values[~rows] for cells in numbers], axis=1)) if numbers else None
            )
        n_rows, n_incomplete = n_rows + piece.n_rows, n_incomplete + int(rows.sum())
        told(piece.read)
    known = [each for each in moments if each is not None]
    return Survey(n_rows, n_incomplete, first, seen, together(known) if known else None)


def _refuse_words(asked: Asked, name: str, seen: Seen, cells: Cells, row: int) -> None:
    role = "target" if name == asked.target else "sample_weight"
    held = int(np.argmax(cells.values >= 0))
    at, word = seen.first_word or (row + held, cells.words[cells.values[held]])
    raise InputTypeError(
        f"{role}={name[:40]!r} holds {str(word)[:40]!r} at row {at}, no number; give a column of numbers, or write labels as 0 and 1"
    )


def check_rows(survey: Survey, missing: str) -> None:
    """Raise where there are no rows to write, or rows that must not be left out."""
    if not survey.n_rows:
        raise InputError("table has no rows; give one with rows")
    if survey.first_missing is not None and missing == "raise":
        name, row = survey.first_missing
        raise NonFiniteError(
            f"table has {survey.n_incomplete:,} of {survey.n_rows:,} rows with a missing or infinite cell, the first in column "
            f"{name[:40]!r} at row {row}; fill it in, or give missing='drop' to leave such rows out"
        )
    if survey.n_incomplete == survey.n_rows:
        raise NonFiniteError(
            f"table has a missing cell in each of its {survey.n_rows:,} rows; leave columns out (exclude)"
        )
