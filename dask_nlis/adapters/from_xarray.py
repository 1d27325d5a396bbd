"""The verb from_xarray: variables of a Dataset -> X, y and row weights, ravelled where their blocks lie."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis.adapters.dataset import as_dataset, columns_of, cut_like, grid_of, is_in_memory, row_sizes, variable_of
from dask_nlis.adapters.grid import Grid
from dask_nlis.adapters.ravelled import Variable, ravelled
from dask_nlis.adapters.xarray_rows import XarrayRows
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import check_block_bytes, name_columns


def from_xarray(
    ds: Any,
    features: Any = None,
    target: Any = None,
    sample_weight: Any = None,
    *,
    feature_dim: Any = None,
    block_bytes: int | None = None,
) -> XarrayRows:
    """Take variables of an xarray Dataset as rows: cells of all dimensions -> X (n, d), y (n,), weights (n,). Reads nothing.

    All dimensions of the features but `feature_dim` are row dimensions, and each cell of them is a row. Blocks are
    ravelled where they lie: one block of Dask becomes one block of rows, in C order inside, blocks in C order; nothing is
    rechunked, moved or stacked to a MultiIndex. `restore` brings scores back, `coordinates` tells where drawn rows are.

    Variables are matched by the names of their dimensions, as everywhere in xarray: those in another order are transposed,
    and those that lack a dimension count in each cell of it, such as an elevation (lat, lon) beside a temperature (time,
    lat, lon), block by block. Features with all row dimensions must be in the same chunks (`ds.unify_chunks()` makes them
    so, by cutting blocks); target, weights and features of fewer dimensions are cut into theirs. Data in memory
    are taken in blocks along the first dimension, as are variables of a file that was opened without chunks, which stay
    unread. Missing values stay NaN: give the matrices `missing="drop"`, for the sea in data of the land, say.

    Parameters
    ----------
    ds : xarray.Dataset or xarray.DataArray
        Where the variables are.
    features : str or sequence of str, optional
        Names of the variables that are the columns of X, coordinates included, and virtual ones such as
        "time.dayofyear". Not needed with a DataArray.
    target : str, optional
        Name of the variable that holds the labels.
    sample_weight : str, optional
        Name of the variable that holds row weights v >= 0, such as the areas of cells.
    feature_dim : str, optional
        Dimension along which a feature holds several columns, such as the bands of an image; they are named by its
        coordinate.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose, 64 MB by default.

    Returns
    -------
    XarrayRows
        `X`, `y`, `sample_weight`, lazily, in float64; feature names travel with X.

    Raises
    ------
    InputTypeError
        If ds is no Dataset, or a variable holds text, dates, objects, complex numbers, or other arrays than NumPy's.
    InputError
        If a variable or dimension is not there, has length 0, or chunks differ; by the task that reads it, if a
        variable holds integers beyond 2^53.

    Examples
    --------
    >>> import dask.array as da, xarray as xr, dask_nlis as nlis
    >>> ds = xr.Dataset(
    ...     {"heat": (("time", "lat", "lon"), da.ones((10, 4, 6), chunks=(5, 4, 3))), "height": (("lat", "lon"), da.ones((4, 6)))}
    ... )
    >>> rows = nlis.from_xarray(ds, ["heat", "height"])
    >>> rows.X.shape, rows.X.chunks[0], rows.names
    ((240, 2), (60, 60, 60, 60), ('heat', 'height'))
    >>> scores = nlis.norm_scores(rows.X)
    >>> rows.restore(scores).sizes
    Frozen({'time': 10, 'lat': 4, 'lon': 6})
    """
    block_bytes = check_block_bytes(block_bytes)
    ds, wanted = as_dataset(ds, features)
    given = [variable_of(ds, "features", name) for name in wanted]
    if feature_dim is not None:
        _check_feature_dim(feature_dim, given)
    names = tuple(name for each in given for name in columns_of(each, feature_dim, len(given) == 1))
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"features give two columns of the name {twice!r}; give each variable once, and unlike labels")
    sizes = row_sizes(given, feature_dim)
    beside = [
        None if name is None else _beside(argument, variable_of(ds, argument, name), sizes)
        for argument, name in (("target", target), ("sample_weight", sample_weight))
    ]
    grid = grid_of(given, sizes, len(names), block_bytes)
    variables = [cut_like(each, grid) for each in given]
    X = None if feature_dim is None else _as_it_lies(variables, grid, feature_dim)
    y, weights = (None if each is None else _column(cut_like(each, grid), grid) for each in beside)
    coords = ds.coords.to_dataset()
    coords = coords.drop_vars([name for name, each in coords.coords.items() if not set(each.dims) <= set(sizes)])
    lazy = not all(map(is_in_memory, given))
    X = name_columns(ravelled(grid, variables, feature_dim) if X is None else X, names)
    return XarrayRows(X, y, weights, names, grid, coords, lazy)


def _check_feature_dim(feature_dim: Any, features: Sequence[Any]) -> None:
    if not isinstance(feature_dim, Hashable):
        raise InputTypeError(f"feature_dim is {type(feature_dim).__name__}; give the name of a dimension")
    if not any(feature_dim in each.dims for each in features):
        known = ", ".join(repr(str(dim)) for dim in dict.fromkeys(dim for each in features for dim in each.dims))
        raise InputError(f"feature_dim={str(feature_dim)[:60]!r} is no dimension of the features; they have {known}")


def _beside(argument: str, found: Any, sizes: Mapping[Hashable, int]) -> Any:
    """Return the variable of labels or weights, or raise where it has more dimensions than rows have."""
    more = [str(dim) for dim in found.dims if dim not in sizes]
    if more:
        raise InputError(
            f"{argument} {str(found.name)!r} has dimension {more[0]!r}, but rows have {', '.join(map(repr, map(str, sizes)))}; "
            f"select along it first, or give a feature with that dimension"
        )
    return found


def _column(variable: Variable, grid: Grid) -> da.Array:
    found = _as_it_lies([variable], grid, None)
    return ravelled(grid, [variable], flat=True) if found is None else found


def _as_it_lies(variables: Sequence[Variable], grid: Grid, feature_dim: Hashable) -> da.Array | None:
    """Return what is rows already: one variable in float64, of one row dimension and whole rows; else None."""
    (first, *others), dims = variables, grid.dims if feature_dim is None else (*grid.dims, feature_dim)
    whole = all(len(chunks) == 1 for chunks in first.array.chunks[1:])
    plain = not others and len(grid.dims) == 1 and first.dims == dims
    return first.array if plain and whole and first.array.dtype == np.float64 else None
