"""What is known of the data and the matrices before anything is read."""

from typing import NamedTuple

import dask.array as da

from dask_nlis.intake import Rows, stored_as

#: Pieces of a Zarr block that are on their way at a time, by the default of zarr's setting async.concurrency.
_AT_A_TIME = 10


class Layout(NamedTuple):
    """Rows, columns and blocks of the data, and the columns of each matrix made of them."""

    n_rows: int
    n_columns: int
    n_bytes: int  # of X, y and weights
    blocks: int
    block_rows: int  # of the largest block
    block_bytes: int  # of the largest block, as stored
    reading_bytes: int  # of a task that reads it: the block, and pieces of it being decoded
    lazy_arrays: int  # of X, y and weights, how many are read by tasks
    alone: bool  # whether reads of one process wait for one another
    widths: dict[str, int]  # columns of the reference, dual and tangent matrix


def layout_of(rows: Rows, widths: dict[str, int]) -> Layout:
    """Look at aligned input; reads nothing."""
    arrays = [array for array in (rows.x, rows.y, rows.weight) if array is not None]
    largest = max(rows.chunks)
    storages = [stored_as(array) for array in arrays]
    return Layout(
        n_rows=rows.n_rows,
        n_columns=rows.n_columns,
        n_bytes=sum(int(array.nbytes) for array in arrays),
        blocks=len(rows.chunks),
        block_rows=largest,
        block_bytes=sum(largest * _row_bytes(array) for array in arrays),
        reading_bytes=sum(_reading(array, largest) for array in arrays),
        lazy_arrays=sum(not array.name.startswith("nlis-memory") for array in arrays),
        alone=any(storage is not None and storage.alone for storage in storages),
        widths=widths,
    )


def _row_bytes(array: da.Array) -> int:
    columns = array.shape[1] if array.ndim == 2 else 1
    return int(columns) * array.dtype.itemsize


def _reading(array: da.Array, rows: int) -> int:
    """Bytes a task holds while it reads a block: pieces on their way are held as they came and as they were decoded."""
    block = rows * _row_bytes(array)
    storage = stored_as(array)
    if storage is None or not storage.piece_bytes:
        return block
    pieces = -(-rows // storage.piece_rows) * -(-storage.piece_rows * _row_bytes(array) // storage.piece_bytes)
    return block + min(_AT_A_TIME, pieces) * storage.piece_bytes * (2 if storage.compressed else 1)
