"""The noun Certificate: what was measured of a sample, and one line of words for it."""

from collections.abc import Mapping
from typing import Any

from dask_nlis.nouns import from_dict, noun, to_dict


@noun
class Certificate:
    """What a sample is worth, measured on it; not a proof, and nothing uniform over theta.

    Attributes
    ----------
    epsilon : float
        Largest |eigenvalue - 1| of W'F_S'D F_S W, F the matrix the sample is certified for, W its whitener, D the weights:
        every quadratic form of F is kept within a share epsilon, at the theta of F.
    rank : int
        Rank of F. With fewer rows than that a direction is lost and epsilon is at least 1: no embedding.
    n_sample : int
        Distinct rows in the sample.
    n_rows : int
        Rows it was drawn from.
    theorem_size : float or None
        Draws that `sample_size` asks for, for this epsilon at a failure of 0.05 with exact leverage; None where epsilon
        is 1 or more, or 0.
    effective_size : float
        Kish's, a pessimistic diagnostic.
    largest_weight : float
        Share of the heaviest row in the sum of the weights.
    loss, loss_low, loss_high : float or None
        Weighted loss of the sample at theta, which estimates that over all rows, and its 95 % bootstrap interval; None
        without labels or theta. At the fit to this very sample it is a little too low.
    excess : float or None
        Loss at `theta` over that at the theta of F, less 1: the excess loss of `theta` where F stands at the fit to all
        rows. Estimated on the sample, or exact with `deep`. None where there are not two.
    beta_norm : float
        Proven misestimation factor of norm scores, r sigma_r^2 / |F|_F^2.
    beta : float or None
        Smallest ratio of the scores used to leverage, both over their sums (deep).
    identity_residual : float or None
        Largest |f(theta) - f(0) - <theta, f*>| over 1 + |f(theta)| + |f(0)| of any row (deep).
    unreachable_rows, unreachable_loss : int, float, or None
        Rows with a score of 0, and the loss at theta that no sample sees therefore (deep).
    total_loss : float or None
        Loss over all rows at theta (deep).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> factor = nlis.factorize(X)
    >>> sample = nlis.draw(nlis.leverage_scores(X, factor), 400, seed=0)
    >>> found = nlis.certificate(X, factor, sample)
    >>> found.rank, found.n_sample, found.epsilon < 0.3
    (2, 289, True)
    >>> found.is_embedding, found.verdict.partition(" are")[0]
    (True, 'quadratic forms of all 2 directions')
    """

    epsilon: float
    rank: int
    n_sample: int
    n_rows: int
    theorem_size: float | None
    effective_size: float
    largest_weight: float
    loss: float | None
    loss_low: float | None
    loss_high: float | None
    excess: float | None
    beta_norm: float
    beta: float | None
    identity_residual: float | None
    unreachable_rows: int | None
    unreachable_loss: float | None
    total_loss: float | None

    @property
    def is_embedding(self) -> bool:
        """Whether no direction of F is lost: epsilon below 1."""
        return self.epsilon < 1

    @property
    def verdict(self) -> str:
        """One line in words, with the numbers."""
        if self.n_sample < self.rank and not self.is_embedding:  # a row may be several of the matrix
            said = f"not an embedding: {self.n_sample:,} rows cannot span {self.rank} directions; draw more"
        elif not self.is_embedding:
            said = f"not an embedding (epsilon {self.epsilon:.3g}): some direction is lost or counted twice; draw more"
        else:
            asked = "" if self.theorem_size is None else f" (a theorem would ask for {self.theorem_size:,.0f} draws)"
            said = (
                f"quadratic forms of all {self.rank} directions are kept within {self.epsilon:.0%} by {self.n_sample:,} of "
                f"{self.n_rows:,} rows{asked}"
            )
        if self.loss is not None and self.loss_low is not None and self.loss_high is not None:
            said += f"; loss {self.loss:.5g}, 95 % from {self.loss_low:.5g} to {self.loss_high:.5g}"
        if self.excess is not None:
            said += f"; {self.excess:+.2%} against the theta of the matrix"
        if self.beta is not None:
            said += f"; the scores give each row at least {self.beta:.3g} of its leverage"
        if self.unreachable_rows and self.unreachable_loss is not None:
            said += f"; {self.unreachable_rows:,} rows with loss {self.unreachable_loss:.3g} can never be drawn"
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Certificate":
        """Rebuild a certificate from `to_dict`.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned, its arrays as arrays or as the lists that JSON makes of them.

        Returns
        -------
        Certificate
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no certificate, or its fields do not fit together.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X = np.eye(3)
        >>> factor = nlis.factorize(X)
        >>> sample = nlis.draw(nlis.leverage_scores(X, factor), 3, seed=0)
        >>> found = nlis.certificate(X, factor, sample)
        >>> nlis.Certificate.from_dict(found.to_dict()) == found
        True
        """
        certificate: Certificate = from_dict(found, {"Certificate": Certificate}, typed=True)
        return certificate

    def __str__(self) -> str:
        return self.verdict

    def _summary(self) -> dict[str, Any]:
        known = {name: getattr(self, name) for name in _ORDER}
        return {name: value for name, value in known.items() if value is not None}


_ORDER = (
    *("epsilon", "rank", "n_sample", "n_rows", "theorem_size", "effective_size", "largest_weight"),
    *("loss", "loss_low", "loss_high", "excess", "beta_norm", "beta", "identity_residual"),
    *("unreachable_rows", "unreachable_loss", "total_loss"),
)
