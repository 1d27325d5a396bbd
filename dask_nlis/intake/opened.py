"""One array of any accepted kind -> a lazy Dask array, its container and its column names."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.base import tokenize
from dask.utils import parse_bytes

from dask_nlis.blocks import block_rows, row_chunks
from dask_nlis.errors import DataConversionWarning, InputError, InputTypeError
from dask_nlis.intake.containers import Container
from dask_nlis.intake.csv_files import is_csv
from dask_nlis.intake.frames import from_dask, from_pandas, is_dask_table
from dask_nlis.intake.hdf5_files import Hdf5Array, is_hdf5, list_hdf5, of_dataset
from dask_nlis.intake.limits import check_blocks, check_header, row_bytes
from dask_nlis.intake.links import check_inside
from dask_nlis.intake.names import column_names
from dask_nlis.intake.npy_files import FileArray, of_memmap, open_npy
from dask_nlis.intake.parquet_footers import is_parquet
from dask_nlis.intake.reader import Reader, write_unit
from dask_nlis.intake.sizes import check_columns_known, with_sizes
from dask_nlis.intake.zarr_files import (
    Survey,
    check_missing,
    check_path,
    list_arrays,
    name_of,
    object_token,
    open_zarr,
    survey,
)
from dask_nlis.kernels.numbers import is_lazy
from dask_nlis.phase import setting, warn

_ACCEPTED = "a NumPy, Dask, Zarr, HDF5, pandas or xarray array, or a path to a Zarr array or NPY file"

#: A chunk or shard of more than so many blocks is refused: whole ones are read, and each task holds one.
MOST_BLOCKS = 16


class Opened(NamedTuple):
    """A lazy array with what came along."""

    array: da.Array
    container: Container
    names: tuple[str, ...] | None


def open_array(
    argument: str, value: Any, block_bytes: int | None = None, chunks: Sequence[int] | None = None
) -> Opened:
    """Open `value` lazily; nothing is read but metadata, or once a Dask array whose blocks have unknown lengths.

    Parameters
    ----------
    argument : str
        The argument's name, for messages.
    value : array_like
        NumPy, Dask, Zarr, pandas, xarray, a path, or anything with shape, dtype and slicing.
    block_bytes : int, optional
        Size of a block where the layout is ours to choose; from the Dask config key by default.
    chunks : sequence of int, optional
        Row chunks to follow (those of X, for y).
    """
    opened = look_at(argument, value, block_bytes, chunks)
    return opened._replace(array=with_sizes(argument, opened.array))


def look_at(argument: str, value: Any, block_bytes: int | None = None, chunks: Sequence[int] | None = None) -> Opened:
    """Open `value` as `open_array` does, but leave lengths of blocks unknown: reads nothing but metadata."""
    opened = _dispatch(argument, value, check_block_bytes(block_bytes), chunks)
    array = opened.array
    check_dtype(argument, array.dtype, opened.names)
    if type(array._meta) is not np.ndarray:
        kind = f"{type(array._meta).__module__}.{type(array._meta).__name__}"
        raise InputTypeError(f"{argument} has blocks of {kind}; give dense NumPy blocks (the device is chosen later)")
    check_columns_known(argument, array)
    return opened


def check_block_bytes(block_bytes: int | None) -> int:
    """Return the block size in bytes: the argument, or the Dask config key dask-nlis.block-bytes."""
    size = setting("block-bytes", block_bytes)
    if isinstance(size, str) and any(map(str.isdigit, size)):  # Dask reads an empty text as one byte
        with suppress(ValueError):  # refused below, with what is allowed
            size = parse_bytes(size)
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(
            f"block_bytes={size!r} is not allowed; give a positive number of bytes, such as 64_000_000 or '64 MB'"
        )
    return int(size)


def check_allow_missing(allow_missing: bool | None) -> bool:
    """Return whether chunks may be missing: the argument, or the Dask config key dask-nlis.allow-missing."""
    allowed = setting("allow-missing", allow_missing)
    if not isinstance(allowed, bool | np.bool_):
        raise InputTypeError(f"allow_missing={allowed!r} is {type(allowed).__name__}; give True or False")
    return bool(allowed)


def _dispatch(argument: str, value: Any, block_bytes: int, chunks: Sequence[int] | None) -> Opened:
    if isinstance(value, da.Array):
        return Opened(value, Container("dask"), column_names(value))
    if isinstance(value, str | os.PathLike):
        value = _at_path(argument, value)
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "index"):
        block, names = from_pandas(argument, value)
        index = Container("pandas", value.index, lazy=False)
        return Opened(_from_memory(block, block_bytes, chunks), index, names)
    if library == "xarray":
        return _from_xarray(argument, value, block_bytes, chunks)
    if is_dask_table(value):
        lazy, names = from_dask(argument, value)
        return Opened(lazy, Container("dask"), names)
    if library in ("torch", "cupy", "scipy", "sparse", "jax", "jaxlib", "polars") or isinstance(
        value, np.ma.MaskedArray
    ):
        raise InputTypeError(f"{argument} is {library}.{type(value).__name__}, which is not read; give {_ACCEPTED}")
    if isinstance(value, np.ndarray) and not isinstance(value, np.memmap):
        return Opened(_from_memory(value, block_bytes, chunks), Container("numpy", lazy=False), None)
    if isinstance(value, list | tuple):
        try:
            return Opened(_from_memory(np.asarray(value), block_bytes, chunks), Container("numpy", lazy=False), None)
        except ValueError as cause:
            raise InputTypeError(f"{argument} is a {type(value).__name__} of unequal rows; give {_ACCEPTED}") from cause
    if not all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__")) or hasattr(value, "dask"):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give {_ACCEPTED}")
    return from_storage(argument, value, block_bytes, chunks)


def _at_path(argument: str, path: str | os.PathLike[str]) -> Any:
    """What is stored at a path: an NPY file or an array of Zarr, lazily; raises for what holds several arrays."""
    text = check_path(argument, path)
    if text.lower().endswith(".npy") and "://" not in text:
        return open_npy(argument, text)
    if is_csv(text) or is_parquet(text):
        raise InputError(
            f"{argument}={text.partition('?')[0][-80:]!r} is a table; open it with dask_nlis.open_rows(path, X=[names], y=name)"
        )
    if is_hdf5(text):
        raise InputError(
            f"{argument} is an HDF5 file; name one of its arrays: {list_hdf5(argument, text)} (see dask_nlis.open_rows)"
        )
    found = open_zarr(argument, path)
    if isinstance(found, zarr.Group):
        raise InputError(
            f"{argument} is a Zarr group; name one of its arrays: {list_arrays(found)} (see dask_nlis.open_rows)"
        )
    return found


def _from_memory(array: np.ndarray, block_bytes: int, chunks: Sequence[int] | None) -> da.Array:
    return da.from_array(
        array,
        chunks=_chunks("array", array, 1, block_bytes, chunks),
        name=f"nlis-memory-{tokenize(array, chunks, block_bytes)}",
        asarray=False,
    )


def from_storage(
    argument: str, array: Any, block_bytes: int, chunks: Sequence[int] | None, allow_missing: bool | None = None
) -> Opened:
    """Open anything that is sliced from storage: whole shards or chunks a block, names from its attributes."""
    allow_missing = check_allow_missing(allow_missing)
    kind = "numpy" if isinstance(array, np.memmap) else "dask"
    if isinstance(array, np.memmap):
        array = of_memmap(array) or array
    elif type(array).__module__.partition(".")[0] == "h5py":
        array = of_dataset(argument, array) or array
    check_header(argument, array)
    check_inside(argument, array)
    names = _stored_names(argument, array)
    name = name_of(argument, array)
    if isinstance(array, zarr.Array):
        found = survey(array)
        check_missing(name, found.absent, allow_missing)
    else:
        found = Survey(array.token if isinstance(array, FileArray | Hdf5Array) else object_token(array))
    unit = write_unit(array)
    _check_unit(argument, array, unit, block_bytes)
    reader = Reader(array, found.token, name, found.stamp, allow_missing=allow_missing)
    lazy = reader.to_dask(_chunks(argument, array, unit, block_bytes, chunks))
    fits = lazy.ndim == 2 and isinstance(names, list) and len(names) == lazy.shape[1]
    known = tuple(map(str, names or ())) if fits else None
    return Opened(lazy, Container(kind, lazy=kind == "dask"), known)


def _stored_names(argument: str, array: Any) -> Any:
    """The attribute `feature_names`, whatever it is."""
    try:
        return getattr(array, "attrs", {}).get("feature_names")
    except (TypeError, AttributeError) as cause:
        raise InputError(f"{argument} has attributes that are no table; write its metadata anew") from cause


def _check_unit(argument: str, array: Any, unit: int, block_bytes: int) -> None:
    """Raise where whole chunks make a block far larger than asked for; column chunks are joined, so all columns count."""
    rows = min(unit, array.shape[0]) if array.shape else 0
    size = rows * row_bytes(array)
    if size > MOST_BLOCKS * block_bytes:
        raise InputError(
            f"{argument} is stored in {'shards' if getattr(array, 'shards', None) else 'chunks'} of {unit:,} rows, whose whole "
            f"rows take {size:,} bytes, above {MOST_BLOCKS} blocks of {block_bytes:,}; store fewer rows a chunk, or give "
            f"block_bytes={-(-size // MOST_BLOCKS):,}"
        )


def _chunks(argument: str, array: Any, unit: int, block_bytes: int, chunks: Sequence[int] | None) -> tuple[Any, ...]:
    shape = tuple(array.shape)
    if not shape:
        return ()
    if chunks is None or sum(chunks) != shape[0]:
        rows = block_rows(shape[0], row_bytes(array), unit, block_bytes)
        check_blocks(argument, shape, rows, block_bytes)
        chunks = row_chunks(shape[0], rows) if shape[0] else (0,)
    return (tuple(chunks), *((size,) for size in shape[1:]))


def _from_xarray(argument: str, value: Any, block_bytes: int, chunks: Sequence[int] | None) -> Opened:
    if not all(hasattr(value, name) for name in ("dims", "coords", "dtype")):
        raise InputTypeError(
            f"{argument} is an xarray {type(value).__name__}; give nlis.from_xarray(ds, features, target).X, or a DataArray of "
            "rows by features"
        )
    if value.ndim and value.chunks is None and not getattr(value.variable, "_in_memory", True):
        # In a file that was opened without chunks; asked for its data, xarray would read all of them.
        stored = (value.encoding.get("preferred_chunks") or {}).get(value.dims[0], 1)
        value = value.chunk(dict(zip(value.dims, _chunks(argument, value, stored, block_bytes, chunks), strict=True)))
    data = value.data
    lazy = isinstance(data, da.Array)
    inner = data if lazy else _from_memory(np.asarray(data), block_bytes, chunks)
    row = value.dims[0] if value.dims else None
    along = value.coords.to_dataset()
    along = along.drop_vars([k for k, c in along.coords.items() if c.dims not in ((), (row,))]).coords
    names = None
    if value.ndim == 2 and value.dims[1] in value.coords:
        names = tuple(map(str, value.coords[value.dims[1]].values))
    return Opened(inner, Container("xarray", (row, along), lazy=lazy), names)


def check_dtype(argument: str, dtype: np.dtype[Any], names: Sequence[str] | None = None) -> None:
    """Accept bool, integer and real floating types; everything else is a TypeError before any compute."""
    if dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return
    if dtype.kind == "f":
        warn(f"{argument} has dtype {dtype} and is computed in float64", DataConversionWarning)
        return
    hint = "give its real and imaginary part as columns" if dtype.kind == "c" else "encode it as numbers first"
    where = f" (columns {', '.join(names[:3])}, ...)" if names else ""
    raise InputTypeError(f"{argument} has dtype {dtype}{where}; allowed are bool, integers and floats; {hint}")


def in_memory(argument: str, value: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return an array held in memory as float64, with its column names; lazy input is refused."""
    if isinstance(value, str | os.PathLike | zarr.Array) or is_lazy(value):
        raise InputTypeError(f"{argument} is {type(value).__name__}, not in memory; take rows first (sample.take)")
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "index"):
        block, names = from_pandas(argument, value)
        return np.asarray(block, dtype=np.float64), names
    if library == "xarray":
        _, _, names = _from_xarray(argument, value, check_block_bytes(None), None)
        return np.array(value.data, dtype=np.float64), names
    if isinstance(value, np.ma.MaskedArray):
        raise InputTypeError(f"{argument} is a MaskedArray, whose mask would be ignored; give plain numbers")
    try:
        array = np.asarray(value)
    except ValueError as cause:
        raise InputTypeError(f"{argument} is a {type(value).__name__} of unequal rows; give numbers") from cause
    check_dtype(argument, array.dtype)
    return np.array(array, dtype=np.float64), None
