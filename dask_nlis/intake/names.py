"""Feature names travel on the Dask array itself, as an annotation of the graph layer that makes it.

Any operation on the array adds a layer of another name, so names never outlive the columns they describe. Scores
carry the names of the features behind them in the same way, on to the sample and the fit.
"""

from collections.abc import Sequence

import dask.array as da

_KEY = "nlis-feature-names"


def name_columns(array: da.Array, names: Sequence[str]) -> da.Array:
    """Attach feature names to a Dask array (n, d), or to scores (n,) made from it, and return it."""
    layer = array.dask.layers[array.name]
    layer.collection_annotations = {**(layer.collection_annotations or {}), _KEY: tuple(map(str, names))}
    return array


def column_names(array: da.Array) -> tuple[str, ...] | None:
    """Return the names attached to exactly this array, or None."""
    layer = getattr(array.dask, "layers", {}).get(array.name)
    found: tuple[str, ...] | None = ((layer.collection_annotations if layer is not None else None) or {}).get(_KEY)
    return found


def with_names(array: da.Array, names: Sequence[str]) -> da.Array:
    """Attach the names of all columns where they are the user's; those that came by default are not passed on."""
    return array if tuple(names) == default_names(len(names)) else name_columns(array, names)


def default_names(d: int) -> tuple[str, ...]:
    """Names for columns that came without: x0, x1, ..."""
    return tuple(f"x{j}" for j in range(d))
