"""What the footers of Parquet files tell: columns, types, and the rows of each row group; nothing else is read of them."""

import os
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from dask.base import tokenize

from dask_nlis.errors import DamagedDataError, InputError, InputTypeError, MissingDataError, MissingExtraError
from dask_nlis.intake.limits import MOST_ROWS
from dask_nlis.intake.links import inner_stat
from dask_nlis.intake.retrying import brief
from dask_nlis.intake.stamps import Stamp, stamp_of

_SUFFIXES, _SIGNATURE = (".parquet", ".pq", ".parq"), b"PAR1"

#: Names that a message lists, and characters of each.
_LISTED, _SHOWN = 12, 40


class Footers(NamedTuple):
    """What the footers of the files of a table tell."""

    names: tuple[str, ...]  # of all columns, in order
    kinds: tuple[Any, ...]  # their types
    files: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]  # of each row group of each file
    stamp: Stamp
    token: str

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(map(sum, self.rows))


def is_parquet(path: str) -> bool:
    """Whether a local path is a Parquet file, by its suffix or first bytes, or a folder that holds some and is no Zarr store."""
    if os.path.isdir(path):
        if any(os.path.exists(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zarray")):
            return False
        try:
            return bool(_pieces(path) or _keys(path))
        except OSError:  # a folder that may not be listed, of which others tell
            return False
    if not os.path.isfile(path):
        return path.lower().endswith(_SUFFIXES)
    with open(path, "rb") as file:
        return path.lower().endswith(_SUFFIXES) or file.read(len(_SIGNATURE)) == _SIGNATURE


def read_footers(argument: str, path: str) -> Footers:
    """Read the footers of a Parquet file, or of all those in a folder in natural order; raises naming the argument."""
    if "://" in path:
        raise InputError(
            f"{argument}={path.partition('?')[0]!r} is a URL, and Parquet is read from files; give "
            "dask.dataframe.read_parquet(url) as X, or copy it"
        )
    if not os.path.exists(path):
        raise MissingDataError(f"{argument}={path!r} does not exist; check the path")
    _, parquet = arrow(argument, path)
    where = os.path.abspath(path)
    files = _files(argument, where) if os.path.isdir(where) else [where]
    names: tuple[str, ...] = ()
    kinds: tuple[Any, ...] = ()
    rows, stats = [], []
    for k, file in enumerate(files):
        stats.append((file, inner_stat(file, where) if file != where else os.stat(file)))
        try:
            metadata = parquet.read_metadata(file)
            schema = metadata.schema.to_arrow_schema()
        except Exception as cause:
            raise DamagedDataError(
                f"{argument}: {short(file)} has no Parquet footer that can be read ({brief(cause)}); write it anew"
            ) from cause
        found = tuple(schema.names), tuple(schema.types)
        if not k:
            names, kinds = found
        elif found != (names, kinds):
            raise InputError(
                f"{argument}: {os.path.basename(file)!r} has {_difference(names, kinds, *found)} in {os.path.basename(files[0])!r}; "
                "write all files with the same columns and types"
            )
        each = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
        if min(each, default=0) < 0 or sum(each) > MOST_ROWS or sum(each) != metadata.num_rows:
            raise DamagedDataError(f"{argument}: {short(file)} tells of {metadata.num_rows} rows; write it anew")
        rows.append(each)
    stamp = stamp_of(stats, max(stat.st_mtime_ns for _, stat in stats))
    token = tokenize([(file, s.st_size, s.st_mtime_ns, s.st_ino) for file, s in stats])
    return Footers(names, kinds, tuple(files), tuple(rows), stamp, token)


def _files(argument: str, folder: str) -> list[str]:
    if keys := _keys(folder):
        raise InputError(
            f"{argument}={short(folder)} is partitioned into folders ({keys[0]!r}, ...), whose values are no column of a file; "
            "give dask.dataframe.read_parquet(path) as X, or write one folder of files"
        )
    return [os.path.join(folder, name) for name in _pieces(folder)]


def _pieces(folder: str) -> list[str]:
    """Names of the Parquet files in a folder in natural order: part.2 before part.10."""
    with os.scandir(folder) as found:
        names = [each.name for each in found if each.name.lower().endswith(_SUFFIXES) and each.name[0] not in "._"]
    return sorted(
        names, key=lambda name: [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _parts(name)]
    )


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"([0-9]+)", name) if part]


def _keys(folder: str) -> list[str]:
    """Names of the folders by which Hive partitions a table, such as year=2024."""
    with os.scandir(folder) as found:
        return sorted(each.name for each in found if "=" in each.name and each.is_dir())


def _difference(names: Any, kinds: Any, others: Any, other_kinds: Any) -> str:
    if others != names:
        new = [name for name in others if name not in names] or [name for name in names if name not in others]
        return (
            f"other columns ({', '.join(map(repr, new))[:80]}) than those" if new else "columns in another order than"
        )
    name, one, other = next((n, a, b) for n, a, b in zip(names, kinds, other_kinds, strict=True) if a != b)
    return f"{name!r} as {other} in place of {one}"


def check_numbers(argument: str, found: Footers, path: str, wanted: Sequence[str]) -> None:
    """Raise where a column is not there, is there twice, or holds no numbers; metadata alone is looked at."""
    for name in wanted:
        column_there(argument, name, found.names, short(path))
        kind = found.kinds[found.names.index(name)]
        if not is_number(kind):
            raise InputTypeError(
                f"{argument} column {name[:_SHOWN]!r} of {short(path)} has type {str(kind)[:40]}, no numbers; leave it out, or "
                "encode it: dask-nlis ingest, or dask_nlis.from_dataframe"
            )


def column_there(argument: str, name: Any, names: Sequence[str], where: str) -> None:
    """Raise unless exactly one column of a table has this name, listing those that exist."""
    if not isinstance(name, str):
        raise InputTypeError(f"{argument} is {type(name).__name__}; give the name of a column, or a list of names")
    if not name.strip():
        raise InputError(
            f"{argument}: {where} has a column without a name, number {list(names).index(name) + 1 if name in names else 0}, as an "
            "index is written; name the columns to read, or write it without (index=False)"
        )
    if name not in names:
        raise InputError(f"{argument}: {where} has no column {name[:_SHOWN]!r}; it has {listed(names)}")
    if list(names).count(name) > 1:
        raise InputError(f"{argument}: {where} has two columns {name[:_SHOWN]!r}; write it with a name for each")


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    shown = ", ".join(repr(name[:_SHOWN]) for name in names[:_LISTED])
    return f"{shown}, ... {len(names)} in all" if len(names) > _LISTED else shown or "none"


def is_number(kind: Any) -> bool:
    """Whether a type of Arrow is one of bool, integers and floats."""
    import pyarrow

    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def arrow(argument: str, path: str) -> tuple[ModuleType, Any]:
    """The modules pyarrow and pyarrow.parquet, or an error that names the extra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as cause:
        raise MissingExtraError(
            f"{argument}={short(path)} is a Parquet file, which needs pyarrow; pip install 'dask-nlis[dataframe]', or store it as Zarr"
        ) from cause
    return pyarrow, pyarrow.parquet


def short(path: str) -> str:
    """A path in a message."""
    return repr(path if len(path) <= 80 else f"...{path[-77:]}")
