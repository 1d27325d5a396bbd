"""A design of one's own: rows and their probabilities, checked and made into the fields of a Sample."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.kernels.weights import hansen_hurwitz, horvitz_thompson
from dask_nlis.sample.scale import REPLACING, Scale

#: Rows are numbered in 64 bits.
_MOST_ROWS = 2**63 - 1

_SCHEMES = ("multinomial", "stratified", "poisson", "systematic")


def given_design(
    indices: Any, probabilities: Any, n_rows: Any, scheme: Any, n_draws: Any, seed: int | None
) -> dict[str, Any]:
    """Return the fields of a Sample of these draws."""
    if not isinstance(scheme, str) or scheme not in _SCHEMES:
        raise InputError(f"scheme={scheme!r} is not known; give one of {', '.join(map(repr, _SCHEMES))}")
    n = _count("n_rows", n_rows)
    if n > _MOST_ROWS:
        raise InputError(f"n_rows={n} is beyond the 64 bits that row numbers have; give a smaller number")
    rows = _vector("indices", indices, "iu", "row numbers").astype(np.int64)
    chances = _vector("probabilities", probabilities, "biuf", "numbers").astype(np.float64)
    size = len(rows) if n_draws is None else _count("n_draws", n_draws)
    if len(rows) != len(chances):
        raise InputError(f"probabilities has {len(chances):,} values for {len(rows):,} indices; give one a draw")
    outside = np.flatnonzero((rows < 0) | (rows >= n))
    if len(outside):
        raise InputError(f"indices holds row {rows[outside[0]]}; give rows from 0 to n_rows - 1 = {n - 1}")
    wrong = np.flatnonzero(~((chances > 0) & (chances <= 1)))
    if len(wrong):
        raise InputError(f"probabilities holds {chances[wrong[0]]} at draw {wrong[0]}; give values in (0, 1]")
    kept, where, draws, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    kept_chances = chances[where]
    differ = np.flatnonzero(chances != kept_chances[draws])
    if len(differ):
        raise InputError(f"row {rows[differ[0]]} has differing probabilities; give every draw of a row the same")
    if scheme in REPLACING:
        if size != len(rows):
            raise InputError(f"n_draws={size:,} but {len(rows):,} rows are given; give the row of every draw")
        weights = hansen_hurwitz(counts, size, kept_chances)
        variance_weights = weights**2 / counts
    else:
        if len(kept) < len(rows):
            raise InputError(
                f"row {kept[counts > 1][0]} stands twice in indices, and {scheme} draws each once; give it once"
            )
        weights = horvitz_thompson(kept_chances)
        variance_weights = weights * (weights - 1)
    return {
        "indices": kept,
        "counts": counts.astype(np.int64),
        "probabilities": kept_chances,
        "weights": weights,
        "variance_weights": variance_weights,
        "draws": draws.astype(np.int64),
        "stage": np.zeros(len(rows), dtype=np.int64),
        "scale": Scale("given"),
        "n_draws": size,
        "n_rows": n,
        "scheme": scheme,
        "seed": None if seed is None else _seed(seed),
    }


def given_names(names: Any) -> tuple[str, ...]:
    """Names of the features, or raise."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"feature_names={names!r} is {type(names).__name__}; give a tuple of strings")
    return tuple(names)


def _seed(seed: Any) -> int:
    if not is_whole(seed):
        raise InputTypeError(f"seed={seed!r} is {type(seed).__name__}; give a non-negative integer or None")
    if seed < 0:
        raise InputError(f"seed={seed} is negative; give a non-negative integer or None")
    return int(seed)


def _count(argument: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(f"{argument}={value!r} is {type(value).__name__}; give a positive integer")
    if value < 1:
        raise InputError(f"{argument}={value} is not allowed; give a positive integer")
    return int(value)


def _vector(argument: str, value: Any, kinds: str, what: str) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise InputTypeError(f"{argument} is a MaskedArray, whose mask would be ignored; give {what}")
    try:
        array = np.asarray(value)
    except ValueError as cause:
        raise InputTypeError(f"{argument} is a {type(value).__name__} of unequal rows; give {what}") from cause
    if array.ndim != 1 or not len(array):
        raise InputError(f"{argument} has shape {array.shape}; give one value a draw, (k,)")
    if array.dtype.kind not in kinds:
        raise InputTypeError(f"{argument} has dtype {array.dtype}; give {what}")
    return array
