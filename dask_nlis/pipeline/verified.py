"""Whether a finished run is what its data and arguments give now, in every bit."""

import numpy as np

from dask_nlis.errors import FingerprintMismatchError
from dask_nlis.pipeline.run_noun import Run

#: What depends on all rows, and on the drawn ones. The n scores are not held to be compared: the factor, the sample and
#: the loss over all rows follow from the same cells.
_PARTS = ("factor", "sample", "sample_X", "sample_y", "sample_weight", "pilot", "fit", "total_loss")


def check_equal(text: str, done: Run, again: Run) -> None:
    """Raise, naming the first part in which a stored run differs from the one that was made again."""
    for name in _PARTS:
        one, other = getattr(done, name), getattr(again, name)
        same = (
            np.array_equal(one, other)
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
            else one == other
        )
        if not same:
            raise FingerprintMismatchError(
                f"store={text!r} holds another {name} than data and libraries give now: they changed without a trace in "
                "names, sizes, times and versions; give a new path"
            )
