"""A bootstrap interval of a weighted sum over a sample, by the design it was drawn by."""

import numpy as np

from dask_nlis.sample import Sample

#: Replicates, and the multipliers that are held at a time.
_REPLICATES, _HELD = 1999, 2**22


def interval(sample: Sample, values: np.ndarray, confidence_level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of sum_i w_i values_i over repeated draws, values (m,) of the distinct rows.

    A multiplier bootstrap (Beaumont & Patak 2012): each independent contribution to the variance of the sum is
    multiplied by a centred exponential variable of variance 1, as skew as the weights of rare rows make the sum. The
    seed is that of the sample.
    """
    parts = contributions(sample, values)
    rng = np.random.default_rng([0 if sample.seed is None else sample.seed, len(parts)])
    step = max(1, _HELD // max(1, len(parts)))
    away = [
        (rng.standard_exponential((min(step, _REPLICATES - k), len(parts))) - 1.0) @ parts
        for k in range(0, _REPLICATES, step)
    ]
    tail = (1 - confidence_level) / 2
    low, high = float(sample.weights @ values) + np.quantile(np.concatenate(away), [tail, 1 - tail])
    return float(low), float(high)


def contributions(sample: Sample, values: np.ndarray) -> np.ndarray:
    """Independent contributions whose squares add up to the estimated variance of the weighted sum, (k,).

    Multinomial: each draw around the mean of its stage. Stratified and systematic: differences of draws in successive
    slices over sqrt(2), those of systematic times sqrt(1 - pi). Otherwise the roots of the variance weights.
    """
    each = sample.weights / sample.counts * values
    if sample.scheme not in ("multinomial", "stratified", "systematic"):
        return np.sqrt(sample.variance_weights) * values
    place, stage = sample.draws, sample.stage
    if sample.scheme == "systematic":
        chance = sample.probabilities[place] < 1.0
        place, stage = place[chance], stage[chance]
    parts = [np.empty(0)]
    for k in np.unique(stage):
        rows = place[stage == k]
        m, drawn = len(rows), each[rows]
        if m == 1:
            parts.append(drawn)
        elif sample.scheme == "multinomial":
            parts.append(np.sqrt(m / (m - 1)) * (drawn - drawn.mean()))
        else:
            outside = 1.0 - sample.probabilities[rows] if sample.scheme == "systematic" else np.ones(m)
            share = (outside[1:] + outside[:-1]) / 2
            parts.append(np.sqrt(m / (2 * (m - 1)) * share) * np.diff(drawn))
    return np.concatenate(parts)
