"""Rows made when they are read: data of any length that take no room, for benchmarks and for trying a job out."""

from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from dask_nlis.blocks import row_chunks
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import is_whole

#: Philox gives four words of 64 bits a counter, each two numbers of 32 bits.
_A_COUNTER = 8

#: Standard deviation of the noise in y.
_NOISE = 0.1


def generated_rows(
    n_rows: int, n_columns: int, *, seed: int = 0, block_rows: int = 2**17, dtype: Any = "float64"
) -> tuple[da.Array, da.Array]:
    """Make lazy X (n, d) and y (n,) whose rows exist only while they are read, as Dask arrays. Reads nothing.

    Columns are independent and uniform on [-1, 1); y is 1/2 + z / (2 (1 + |z|)), z = X @ theta, plus uniform noise of
    standard deviation 0.1, with theta_j = (-1)^j / (1 + j). A row follows from the seed and its number alone,
    whatever the blocks, the scheduler and how often it is read. Making it takes about 4 ns a number, for y as for X.

    Parameters
    ----------
    n_rows, n_columns : int
        Positive.
    seed : int, default 0
        Non-negative.
    block_rows : int, default 131072
        Rows of a Dask block.
    dtype : {"float64", "float32"}
        Of X and y; a value of float32 is that of float64, rounded.

    Returns
    -------
    X, y : dask.array.Array of shape (n, d), dask.array.Array of shape (n,)
        Of the dtype asked for.

    Raises
    ------
    InputError
        If a number is not positive, the seed negative, or the dtype neither.
    InputTypeError
        If a number is no integer.

    Notes
    -----
    Philox (Salmon et al. 2011) counts: the counter of a row is its number times a stride, so any row is reached at
    once.

    Examples
    --------
    >>> X, y = generated_rows(10**9, 3)
    >>> X.shape, y.shape, X.numblocks
    ((1000000000, 3), (1000000000,), (7630, 1))
    >>> bool((X[10**8 : 10**8 + 5].compute() == generated_rows(10**9, 3, block_rows=10**5)[0][10**8 : 10**8 + 5]).all())
    True
    """
    numbers = {"n_rows": n_rows, "n_columns": n_columns, "seed": seed, "block_rows": block_rows}
    for name, value in numbers.items():
        if not is_whole(value):
            raise InputTypeError(f"{name}={value!r} is {type(value).__name__}; give an integer")
        if value < (0 if name == "seed" else 1):
            raise InputError(
                f"{name}={value} is not allowed; give a {'non-negative' if name == 'seed' else 'positive'} one"
            )
    if dtype not in ("float64", "float32", np.float64, np.float32):
        raise InputError(f"dtype={dtype!r} is not allowed; give 'float64' or 'float32'")
    chunks = row_chunks(n_rows, block_rows)
    x = _Features((n_rows, n_columns), seed, np.dtype(dtype))
    y = _Labels((n_rows, n_columns), seed, np.dtype(dtype))
    arrays = [
        da.from_array(
            made,
            chunks=(chunks, *((size,) for size in made.shape[1:])),
            name=f"generated-{tokenize(made, chunks)}",
            asarray=False,
            inline_array=True,
            meta=np.empty((0,) * made.ndim, dtype=made.dtype),
        )
        for made in (x, y)
    ]
    return arrays[0], arrays[1]


class _Features:
    """X as an array-like: rows are made from their numbers when they are sliced."""

    def __init__(self, size: tuple[int, int], seed: int, dtype: np.dtype[Any]) -> None:
        self.size, self.seed, self.dtype = size, seed, dtype
        self.shape: tuple[int, ...] = size
        self.ndim = len(self.shape)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self.size, self.seed, str(self.dtype)

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        return _uniforms(self.size, self.seed, index[0])[:, :-1][:, index[1]].astype(self.dtype)


class _Labels:
    """y as an array-like, made from the same numbers as X."""

    def __init__(self, size: tuple[int, int], seed: int, dtype: np.dtype[Any]) -> None:
        self.size, self.seed, self.dtype = size, seed, dtype
        self.shape: tuple[int, ...] = size[:1]
        self.ndim = len(self.shape)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self.size, self.seed, str(self.dtype)

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        numbers = _uniforms(self.size, self.seed, index[0])
        z = np.zeros(len(numbers))
        for j in range(self.size[1]):  # a matrix product rounds by the number of rows
            z += numbers[:, j] * ((-1.0) ** j / (1.0 + j))
        # Uniform on [-1, 1) has standard deviation 3^-1/2.
        return (0.5 + 0.5 * z / (1 + np.abs(z)) + _NOISE * 3**0.5 * numbers[:, -1]).astype(self.dtype)


def _uniforms(size: tuple[int, int], seed: int, rows: slice) -> np.ndarray:
    """Numbers on [-1, 1) of some rows, (m, d + 1); the last is for the noise."""
    start, stop, step = rows.indices(size[0])
    needed = size[1] + 1
    stride = -(-needed // _A_COUNTER)
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    words = np.random.Philox(key=key, counter=start * stride).random_raw(4 * stride * max(stop - start, 0))
    # The low half of each word first, whatever the byte order of the machine.
    numbers = words.astype("<u8", copy=False).view("<u4").reshape(-1, _A_COUNTER * stride)
    return numbers[::step, :needed] * 2.0**-31 - 1.0
