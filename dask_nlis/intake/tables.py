"""Small tables in files: columns of equal length and a JSON header, as Zarr, Parquet or CSV by the name's ending."""

import csv
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from dask_nlis.documents import parsed
from dask_nlis.errors import (
    InputError,
    InputTypeError,
    MissingDataError,
    MissingExtraError,
    NlisError,
    StoreExistsError,
)
from dask_nlis.intake.limits import check_header, check_metadata
from dask_nlis.intake.links import check_inside, check_no_link

Columns = Mapping[str, np.ndarray]

_KEY = "dask_nlis"

#: Bytes that the columns of a file may take in memory, those of a chunk of Zarr, and rows of a chunk that is written.
MOST_BYTES, _MOST_CHUNK_BYTES, _CHUNK_ROWS = 4 * 2**30, 2**28, 2**20


def write_table(path: Any, columns: Columns, header: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write beside the path first and move it there at the end, so that nothing half-written has its name."""
    where, (write, _) = _format_of(path)
    if not isinstance(overwrite, bool | np.bool_):
        raise InputTypeError(f"overwrite={overwrite!r} is {type(overwrite).__name__}; give True or False")
    check_no_link("path", where)
    if where.exists() and not overwrite:
        raise StoreExistsError(f"path={str(where)!r} exists; give another path, or overwrite=True")
    if not where.parent.is_dir():
        raise MissingDataError(f"path={str(where)!r}: the folder {str(where.parent)!r} does not exist; make it first")
    folder = Path(tempfile.mkdtemp(prefix=f".{where.name}-", dir=where.parent))
    try:
        write(folder / where.name, columns, json.dumps(header))
        if where.is_dir():
            os.replace(where, folder / "old")
        os.replace(folder / where.name, where)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_table(path: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read back columns of numbers of equal length, and header; raises an InputError for every other file."""
    where, (_, read) = _format_of(path)
    if not os.path.exists(where):  # also for names that no file can have
        raise MissingDataError(f"path={str(where)!r} does not exist; give the path of a saved sample")
    try:
        columns, header = read(where)
        if len({len(values) for values in columns.values()}) > 1:
            raise ValueError("columns of unequal length")
        if any(values.ndim != 1 or values.dtype.kind not in "iuf" for values in columns.values()):
            raise TypeError("columns that are no numbers")
    except NlisError as cause:
        raise InputError(f"path={str(where)!r} holds no saved sample: {cause}") from cause
    except _UNREADABLE as cause:
        raise InputError(f"path={str(where)!r} holds no saved sample ({type(cause).__name__}); save it anew") from cause
    return columns, parsed(f"the header of {str(where)!r}", header)


#: What Zarr, its codecs, pyarrow and the csv module raise for files that were altered; an ArrowException is one of these.
_UNREADABLE = (
    ValueError, KeyError, TypeError, OSError, StopIteration, csv.Error, RuntimeError, AttributeError, IndexError,
    ArithmeticError, MemoryError, AssertionError,
)  # fmt: skip


def _check_size(n_rows: int, n_columns: int) -> None:
    if n_rows * max(1, n_columns) * 8 > MOST_BYTES:
        raise InputError(f"{n_rows:,} rows of {n_columns} columns take more than {MOST_BYTES:,} bytes")


def _write_zarr(path: Path, columns: Columns, header: str) -> None:
    group = zarr.create_group(str(path), zarr_format=3, attributes={_KEY: header})
    for name, values in columns.items():
        target = group.create_array(
            name,
            shape=values.shape,
            chunks=(max(1, min(len(values), _CHUNK_ROWS)),),
            dtype=values.dtype,
            compressors=[ZstdCodec(checksum=True)],
            config={"write_empty_chunks": True},
        )
        target[:] = values


def _read_zarr(path: Path) -> tuple[dict[str, np.ndarray], str]:
    check_metadata("path", str(path))
    group = zarr.open_group(str(path), mode="r", use_consolidated=False)
    arrays = dict(group.arrays())
    for name, array in arrays.items():
        check_header(name, array)
        check_inside(name, array)
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise TypeError(name)
        _check_size(array.shape[0], len(arrays))
        # Lengths of chunks as they are declared and the files that are there bound what decoding may take.
        if (
            math.prod(array.chunks) * array.dtype.itemsize > _MOST_CHUNK_BYTES
            or array.nchunks_initialized < array.nchunks
        ):
            raise ValueError(name)
    return {name: np.asarray(array[:]) for name, array in arrays.items()}, str(group.attrs[_KEY])


def _write_csv(path: Path, columns: Columns, header: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {_inert(header)}\n")
        writer = csv.writer(file)
        writer.writerow(columns)
        # repr of a float64 reads back as the same number.
        writer.writerows(zip(*(map(repr, values.tolist()) for values in columns.values()), strict=True))


def _inert(header: str) -> str:
    """JSON of the same meaning of which no spreadsheet makes a formula: a cell that begins with =, +, - or @ is one.

    Text alone is escaped, and where its commas and semicolons would begin a new cell; numbers stay as they are.

    >>> _inert('{"names": ["a,=1+1", "-b"], "seed": -1}')
    '{"names": ["a\\\\u002c\\\\u003d1\\\\u002b1", "\\\\u002db"], "seed": -1}'
    """
    return re.sub(
        r'"(?:[^"\\]|\\.)*"', lambda text: re.sub(r"[-=+@,;|%]", lambda mark: f"\\u{ord(mark[0]):04x}", text[0]), header
    )


def _read_csv(path: Path) -> tuple[dict[str, np.ndarray], str]:
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{size:,} bytes are above {MOST_BYTES:,}")
    with path.open(newline="", encoding="utf-8") as file:
        header = next(file)
        if not header.startswith("# "):
            raise ValueError("no header")
        rows = csv.reader(file)
        names = next(rows)
        cells = list(rows)
    if len(set(names)) < len(names):
        raise ValueError("two columns of one name")
    return {
        name: np.array([float(v) if "." in v or "e" in v or "n" in v else int(v) for v in column])
        for name, column in zip(names, zip(*cells, strict=True) if cells else [()] * len(names), strict=True)
    }, header[2:]


def _write_parquet(path: Path, columns: Columns, header: str) -> None:
    arrow, parquet = _pyarrow()
    parquet.write_table(
        arrow.table(dict(columns)).replace_schema_metadata({_KEY: header}), path, write_page_checksum=True
    )


def _read_parquet(path: Path) -> tuple[dict[str, np.ndarray], str]:
    arrow, parquet = _pyarrow()
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        found = file.metadata
        _check_size(found.num_rows, found.num_columns)
        kinds = (arrow.types.is_integer, arrow.types.is_floating)
        if not all(any(is_kind(kind) for is_kind in kinds) for kind in file.schema_arrow.types):
            raise TypeError("columns that are no numbers")
        table = file.read()
        header = file.schema_arrow.metadata[_KEY.encode()].decode()
    return {name: table[name].to_numpy() for name in table.column_names}, header


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as cause:
        raise MissingExtraError(
            "a .parquet file needs pyarrow; pip install 'dask-nlis[dataframe]', or give a path that ends in .zarr or .csv"
        ) from cause
    return pyarrow, pyarrow.parquet


_Format = tuple[Callable[[Path, Columns, str], None], Callable[[Path], tuple[dict[str, np.ndarray], str]]]

_FORMATS: dict[str, _Format] = {
    ".zarr": (_write_zarr, _read_zarr),
    ".parquet": (_write_parquet, _read_parquet),
    ".csv": (_write_csv, _read_csv),
}


def _format_of(path: Any) -> tuple[Path, _Format]:
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(f"path is {type(path).__name__}; give the path of a file")
    if "://" in os.fspath(path):
        raise InputError("path is a URL, and samples are kept in files; give a local path")
    where = Path(path)
    if where.suffix not in _FORMATS:
        raise InputError(f"path={str(where)!r} does not say the format; give one that ends in {', '.join(_FORMATS)}")
    return where, _FORMATS[where.suffix]
