"""The rows of a table in files, read from the first on in pieces of some megabytes: CSV through pandas, Parquet through pyarrow."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.adapters.cells import BOOL, CATEGORY, NUMBER, Cells, cells_of, word_of
from dask_nlis.errors import (
    ChangedDataError,
    DamagedDataError,
    InputError,
    InputTypeError,
    MissingDataError,
    NlisError,
    ReadError,
)
from dask_nlis.intake import (
    Cut,
    Footers,
    brief,
    column_values,
    is_csv,
    is_parquet,
    pandas_for,
    parse_rows,
    read_footers,
    read_header,
    rows_of_csv,
    short,
)

#: Bytes of numbers in a piece of a Parquet file, and the rows of one at most.
_PIECE_BYTES, _PIECE_ROWS = 2**24, 2**16


class Piece(NamedTuple):
    """Consecutive rows: the number of the first, how many, the cells of each column, and the bytes that are read by now."""

    first: int
    n_rows: int
    cells: dict[str, Cells]
    read: int


class Source(NamedTuple):
    """A table in files: names of its columns, its size, whether types of columns are stored, and how to read its pieces."""

    names: tuple[str, ...]
    n_bytes: int
    typed: bool
    pieces: Callable[[Sequence[str], Sequence[str], Sequence[str]], Iterator[Piece]]


def open_source(table: Any) -> Source:
    """Open a CSV file, compressed or not, a Parquet file, or a folder of Parquet files."""
    if not isinstance(table, str | os.PathLike):
        raise InputTypeError(
            f"table is {type(table).__name__}; give the path of a CSV or Parquet file (DataFrames: from_dataframe)"
        )
    path = os.fspath(table)
    if "://" in path:
        raise InputError("table is a URL, and tables are read from files; copy it first")
    if is_csv(path):
        pandas_for("table", path)
        return _csv(path)
    if is_parquet(path):
        return _parquet(path)
    raise InputError(
        f"table={short(path)} "
        + ("does not exist" if not os.path.exists(path) else "is no table")
        + "; give a file that ends in .csv, "
        ".csv.gz or .parquet, or a folder of Parquet files"
    )


def _csv(path: str) -> Source:
    head = read_header("table", path)
    begun = os.stat(path)

    def pieces(columns: Sequence[str], as_words: Sequence[str], missing: Sequence[str]) -> Iterator[Piece]:
        places = {name: head.names.index(name) for name in columns}
        words = [places[name] for name in as_words]
        for cut in _read(path, rows_of_csv("table", path, len(head.names), head.begin)):
            n_rows = len(cut.ends)
            found = parse_rows(path, cut.text, cut.first, n_rows, list(places.values()), words, missing)
            cells = {
                name: cells_of("table", name, found[place], cut.first, as_words=name in as_words)
                for name, place in places.items()
            }
            yield Piece(cut.first, n_rows, cells, cut.read)
        _check_same(path, begun)

    return Source(head.names, begun.st_size, False, pieces)


def _parquet(path: str) -> Source:
    found = read_footers("table", path)

    def pieces(columns: Sequence[str], as_words: Sequence[str], missing: Sequence[str]) -> Iterator[Piece]:
        if missing:
            raise InputError("na names words of CSV files; a Parquet file has nulls: leave na out")
        kinds = dict(zip(found.names, found.kinds, strict=True))
        for name in columns:
            _check_type(name, kinds[name])
        first = read = 0
        for file in found.files:
            size = os.path.getsize(file)
            for batch, share in _batches(file, columns):
                cells = {
                    name: _arrow_cells(batch.column(k), name, first, name in as_words)
                    for k, name in enumerate(batch.schema.names)
                    if name in columns
                }
                yield Piece(first, batch.num_rows, cells, read + int(share * size))
                first += batch.num_rows
            read += size
        found.stamp.check_metadata(f"table={short(path)}")
        _check_count(path, found, first)

    return Source(found.names, sum(size for _, size, _ in found.stamp.metadata), True, pieces)


def _batches(file: str, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """Batches of some rows of a file, and the share of its rows that are read by then."""
    import pyarrow.parquet

    rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES // (8 * len(columns))))
    try:
        with pyarrow.parquet.ParquetFile(file, page_checksum_verification=True, pre_buffer=False) as opened:
            done, total = 0, max(1, opened.metadata.num_rows)
            for batch in opened.iter_batches(rows, columns=list(columns)):
                done += batch.num_rows
                yield batch, done / total
    except NlisError:
        raise
    except OSError as cause:
        if cause.errno is None:  # of pyarrow, on what the file holds
            raise DamagedDataError(f"table: {short(file)} cannot be read ({brief(cause)}); write it anew") from cause
        raise _unread(file, cause) from cause
    except Exception as cause:
        raise DamagedDataError(f"table: {short(file)} cannot be read ({brief(cause)}); write it anew") from cause


def _read(path: str, cuts: Iterator[Cut]) -> Iterator[Cut]:
    """The same, with errors of the system told of the table."""
    try:
        yield from cuts
    except NlisError:
        raise
    except OSError as cause:
        raise _unread(path, cause) from cause


def _unread(path: str, cause: OSError) -> NlisError:
    if isinstance(cause, FileNotFoundError):
        return MissingDataError(f"table={short(path)} is gone: it was removed while it was read; put it back")
    return ReadError(f"table={short(path)} cannot be read ({brief(cause)}); check the file, and run again")


def _check_type(name: str, kind: Any) -> None:
    import pyarrow

    types = pyarrow.types
    inner = kind.value_type if types.is_dictionary(kind) else kind
    plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null, *_texts(types))
    if not any(each(inner) for each in plain):
        remedy = (
            "leave it out, or write it as a number, such as days since a day"
            if types.is_temporal(inner)
            else "leave it out"
        )
        raise InputTypeError(
            f"table column {name[:40]!r} has type {str(kind)[:40]}, neither numbers nor text; {remedy} (exclude)"
        )


def _texts(types: Any) -> tuple[Callable[[Any], bool], ...]:
    return types.is_string, types.is_large_string, types.is_string_view


def _arrow_cells(column: Any, name: str, row: int, as_words: bool) -> Cells:
    """Cells of a column of a batch."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_dictionary(kind):
        column, as_words = column.dictionary_decode(), True
    if as_words or any(each(kind) for each in _texts(types)):
        found = column.dictionary_encode()
        places = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return Cells(CATEGORY, places, tuple(map(word_of, found.dictionary.to_pylist())))
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast(pyarrow.float64())
    return Cells(BOOL if types.is_boolean(kind) else NUMBER, column_values(pyarrow.chunked_array([column]), name, row))


def _check_count(path: str, found: Footers, n_rows: int) -> None:
    if n_rows != found.n_rows:
        raise DamagedDataError(
            f"table={short(path)} holds {n_rows} rows where its footers tell {found.n_rows}; write it anew"
        )


def _check_same(path: str, begun: os.stat_result) -> None:
    now = os.stat(path)
    if (now.st_size, now.st_mtime_ns) != (begun.st_size, begun.st_mtime_ns):
        raise ChangedDataError(f"table={short(path)} was written anew while it was read; run again when it is complete")
