"""Whether a sample that was stored is one: its arrays belong together, and no number is out of its range."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.sample.scale import GroupScale, Scale

_SCHEMES = ("multinomial", "stratified", "poisson", "systematic")

#: Powers of two that scores and blends of them can have, and bits of the sum of 2^34 whole numbers of 62 bits.
_MOST_EXPONENT, _MOST_BITS = 4096, 96

_LARGEST = 2**63 - 1


def check_sample(sample: Any) -> None:
    """Raise an InputError naming the first thing that no sample has."""
    m, k = sample.indices.size, sample.draws.size
    for name, length, dtype in (
        ("indices", m, np.int64), ("counts", m, np.int64), ("probabilities", m, np.float64),
        ("weights", m, np.float64), ("variance_weights", m, np.float64), ("draws", k, np.int64), ("stage", k, np.int64),
    ):  # fmt: skip
        array = getattr(sample, name)
        if array.shape != (length,) or array.dtype != dtype:
            _refuse(f"{name} of {array.dtype}{list(array.shape)}", f"({length},) of {np.dtype(dtype)}")
    rows = sample.indices
    _must(0 < sample.n_rows <= _LARGEST, "n_rows", "a count of rows")
    _must(0 <= sample.n_draws <= _LARGEST, "n_draws", "a count of draws")
    _must(m == 0 or (rows[0] >= 0 and rows[-1] < sample.n_rows), "indices", "rows from 0 to n_rows - 1")
    _must(bool((rows[1:] > rows[:-1]).all()), "indices", "distinct rows, ascending")
    for name in ("probabilities", "weights"):
        values = getattr(sample, name)
        _must(bool((np.isfinite(values) & (values > 0)).all()), name, "positive finite numbers")
    _must(bool(np.isfinite(sample.variance_weights).all()), "variance_weights", "finite numbers")
    _must(k == 0 or (sample.draws.min() >= 0 and sample.draws.max() < m), "draws", "positions in indices")
    _must(
        np.array_equal(np.bincount(sample.draws, minlength=m), sample.counts), "counts", "how often each row is drawn"
    )
    _must(k == 0 or sample.stage.min() >= 0, "stage", "stages from 0 on")
    _must(sample.scheme in (*_SCHEMES, "pooled"), "scheme", "a scheme")
    _must(all(scheme in _SCHEMES for scheme in sample.stage_schemes), "stage_schemes", "schemes")
    _must(sample.seed is None or sample.seed >= 0, "seed", "a seed")
    _check_scale(sample.scale)


def _check_scale(scale: Scale | GroupScale) -> None:
    if isinstance(scale, GroupScale):
        lengths = {len(scale.labels), len(scale.n_draws), len(scale.scales)}
        _must(len(lengths) == 1, "scale", "scale of as many labels as groups")
        plain = all(isinstance(label, int | str | bool | float) for label in scale.labels)
        _must(plain, "scale", "scale of groups by number or text")
        _must(all(0 <= size <= _LARGEST for size in scale.n_draws), "scale", "scale of counts of draws")
        for part in scale.scales:
            _check_scale(part)
        return
    _must(scale.scheme in (*_SCHEMES, "given"), "scale", "scale of a scheme")
    _must(max(abs(scale.exponent), abs(scale.lift)) <= _MOST_EXPONENT, "scale", "scale of powers of two of scores")
    _must(0 <= scale.total < 2**_MOST_BITS, "scale", "scale of a sum of whole numbers")
    _must(0 <= scale.n_free <= _LARGEST, "scale", "scale of a count of rows")
    _must(0 <= scale.mix <= 1, "scale", "scale of a share")
    _must(scale.factor >= 0 and scale.gain >= 0, "scale", "scale of factors from 0 on")


def _must(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        _refuse(name, wanted)


def _refuse(name: str, wanted: str) -> None:
    raise InputError(f"Sample is stored with {name} that are no {wanted}: it was altered; save it anew")
