"""What of a Dataset was asked for: variables by name, checked; and the blocks that their rows are cut into."""

import math
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from dask_nlis.adapters.grid import Grid, in_words, laid_out
from dask_nlis.adapters.ravelled import Variable
from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.intake import check_dtype

#: Blocks of a layout of ours, at most.
_MOST_BLOCKS = 10**6


def as_dataset(ds: Any, features: Any) -> tuple[Any, tuple[Hashable, ...]]:
    """Return a Dataset and the names of its variables that are asked for; a DataArray becomes a Dataset of one."""
    try:
        import xarray as xr
    except ImportError as cause:
        raise MissingExtraError("ds needs xarray; pip install 'dask-nlis[xarray]'") from cause
    if not isinstance(ds, xr.Dataset | xr.DataArray):
        raise InputTypeError(f"ds is {type(ds).__name__}; give an xarray.Dataset or DataArray")
    if isinstance(ds, xr.DataArray):
        names = (
            name for name in (ds.name, "X", "values", "values of ds") if name is not None and name not in ds.coords
        )
        name = next(names)
        if features is None:
            features = name
        ds = ds.to_dataset(name=name)
    known = ", ".join(map(repr, list(ds.data_vars)[:6]))
    if isinstance(features, str):
        return ds, (features,)
    if not isinstance(features, list | tuple):
        raise InputTypeError(
            f"features is {type(features).__name__}; give names of variables of ds, in a list: {known}"
        )
    if not features:
        raise InputError(f"features is empty; give names of variables of ds: {known}")
    return ds, tuple(features)


def variable_of(ds: Any, argument: str, name: Any) -> Any:
    """Return the DataArray of a variable, a coordinate or a virtual variable, under that name; numbers, or it raises."""
    if not isinstance(name, Hashable):
        raise InputTypeError(
            f"{argument}: {type(name).__name__} is no name; give that of a variable of ds, into which arrays go by ds.assign"
        )
    try:
        found = ds[name].rename(name)
    except (KeyError, AttributeError, TypeError, ValueError) as cause:
        names = [str(each) for each in ds.variables]
        near = get_close_matches(str(name), names, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, names[:6]))}"
        raise InputError(f"{argument}: {str(name)[:60]!r} is no variable of ds; {remedy}") from cause
    _check_numbers(f"{argument}: variable {str(name)!r}", found)
    if len(set(found.dims)) < len(found.dims):
        raise InputError(f"{argument}: variable {str(name)!r} has a dimension twice, {found.dims}; rename one of them")
    for dim, size in found.sizes.items():
        if math.isnan(size):
            raise InputError(
                f"{argument}: variable {str(name)!r} has blocks of unknown length; call ds[{name!r}].data.compute_chunk_sizes()"
            )
        if not size:
            raise InputError(f"{argument}: dimension {str(dim)!r} of {str(name)!r} has length 0; give at least one row")
    return found


def _check_numbers(what: str, found: Any) -> None:
    dtype = found.dtype
    remedy = {
        "M": f"give a number of it, such as ds[{found.name!r}].dt.dayofyear",
        "m": f"give ds[{found.name!r}] / np.timedelta64(1, 's')",
    }.get(getattr(dtype, "kind", ""))
    if remedy is not None:
        raise InputTypeError(f"{what} has dtype {dtype}; allowed are bool, integers and floats; {remedy}")
    if not isinstance(dtype, np.dtype):
        raise InputTypeError(
            f"{what} has dtype {dtype} of pandas; give it .astype(float), or encode it as numbers first"
        )
    check_dtype(what, dtype)
    held = found.data._meta if found.chunks is not None and isinstance(found.data, da.Array) else None
    if held is None and found.chunks is None:
        held = found.data if is_in_memory(found) else np.empty(0)
    if type(held) is not np.ndarray:
        kind = type(held if held is not None else found.data)
        raise InputTypeError(
            f"{what} holds {kind.__module__}.{kind.__name__}; give dense NumPy blocks, plain or by Dask"
        )


def is_in_memory(found: Any) -> bool:
    """Whether the values of a DataArray lie in memory: neither lazy nor in a file that was opened without chunks."""
    return found.chunks is None and bool(getattr(found.variable, "_in_memory", True))


def columns_of(found: Any, feature_dim: Hashable, alone: bool) -> tuple[str, ...]:
    """Names of the columns of a variable: its own, or the labels along the dimension of features."""
    if feature_dim not in found.dims:
        return (str(found.name),)
    labelled = feature_dim in found.coords
    labels = (
        found.coords[feature_dim].values if labelled else (f"{feature_dim}{k}" for k in range(found.sizes[feature_dim]))
    )
    return tuple(str(label) if alone else f"{found.name}[{label}]" for label in labels)


def row_sizes(features: Sequence[Any], feature_dim: Hashable) -> dict[Hashable, int]:
    """Row dimensions and their lengths: in the order of the first feature that has all of them, else as they come."""
    sizes = {dim: size for each in features for dim, size in each.sizes.items() if dim != feature_dim}
    if not sizes:
        raise InputError("features have no row dimension; give variables with one, such as time")
    whole = next((each for each in features if set(sizes) <= set(each.dims)), None)
    return sizes if whole is None else {dim: size for dim, size in whole.sizes.items() if dim != feature_dim}


def grid_of(features: Sequence[Any], sizes: Mapping[Hashable, int], n_columns: int, block_bytes: int) -> Grid:
    """The blocks of rows: those of lazy features, the ones with most dimensions first; ours along other dimensions."""
    known: dict[Hashable, tuple[int, ...]] = {}
    units: dict[Hashable, int] = {}
    leader: dict[Hashable, Any] = {}
    for each in sorted(features, key=lambda one: -len(set(one.dims) & set(sizes))):
        chunks = {dim: cut for dim, cut in each.variable.chunksizes.items() if dim in sizes}
        for dim, cut in chunks.items():
            if cut != known.setdefault(dim, cut) and set(sizes) <= set(each.dims):
                raise InputError(
                    f"features {str(leader[dim])!r} and {str(each.name)!r} have unequal chunks along {str(dim)!r}, "
                    f"{in_words(known[dim])} and {in_words(cut)}; give ds.unify_chunks()"
                )
            leader.setdefault(dim, each.name)
        if not chunks and not is_in_memory(each):
            stored = each.encoding.get("preferred_chunks") or {}
            units = {dim: int(stored[dim]) for dim in each.dims if isinstance(stored.get(dim), int)} | units
    grid = laid_out(sizes, known, units, 8 * n_columns, block_bytes)
    if not known and (blocks := math.prod(grid.numblocks)) > _MOST_BLOCKS:
        raise InputError(
            f"ds takes {blocks:,} blocks of block_bytes={block_bytes:,}, above {_MOST_BLOCKS:,}; give a larger block_bytes, such "
            f"as {block_bytes * -(-blocks // _MOST_BLOCKS):,}"
        )
    return grid


def cut_like(found: Any, grid: Grid) -> Variable:
    """Return a variable as a lazy array, in the chunks of the grid along the grid's dimensions."""
    along = {dim: sizes for dim, sizes in zip(grid.dims, grid.chunks, strict=True) if dim in found.dims}
    name = str(found.name)
    if is_in_memory(found):
        values = np.asarray(found.data)
        chunks = tuple(along.get(dim, (size,)) for dim, size in found.sizes.items())
        lazy = da.from_array(values, chunks=chunks, name=f"nlis-memory-{tokenize(values, chunks)}", asarray=False)
        return Variable(name, lazy, found.dims)
    array = (found if found.chunks is not None else found.chunk(along)).data
    wanted = {found.dims.index(dim): sizes for dim, sizes in along.items()}
    if any(array.chunks[axis] != sizes for axis, sizes in wanted.items()):
        array = array.rechunk(wanted, method="tasks")
    return Variable(name, array, found.dims)
