"""Several samples as one: `pool` for samples of the same rows, `concat` for samples of different data sets."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import real_array
from dask_nlis.kernels.weights import horvitz_thompson
from dask_nlis.sample.noun import Sample
from dask_nlis.sample.scale import REPLACING, GroupScale, Scale
from dask_nlis.sample.take import take_rows

Fields = dict[str, Any]


def pool(samples: Sequence[Sample], scores: Sequence[Any] | None = None, *, combine: str = "balance") -> Sample:
    """Join samples of the same rows, drawn by different scores or seeds. Reads scores at the drawn rows only.

    Parameters
    ----------
    samples : sequence of Sample
        Drawn independently: no two of equal seed, scheme and stage.
    scores : sequence of array_like of shape (n,)
        The scores each sample was drawn by, in the same order, lazy or not; not needed for "stagewise".
    combine : {"balance", "union", "stagewise"}
        "balance": weight count / sum_k E_k[count], with counts and expected counts over all samples (the balance
        heuristic; the least variance). "union": for Poisson samples, each row once however many samples drew it, weight
        1 / (1 - prod_k (1 - pi_k)). "stagewise": the mean of the samples' own estimates, each by its number of draws;
        unbiased also where later scores depend on earlier samples, for which the others have a bias of order 1/size.

    Returns
    -------
    Sample
        `scheme` is "pooled", or "poisson" for a union; each sample is a stage of its own. `expected_count` is refused:
        add up those of the samples.

    Raises
    ------
    InputError
        If samples are of different numbers of rows, of equal seed, scheme and stage, or scores do not match them.
    InputTypeError
        If something else than samples is given.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    The balance heuristic is Veach & Guibas's (1995). Variance weights: over the draws of a row the sum of
    v / (sum_k E_k[count])^2, where v is 1 for multinomial, 1 - share of the slice for stratified, and 1 - pi for rows
    drawn once.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> scores = [np.array([1.0, 1.0, 2.0]), np.array([4.0, 1.0, 1.0])]
    >>> samples = [nlis.draw(s, 3, seed=seed) for seed, s in enumerate(scores)]
    >>> pooled = nlis.pool(samples, scores)
    >>> int(pooled.counts.sum()), pooled.n_draws, pooled.scheme
    (6, 6, 'pooled')
    """
    parts = _poolable(samples, combine)
    rows = union_rows(parts)
    values = () if combine == "stagewise" else _taken(parts, scores, rows)
    return _pooled(parts, values, combine)


def union_rows(samples: Sequence[Sample]) -> np.ndarray:
    """Rows that any of the samples drew, ascending."""
    return np.unique(np.concatenate([sample.indices for sample in samples]))


def pool_at(samples: Sequence[Sample], values: Sequence[np.ndarray], combine: str) -> Sample:
    """Pool as `pool` does where the scores of each sample are known at `union_rows` of all."""
    parts = _poolable(samples, combine)
    for k, (part, known) in enumerate(zip(parts, values, strict=True)):
        _check_values(k, part, known, union_rows(parts))
    return _pooled(parts, values, combine)


def _poolable(samples: Any, combine: str) -> list[Sample]:
    parts = _checked(samples, "pool")
    if not isinstance(combine, str) or combine not in _COMBINE:
        raise InputError(f"combine={combine!r} is not known; give one of {', '.join(map(repr, _COMBINE))}")
    if len({part.n_rows for part in parts}) > 1:
        counts = ", ".join(f"{part.n_rows:,}" for part in parts)
        raise InputError(f"samples were drawn from {counts} rows; pool samples of the same rows, or concat them")
    keys = [(part.seed, part.scheme, stage) for part in parts for stage in np.unique(part.stage).tolist()]
    repeated = next((key for k, key in enumerate(keys) if key[0] is not None and key in keys[:k]), None)
    if repeated is not None:
        raise InputError(f"two samples have seed={repeated[0]} and scheme={repeated[1]!r}; draw one with another seed")
    wrong = next((part.scheme for part in parts if part.scheme != "poisson"), None)
    if combine == "union" and wrong is not None:
        raise InputError(f"combine='union' is for poisson samples, but one is {wrong}; give combine='balance'")
    return parts


def _pooled(parts: Sequence[Sample], values: Sequence[np.ndarray], combine: str) -> Sample:
    rows = union_rows(parts)
    return Sample(
        **_joined(parts, [np.searchsorted(rows, part.indices) for part in parts], rows)
        | _COMBINE[combine](parts, values, rows)
    )


def _balance(parts: Sequence[Sample], values: Sequence[np.ndarray], rows: np.ndarray) -> Fields:
    expected = sum(part.scale.expected_count(known, part.n_draws) for part, known in zip(parts, values, strict=True))
    counts = sum(_spread(part, part.counts, rows) for part in parts)
    # The weight of one draw of a row and the variance weight of its draws in one sample tell v, whatever the scheme.
    shares = sum(_spread(part, part.variance_weights * (part.counts / part.weights) ** 2, rows) for part in parts)
    n_draws = sum(part.n_draws for part in parts)
    return {
        "probabilities": expected / n_draws,
        "weights": counts / expected,
        "variance_weights": shares / expected**2,
    }


def _union(parts: Sequence[Sample], values: Sequence[np.ndarray], rows: np.ndarray) -> Fields:
    missed = np.zeros(len(rows))  # logarithm of the chance: 1 - pi would lose the digits of a small pi
    with np.errstate(divide="ignore"):
        for part, known in zip(parts, values, strict=True):
            missed += np.log1p(-part.scale.expected_count(known, part.n_draws))  # pi, of a poisson sample
    inclusion = -np.expm1(missed)
    weights = horvitz_thompson(inclusion)
    return {
        "counts": np.ones(len(rows), dtype=np.int64),
        "draws": np.arange(len(rows)),
        "stage": np.zeros(len(rows), dtype=np.int64),
        "probabilities": inclusion,
        "weights": weights,
        "variance_weights": weights * (weights - 1),
        "scheme": "poisson",
        "stage_schemes": (),
    }


def _stagewise(parts: Sequence[Sample], _: Sequence[np.ndarray], rows: np.ndarray) -> Fields:
    shares = np.array([part.n_draws for part in parts]) / sum(part.n_draws for part in parts)
    weights, variance, counts = (
        sum(_spread(part, values, rows) for part, values in zip(parts, each, strict=True))
        for each in (
            [share * part.weights for share, part in zip(shares, parts, strict=True)],
            [share**2 * part.variance_weights for share, part in zip(shares, parts, strict=True)],
            [part.counts for part in parts],
        )
    )
    n_draws = sum(part.n_draws for part in parts)
    return {"probabilities": counts / (n_draws * weights), "weights": weights, "variance_weights": variance}


_COMBINE: dict[str, Callable[[Sequence[Sample], Sequence[np.ndarray], np.ndarray], Fields]] = {
    "balance": _balance,
    "union": _union,
    "stagewise": _stagewise,
}


def concat(samples: Sequence[Sample]) -> Sample:
    """Join samples of data sets that follow one another: row i of a later one gets the rows before it added. Reads nothing.

    `sample.take(da.concatenate([X1, X2]))` then takes the rows of both, and weighted sums estimate sums over both.

    Parameters
    ----------
    samples : sequence of Sample
        In the order of their data sets.

    Returns
    -------
    Sample
        Each sample is a stage of its own; weights are unchanged. `scheme` is "pooled" where the samples have several.

    Raises
    ------
    InputError, InputTypeError
        If something else than two samples or more is given.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> old, new = (nlis.draw(np.ones(n), 2, scheme="systematic", seed=0) for n in (4, 2))
    >>> both = nlis.concat([old, new])
    >>> both.n_rows, both.indices[2:], both.weights
    (6, array([4, 5]), array([2., 2., 1., 1.]))
    """
    parts = _checked(samples, "concat")
    offsets = np.cumsum([0, *(part.n_rows for part in parts)])
    rows = np.concatenate([part.indices + offset for part, offset in zip(parts, offsets[:-1], strict=True)])
    alike = {part.scheme for part in parts}
    begins = np.cumsum([0, *(len(part) for part in parts)])
    places = [np.arange(a, b) for a, b in pairwise(begins)]
    n_draws = sum(part.n_draws for part in parts)
    chances = [
        part.probabilities * (part.n_draws / n_draws) if part.scheme in (*REPLACING, "pooled") else part.probabilities
        for part in parts
    ]
    return Sample(
        **_joined(parts, places, rows)
        | {
            "n_rows": int(offsets[-1]),
            "probabilities": np.concatenate(chances),
            "weights": np.concatenate([part.weights for part in parts]),
            "variance_weights": np.concatenate([part.variance_weights for part in parts]),
        }
        | ({"scheme": alike.pop(), "stage_schemes": ()} if len(alike) == 1 and "pooled" not in alike else {})
    )


def _checked(samples: Any, verb: str) -> list[Sample]:
    parts = [samples] if isinstance(samples, Sample) else list(samples) if isinstance(samples, list | tuple) else []
    wrong = [part for part in parts if not isinstance(part, Sample)]
    if wrong or (not parts and not isinstance(samples, list | tuple)):
        found = wrong[0] if wrong else samples
        raise InputTypeError(f"samples hold {type(found).__name__}; give {verb} a list of samples")
    if len(parts) < 2:
        raise InputError(f"samples has {len(parts)} sample{'' if len(parts) == 1 else 's'}; give {verb} two or more")
    return parts


def _joined(parts: Sequence[Sample], places: Sequence[np.ndarray], rows: np.ndarray) -> Fields:
    """Fields that do not depend on how weights are combined: rows, counts, draws, and a stage for each of each part."""
    counts = np.zeros(len(rows), dtype=np.int64)
    schemes: list[str] = []
    stages, first = [], 0
    for part, place in zip(parts, places, strict=True):
        counts[place] += part.counts
        known = np.unique(part.stage)
        stages.append(np.searchsorted(known, part.stage) + first)
        schemes += part.stage_schemes or [part.scheme] * len(known)
        first += len(known)
    names = {part.feature_names for part in parts}
    return {
        "indices": rows,
        "counts": counts,
        "draws": np.concatenate([place[part.draws] for part, place in zip(parts, places, strict=True)]),
        "stage": np.concatenate(stages).astype(np.int64),
        "scale": Scale("given"),
        "n_draws": sum(part.n_draws for part in parts),
        "n_rows": parts[0].n_rows,
        "scheme": "pooled",
        "stage_schemes": tuple(schemes),
        "seed": None,
        "feature_names": names.pop() if len(names) == 1 else (),
    }


def _spread(part: Sample, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros(len(rows), dtype=values.dtype)
    out[np.searchsorted(rows, part.indices)] = values
    return out


def _taken(parts: Sequence[Sample], scores: Sequence[Any] | None, rows: np.ndarray) -> list[np.ndarray]:
    """The scores of each sample at the rows of all."""
    if not isinstance(scores, list | tuple) or len(scores) != len(parts):
        given = (
            "None"
            if scores is None
            else f"{len(scores)}"
            if isinstance(scores, list | tuple)
            else type(scores).__name__
        )
        raise InputError(
            f"scores is {given} for {len(parts)} samples; give a list of the scores each was drawn by, or combine='stagewise'"
        )
    grouped = next((k for k, part in enumerate(parts) if isinstance(part.scale, GroupScale)), None)
    if grouped is not None:
        raise InputError(
            f"sample {grouped} was drawn by groups, which scores alone do not tell; give combine='stagewise'"
        )
    out = []
    for k, (part, given) in enumerate(zip(parts, scores, strict=True)):
        taken = take_rows(f"scores[{k}]", given, rows, part.n_rows)
        values = real_array(f"scores[{k}]", taken, "the scores the sample was drawn by").reshape(-1)
        _check_values(k, part, values, rows)
        out.append(values)
    return out


def _check_values(k: int, part: Sample, values: np.ndarray, rows: np.ndarray) -> None:
    """Raise unless the values at these rows are scores that the sample was drawn by."""
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"scores[{k}] are no finite numbers >= 0; give the scores the sample was drawn by")
    # Different scores than those drawn by would make wrong weights without a word.
    drawn = part.scale.expected_count(values, part.n_draws)[np.searchsorted(rows, part.indices)]
    own = part.counts / part.weights
    if not np.allclose(drawn, own, rtol=1e-9):
        raise InputError(f"scores[{k}] are not those sample {k} was drawn by; give them in the order of the samples")
