"""The arguments of a draw, checked before anything is computed."""

from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import DataConversionWarning, InputError, InputTypeError, NlisWarning
from dask_nlis.intake import open_array

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")

#: Schemes that draw each row at most once.
DISTINCT = ("poisson", "systematic")

#: Slices are counted in 32 bits.
_MOST_SLICES = 2**32 - 1


def check_draw(size: Any, scheme: Any, n: int, seed: Any, argument: str = "size") -> tuple[int, int]:
    """Check size, scheme and seed of a draw from n rows; return the size as a count and the seed, drawn for None."""
    check_scheme(scheme)
    return checked_size(size, scheme, n, argument), checked_seed(seed)


def check_scheme(scheme: Any) -> None:
    """Raise unless the scheme is one of the four."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        what = repr(scheme) if scheme is None or isinstance(scheme, str) else f"a {type(scheme).__name__}"
        raise InputError(f"scheme={what[:60]} is not known; give one of {', '.join(map(repr, SCHEMES))}")


def checked_scores(scores: Any) -> da.Array:
    """Scores as a lazy array (n,) of float64."""
    array = open_array("scores", scores).array
    if array.ndim == 2 and array.shape[1] == 1:
        phase.warn(f"scores have shape {array.shape} and are read as ({array.shape[0]},)", DataConversionWarning)
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"scores have shape {array.shape}; give (n,), one score a row")
    if not array.shape[0]:
        raise InputError("scores are empty; give at least one")
    return array if array.dtype == np.float64 and array.dtype.isnative else array.astype(np.float64)


def checked_size(size: Any, scheme: str, n: int, argument: str = "size") -> int:
    """Return the size as a count: given as one, or as a share of the n rows in (0, 1]."""
    if isinstance(size, float | np.floating) and 0 < size <= 1:
        size = max(1, round(float(size) * n))
    allowed = "a positive integer, or a share of the rows in (0, 1]"
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        raise InputTypeError(f"{argument}={size!r} is {type(size).__name__}; give {allowed}")
    if size < 1:
        raise InputError(f"{argument}={size} is not allowed; give {allowed}")
    if size > n:
        if scheme in DISTINCT:
            raise InputError(
                f"{argument}={size:,} exceeds the {n:,} rows, and {scheme} draws each once; give {argument} <= {n:,}"
            )
        phase.warn(f"{argument}={size:,} exceeds the {n:,} rows; rows are drawn repeatedly", NlisWarning)
    if size > _MOST_SLICES and scheme in ("stratified", "systematic"):
        raise InputError(f"{argument}={size:,} is too large for {scheme}; give {argument} <= {_MOST_SLICES:,}")
    return int(size)


def checked_mix(mix: Any) -> float:
    """Return the uniform share of the draws as a float in [0, 1]."""
    if isinstance(mix, bool) or not isinstance(mix, int | float | np.integer | np.floating):
        raise InputTypeError(f"mix={mix!r} is {type(mix).__name__}; give a number from 0 to 1")
    if not 0 <= mix <= 1:
        raise InputError(f"mix={mix} is not allowed; give a number from 0 (by scores) to 1 (uniform), such as 0.1")
    return float(mix)


def checked_seed(seed: Any, argument: str = "seed") -> int:
    """Return the seed, drawing one for None."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    if isinstance(seed, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
        raise InputTypeError(
            f"{argument} is a {type(seed).__name__}, whose state is not recorded; give an integer, such as int(rng.integers(2**32))"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputTypeError(f"{argument}={seed!r} is {type(seed).__name__}; give a non-negative integer or None")
    if seed < 0:
        raise InputError(f"{argument}={seed} is negative; give a non-negative integer or None")
    return int(seed)
