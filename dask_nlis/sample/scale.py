"""How scores became probabilities: what a sample remembers of the scores of all rows."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.draw import times_power, whole_numbers
from dask_nlis.nouns import noun

#: Schemes that may draw a row more than once.
REPLACING = ("multinomial", "stratified")


@noun
class Scale:
    """How scores became probabilities: enough to give the expected count of any row from its score.

    A score s > 0 counts as b = gain s 2^-e + mix (which is s 2^-e without mix), and in schemes on whole numbers
    as q = max(1, floor(b 2^(62 - lift))), 0 for a score of 0.

    Attributes
    ----------
    scheme : str
        "multinomial", "stratified", "poisson" or "systematic"; "given" for probabilities of one's own.
    exponent : int
        e: scores are taken relative to 2^e. The exponent of the largest score; without mix for poisson that of the
        scores on the verge of certainty.
    total : int
        Q, the sum of q over all rows; over the rows that are not certain for systematic. 0 for poisson.
    factor : float
        c of min(1, c b 2^-lift) (poisson).
    mix : float
        Share of the draws that is uniform over the rows of positive score.
    gain : float
        (1 - mix) over the mean of s 2^-e over the rows of positive score, so that b has mean 1; 1 without mix.
    lift : int
        With mix the exponent of the largest b, for poisson of b on the verge of certainty; 0 without.
    n_free : int
        Rows drawn besides the certain ones (systematic).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> scale = nlis.draw(np.array([1.0, 3.0]), 2, seed=0).scale
    >>> scale.probabilities(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """

    scheme: str
    exponent: int = 0
    total: int = 0
    factor: float = 0.0
    mix: float = 0.0
    gain: float = 1.0
    lift: int = 0
    n_free: int = 0

    def blended(self, scores: np.ndarray) -> np.ndarray:
        """Scores relative to 2^e, mixed with uniform where asked for: b (m,), 0 for a zero score."""
        with np.errstate(over="ignore", under="ignore"):
            relative = times_power(scores, -self.exponent)
            return np.where(scores > 0, self.gain * relative + self.mix, 0.0) if self.mix else relative

    def whole(self, scores: np.ndarray) -> np.ndarray:
        """Whole numbers q (m,) as float64."""
        # A score far below the unit must not vanish on the way to it: it counts as 1.
        return whole_numbers(self.blended(scores), self.lift) if self.mix else whole_numbers(scores, self.exponent)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Selection probability a draw with replacement, else inclusion probability, of rows with these scores."""
        if self.scheme == "given":
            raise InputError("the sample was made from probabilities, which scores do not tell; use its probabilities")
        if self.scheme in REPLACING:
            # Whole numbers up to 2^62 over one up to 2^96: each is rounded once, then their quotient.
            return self.whole(scores) / float(self.total)
        if self.scheme == "systematic":
            q = self.whole(scores)
            return np.minimum(1.0, q * self.n_free / float(self.total)) if self.total else np.where(q > 0, 1.0, 0.0)
        with np.errstate(over="ignore", under="ignore"):
            return np.minimum(1.0, self.factor * times_power(self.blended(scores), -self.lift))

    def expected_count(self, scores: np.ndarray, n_draws: int, by: Any = None) -> np.ndarray:
        """Expected number of times rows with these scores are drawn in `n_draws`."""
        if by is not None:
            raise InputTypeError("by is given, but the sample was drawn without groups; leave by out")
        return self.probabilities(scores) * (n_draws if self.scheme in REPLACING else 1)


@noun
class GroupScale:
    """How scores became probabilities where each group of rows was drawn from on its own.

    Attributes
    ----------
    labels : tuple of int or str
        Labels of the groups, ascending; group k is stage k of the draws.
    n_draws : tuple of int
        Draws made in each group, or the expected number of its rows; 0 for a group that was left out.
    scales : tuple of Scale
        The scale of each group.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> sample = nlis.draw(np.ones(6), 4, by=np.array([0, 1, 1, 1, 1, 1]), min_per_group=2, seed=0)
    >>> sample.scale.labels, sample.scale.n_draws
    ((0, 1), (2, 2))
    """

    labels: tuple[Any, ...]
    n_draws: tuple[int, ...]
    scales: tuple[Scale, ...]

    def expected_count(self, scores: np.ndarray, n_draws: int, by: Any = None) -> np.ndarray:
        """Expected number of times rows with these scores in the groups `by` are drawn."""
        if by is None:
            raise InputTypeError("the sample was drawn by groups; give by=, the label of each of these rows")
        groups = np.asarray(by)
        if groups.shape != scores.shape:
            raise InputError(f"by has shape {groups.shape}, the scores have {scores.shape}; give one label a score")
        out = np.zeros(scores.shape)
        known = np.zeros(scores.shape, dtype=bool)
        for label, size, scale in zip(self.labels, self.n_draws, self.scales, strict=True):
            mine = groups == label
            known |= mine
            if size:
                out[mine] = scale.expected_count(scores[mine], size)
        if not known.all():
            raise InputError(f"by={groups[~known][0].item()!r} is no group of the sample; give {_listed(self.labels)}")
        return out


def _listed(labels: tuple[Any, ...]) -> str:
    shown = ", ".join(map(repr, labels[:5]))
    return f"one of {shown}{', ...' if len(labels) > 5 else ''}"[:120]
