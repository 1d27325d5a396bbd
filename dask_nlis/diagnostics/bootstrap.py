"""A bootstrap interval of a weighted sum over a sample, by the design it was drawn by."""

import numpy as np

from dask_nlis.refit import contributions
from dask_nlis.sample import Sample

#: Replicates, and the multipliers that are held at a time.
_REPLICATES, _HELD = 1999, 2**22


def interval(sample: Sample, values: np.ndarray, confidence_level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of sum_i w_i values_i over repeated draws, values (m,) of the distinct rows.

    A multiplier bootstrap (Beaumont & Patak 2012): each independent contribution to the variance of the sum is
    multiplied by a centred exponential variable of variance 1, as skew as the weights of rare rows make the sum. The
    seed is that of the sample.
    """
    parts = contributions(sample, values[:, None])[:, 0]
    rng = np.random.default_rng([0 if sample.seed is None else sample.seed, len(parts)])
    step = max(1, _HELD // max(1, len(parts)))
    away = [
        (rng.standard_exponential((min(step, _REPLICATES - k), len(parts))) - 1.0) @ parts
        for k in range(0, _REPLICATES, step)
    ]
    tail = (1 - confidence_level) / 2
    low, high = float(sample.weights @ values) + np.quantile(np.concatenate(away), [tail, 1 - tail])
    return float(low), float(high)
