"""Feature names travel on the Dask array itself, as an annotation of the graph layer that makes it.

Any operation on the array adds a layer of another name, so names never outlive the columns they describe.
"""

from collections.abc import Sequence

import dask.array as da

_KEY = "nlis-feature-names"


def name_columns(array: da.Array, names: Sequence[str]) -> da.Array:
    """Attach one name a column to a 2-D Dask array, and return it."""
    layer = array.dask.layers[array.name]
    layer.collection_annotations = {**(layer.collection_annotations or {}), _KEY: tuple(map(str, names))}
    return array


def column_names(array: da.Array) -> tuple[str, ...] | None:
    """Return the names attached to exactly this array, or None."""
    layer = getattr(array.dask, "layers", {}).get(array.name)
    found = ((layer.collection_annotations if layer is not None else None) or {}).get(_KEY)
    return found if found is not None and len(found) == array.shape[-1] else None
