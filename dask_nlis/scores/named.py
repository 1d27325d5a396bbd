"""Scores that carry the names of the features, for the samples drawn by them."""

import dask.array as da

from dask_nlis.intake import default_names, name_columns
from dask_nlis.matrix import TallMatrix


def named(scores: da.Array, matrix: TallMatrix) -> da.Array:
    """Send the feature names along, where there are any of the user's."""
    names = matrix.source.names
    return scores if names == default_names(len(names)) else name_columns(scores, names)
