"""X and y of a table by path, by the names of its columns."""

from collections.abc import Sequence
from typing import Any

import dask.array as da

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake.csv_files import check_plain, is_csv, pandas_for, parts_of as csv_parts, try_rows
from dask_nlis.intake.csv_scan import Scanned, read_header, scan_csv
from dask_nlis.intake.limits import check_blocks
from dask_nlis.intake.names import name_columns
from dask_nlis.intake.parquet_files import parts_of
from dask_nlis.intake.parquet_footers import Footers, check_numbers, column_there, is_parquet, read_footers, short
from dask_nlis.intake.reader import Storage
from dask_nlis.intake.table_blocks import in_parts

#: A row group, as a chunk of Zarr, of more than so many blocks is refused: whole ones are read, and each task holds one.
_MOST_BLOCKS = 16

#: Bytes of text that a block of a CSV file may be parsed from, for each byte of a block.
_TEXT = 4


def is_table(path: str) -> bool:
    """Whether a path is a table of named columns."""
    return is_csv(path) or is_parquet(path)


def columns_of(path: str) -> tuple[str, ...]:
    """Names of the columns of a table."""
    if is_csv(path):
        check_plain("path", path)
        return read_header("path", path).names
    return read_footers("path", path).names


def open_table(path: str, X: Any, y: Any, block_bytes: int) -> tuple[da.Array, da.Array | None]:
    """Open columns of a table lazily as X (n, d) and y (n,), or None without y.

    Of Parquet files footers alone are read; a CSV file is read once, to find where its rows begin.
    """
    open_it = _open_csv if is_csv(path) else _open_parquet
    return open_it(path, X, y, block_bytes)


def _open_parquet(path: str, X: Any, y: Any, block_bytes: int) -> tuple[da.Array, da.Array | None]:
    found = read_footers("path", path)
    wanted = chosen(X, y, found.names, path)
    check_numbers("X", found, path, wanted)
    if y is not None:
        check_numbers("y", found, path, (y,))
    cuts = _cuts(found, 8 * len(wanted), block_bytes)
    check_blocks("X", (len(cuts) - 1,), 1, block_bytes)
    x = name_columns(_of_groups("X", path, found, wanted, False, cuts), wanted)
    return x, None if y is None else _of_groups("y", path, found, (y,), True, cuts)


def _open_csv(path: str, X: Any, y: Any, block_bytes: int) -> tuple[da.Array, da.Array | None]:
    check_plain("path", path)
    pandas_for("path", path)
    wanted = chosen(X, y, read_header("path", path).names, path)
    found = scan_csv("path", path, max(1, block_bytes // (8 * len(wanted))), _TEXT * block_bytes)
    check_blocks("X", (len(found.stretches),), 1, block_bytes)
    x = name_columns(_of_stretches("X", path, found, wanted, False), wanted)
    return x, None if y is None else _of_stretches("y", path, found, (y,), True)


def _of_stretches(argument: str, path: str, found: Scanned, columns: tuple[str, ...], flat: bool) -> da.Array:
    parts = csv_parts(found, columns, flat)
    if found.stretches:
        try_rows(argument, parts[0])
    rows = [each.rows for each in found.stretches] or [0]
    text = max((each.end - each.begin for each in found.stretches), default=1)
    return in_parts(f"{argument}={short(path)}", parts, rows, Storage(text, max(1, *rows), True, False))


def chosen(X: Any, y: str | None, names: Sequence[str], path: str) -> tuple[str, ...]:
    """Names of the columns of X: those given, one or several, or all but y."""
    if y is not None:
        column_there("y", y, names, short(path))
    if X is None:
        wanted = tuple(name for name in names if name != y)
        for name in wanted:
            column_there("X", name, names, short(path))
        if not wanted:
            raise InputError(f"X: {short(path)} has no column but y={y!r}; give a table of features as well")
        return wanted
    if not isinstance(X, str | list | tuple):
        raise InputTypeError(f"X is {type(X).__name__}; give the name of a column, a list of names, or leave it out")
    given = (X,) if isinstance(X, str) else tuple(X)
    if not given:
        raise InputError("X is an empty list; give names of columns, or leave it out for all but y")
    for name in given:
        column_there("X", name, names, short(path))
        if given.count(name) > 1:
            raise InputError(f"X names {name[:40]!r} twice; name each column once")
    if y in given:
        raise InputError(f"X names {y!r}, which is y; leave it out of X")
    return given


def _cuts(found: Footers, row_bytes: int, block_bytes: int) -> list[int]:
    """Numbers of the row groups that blocks of whole row groups near `block_bytes` begin with, and of all row groups."""
    rows = [each for file in found.rows for each in file]
    check_groups(rows, row_bytes, block_bytes)
    cuts, held = [0], 0
    for k, each in enumerate(rows):
        if held and (held + each) * row_bytes > block_bytes:
            cuts.append(k)
            held = 0
        held += each
    return [*cuts, len(rows)]


def check_groups(rows: Sequence[int], row_bytes: int, block_bytes: int) -> None:
    """Raise where a row group makes a block far larger than asked for."""
    largest = max(rows, default=0)
    if (size := largest * row_bytes) > _MOST_BLOCKS * block_bytes:
        raise InputError(
            f"X is stored in row groups of up to {largest:,} rows, which take {size:,} bytes, above {_MOST_BLOCKS} blocks of "
            f"{block_bytes:,}; write smaller row groups, or give block_bytes={-(-size // _MOST_BLOCKS):,}"
        )


def _of_groups(
    argument: str, path: str, found: Footers, columns: tuple[str, ...], flat: bool, cuts: Sequence[int]
) -> da.Array:
    parts = parts_of(found, columns, flat, cuts)
    largest = max((rows for file in found.rows for rows in file), default=1)
    storage = Storage(8 * len(columns) * largest, max(1, largest), True, False)
    rows = [sum(sum(piece.rows) for piece in part.pieces) for part in parts]
    return in_parts(f"{argument}={short(path)}", parts, rows, storage)
