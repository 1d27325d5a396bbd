"""The cells of a column: numbers, true and false, or words; and what a column comes to, part by part."""

from collections.abc import Callable, Sequence
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
    """Cells of a column: float64, NaN where they are missing; or places in a list of words, -1 where they are missing."""

    kind: str
    values: np.ndarray
    words: tuple[str, ...] = ()

    @property
    def missing(self) -> np.ndarray:
        """Which cells are missing, infinite ones among them."""
        return self.values < 0 if self.kind == CATEGORY else ~np.isfinite(self.values)

    def taken(self, rows: np.ndarray) -> "Cells":
        """Those of some rows."""
        return self._replace(values=self.values[rows])

    def first(self, word: int) -> int:
        """The first row that holds a word."""
        return int(np.argmax(self.values == word))


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
        return Cells(CATEGORY, column.cat.codes.to_numpy(np.int64), tuple(map(str, column.cat.categories)))
    if kind in "biuf" and not as_words:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind in "iu" and column.dtype.itemsize == 8:
            far = ((column > LARGEST_INTEGER) | (column < -LARGEST_INTEGER)).to_numpy(dtype=bool, na_value=False)
            if far.any():
                at = int(np.argmax(far))
                raise _too_large(argument, name, column.iloc[at], row + at)
        return Cells(BOOL if kind == "b" else NUMBER, values)
    if kind not in "OUTSbiuf":
        raise InputTypeError(
            f"{argument} column {name[:_SHOWN]!r} has dtype {str(column.dtype)[:_SHOWN]}; leave it out, or give it as a number, such as "
            "days since a day"
        )
    try:
        places, found = column.factorize()
    except TypeError:  # lists and other values that cannot be told apart by a hash
        raise _of_no_kind(argument, name, column, row) from None
    return _of_objects(argument, name, places.astype(np.int64), found.tolist(), row, as_words)


def _of_no_kind(argument: str, name: str, column: Any, row: int) -> InputTypeError:
    at = next((k for k, value in enumerate(column.tolist()) if _kind(value) == _OTHER and value is not None), 0)
    return _neither(argument, name, column.iloc[at], row + at)


def _neither(argument: str, name: str, value: Any, row: int) -> InputTypeError:
    return InputTypeError(
        f"{argument} column {name[:_SHOWN]!r} holds {str(value)[:_SHOWN]!r} at row {row}, neither number nor text; leave it out, or "
        "make one of it"
    )


def _of_objects(argument: str, name: str, places: np.ndarray, values: list[Any], row: int, as_words: bool) -> Cells:
    """Cells by their places among different values, in order of appearance."""
    kinds = [_kind(value) for value in values]
    if as_words or (values and set(kinds) == {CATEGORY}):
        return Cells(CATEGORY, places, tuple(map(word_of, values)))
    found = Cells(CATEGORY, places)  # to find rows
    if set(kinds) <= {NUMBER, BOOL}:
        far = next((k for k, value in enumerate(values) if _is_whole(value) and abs(value) > LARGEST_INTEGER), None)
        if far is not None:
            raise _too_large(argument, name, values[far], row + found.first(far))
        return Cells(BOOL if set(kinds) == {BOOL} else NUMBER, np.array([*map(float, values), np.nan])[places])
    if set(kinds) == {_OTHER}:
        raise _neither(argument, name, values[0], row + found.first(0))
    alike = {NUMBER, BOOL} if kinds[0] in (NUMBER, BOOL) else {CATEGORY}
    other = next(k for k, kind in enumerate(kinds) if kind not in alike)
    raise InputTypeError(
        f"{argument} column {name[:_SHOWN]!r} holds values of several kinds, the first other one {str(values[other])[:_SHOWN]!r} at row "
        f"{row + found.first(other)}; give numbers or text alone"
    )


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return CATEGORY
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, int | float | np.number) or type(value).__name__ == "Decimal":
        return NUMBER
    return _OTHER


def word_of(value: Any) -> str:
    """A value as a word; whole numbers alike, whether they came as integers or, beside missing ones, as floats.

    >>> word_of(3), word_of(3.0), word_of("3.0"), word_of(0.5)
    ('3', '3', '3.0', '0.5')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)


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
        held = np.bincount(cells.values[cells.values >= 0], minlength=len(cells.words)) > 0
        self.words.update(cells.words[k] for k in np.flatnonzero(held).tolist())
        if self.as_words:
            return
        plain = np.array([number_of(word) is None for word in cells.words], dtype=bool)  # that are no numbers
        if (held & plain).any() and self.first_word is None:
            first = int(np.argmax(np.append(plain, False)[cells.values]))
            self.first_word = row + first, cells.words[cells.values[first]]
        self.looks_like_numbers |= bool((held & ~plain).any())

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

    @property
    def is_mixed(self) -> bool:
        """Whether words are among numbers."""
        return self.first_word is not None and (self.looks_like_numbers or bool(self.kinds))

    def check(self, argument: str, name: str, max_categories: int, remedy: str) -> None:
        """Raise InputTypeError where words are among numbers, InputError where there are too many words."""
        if self.first_word is not None and self.is_mixed:
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
        return Cells(kind, np.full(len(cells.values), -1)) if cells.missing.all() else cells
    found = [number_of(word) for word in cells.words]
    if None in found:
        return cells
    return Cells(NUMBER, np.array([*found, np.nan], dtype=np.float64)[cells.values])


def one_hot(cells: Cells, categories: Sequence[str], unknown: Callable[[int], Exception]) -> np.ndarray:
    """A column of 0 and 1 for each category (n, k); NaN in all of them where the word is missing.

    Raises what `unknown` makes of the first row whose word is none of the categories.
    """
    known = {word: k for k, word in enumerate(categories)}
    codes = np.array([*(known.get(word, -2) for word in cells.words), -1], dtype=np.int64)[cells.values]
    if (codes == -2).any():
        raise unknown(int(np.argmax(codes == -2)))
    out = np.zeros((len(codes), len(known)))
    rows = np.flatnonzero(codes >= 0)
    out[rows, codes[rows]] = 1.0
    out[codes == -1] = np.nan
    return out
