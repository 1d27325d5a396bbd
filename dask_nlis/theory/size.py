"""A sample size that a theorem asks for, and how it is rounded."""

import math
import warnings
from typing import Any

from dask_nlis.errors import UnderdeterminedWarning
from dask_nlis.nouns import noun


@noun
class SampleSize:
    """A sample size that a theorem asks for, with what it depends on.

    Attributes
    ----------
    size : int, or inf
        Draws with replacement; inf where beta is 0 or the size is no float64.
    guarantee : str
        "uniform", "embedding", "loss", or the paper.
    epsilon : float
        Relative error.
    delta : float
        Probability that the guarantee fails.
    beta : float
        Misestimation factor of the scores.
    log_net : float
        Logarithm of the number of points of the net, 0 where none is needed.
    n_rows : int, or None
        Rows there are.

    Examples
    --------
    >>> from dask_nlis import sample_size
    >>> found = sample_size(10, 0.5, n_rows=1_000)
    >>> found.size, found.vacuous
    (1960, True)
    """

    size: float
    guarantee: str
    epsilon: float
    delta: float
    beta: float
    log_net: float
    n_rows: int | None

    @property
    def vacuous(self) -> bool | None:
        """Whether all rows are no more than the theorem asks for; None where their number is not known."""
        return None if self.n_rows is None else self.size >= self.n_rows

    def _summary(self) -> dict[str, Any]:
        known = ("size", "guarantee", "epsilon", "delta", "beta", "n_rows")
        shown = {name: getattr(self, name) for name in known if getattr(self, name) is not None}
        return shown if self.vacuous is None else shown | {"vacuous": self.vacuous}


def ceiling(value: float, *divisors: float) -> float:
    """Smallest whole number >= value over the divisors, at least 1; inf where that is no float64."""
    for divisor in divisors:  # one after the other: the fourth power of a small epsilon is 0
        value = value / divisor if divisor else math.inf
    return max(math.ceil(value), 1) if value < math.inf else math.inf


def warn_underdetermined(n: int, p: int) -> None:
    """Warn the caller of a public function of fewer rows than parameters."""
    warnings.warn(
        f"n={n} rows are fewer than p={p} parameters, where the theory says nothing; use fewer parameters or more rows",
        UnderdeterminedWarning,
        stacklevel=3,
    )
