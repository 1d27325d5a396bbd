"""Uncompressed Zarr chunks in local files, read straight into their place.

Zarr reads a chunk into memory of its own and copies it from there: twice the memory of a block at a time, sometimes
three times where the first copy is let go of late, and half of the CPU of a read.
"""

import math
import os
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import LocalStore

from dask_nlis.intake.npy_files import filled


def read_plainly(
    array: Any, index: Any, check: Callable[[str, os.stat_result], None] | None = None
) -> np.ndarray | None:
    """Consecutive rows of a Zarr array whose chunk files hold them as they are in memory; None for any other array or index.

    Also None where a chunk is missing or of another size, which is for others to refuse. `check` is given the path and
    the state of each file, and may raise.

    Examples
    --------
    >>> import tempfile
    >>> stored = zarr.create_array(tempfile.mkdtemp(), shape=(5, 2), chunks=(2, 2), dtype="f8", compressors=None)
    >>> stored[:] = np.arange(10.0).reshape(5, 2)
    >>> read_plainly(stored, (slice(1, 4), slice(0, 2)))
    array([[2., 3.],
           [4., 5.],
           [6., 7.]])
    """
    if not isinstance(array, zarr.Array) or not array.shape or not _is_plain(array):
        return None
    rows, *rest = index if isinstance(index, tuple) else (index,)
    pairs = zip(rest, array.shape[1:], strict=False)
    if not isinstance(rows, slice) or not all(_is_whole(each, length) for each, length in pairs):
        return None
    first, last, step = rows.indices(array.shape[0])
    if step != 1 or last <= first:
        return None
    out: Any = np.empty((last - first, *array.shape[1:]), dtype=array.dtype)
    to = memoryview(out).cast("B")
    chunk_rows = array.chunks[0]
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    if not row_bytes:
        return None
    assert isinstance(array.store, LocalStore)
    folder = Path(array.store.root) / array.path
    for chunk in range(first // chunk_rows, -(-last // chunk_rows)):
        begin, end = max(first, chunk * chunk_rows), min(last, (chunk + 1) * chunk_rows)
        name = f"{folder}/{array.metadata.encode_chunk_key((chunk, *(0,) * len(array.shape[1:])))}"
        place = to[(begin - first) * row_bytes : (end - first) * row_bytes]
        try:
            with FileIO(name) as file:
                stat = os.fstat(file.fileno())
                if check is not None:
                    check(name, stat)
                if stat.st_size != chunk_rows * row_bytes:
                    return None  # cut short, or the array was written anew in other chunks
                if not filled(place, file, (begin - chunk * chunk_rows) * row_bytes):
                    return None
        except (FileNotFoundError, IsADirectoryError):  # a folder in its place is nothing to Zarr either
            return None
    return out


def _is_plain(array: "zarr.Array[Any]") -> bool:
    """Whether chunks are whole rows of numbers in local files, in the order and the bytes of memory."""
    metadata = array.metadata
    if type(array.store) is not LocalStore or not isinstance(metadata, ArrayV3Metadata):
        return False
    if len(metadata.codecs) != 1 or not isinstance(metadata.codecs[0], BytesCodec):
        return False
    endian = metadata.codecs[0].endian
    same = array.dtype.itemsize == 1 or (endian is not None and endian.value == sys.byteorder)
    return same and array.dtype.kind in "biuf" and array.dtype.isnative and array.chunks[1:] == array.shape[1:]


def _is_whole(index: Any, length: int) -> bool:
    return isinstance(index, slice) and index.indices(length) == (0, length, 1)
