"""A sample in a file: a line for each draw, the rest in the header."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_nlis.errors import InputError

_ROWS = ("indices", "counts", "probabilities", "weights", "variance_weights")
_DRAWS = ("draws", "stage")


def to_lines(found: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Columns and header of a sample's dictionary: draws in their order, each with what its row has."""
    draws = found["draws"]
    columns = {
        "row": found["indices"][draws],
        "stage": found["stage"],
        "probability": found["probabilities"][draws],
        "weight": found["weights"][draws],
        "variance_weight": found["variance_weights"][draws],
    }
    return columns, {name: value for name, value in found.items() if name not in (*_ROWS, *_DRAWS)}


def from_lines(columns: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sample's dictionary."""
    wanted = {"row", "stage", "probability", "weight", "variance_weight"}
    if set(columns) != wanted:
        raise InputError(
            f"the file has columns {', '.join(sorted(columns))}; a saved sample has {', '.join(sorted(wanted))}"
        )
    for name in ("row", "stage"):
        if len(columns[name]) and columns[name].dtype.kind not in "iu":
            raise InputError(f"the column {name} holds {columns[name].dtype}; a saved sample has integers there")
    rows, first, draws, counts = np.unique(
        columns["row"].astype(np.int64), return_index=True, return_inverse=True, return_counts=True
    )
    return {
        **header,
        "indices": rows,
        "counts": counts.astype(np.int64),
        "draws": draws.astype(np.int64),
        "stage": columns["stage"].astype(np.int64),
        "probabilities": columns["probability"].astype(np.float64)[first],
        "weights": columns["weight"].astype(np.float64)[first],
        "variance_weights": columns["variance_weight"].astype(np.float64)[first],
    }
