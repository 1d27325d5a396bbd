"""The noun XarrayRows: the cells of a Dataset as rows, and the way back from rows to its dimensions."""

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from dask_nlis import phase
from dask_nlis.adapters.grid import Grid
from dask_nlis.adapters.ravelled import restored, restored_in_memory
from dask_nlis.diagnostics import RowTable
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import Container, give_back, open_array
from dask_nlis.nouns import noun, same
from dask_nlis.sample import Sample


@noun
class XarrayRows:
    """The cells of an xarray Dataset as rows, as `from_xarray` returns them; unpacks into X, y, sample_weight.

    Rows are the cells of all row dimensions, block after block (blocks in C order), in C order inside each block: what
    Dask holds in one block is one block of rows. For data in memory that is C order of the whole array.

    Attributes
    ----------
    X : dask.array.Array of shape (n, d), float64
        A row for each cell, a column for each feature; knows the names of the features.
    y, sample_weight : dask.array.Array of shape (n,), float64, or None
        Labels and row weights, in the same blocks.
    names : tuple of str
        Names of the columns of X.
    grid : Grid
        The row dimensions and their chunks.
    coords : xarray.Dataset
        All coordinates along row dimensions, and scalar ones.
    lazy : bool
        Whether the features are lazy; those of a Dataset in memory are not.

    Examples
    --------
    >>> import numpy as np, xarray as xr, dask_nlis as nlis
    >>> heat = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("time", "place"), coords={"place": ["a", "b", "c"]})
    >>> rows = nlis.from_xarray(heat.to_dataset(name="heat"), ["heat"])
    >>> X, y, sample_weight = rows
    >>> rows.dims, rows.shape
    (('time', 'place'), (2, 3))
    >>> rows.restore(nlis.norm_scores(X)).sel(place="c").values
    array([ 4., 25.])
    >>> rows.coordinates(np.array([5])).place.item(), rows.coordinates(np.array([5])).time.item()
    ('c', 1)
    """

    X: da.Array
    y: da.Array | None
    sample_weight: da.Array | None
    names: tuple[str, ...]
    grid: Grid
    coords: Any
    lazy: bool

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y, self.sample_weight))

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def __hash__(self) -> int:
        return hash(tokenize(self))

    @property
    def dims(self) -> tuple[Any, ...]:
        """Names of the row dimensions."""
        return self.grid.dims

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the row dimensions."""
        return self.grid.shape

    def restore(self, scores: Any, *, name: str | None = None) -> Any:
        """Put a value a row back where the row came from: scores (n,) -> DataArray with the Dataset's dimensions.

        Exactly the way back of `from_xarray`. Lazy scores stay lazy, in the chunks of the Dataset; those of a Dataset in
        memory are computed at the call. Scores in other blocks than X's are cut into those.

        Parameters
        ----------
        scores : array_like of shape (n,)
            A number for each row of X: Dask, NumPy, or anything that `draw` takes.
        name : str, optional
            Name of the DataArray.

        Returns
        -------
        xarray.DataArray
            With the row dimensions, their lengths, and all coordinates along them.

        Raises
        ------
        InputError, InputTypeError
            If scores have another shape, or are no numbers.
        MissingDataError
            If a path was given and nothing is stored there.

        Examples
        --------
        >>> import dask.array as da, xarray as xr, dask_nlis as nlis
        >>> ds = xr.Dataset({"heat": (("time", "place"), da.ones((4, 6), chunks=(2, 3)))})
        >>> rows = nlis.from_xarray(ds, ["heat"])
        >>> rows.restore(nlis.norm_scores(rows.X), name="norm").chunks
        ((2, 2), (3, 3))
        """
        import xarray as xr

        if name is not None and not isinstance(name, str):
            raise InputTypeError(f"name is {type(name).__name__}; give the name that the DataArray shall have, or None")
        given = open_array("scores", scores, chunks=self.grid.row_chunks)
        array, n = given.array, self.grid.n_rows
        if array.shape != (n,):
            raise InputError(f"scores has shape {array.shape}; give ({n},), one value a row of X")
        data: Any
        if not given.container.lazy:
            data = restored_in_memory(self.grid, np.asarray(scores))
        elif not self.lazy:
            data = restored_in_memory(
                self.grid, give_back(Container("numpy", lazy=False), array, "restored", "nlis-restore")
            )
        else:
            if array.chunks != (self.grid.row_chunks,):
                array = array.rechunk((self.grid.row_chunks,), method="tasks")
            data = restored(self.grid, array)
        found = xr.DataArray(data, coords=self.coords.coords, dims=self.dims)
        found.name = name  # else that of the graph
        return found

    def coordinates(self, sample: Any, *, dim: str = "row") -> Any:
        """Say where rows are: a Sample or row numbers (m,) -> Dataset of coordinates along one dimension, m long.

        Nothing is read but coordinates that are lazy, in the blocks that hold these rows.

        Parameters
        ----------
        sample : Sample, RowTable or array_like of shape (m,), int
            Rows of X, in any order; of a Sample its `indices`, in their order.
        dim : str, default "row"
            Name of the dimension of the result.

        Returns
        -------
        xarray.Dataset
            For each row dimension its labels, or integer positions where it has none, and every other coordinate along
            row dimensions, at these rows; scalar coordinates as they are; row numbers as the coordinate `dim`, unless the
            Dataset has a dimension or coordinate of that name itself.

        Raises
        ------
        InputError, InputTypeError
            If rows are no whole numbers from 0 to n - 1.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dask_nlis as nlis
        >>> ds = xr.Dataset({"heat": (("time", "place"), np.ones((4, 2)))}, coords={"place": ["a", "b"]})
        >>> drawn = nlis.from_xarray(ds, ["heat"]).coordinates([0, 7])
        >>> drawn.place.values, drawn.time.values, drawn.row.values
        (array(['a', 'b'], dtype='<U1'), array([0, 3]), array([0, 7]))
        """
        import xarray as xr
        from xarray.indexes import PandasMultiIndex

        if not isinstance(dim, str):
            raise InputTypeError(
                f"dim is {type(dim).__name__}; give the name of the dimension that the result shall have"
            )
        if dim in self.coords.coords and not self.coords[dim].dims:
            raise InputError(f"dim={dim!r} is the name of a scalar coordinate; give another one, such as 'drawn'")
        if isinstance(sample, Sample) and sample.n_rows != self.grid.n_rows:
            raise InputError(
                f"sample was drawn from {sample.n_rows:_} rows, but X has {self.grid.n_rows:_}; give a sample of this X"
            )
        rows = _row_numbers(sample.indices if isinstance(sample, Sample | RowTable) else sample, self.grid.n_rows)
        at = dict(zip(self.dims, self.grid.positions(rows), strict=True))
        found: dict[Any, Any] = {} if dim in self.coords.coords or dim in at else {dim: (dim, rows)}
        for name, coord in self.coords.coords.items():
            if name in at and isinstance(self.coords.xindexes.get(name), PandasMultiIndex):
                continue  # tuples, whose entries are coordinates as well
            places = {each: xr.Variable(dim, at[each]) for each in coord.dims}
            found[name] = _in_memory(coord.variable.to_base_variable().isel(places)) if places else coord.variable
        found |= {name: (dim, positions) for name, positions in at.items() if name not in self.coords.coords}
        return xr.Dataset(coords=found)

    def _summary(self) -> dict[str, Any]:
        return {
            "sizes": dict(zip(self.dims, self.shape, strict=True)),
            "rows": self.grid.n_rows,
            "names": self.names,
            "y": self.y is not None,
            "sample_weight": self.sample_weight is not None,
            "blocks": int(np.prod(self.grid.numblocks)),
            "lazy": self.lazy,
        }


def _row_numbers(given: Any, n: int) -> np.ndarray:
    try:
        rows = np.atleast_1d(np.asarray(given))
    except ValueError as cause:
        raise InputTypeError(f"sample is {type(given).__name__}; give a Sample or row numbers") from cause
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise InputTypeError(
            f"sample is {type(given).__name__} of {rows.dtype}, {rows.ndim}-d; give a Sample or row numbers (m,)"
        )
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < n:
        wrong = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise InputError(f"sample holds row {wrong}, but rows go from 0 to {n - 1:_}; give rows of this X")
    return rows.astype(np.int64)


def _in_memory(variable: Any) -> Any:
    """A variable (m,) with its values; of a lazy one the blocks are read that hold them."""
    if isinstance(variable.data, da.Array):
        return variable.copy(data=phase.computed(variable.data, "nlis-gather"))
    return variable
