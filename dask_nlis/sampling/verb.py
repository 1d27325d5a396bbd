"""The verb draw: the draw depends on the scores, the size and the seed only, not on chunks or workers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError, NlisWarning
from dask_nlis.intake import column_names
from dask_nlis.sample import Sample
from dask_nlis.sampling import groups
from dask_nlis.sampling.arguments import check_scheme, checked_mix, checked_scores, checked_seed, checked_size
from dask_nlis.sampling.multinomial import multinomial
from dask_nlis.sampling.passes import Design, carry_out
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.poisson import poisson
from dask_nlis.sampling.slices import stratified, systematic
from dask_nlis.sampling.summary import Summary, check_enough, check_scores, hold, summarised, summary_of

DESIGNS: dict[str, Callable[[Plan], Design[Sample]]] = {
    "multinomial": multinomial,
    "stratified": stratified,
    "poisson": poisson,
    "systematic": systematic,
}


def draw(
    scores: Any,
    size: int | float | Mapping[Any, int],
    *,
    scheme: str = "multinomial",
    mix: float = 0.0,
    by: Any = None,
    min_per_group: int | None = None,
    seed: int | None = None,
) -> Sample:
    """Draw rows in proportion to their scores: (n,) -> Sample. Computes lazy scores once, reading X as they do.

    Given the same scores, rows, counts and weights are bit-identical for every chunking, scheduler and number
    of workers. Score blocks stay on their workers (8 bytes a row), or in a temporary Zarr array when they would
    not fit in memory, and are gone through two to seven times.

    Parameters
    ----------
    scores : array_like of shape (n,)
        Non-negative scores, lazy or not: NumPy, Dask, Zarr, a path, pandas or xarray.
    size : int or float or mapping
        Number of draws (multinomial, stratified), expected number of rows (poisson) or number of rows
        (systematic); a float in (0, 1] is a share of the n rows. With `by` also a mapping of every label to the
        size of its group, 0 for groups to leave out: weighted sums then estimate sums over the others.
    scheme : {"multinomial", "stratified", "poisson", "systematic"}
        multinomial: independent draws with replacement, the scheme of the theory; samples of one seed nested in
        size. stratified: one draw in each of `size` equal slices of the cumulated scores, rows ordered by
        half-octave of their score and then by row number; never worse than multinomial by much and often far
        better. Both have Hansen-Hurwitz weights count / (size tau). poisson: each row in or out by its own coin
        with probability min(1, c score), random size, nested in size. systematic: exactly `size` distinct rows
        at equal distances in the order of stratified, rows of a score above the distance for certain. Both have
        weights 1 / pi.
    mix : float, default 0
        Share, from 0 to 1, of the draws that is uniform over the rows with positive scores: probabilities are
        proportional to (1 - mix) score / mean score + mix, and no weight exceeds n / (size mix). 0.1 protects
        against rows whose score is small by mistake. Rows with zero scores stay out of reach.
    by : array_like of shape (n,), optional
        Integer or string labels of groups of rows: each group is drawn from on its own, as a stage of the sample.
        In memory or a Dask array, which is computed twice.
    min_per_group : int, optional
        With `by` and a single size: each group has at least so many draws, or all its rows with positive scores
        if it has fewer and they are drawn once; the rest in proportion to the scores. 1 by default.
    seed : int, optional
        Non-negative; None draws one and records it in the sample.

    Returns
    -------
    Sample

    Raises
    ------
    InputError
        If scores are NaN, infinite or negative (with how many and the first rows), all zero, or fewer positive
        ones than `size` without replacement; if sizes and groups do not fit together.
    InputTypeError
        If size, mix, seed or labels are of a type that is not allowed.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    Scores count as whole numbers of 62 bits beside the largest (Poisson: as they are), whose sums are exact.
    The client holds 12 bytes for each block and non-empty half-octave of scores (65 at most; all scores below
    2^-32 of the largest share one), and the drawn rows.

    Hansen & Hurwitz (1943) and Horvitz & Thompson (1952) for the weights; systematic sampling with unequal
    probabilities is Madow's (1949), Poisson sampling Hajek's (1964).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> sample = nlis.draw(np.array([0.5, 0.0, 0.25, 0.25]), 3, seed=7)
    >>> sample.indices, sample.counts, sample.weights
    (array([2, 3]), array([2, 1]), array([2.66666667, 1.33333333]))
    """
    check_scheme(scheme)
    blend = checked_mix(mix)
    lazy = checked_scores(scores)
    if by is None:
        if isinstance(size, Mapping):
            raise InputTypeError("size is a mapping, but by is not given; give by=, the label of each row")
        if min_per_group is not None:
            raise InputTypeError("min_per_group is given, but by is not; give by=, the label of each row")
        n_draws, chosen = checked_size(size, scheme, lazy.shape[0]), checked_seed(seed)
        return draw_stage(lazy, n_draws, scheme, chosen, 0, blend)
    if isinstance(size, Mapping):
        if min_per_group is not None:
            raise InputTypeError("min_per_group is given besides a size for each group; leave it out")
        chosen = checked_seed(seed)
    else:
        size, chosen = checked_size(size, scheme, lazy.shape[0]), checked_seed(seed)
        min_per_group = 1 if min_per_group is None else min_per_group
        if isinstance(min_per_group, bool) or not isinstance(min_per_group, int | np.integer):
            raise InputTypeError(f"min_per_group={min_per_group!r} is {type(min_per_group).__name__}; give a count")
        if min_per_group < 0:
            raise InputError(f"min_per_group={min_per_group} is negative; give a count")
    labels = groups.open_labels(by, lazy.chunks[0])
    return _draw_groups(lazy, labels, size, scheme, blend, min_per_group or 0, chosen)


def draw_stage(lazy: da.Array, n_draws: int, scheme: str, seed: int, stage: int, mix: float) -> Sample:
    """Draw from checked scores in a stage of a design: stages of one seed are independent."""
    held, folder = hold(lazy)
    try:
        return _named(draw_held(held, n_draws, scheme, seed, stage, mix), lazy)
    finally:
        if folder is not None:
            folder.cleanup()


def draw_held(
    held: da.Array,
    n_draws: int,
    scheme: str,
    seed: int,
    stage: int,
    mix: float = 0.0,
    argument: str = "size",
    summary: Summary | None = None,
) -> Sample:
    """Draw as `draw_stage` from scores that are held already, by `hold` or in a store; `summary` as in `draw_beside`."""
    summary = summary or summarised(held, sums=scheme == "poisson" or mix > 0)
    check_scores([summary])
    check_enough(summary.n_positive, n_draws, scheme, argument)
    plan = Plan(scheme, n_draws, mix, seed, stage, summary)
    return carry_out(held, {0: DESIGNS[scheme](plan)})[0]


def _draw_groups(lazy: da.Array, labels: da.Array, size: Any, scheme: str, mix: float, least: int, seed: int) -> Sample:
    """Draw from each group of rows on its own; all groups share the passes over the scores."""
    known = groups.distinct_labels(labels)
    sizes = groups.named_sizes(size, known) if isinstance(size, Mapping) else None
    held, folder = hold(lazy)
    second = None
    try:
        numbers, second = hold(groups.group_numbers(labels, known))
        pairs = groups.with_groups(held, numbers)
        n_blocks = held.numblocks[0]
        found = carry_out(pairs, {k: summary_of(n_blocks) for k in range(len(known))})
        parts = [found[k] for k in range(len(known))]
        check_scores(parts)
        if sizes is None:
            sizes = groups.shared_sizes(size, least, mix, scheme, parts)
        groups.check_groups(known, sizes, scheme, parts)
        plans = {k: Plan(scheme, count, mix, seed, 0, parts[k], group=k) for k, count in enumerate(sizes) if count}
        samples = carry_out(pairs, {k: DESIGNS[scheme](plan) for k, plan in plans.items()})
        return _named(groups.joined(known, plans, samples, lazy.shape[0]), lazy)
    finally:
        for each in (folder, second):
            if each is not None:
                each.cleanup()


def _named(sample: Sample, lazy: da.Array) -> Sample:
    if not len(sample):
        phase.warn(f"no row was drawn (expected {sample.n_draws}); give a larger size", NlisWarning)
    return replace(sample, feature_names=column_names(lazy) or ())
