"""Columns of numbers in a CSV file through pandas, which is imported where such a file is opened.

What travels to a task is the path and where its rows begin and end; no text of the file is ever evaluated.
"""

import io
import os
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from dask_nlis.errors import (
    DamagedDataError,
    InputError,
    InputTypeError,
    MissingDataError,
    MissingExtraError,
    NlisError,
)
from dask_nlis.intake import table_shape
from dask_nlis.intake.cell_words import number_of
from dask_nlis.intake.csv_scan import Scanned, Stretch, rows_of_csv
from dask_nlis.intake.frames import LARGEST_INTEGER
from dask_nlis.intake.parquet_footers import short
from dask_nlis.intake.retrying import brief
from dask_nlis.intake.stamps import Stamp
from dask_nlis.nouns import noun

#: Characters of a name and of a value in a message, and rows that are looked at where a file is opened.
_SHOWN, _TRIED = 40, 1_000


@noun
class CsvTable:
    """Columns of rows of a CSV file, (n, d) or one of them (n,), as float64; `[...]` opens the file and reads its stretch.

    Rows are numbered as in the whole file, of which this may be the part from `first` on.
    """

    path: str
    columns: tuple[str, ...]
    places: tuple[int, ...]  # of the columns in a row
    n_cells: int  # of a row
    flat: bool  # one column, (n,)
    n_rows: int  # of the whole file
    first: int
    stretch: Stretch
    stamp: Stamp
    token: str

    shape = property(table_shape.shape)
    dtype = property(table_shape.dtype)
    ndim = property(table_shape.ndim)

    def __getitem__(self, index: Any) -> np.ndarray:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        first, last, step = rows.indices(self.n_rows)
        out = self._read()[max(0, first - self.first) : max(0, last - self.first) : step]
        return (out[:, 0] if self.flat else out)[(slice(None), *rest)]

    def _read(self) -> np.ndarray:
        begin, end, n_rows = self.stretch
        out, done = np.empty((n_rows, len(self.columns))), 0
        try:
            for cut in rows_of_csv("path", self.path, self.n_cells, begin, end, self.first):
                values = self.parsed(cut.text, len(cut.ends), cut.first)
                done += len(values)
                out[done - len(values) : done] = values[: max(0, n_rows - done + len(values))]
        except FileNotFoundError as cause:
            raise MissingDataError(
                f"{self.path!r} is not there: it was removed since it was opened, or workers do not see it; put it back"
            ) from cause
        except NlisError:
            self.stamp.check_metadata(repr(self.path))
            raise
        self.stamp.check_metadata(repr(self.path))
        if done != n_rows:
            raise DamagedDataError(
                f"{short(self.path)} has {done} rows from row {self.first} on in place of {n_rows}; write it anew"
            )
        return out

    def parsed(self, text: bytes, n_rows: int, first: int) -> np.ndarray:
        """Text of rows from row `first` on, as numbers."""
        table = parse_rows(self.path, text, first, n_rows, self.places)
        out = np.empty((n_rows, len(self.columns)))
        for j, (name, place) in enumerate(zip(self.columns, self.places, strict=True)):
            out[:, j] = csv_values(table[place], name, first)
        return out


def parse_rows(
    path: str,
    text: bytes,
    first: int,
    n_rows: int,
    places: Sequence[int],
    as_text: Sequence[int] = (),
    missing: Sequence[str] = (),
) -> Any:
    """The cells of rows in columns by their place: a DataFrame whose column `place` is of numbers, bools or text.

    `first` is the number of the first row, for messages; columns in `as_text` are text whatever they hold, and what is in
    `missing` counts as a missing cell, as do the words that pandas takes for one.
    """
    pandas = pandas_for("path", path)
    if not n_rows:
        return pandas.DataFrame({place: np.empty(0) for place in places})
    rows = f"{short(path)}, rows {first} to {first + n_rows - 1}"
    try:
        table = pandas.read_csv(
            io.BytesIO(text),
            header=None,
            index_col=False,
            usecols=sorted(places),
            dtype=dict.fromkeys(as_text, str),
            na_values=list(missing),
            low_memory=False,
            **_exactly(pandas),
        )
    except UnicodeDecodeError as cause:
        raise InputError(f"{rows}: no UTF-8 ({cause.reason}); save it as UTF-8") from cause
    except ValueError as cause:  # ParserError is one
        raise DamagedDataError(f"{rows} cannot be read ({brief(cause)}); correct them") from cause
    if len(table) != n_rows:
        raise DamagedDataError(
            f"{rows}: {len(table)} in place of {n_rows}; take out rows of blanks, and quotation marks inside of cells"
        )
    return table


def _exactly(pandas: ModuleType) -> dict[str, str]:
    """What makes pandas read numbers as they were written; from 3.1 on it does so by itself."""
    old = [int(part) for part in pandas.__version__.split(".")[:2]] < [3, 1]
    return {"float_precision": "round_trip"} if old else {}


def parts_of(found: Scanned, columns: tuple[str, ...], flat: bool) -> list[CsvTable]:
    """The parts of a file that are its stretches."""
    places = tuple(found.names.index(name) for name in columns)
    stretches = found.stretches or (Stretch(0, 0, 0),)
    firsts = [0, *accumulate(each.rows for each in stretches)]
    rest = found.stamp, found.token
    return [
        CsvTable(found.path, columns, places, len(found.names), flat, found.n_rows, first, stretch, *rest)
        for first, stretch in zip(firsts, stretches, strict=False)
    ]


def try_rows(argument: str, part: CsvTable) -> None:
    """Read the first rows of a part, so that a column of text is named at once."""
    with open(part.path, "rb") as file:
        file.seek(part.stretch.begin)
        text = file.read(min(part.stretch.end - part.stretch.begin, 2**20))
    rows = text.split(b"\n")[: min(part.stretch.rows, _TRIED)]
    if text.count(b'"') or len(rows) < 2:  # rows may go over lines
        return
    kept = [row for row in rows[:-1] if row.strip(b"\r")]
    try:
        part.parsed(b"\n".join(kept) + b"\n", len(kept), 0)
    except (InputError, InputTypeError) as error:
        raise type(error)(f"{argument}: {error}") from error


def csv_values(column: Any, name: str, row: int) -> np.ndarray:
    """A column as pandas read it, as float64; raises naming the first cell that holds no number."""
    kind = getattr(column.dtype, "kind", "O")
    if kind == "f":
        return np.asarray(column, dtype=np.float64)
    if kind in "iub":
        values = np.asarray(column)
        if kind != "b" and (far := (values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER)).any():
            raise _too_large(name, row + int(np.argmax(far)), values[np.argmax(far)])
        return values.astype(np.float64)
    out = np.full(len(column), np.nan)
    for k, value in enumerate(column):  # text somewhere, or True and False with cells that are empty
        if isinstance(value, bool | int | float):
            out[k] = value
            if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
                raise _too_large(name, row + k, value)
        elif isinstance(value, str) and (found := number_of(value)) is not None:
            out[k] = found
        elif isinstance(value, str):
            raise InputTypeError(
                f"column {name[:_SHOWN]!r} holds {value[:_SHOWN]!r} at row {row + k}, no number; correct the cell, leave it empty if "
                "missing, or encode a column of text: dask-nlis ingest"
            )
    return out


def _too_large(name: str, row: int, value: Any) -> InputError:
    return InputError(
        f"column {name[:_SHOWN]!r} holds {value} at row {row}, beyond 2**53, where float64 skips integers; leave the column out, "
        "or take a constant off"
    )


def is_csv(path: str) -> bool:
    """Whether a name says that it is a CSV file, compressed or not."""
    return path.lower().endswith((".csv", ".csv.gz"))


def check_plain(argument: str, path: str) -> None:
    """Raise where a CSV file is none that blocks can be read from."""
    if "://" in path:
        raise InputError(
            f"{argument}={path.partition('?')[0]!r} is a URL, and CSV is read from files; give dask.dataframe.read_csv(url) as X, or "
            "copy it"
        )
    if path.lower().endswith(".gz"):
        raise InputError(
            f"{argument}={short(path)} is compressed, so that no block of it can be read alone; make a store of it: dask-nlis ingest"
        )
    if os.path.isdir(path):
        raise InputError(f"{argument}={short(path)} is a folder; give one file, or dask.dataframe.read_csv as X")


def pandas_for(argument: str, path: str) -> ModuleType:
    """The module pandas, or an error that names the extra."""
    try:
        import pandas
    except ImportError as cause:
        raise MissingExtraError(
            f"{argument}={short(path)} is a table, which needs pandas; pip install 'dask-nlis[dataframe]', or store it as Zarr"
        ) from cause
    found: ModuleType = pandas
    return found
