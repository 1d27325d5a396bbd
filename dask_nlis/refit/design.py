"""The variance of a weighted sum over a sample, from the sample alone, as its design has it."""

import numpy as np

from dask_nlis.sample import Sample

Vector = np.ndarray


def scatter(drawn: Sample | Vector, rows: Vector) -> Vector:
    """Variance of sum_i w_i rows_i over repeated draws, rows (m, p) of the distinct rows -> (p, p).

    - multinomial: draws around the mean of their stage, m / (m - 1) sum (z - mean)(z - mean)', z = w row / count.
      Weights of one's own likewise, every row of positive weight being one draw.
    - stratified: half squared differences of draws in successive slices of a stage. Neighbours are alike, and what
      the slices gain shows (Wolter 2007, section 8.2).
    - systematic: the same, each difference times sqrt(1 - pi), pi the mean of the two; rows drawn for certain, which
      vary by nothing, are left out.
    - poisson: sum w (w - 1) row row', uncentred, for the number of rows varies too.
    - pooled: sum of variance weights times row row', independent draws around the mean of their stage.

    A stage with a single draw tells nothing of its spread; such stages are taken together as one, which overstates
    the variance (collapsed strata, Cochran 1977, section 5A.12), and a lone one around zero.
    """
    if not isinstance(drawn, Sample):
        return _centred((drawn[:, None] * rows)[drawn > 0])
    each = (drawn.weights / drawn.counts)[:, None] * rows
    if drawn.scheme in ("poisson", "pooled"):
        total = rows.T @ (drawn.variance_weights[:, None] * rows)
        for k, scheme in enumerate(drawn.stage_schemes):
            if scheme == "multinomial":
                draws = drawn.draws[drawn.stage == k]
                total += _centred(each[draws]) - each[draws].T @ each[draws]
        return total
    place, stage = drawn.draws, drawn.stage
    if drawn.scheme == "systematic":
        chance = drawn.probabilities[place] < 1.0
        place, stage = place[chance], stage[chance]
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for draws in _stages(place, stage):
        if drawn.scheme == "multinomial":
            total += _centred(each[draws])
        elif drawn.scheme == "stratified":
            total += _successive(each[draws], np.ones(len(draws)))
        else:
            total += _successive(each[draws], 1.0 - drawn.probabilities[draws])
    return total


def _stages(place: Vector, stage: Vector) -> list[Vector]:
    """Draws of each stage in their order; stages of a single draw together as one."""
    order = np.argsort(stage, kind="stable")
    _, sizes = np.unique(stage, return_counts=True)
    parts = np.split(place[order], np.cumsum(sizes)[:-1]) if len(place) else []
    lone = [part for part in parts if len(part) == 1]
    return [part for part in parts if len(part) > 1] + ([np.concatenate(lone)] if lone else [])


def _centred(each: Vector) -> Vector:
    """m / (m - 1) sum of squares around the mean; around zero for a single draw."""
    m = len(each)
    if m < 2:
        return each.T @ each
    around = each - each.mean(axis=0)
    return m / (m - 1) * (around.T @ around)


def _successive(each: Vector, outside: Vector) -> Vector:
    """m / (2 (m - 1)) sum of squared successive differences, each times the mean of its two shares `outside`."""
    m = len(each)
    if m < 2:
        return each.T @ (outside[:, None] * each)
    steps = np.diff(each, axis=0) * np.sqrt((outside[1:] + outside[:-1]) / 2)[:, None]
    return m / (2 * (m - 1)) * (steps.T @ steps)
