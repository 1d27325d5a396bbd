"""The variance of a weighted sum over a sample, from the sample alone, as its design has it."""

import numpy as np

from dask_nlis.sample import Sample

Vector = np.ndarray


def scatter(drawn: Sample | Vector, rows: Vector) -> Vector:
    """Variance of sum_i w_i rows_i over repeated draws, rows (m, p) of the distinct rows -> (p, p)."""
    parts = contributions(drawn, rows)
    return parts.T @ parts


def contributions(drawn: Sample | Vector, rows: Vector) -> Vector:
    """Independent contributions (k, p) to sum_i w_i rows_i, rows (m, p): their squares add up to its variance.

    - multinomial: draws around the mean of their stage, sqrt(m / (m - 1)) (z - mean), z = w row / count. Weights of one's
      own likewise, every row of positive weight being one draw.
    - stratified: differences of draws in successive slices of a stage over sqrt(2). Neighbours are alike, and what the
      slices gain shows (Wolter 2007, section 8.2).
    - systematic: the same, each difference times sqrt(1 - pi), pi the mean of the two; rows drawn for certain, which
      vary by nothing, are left out.
    - poisson: sqrt(w (w - 1)) row, uncentred, for the number of rows varies too.
    - pooled: independent draws around the mean of their stage; of the others the root of the variance weight times row.

    A stage with a single draw tells nothing of its spread; such stages are taken together as one, which overstates
    the variance (collapsed strata, Cochran 1977, section 5A.12), and a lone one around zero.
    """
    if not isinstance(drawn, Sample):
        return _centred((drawn[:, None] * rows)[drawn > 0])
    share = drawn.weights / drawn.counts
    each = share[:, None] * rows
    if drawn.scheme in ("poisson", "pooled"):
        parts, left = [], drawn.variance_weights.copy()
        for k, scheme in enumerate(drawn.stage_schemes):
            if scheme == "multinomial":
                draws = drawn.draws[drawn.stage == k]
                parts.append(_centred(each[draws]))
                left -= np.bincount(draws, minlength=len(left)) * share**2
        return np.concatenate([*parts, np.sqrt(np.maximum(left, 0.0))[:, None] * rows])
    place, stage = drawn.draws, drawn.stage
    if drawn.scheme == "systematic":
        chance = drawn.probabilities[place] < 1.0
        place, stage = place[chance], stage[chance]
    parts = [np.empty((0, rows.shape[1]))]
    for draws in _stages(place, stage):
        if drawn.scheme == "multinomial":
            parts.append(_centred(each[draws]))
        elif drawn.scheme == "stratified":
            parts.append(_successive(each[draws], np.ones(len(draws))))
        else:
            parts.append(_successive(each[draws], 1.0 - drawn.probabilities[draws]))
    return np.concatenate(parts)


def _stages(place: Vector, stage: Vector) -> list[Vector]:
    """Draws of each stage in their order; stages of a single draw together as one."""
    order = np.argsort(stage, kind="stable")
    _, sizes = np.unique(stage, return_counts=True)
    parts = np.split(place[order], np.cumsum(sizes)[:-1]) if len(place) else []
    lone = [part for part in parts if len(part) == 1]
    return [part for part in parts if len(part) > 1] + ([np.concatenate(lone)] if lone else [])


def _centred(each: Vector) -> Vector:
    """Deviations from the mean times sqrt(m / (m - 1)); from zero for a single draw."""
    m = len(each)
    return each if m < 2 else np.sqrt(m / (m - 1)) * (each - each.mean(axis=0))


def _successive(each: Vector, outside: Vector) -> Vector:
    """Successive differences times sqrt(m / (2 (m - 1))), each times the root of the mean of its two shares `outside`."""
    m = len(each)
    if m < 2:
        return np.sqrt(outside)[:, None] * each
    return np.sqrt(m / (2 * (m - 1)) * (outside[1:] + outside[:-1]) / 2)[:, None] * np.diff(each, axis=0)
