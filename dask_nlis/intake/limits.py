"""What metadata of stored arrays may ask for: refused before anything is read or made by it."""

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import zarr

from dask_nlis.documents import MOST_BYTES
from dask_nlis.errors import InputError

#: Dimensions, bytes of an entry, rows, and blocks of an array: beyond is no data but a damaged or hostile header.
MOST_DIMENSIONS, MOST_ITEM_BYTES, MOST_ROWS, MOST_BLOCKS = 32, 2**16, 2**62, 10**6

#: Bytes up to which a chunk may be larger than its array.
_LARGE_CHUNK = 2**28

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def check_metadata(argument: str, path: str) -> None:
    """Raise where the metadata of a local Zarr array or group is above 16 MiB."""
    for name in _METADATA:
        file = os.path.join(path, name)
        if os.path.isfile(file) and (size := os.path.getsize(file)) > MOST_BYTES:
            raise InputError(f"{argument}: {name} has {size:,} bytes, above {MOST_BYTES:,}; write the metadata anew")


def check_header(argument: str, array: Any) -> None:
    """Raise where the shape, the entries or the codecs of a stored array are none that are read."""
    shape = tuple(array.shape)
    if isinstance(array, zarr.Array) and not all(array.chunks):
        raise InputError(f"{argument} is stored in chunks of shape {array.chunks}; write its metadata anew")
    if len(shape) > MOST_DIMENSIONS:
        raise InputError(f"{argument} has {len(shape)} dimensions; give an array of rows by features")
    if any(length > MOST_ROWS for length in shape):
        raise InputError(f"{argument} has shape {shape}, more than anything can hold; write its metadata anew")
    size = np.dtype(array.dtype).itemsize
    if size > MOST_ITEM_BYTES:
        raise InputError(f"{argument} has entries of {size:,} bytes; give numbers")
    if isinstance(array, zarr.Array):
        unit = math.prod(map(int, array.chunks)) * size
        if unit > max(
            _LARGE_CHUNK, math.prod(map(int, shape)) * size
        ):  # it is decoded whole, however little is used of it
            raise InputError(f"{argument} is stored in chunks of {unit:,} bytes, larger than all of it; write it anew")
        for name in codec_names(array):
            if "pickle" in name.lower():
                raise InputError(
                    f"{argument} is stored with the codec {name[:40]!r}, which runs what the file says; store numbers without"
                )


def codec_names(array: "zarr.Array[Any]") -> Iterable[str]:
    """Names of the codecs, filters and compressors of an array of Zarr, versions 2 and 3."""
    metadata = array.metadata.to_dict()
    waiting: list[Any] = [metadata.get(key) for key in ("codecs", "filters", "compressor")]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list | tuple):
            waiting += found
        elif isinstance(found, dict):
            yield from (str(found[key]) for key in ("id", "name") if key in found)
            waiting += [value for value in found.values() if isinstance(value, dict | list | tuple)]
        elif found is not None and not isinstance(found, str | int | float):
            yield str(getattr(found, "codec_id", type(found).__name__))


def check_blocks(argument: str, shape: tuple[int, ...], rows: int, block_bytes: int) -> None:
    """Raise where blocks of so many rows are more than a graph can hold."""
    blocks = -(-shape[0] // max(1, rows)) if shape else 1
    if blocks > MOST_BLOCKS:
        raise InputError(
            f"{argument} of {shape[0]:,} rows takes {blocks:,} blocks of {block_bytes:,} bytes, above {MOST_BLOCKS:,}; give a "
            f"larger block_bytes, such as {block_bytes * -(-blocks // MOST_BLOCKS):,}"
        )


def row_bytes(array: Any) -> int:
    """Bytes of a row; Python integers, which no header can make overflow."""
    return math.prod(map(int, array.shape[1:])) * int(np.dtype(array.dtype).itemsize)
