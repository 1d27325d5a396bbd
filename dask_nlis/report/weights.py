"""Weights of the drawn rows in a few numbers."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run


class Weights(NamedTuple):
    """How many rows a drawn one stands for: the lightest, the middle one, the heaviest; what that does to the sample."""

    lightest: float
    median: float
    heaviest: float
    share: float  # of the heaviest in the sum
    total: float
    effective_size: float
    design_effect: float


def weights_of(run: "Run") -> Weights:
    """Weights of the sample, those of the data left aside."""
    weights = run.sample.weights
    low, middle, high = np.quantile(weights, (0, 0.5, 1)).tolist()
    total = float(weights.sum())
    return Weights(low, middle, high, high / total, total, run.sample.effective_size, run.sample.design_effect)
