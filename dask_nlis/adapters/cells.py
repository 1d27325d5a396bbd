"""The cells of a column: numbers, true and false, or words; and what a column comes to, part by part."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import LARGEST_INTEGER, number_of

#: Kinds of a column, as an Encoding names them.
NUMBER, BOOL, CATEGORY = "number", "bool", "category"

_OTHER = "other"

#: Characters of a name and of a value in a message.
_SHOWN = 40


class Cells(NamedTuple):
    """Cells of a column: float64 with NaN where they are missing, or words with None there."""

    kind: str
    values: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Which cells are missing, infinite ones among them."""
        if self.kind == CATEGORY:
            return np.fromiter((value is None for value in self.values), dtype=bool, count=len(self.values))
        return ~np.isfinite(self.values)


def cells_of(argument: str, name: str, column: Any, row: int = 0, *, as_words: bool = False) -> Cells:
    """Cells of a column of pandas, which begins at a row.

    Raises
    ------
    InputTypeError
        If it holds dates, or objects of several kinds; the first cell that is of another kind is named.
    InputError
        If it holds an integer beyond 2**53, unless it is taken as words.
    """
    kind = getattr(column.dtype, "kind", "O")
    if hasattr(column, "cat"):
        names = [str(each) for each in column.cat.categories]
        return Cells(CATEGORY, np.array([*names, None], dtype=object)[column.cat.codes.to_numpy()])
    if kind in "biuf":
        if as_words:
            return Cells(CATEGORY, _words(column))
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind in "iu" and column.dtype.itemsize == 8:
            far = ((column > LARGEST_INTEGER) | (column < -LARGEST_INTEGER)).to_numpy(dtype=bool, na_value=False)
            if far.any():
                at = int(np.argmax(far))
                raise _too_large(argument, name, column.iloc[at], row + at)
        return Cells(BOOL if kind == "b" else NUMBER, values)
    if kind not in "OUTS":
        raise InputTypeError(
            f"{argument} column {name[:_SHOWN]!r} has dtype {str(column.dtype)[:_SHOWN]}; leave it out, or give it as a number, such as "
            "days since a day"
        )
    return _of_objects(argument, name, column, row, as_words)


def _of_objects(argument: str, name: str, column: Any, row: int, as_words: bool) -> Cells:
    missing = column.isna().to_numpy(dtype=bool)
    values = [None if gone else value for value, gone in zip(column.tolist(), missing.tolist(), strict=True)]
    kinds = [None if value is None else _kind(value) for value in values]
    found = dict.fromkeys(kind for kind in kinds if kind is not None)
    if as_words or list(found) == [CATEGORY]:
        return Cells(CATEGORY, _words(column))
    if set(found) <= {NUMBER, BOOL}:
        numbers = np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
        far = next(
            (
                k
                for k, value in enumerate(values)
                if value is not None and _is_whole(value) and abs(value) > LARGEST_INTEGER
            ),
            None,
        )
        if far is not None:
            raise _too_large(argument, name, values[far], row + far)
        return Cells(BOOL if list(found) == [BOOL] else NUMBER, numbers)
    if set(found) == {_OTHER}:
        at = kinds.index(_OTHER)
        raise InputTypeError(
            f"{argument} column {name[:_SHOWN]!r} holds {str(values[at])[:_SHOWN]!r} at row {row + at}, neither number nor text; leave it "
            "out, or make one of it"
        )
    alike = {NUMBER, BOOL} if next(iter(found)) in (NUMBER, BOOL) else {CATEGORY}
    other = next(k for k, kind in enumerate(kinds) if kind is not None and kind not in alike)
    raise InputTypeError(
        f"{argument} column {name[:_SHOWN]!r} holds values of several kinds, the first other one {str(values[other])[:_SHOWN]!r} at row "
        f"{row + other}; give numbers or text alone"
    )


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return CATEGORY
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, int | float | np.number) or type(value).__name__ == "Decimal":
        return NUMBER
    return _OTHER


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _words(column: Any) -> np.ndarray:
    """Cells as text, None where they are missing."""
    missing = column.isna().to_numpy(dtype=bool)
    out = np.empty(len(column), dtype=object)
    out[:] = [None if gone else str(value) for value, gone in zip(column.tolist(), missing.tolist(), strict=True)]
    return out


def _too_large(argument: str, name: str, value: Any, row: int) -> InputError:
    return InputError(
        f"{argument} column {name[:_SHOWN]!r} holds {value} at row {row}, beyond 2**53, where float64 skips integers; leave it out, or "
        "take a constant off"
    )


class Seen:
    """What a column holds as far as it was seen, part by part: the kinds of its cells, and the words.

    With `as_words` all of it is words; where it is `typed` as text, words that look like numbers are words as well, unless
    others do not. Words among numbers are refused.
    """

    def __init__(self, *, as_words: bool = False, typed: bool = False) -> None:
        self.as_words, self.typed = as_words, typed
        self.kinds: set[str] = set()  # of cells that are there and are no words
        self.words: set[str] = set()
        self.first_word: tuple[int, str] | None = None  # that is no number, with its row
        self.looks_like_numbers = False  # some of the words
        self.n_rows = 0

    def add(self, cells: Cells, row: int) -> None:
        """Take in the cells from a row on."""
        self.n_rows = row + len(cells.values)
        if cells.kind != CATEGORY:
            self.kinds |= set() if cells.missing.all() else {cells.kind}
            return
        new = dict.fromkeys(word for word in cells.values.tolist() if word is not None)
        self.words.update(new)
        if self.as_words:
            return
        words = next((word for word in new if number_of(word) is None), None)
        if words is not None and self.first_word is None:
            self.first_word = row + cells.values.tolist().index(words), words
        self.looks_like_numbers |= any(number_of(word) is not None for word in new)

    def join(self, other: "Seen", row: int) -> None:
        """Take in what was seen of the rows from a row on."""
        self.kinds |= other.kinds
        self.words |= other.words
        self.looks_like_numbers |= other.looks_like_numbers
        self.n_rows = row + other.n_rows
        if self.first_word is None and other.first_word is not None:
            self.first_word = row + other.first_word[0], other.first_word[1]

    @property
    def kind(self) -> str:
        """The kind of the column."""
        if self.as_words or self.first_word is not None or (self.typed and self.words):
            return CATEGORY
        return BOOL if self.kinds == {BOOL} and not self.looks_like_numbers else NUMBER

    def check(self, argument: str, name: str, max_categories: int, remedy: str) -> None:
        """Raise InputTypeError where words are among numbers, InputError where there are too many words."""
        if self.first_word is not None and (self.looks_like_numbers or self.kinds):
            row, word = self.first_word
            raise InputTypeError(
                f"{argument} column {name[:_SHOWN]!r} holds {word[:_SHOWN]!r} at row {row} beside numbers; correct it, or {remedy}"
            )
        if self.kind == CATEGORY:
            check_count(argument, name, len(self.words), max_categories, f" in {self.n_rows:,} rows")


def check_count(argument: str, name: str, count: int, max_categories: int, where: str = "") -> None:
    """Raise where a column has too many categories."""
    if count > max_categories:
        raise InputError(
            f"{argument} column {name[:_SHOWN]!r} has {count:,} different values{where}, above max_categories={max_categories}; leave it "
            "out if they are names of rows, or give a larger max_categories"
        )


def as_kind(cells: Cells, kind: str) -> Cells:
    """Cells of a part as the kind that the column has: words that are numbers as such, and what is missing alone as either."""
    if (cells.kind == CATEGORY) == (kind == CATEGORY):
        return cells
    if kind == CATEGORY:
        return Cells(kind, np.full(len(cells.values), None, dtype=object)) if cells.missing.all() else cells
    found = {word: number_of(word) for word in dict.fromkeys(cells.values.tolist()) if word is not None}
    if None in found.values():
        return cells
    return Cells(NUMBER, np.array([found.get(word, np.nan) for word in cells.values.tolist()], dtype=np.float64))


def one_hot(values: np.ndarray, categories: Iterable[str], unknown: Callable[[int], Exception]) -> np.ndarray:
    """A column of 0 and 1 for each category (n, k); NaN in all of them where the word is missing."""
    place = {word: k for k, word in enumerate(categories)}
    codes = np.fromiter(
        (-1 if word is None else place.get(word, -2) for word in values.tolist()), dtype=np.int64, count=len(values)
    )
    if (codes == -2).any():
        raise unknown(int(np.argmax(codes == -2)))
    out = np.zeros((len(values), len(place)))
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1.0
    out[codes == -1] = np.nan
    return out
