"""Open X and y of a Zarr group, an HDF5 file or a table by path or URL."""

import os
from collections.abc import Sequence
from typing import Any

import dask.array as da
import zarr

from dask_nlis.errors import InputTypeError
from dask_nlis.intake.hdf5_files import is_hdf5, open_hdf5
from dask_nlis.intake.names import name_columns
from dask_nlis.intake.open_table import is_table, open_table
from dask_nlis.intake.opened import check_allow_missing, check_block_bytes, from_storage
from dask_nlis.intake.zarr_files import check_path, member, open_zarr


def open_rows(
    path: str | os.PathLike[str],
    *,
    X: str | Sequence[str] | None = None,
    y: str | None = None,
    block_bytes: int | None = None,
    allow_missing: bool | None = None,
) -> tuple[da.Array, da.Array | None]:
    """Open arrays of a Zarr group or HDF5 file, or columns of a table: path -> lazy X (n, d), and y (n,) or None.

    Blocks are whole shards (or chunks) near `block_bytes`, small ones merged; y follows the blocks of X.
    Names in the attribute `feature_names` of X travel along. Reads metadata only. Versions 2 and 3 of Zarr, sharded
    or not, are read alike. HDF5 needs the extra `hdf5`; each task opens the file for itself, on threads, processes or
    a cluster that sees the path. A store that is written anew, or loses chunks, after opening is refused by the tasks
    that read it (in a local folder by the times of its files; elsewhere only what is missing is noticed, so leave a
    store alone while it is read). An altered bit is noticed only where the array has a checksum codec such as crc32c.
    NPY files hold one array each and go straight to the matrix functions, as paths.

    Tables need the extra `dataframe`. A Parquet file, or a folder of such files with the same columns (in natural order of
    their names, not partitioned into folders), is read by whole row groups near `block_bytes`, of the columns asked for
    alone; at the call only footers are read. A CSV file (UTF-8, commas, names in the first row) is read once at the call, to
    find where its rows begin, and parsed in each pass: where there are several, `dask-nlis ingest` pays. Columns hold
    numbers or bools, and become float64; what is missing becomes NaN. Text and categories are for `ingest`, which makes a
    store of a table, and for `from_dataframe`.

    Parameters
    ----------
    path : str or path
        Zarr group, local or by URL; or a local HDF5, Parquet or CSV file, or a folder of Parquet files. URLs of object storage (s3://, gs://, az://) are opened by
        obstore with the extra `cloud`, with credentials of each process's environment; others, and these without it, by
        fsspec.
    X : str or sequence of str
        Name of the array in the group or file; of a table the names of one column or several, by default all but y.
    y : str, optional
        Name of the array, or the column, of the labels.
    block_bytes : int, optional
        Bytes of a block; 64 MB by default, from the Dask config key `dask-nlis.block-bytes`.
    allow_missing : bool, optional
        Whether chunks of a Zarr array may be missing, as Zarr leaves out those that hold the fill value alone; they are
        read as that value, with a MissingDataWarning. By default, from the Dask config key `dask-nlis.allow-missing`,
        they raise: a chunk that was lost looks the same. The key also serves arrays and paths given to a matrix.

    Returns
    -------
    X, y : dask.array.Array of shape (n, d), dask.array.Array of shape (n,) or None
        In the dtype stored; columns of tables as float64.

    Raises
    ------
    MissingDataError
        If nothing is stored at the path, or chunks are missing: at the call in a local folder, else by the task that
        reads them.
    DamagedDataError
        If metadata cannot be read. Tasks raise it for chunks that cannot be decoded, ChangedDataError for those written
        anew since, and ReadError for what cannot be read after three more attempts.
    InputError
        If the group or file has no such array or column (the message lists those it has), chunks or row groups are too
        large for blocks, or rows of a CSV file have different numbers of cells.
    MissingExtraError
        If what reads such a file or URL is not installed.
    InputTypeError
        If the path is of another type, or that of an NPY file or of a single Zarr array; or if a column holds no numbers: of
        Parquet by its type, of CSV by the first such cell, which its task names with column and row.

    Examples
    --------
    >>> import tempfile, zarr, numpy as np, dask_nlis as nlis
    >>> folder = tempfile.mkdtemp()
    >>> group = zarr.open_group(folder, mode="w")
    >>> _ = group.create_array("X", data=np.ones((6, 2))), group.create_array("y", data=np.ones(6))
    >>> X, y = nlis.open_rows(folder, X="X", y="y")
    >>> X.shape, y.shape
    ((6, 2), (6,))
    """
    size, allowed = check_block_bytes(block_bytes), check_allow_missing(allow_missing)
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(
            f"path is {type(path).__name__}; give a path or URL (arrays go straight to the matrix functions)"
        )
    text = check_path("path", path)
    if text.lower().endswith(".npy"):
        raise InputTypeError(
            "path is an NPY file, which holds one array; give its path as X to the matrix functions or run"
        )
    if is_table(text):
        return open_table(text, X, y, size)
    if not isinstance(X, str):
        raise InputTypeError(f"X is {type(X).__name__}; give the name of an array (only tables have lists of columns)")
    if is_hdf5(text):
        return _pair(size, False, open_hdf5("X", text, X), None if y is None else open_hdf5("y", text, y))
    group = open_zarr("path", path)
    if isinstance(group, zarr.Array):
        raise InputTypeError("path is a Zarr array, not a group; give the path of the group that holds it")
    return _pair(size, allowed, member("X", group, X), None if y is None else member("y", group, y))


def _pair(block_bytes: int, allow_missing: bool, x: Any, y: Any) -> tuple[da.Array, da.Array | None]:
    opened = _opened("X", x, block_bytes, allow_missing, None)
    return opened, None if y is None else _opened("y", y, block_bytes, allow_missing, opened)


def _opened(argument: str, array: Any, block_bytes: int, allow_missing: bool, like: da.Array | None) -> da.Array:
    chunks = None if like is None else like.chunks[0]
    lazy, _, names = from_storage(argument, array, block_bytes, chunks, allow_missing)
    found: Any = lazy if names is None else name_columns(lazy, names)
    return found
