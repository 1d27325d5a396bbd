"""X, y and row weights, checked, aligned by row number and cut into the same blocks."""

from typing import Any, NamedTuple

import dask
import dask.array as da
from dask.base import tokenize

from dask_nlis import phase, workers
from dask_nlis.errors import DataConversionWarning, InputError, InputTypeError, PerformanceWarning
from dask_nlis.intake.containers import Container
from dask_nlis.intake.flattened import flattened
from dask_nlis.intake.frames import is_dask_table
from dask_nlis.intake.names import default_names, name_columns
from dask_nlis.intake.opened import check_block_bytes, look_at, open_array
from dask_nlis.intake.sizes import count_rows, unknown_rows, with_sizes

#: Tasks that take a scheduler seconds of its own.
_MANY_BLOCKS = 50_000


class Rows(NamedTuple):
    """Aligned input: nothing here has been read yet.

    `x` is 2-D with one column chunk; `y` and `weight` have the row chunks of x, shape (n,) or (n, 1); y (n, k) of several outputs.
    """

    x: da.Array
    y: da.Array | None
    weight: da.Array | None
    names: tuple[str, ...]
    container: Container
    token: str

    @property
    def n_rows(self) -> int:
        """Rows of X."""
        return int(self.x.shape[0])

    @property
    def n_columns(self) -> int:
        """Columns of X."""
        return int(self.x.shape[1])

    @property
    def chunks(self) -> tuple[int, ...]:
        """Rows of each block."""
        chunks: tuple[int, ...] = self.x.chunks[0]
        return chunks

    @property
    def n_bytes(self) -> int:
        """Bytes of X and y as stored."""
        return int(self.x.nbytes + (self.y.nbytes if self.y is not None else 0))


def take_in(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    block_bytes: int | None = None,
    argument: str = "X",
    labelled: str = "y",
    label_columns: int = 1,
    input_shape: tuple[int, ...] | None = None,
) -> Rows:
    """Check and align X (n, d), y (n,) and row weights (n,) of any accepted kind; reads metadata only.

    `argument` is what the caller calls X, `labelled` what he calls y, of which a loss may take several columns;
    rows of X that have the `input_shape` of a model are flattened.
    Dask arrays and DataFrames whose blocks have unknown lengths are read once, all in one compute.

    Raises
    ------
    InputTypeError
        If an argument has a kind or dtype that is not numbers.
    InputError
        If shapes do not fit.
    """
    if dask.config.get("array.query-planning", False):
        raise InputError("the Dask setting array.query-planning is True, which lacks what scores need; set it to False")
    block_bytes = check_block_bytes(block_bytes)
    if X is None:
        raise InputTypeError(f"{argument} is None; give an array of shape (n, d)")
    x, container, names = look_at(argument, X, block_bytes)
    x = flattened(argument, x, input_shape)
    if x.ndim != 2:
        remedy = ".reshape(-1, 1) for one feature" if x.ndim == 1 else f".reshape(len({argument}), -1)"
        remedy = f"as in {argument}{remedy}"
        if input_shape is not None and x.ndim > 2:
            remedy = f"or rows of the input_shape of the model, (n, {', '.join(map(str, input_shape))})"
        if container.kind == "xarray" and x.ndim > 2:
            remedy = f"as nlis.from_xarray({argument}).X does, a row a cell (feature_dim= names the columns)"
        raise InputError(f"{argument} has {x.ndim} dimensions (shape {x.shape}); give two, {remedy}")
    beside = {labelled: y, "sample_weight": sample_weight}
    uncounted = {name: look_at(name, each).array for name, each in beside.items() if _may_not_know_its_rows(each)}
    for name, array in uncounted.items():
        _check_columns(name, array, "n", label_columns if name == labelled else 1)
    count_rows({argument: x, **uncounted})
    x = with_sizes(argument, x)
    if 0 in x.shape:
        raise InputError(
            f"{argument} has shape {x.shape}: no {'rows' if not x.shape[0] else 'columns'}; give at least one"
        )
    x = _whole_rows(argument, x, block_bytes)
    if isinstance(X, da.Array) or is_dask_table(X):  # else the blocks are ours
        _warn_of_layout(argument, x, block_bytes, is_dask_table(X))
    columns = names or default_names(x.shape[1])
    labels = None if y is None else _column(labelled, y, x, block_bytes, argument, label_columns)
    weights = None if sample_weight is None else _column("sample_weight", sample_weight, x, block_bytes, argument)
    token = tokenize(x.name, getattr(labels, "name", None), getattr(weights, "name", None))
    if names is not None:
        name_columns(x, names)
    return Rows(x, labels, weights, columns, container, token)


def _may_not_know_its_rows(value: Any) -> bool:
    return (isinstance(value, da.Array) and unknown_rows(value)) or is_dask_table(value)


def _whole_rows(argument: str, x: da.Array, block_bytes: int) -> da.Array:
    pieces = len(x.chunks[1])
    if pieces == 1:
        return x
    largest = max(x.chunks[0]) * x.shape[1] * x.dtype.itemsize
    if largest > 16 * block_bytes:
        raise InputError(
            f"{argument} has {pieces} column chunks and whole rows would make blocks of {largest:,} bytes; "
            f"call {argument}.rechunk({{1: -1, 0: 'auto'}}) first"
        )
    phase.warn(
        f"{argument} has {pieces} column chunks, which are joined on reading; store whole rows in each chunk",
        PerformanceWarning,
    )
    return x.rechunk({1: -1}, method="tasks")


def _warn_of_layout(argument: str, x: da.Array, block_bytes: int, table: bool) -> None:
    """Warn of blocks so small that their tasks take the time, and of one that this process could not hold."""
    row_bytes = x.shape[1] * x.dtype.itemsize
    pieces, largest = len(x.chunks[0]), max(x.chunks[0]) * row_bytes
    rows = max(1, min(block_bytes // row_bytes, x.shape[0]))
    remedy = f"repartition(npartitions={-(-x.shape[0] // rows)})" if table else f"rechunk({{0: {rows:,}}})"
    if pieces > _MANY_BLOCKS and largest < block_bytes // 16:
        phase.warn(
            f"{argument} has {pieces:,} blocks of at most {largest:,} bytes, a task each; call "
            f"{argument}.{remedy} first",
            PerformanceWarning,
        )
    if workers.client_in_force() is None and largest > workers.memory_here():
        phase.warn(
            f"{argument} has a block of {largest:,} bytes, above the {workers.memory_here():,} of this process; call "
            f"{argument}.{remedy} first",
            PerformanceWarning,
        )


def _column(argument: str, value: Any, x: da.Array, block_bytes: int, beside: str, columns: int = 1) -> da.Array:
    """Open y or the weights with the row chunks of X: alignment is by row number, whatever the chunks."""
    array = open_array(argument, value, block_bytes, x.chunks[0]).array
    n = x.shape[0]
    _check_columns(argument, array, n, columns)
    if array.shape[0] != n:
        raise InputError(
            f"{beside} and {argument} have inconsistent numbers of rows: [{n}, {array.shape[0]}]; give equal ones"
        )
    if array.ndim == 2 and columns == 1:
        phase.warn(f"{argument} has shape {array.shape} and is read as ({n},)", DataConversionWarning)
    if array.chunks[0] != x.chunks[0] or (array.ndim == 2 and len(array.chunks[1]) > 1):
        whole = {1: -1} if array.ndim == 2 else {}
        array = array.rechunk({0: x.chunks[0], **whole}, method="tasks")
    return array


def _check_columns(argument: str, array: da.Array, n: int | str, columns: int) -> None:
    if columns > 1:
        if array.ndim != 2 or array.shape[1] != columns:
            raise InputError(
                f"{argument} has shape {array.shape}; give ({n}, {columns}), one column an output of the model"
            )
        return
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] != 1):
        raise InputError(f"{argument} has shape {array.shape}; give ({n},), one value a row")
