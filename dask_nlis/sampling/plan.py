"""What a scheme is asked for, and making the rows it finds into a Sample."""

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dask_nlis.kernels import draw as kernel, exact_sums
from dask_nlis.kernels.weights import hansen_hurwitz, horvitz_thompson
from dask_nlis.sample import Sample, Scale
from dask_nlis.sampling.summary import Summary


class Plan(NamedTuple):
    """A draw to be made: how many rows, by which scheme, from which scores, with which stream of random numbers."""

    scheme: str
    n_draws: int
    mix: float
    seed: int
    stage: int
    summary: Summary
    group: int | None = None  # a stream of its own for each group of rows

    @property
    def key(self) -> np.ndarray:
        """Key of the stream."""
        return kernel.stream_key(self.seed, self.stage, self.scheme, self.group)

    @property
    def blocks(self) -> dict[int, None]:
        """Every block with a positive score, nothing particular to each."""
        return dict.fromkeys(self.summary.blocks)

    def scale(self) -> Scale:
        """Return the scale as far as it follows from the summary: unit and mix."""
        exponent = kernel.largest_exponent(self.summary.largest)
        if not self.mix:
            return Scale(self.scheme, exponent=exponent)
        # In exact arithmetic, rounded once: the order of the blocks must not show.
        mean = exact_sums.exact_total(self.summary.sums) / self.summary.n_positive / Fraction(2) ** exponent
        gain = float((1 - Fraction(self.mix)) / mean)
        scale = Scale(self.scheme, exponent=exponent, mix=self.mix, gain=gain)
        largest = float(scale.blended(np.array([self.summary.largest]))[0])
        return replace(scale, lift=kernel.largest_exponent(largest))

    def with_replacement(
        self, scale: Scale, rows: np.ndarray, scores: np.ndarray, shares: np.ndarray | None = None
    ) -> Sample:
        """Sample of the rows (k,) drawn one after the other; `shares` are those of the rows in their slices."""
        indices, where, draws, counts = kernel.distinct(rows)
        probabilities = scale.probabilities(scores[where])
        weights = hansen_hurwitz(counts, self.n_draws, probabilities)
        if shares is None:
            variance_weights = weights**2 / counts
        else:
            unexplained = np.bincount(draws, weights=1 - shares, minlength=len(indices))
            variance_weights = unexplained / (self.n_draws * probabilities) ** 2
        return self._sample(scale, indices, counts, probabilities, weights, variance_weights, draws)

    def distinct(self, scale: Scale, rows: np.ndarray, scores: np.ndarray) -> Sample:
        """Sample of distinct rows (k,) in the order they were drawn."""
        order = np.argsort(rows)
        draws = np.empty(len(rows), dtype=np.int64)
        draws[order] = np.arange(len(rows))
        probabilities = scale.probabilities(scores[order])
        weights = horvitz_thompson(probabilities)
        counts = np.ones(len(rows), dtype=np.int64)
        return self._sample(scale, rows[order], counts, probabilities, weights, weights * (weights - 1), draws)

    def _sample(
        self,
        scale: Scale,
        indices: np.ndarray,
        counts: np.ndarray,
        probabilities: np.ndarray,
        weights: np.ndarray,
        variance_weights: np.ndarray,
        draws: np.ndarray,
    ) -> Sample:
        return Sample(
            indices=indices,
            counts=counts.astype(np.int64),
            probabilities=probabilities,
            weights=weights,
            variance_weights=variance_weights,
            draws=draws.astype(np.int64),
            stage=np.full(len(draws), self.stage, dtype=np.int64),
            scale=scale,
            n_draws=self.n_draws,
            n_rows=self.summary.n_rows,
            scheme=self.scheme,
            seed=self.seed,
        )
