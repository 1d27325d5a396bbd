"""Small tables in files: columns of equal length and a JSON header, as Zarr, Parquet or CSV by the name's ending."""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from dask_nlis.errors import InputError, InputTypeError, MissingDataError, StoreExistsError

Columns = Mapping[str, np.ndarray]

_KEY = "dask_nlis"


def write_table(path: Any, columns: Columns, header: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write beside the path first and move it there at the end, so that nothing half-written has its name."""
    where, (write, _) = _format_of(path)
    if not isinstance(overwrite, bool | np.bool_):
        raise InputTypeError(f"overwrite={overwrite!r} is {type(overwrite).__name__}; give True or False")
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
    """Read back columns and header."""
    where, (_, read) = _format_of(path)
    if not where.exists():
        raise MissingDataError(f"path={str(where)!r} does not exist; give the path of a saved sample")
    try:
        columns, header = read(where)
        return columns, json.loads(header)
    except (ValueError, KeyError, TypeError, OSError, StopIteration) as cause:
        raise InputError(f"path={str(where)!r} holds no saved sample ({type(cause).__name__}); save it anew") from cause


def _write_zarr(path: Path, columns: Columns, header: str) -> None:
    group = zarr.create_group(str(path), zarr_format=3, attributes={_KEY: header})
    for name, values in columns.items():
        group.create_array(name, data=values, compressors=[ZstdCodec(checksum=True)])


def _read_zarr(path: Path) -> tuple[dict[str, np.ndarray], str]:
    group = zarr.open_group(str(path), mode="r")
    return {name: np.asarray(array[:]) for name, array in group.arrays()}, str(group.attrs[_KEY])


def _write_csv(path: Path, columns: Columns, header: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {header}\n")
        writer = csv.writer(file)
        writer.writerow(columns)
        # repr of a float64 reads back as the same number.
        writer.writerows(zip(*(map(repr, values.tolist()) for values in columns.values()), strict=True))


def _read_csv(path: Path) -> tuple[dict[str, np.ndarray], str]:
    with path.open(newline="", encoding="utf-8") as file:
        header = next(file)
        if not header.startswith("# "):
            raise ValueError("no header")
        rows = csv.reader(file)
        names = next(rows)
        cells = list(rows)
    return {
        name: np.array([float(v) if "." in v or "e" in v or "n" in v else int(v) for v in column])
        for name, column in zip(names, zip(*cells, strict=True) if cells else [()] * len(names), strict=True)
    }, header[2:]


def _write_parquet(path: Path, columns: Columns, header: str) -> None:
    arrow, parquet = _pyarrow()
    parquet.write_table(arrow.table(dict(columns)).replace_schema_metadata({_KEY: header}), path)


def _read_parquet(path: Path) -> tuple[dict[str, np.ndarray], str]:
    _, parquet = _pyarrow()
    table = parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}, table.schema.metadata[_KEY.encode()].decode()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as cause:
        raise InputError(
            "a .parquet file needs pyarrow; install dask-nlis[dataframe], or give a path that ends in .zarr or .csv"
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
    where = Path(path)
    if where.suffix not in _FORMATS:
        raise InputError(f"path={str(where)!r} does not say the format; give one that ends in {', '.join(_FORMATS)}")
    return where, _FORMATS[where.suffix]
