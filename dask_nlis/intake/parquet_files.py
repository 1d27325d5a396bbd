"""Columns of Parquet files through pyarrow, which is imported where such a file is opened.

What travels to a task is the path of the files of its block and their row groups; the task opens them, reads the columns
asked for and closes them.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import DamagedDataError, InputError, InputTypeError, MissingDataError
from dask_nlis.intake import table_shape
from dask_nlis.intake.frames import LARGEST_INTEGER
from dask_nlis.intake.parquet_footers import Footers, arrow, short
from dask_nlis.intake.retrying import brief
from dask_nlis.intake.stamps import Stamp
from dask_nlis.nouns import noun

#: Characters of a name in a message.
_SHOWN = 40


class Piece(NamedTuple):
    """Consecutive row groups of a file, and the rows of each."""

    path: str
    group: int  # number of the first
    rows: tuple[int, ...]


@noun
class ParquetTable:
    """Columns of row groups, (n, d) or one of them (n,), as float64; `[...]` opens the files and reads the rows asked for.

    Rows are numbered as in the whole table, of which this may be the part from `first` on.
    """

    columns: tuple[str, ...]
    flat: bool  # one column, (n,)
    n_rows: int  # of the whole table
    first: int
    pieces: tuple[Piece, ...]
    stamp: Stamp
    token: str

    shape = property(table_shape.shape)
    dtype = property(table_shape.dtype)
    ndim = property(table_shape.ndim)

    def __getitem__(self, index: Any) -> np.ndarray:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        first, last, step = rows.indices(self.n_rows)
        out = np.empty((max(0, last - first), len(self.columns)))
        start = self.first
        for piece in self.pieces:
            stop = start + sum(piece.rows)
            if start < last and stop > first:
                self._fill(out, piece, start, first, last)
            start = stop
        self.stamp.check_metadata(f"{self.pieces[0].path!r}" if self.pieces else "the table")
        return (out[:, 0] if self.flat else out)[(slice(None, None, step), *rest)]

    def _fill(self, out: np.ndarray, piece: Piece, start: int, first: int, last: int) -> None:
        """Put rows `first` to `last` of a piece that begins at row `start` in their place, one row group at a time."""
        _, parquet = arrow("path", piece.path)
        try:
            with parquet.ParquetFile(piece.path, page_checksum_verification=True) as file:
                for k, n_rows in enumerate(piece.rows):
                    if start < last and start + n_rows > first:
                        table = file.read_row_group(piece.group + k, columns=list(self.columns), use_threads=False)
                        if table.num_rows != n_rows:
                            raise self._damaged(piece, start, f"{table.num_rows} rows in place of {n_rows}")
                        begin, end = max(first, start), min(last, start + n_rows)
                        part = table.slice(begin - start, end - begin)
                        for j, name in enumerate(self.columns):
                            out[begin - first : end - first, j] = column_values(part.column(name), name, begin)
                    start += n_rows
        except FileNotFoundError as cause:
            raise MissingDataError(
                f"{piece.path!r} is not there: it was removed since it was opened, or workers do not see it; put it back"
            ) from cause
        except (InputError, InputTypeError):
            raise
        except OSError as cause:
            if cause.errno is not None:  # of the system, which a second try may mend
                raise
            self.stamp.check_metadata(repr(piece.path))
            raise self._damaged(piece, start, brief(cause)) from cause
        except Exception as cause:
            self.stamp.check_metadata(repr(piece.path))
            raise self._damaged(piece, start, brief(cause)) from cause

    def _damaged(self, piece: Piece, start: int, why: str) -> DamagedDataError:
        return DamagedDataError(
            f"{short(piece.path)}, row group from row {start} on cannot be read ({why}): it was cut short or altered; write it "
            "anew"
        )


def column_values(column: Any, name: str, row: int) -> np.ndarray:
    """A column of Arrow as float64, nulls as NaN; raises where an integer is beyond those that float64 holds exactly."""
    import pyarrow
    import pyarrow.compute as compute

    kind = column.type
    if pyarrow.types.is_integer(kind) and kind.bit_width == 64:
        ends = compute.min_max(column).as_py()
        if ends["max"] is not None and max(ends["max"], -ends["min"]) > LARGEST_INTEGER:
            values = column.to_pylist()
            at = next(k for k, value in enumerate(values) if value is not None and abs(value) > LARGEST_INTEGER)
            raise InputError(
                f"column {name[:_SHOWN]!r} holds {values[at]} at row {row + at}, beyond 2**53, where float64 skips integers; "
                "leave the column out, or take a constant off"
            )
    if not pyarrow.types.is_floating(kind):
        column = column.cast(pyarrow.float64(), safe=False)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def parts_of(found: Footers, columns: tuple[str, ...], flat: bool, cuts: Sequence[int]) -> list[ParquetTable]:
    """The parts of a table between row groups `cuts[k]` and `cuts[k + 1]`, by their numbers in all files."""
    groups = [(file, g, n) for file, rows in zip(found.files, found.rows, strict=True) for g, n in enumerate(rows)]
    starts = [0, *accumulate(n for _, _, n in groups)]
    metadata = {each[0]: each for each in found.stamp.metadata}
    parts = []
    for first, last in pairwise(cuts):
        pieces: list[Piece] = []
        for file, g, n in groups[first:last]:
            if pieces and pieces[-1].path == file:
                pieces[-1] = pieces[-1]._replace(rows=(*pieces[-1].rows, n))
            else:
                pieces.append(Piece(file, g, (n,)))
        stamp = found.stamp._replace(metadata=tuple(metadata[piece.path] for piece in pieces))
        parts.append(ParquetTable(columns, flat, found.n_rows, starts[first], tuple(pieces), stamp, found.token))
    return parts
