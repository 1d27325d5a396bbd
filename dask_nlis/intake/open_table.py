"""X and y of a table by path, by the names of its columns."""

from collections.abc import Sequence
from typing import Any

import dask.array as da

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake.limits import check_blocks
from dask_nlis.intake.names import name_columns
from dask_nlis.intake.parquet_files import ParquetTable, part_of
from dask_nlis.intake.parquet_footers import Footers, check_numbers, check_there, is_parquet, read_footers, short
from dask_nlis.intake.reader import Storage
from dask_nlis.intake.table_blocks import in_parts

#: A row group, as a chunk of Zarr, of more than so many blocks is refused: whole ones are read, and each task holds one.
_MOST_BLOCKS = 16


def is_table(path: str) -> bool:
    """Whether a path is a table of named columns."""
    return is_parquet(path)


def columns_of(path: str) -> tuple[str, ...]:
    """Names of the columns of a table."""
    return read_footers("path", path).names


def open_table(path: str, X: Any, y: Any, block_bytes: int) -> tuple[da.Array, da.Array | None]:
    """Open columns of a table lazily as X (n, d) and y (n,), or None without y; reads footers alone."""
    found = read_footers("path", path)
    if y is not None:
        check_there("y", y, found.names, path)
    wanted = chosen(X, y, found.names, path)
    check_numbers("X", found, path, wanted)
    if y is not None:
        check_numbers("y", found, path, (y,))
    groups = _grouped(found, 8 * len(wanted), block_bytes)
    x = name_columns(_array("X", path, found, wanted, False, groups), wanted)
    return x, None if y is None else _array("y", path, found, (y,), True, groups)


def chosen(X: Any, y: str | None, names: Sequence[str], path: str) -> tuple[str, ...]:
    """Names of the columns of X: those given, one or several, or all but y."""
    if X is None:
        wanted = tuple(name for name in names if name != y)
        if not wanted:
            raise InputError(f"X: {short(path)} has no column but y={y!r}; give a table of features as well")
        return wanted
    if not isinstance(X, str | list | tuple):
        raise InputTypeError(f"X is {type(X).__name__}; give the name of a column, a list of names, or leave it out")
    given = (X,) if isinstance(X, str) else tuple(X)
    if not given:
        raise InputError("X is an empty list; give names of columns, or leave it out for all but y")
    for name in given:
        check_there("X", name, names, path)
        if given.count(name) > 1:
            raise InputError(f"X names {name[:40]!r} twice; name each column once")
    if y in given:
        raise InputError(f"X names {y!r}, which is y; leave it out of X")
    return given


def _grouped(found: Footers, row_bytes: int, block_bytes: int) -> list[tuple[int, int, int]]:
    """Blocks of whole row groups near `block_bytes`: the first group, the one behind the last, and the rows."""
    rows = [each for file in found.rows for each in file]
    check_groups(rows, row_bytes, block_bytes)
    blocks: list[tuple[int, int, int]] = []
    for k, each in enumerate(rows):
        if blocks and (blocks[-1][2] + each) * row_bytes <= block_bytes:
            blocks[-1] = (blocks[-1][0], k + 1, blocks[-1][2] + each)
        else:
            blocks.append((k, k + 1, each))
    check_blocks("X", (found.n_rows,), max((each[2] for each in blocks), default=1), block_bytes)
    return blocks or [(0, 0, 0)]


def check_groups(rows: Sequence[int], row_bytes: int, block_bytes: int) -> None:
    """Raise where a row group makes a block far larger than asked for."""
    largest = max(rows, default=0)
    if (size := largest * row_bytes) > _MOST_BLOCKS * block_bytes:
        raise InputError(
            f"X is stored in row groups of up to {largest:,} rows, which take {size:,} bytes, above {_MOST_BLOCKS} blocks of "
            f"{block_bytes:,}; write smaller row groups, or give block_bytes={-(-size // _MOST_BLOCKS):,}"
        )


def _array(
    argument: str,
    path: str,
    found: Footers,
    columns: tuple[str, ...],
    flat: bool,
    groups: Sequence[tuple[int, int, int]],
) -> da.Array:
    whole = ParquetTable(columns, flat, found.n_rows, 0, (), found.stamp, found.token)
    parts = [part_of(whole, found, first, last) for first, last, _ in groups]
    largest = max((rows for file in found.rows for rows in file), default=1)
    storage = Storage(8 * len(columns) * largest, max(1, largest), True, False)
    return in_parts(f"{argument}={short(path)}", parts, [rows for _, _, rows in groups], storage)
