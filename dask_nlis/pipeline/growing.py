"""A sample that grows until its certificate is good enough: size="auto"."""

from typing import NamedTuple

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics import realised_epsilon
from dask_nlis.errors import InputError, NlisWarning
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.drawn import Drawn, matrix_of
from dask_nlis.pipeline.stages import Staged, united
from dask_nlis.sample import Sample


class Tried(NamedTuple):
    """A size on the way of a sample that grows: its rows, and the epsilon that they reach."""

    size: int
    sample: Sample
    taken: Drawn
    epsilon: float


def grown(staged: Staged, design: Design) -> tuple[Sample, Drawn, int, list[Tried]]:
    """Draw the last stage and take the rows of all; with a target, twice as many until the certificate reaches it.

    With the reads of X, at most, that draws took, and the sizes that were tried, the last one included.
    """
    way: list[Tried] = []
    most = max(1, staged.scored.summary.n_positive // 2)
    size = design.size if design.target is None else min(design.size, most)
    n_before = sum(each.sample.n_draws for each in staged.earlier)
    while True:
        last = staged.scored.drawn(size - n_before)
        sample = united(last.scored, last.sample)
        if not len(sample):
            raise InputError(f"size={size} gave an empty sample at seed={design.seed}; give a larger size")
        taken = last.scored.taken(sample)
        if design.target is None or staged.factor is None:
            return sample, taken, last.reads, way
        lazy = matrix_of(staged.matrix, taken).to_dask_array()
        rows = np.concatenate(phase.blocks_of(lazy, "nlis-certificate"))
        reached = realised_epsilon(rows, sample.weights, staged.factor)
        way.append(Tried(size, sample, taken, reached))
        if reached > design.target and size >= most:
            phase.warn(
                f"size='auto' ends at {size:,} rows, half of all, with epsilon {reached:.3g} above {design.target:g}",
                NlisWarning,
            )
        if reached <= design.target or size >= most:
            return sample, taken, last.reads, way
        size = min(2 * size, most)
