"""A sample that grows until its certificate is good enough: size="auto"."""

from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics import realised_epsilon
from dask_nlis.errors import InputError, InputTypeError, NlisWarning
from dask_nlis.kernels.numbers import is_number
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.drawn import Drawn, matrix_of
from dask_nlis.pipeline.stages import Staged, least_rows, united
from dask_nlis.problem import Problem
from dask_nlis.sample import Sample

#: Rows a parameter at which size="auto" starts.
_AUTO_START = 20


def grown(staged: Staged, design: Design) -> tuple[Sample, Drawn, int]:
    """Draw the last stage and take the rows of all; with a target, twice as many until the certificate reaches it.

    With the reads of X, at most, that draws took.
    """
    most = max(1, staged.scored.n_positive // 2)
    size = design.size if design.target is None else min(design.size, most)
    n_before = sum(each.sample.n_draws for each in staged.earlier)
    while True:
        last = staged.scored.drawn(size - n_before)
        sample = united(last.scored, last.sample)
        if not len(sample):
            raise InputError(f"size={size} gave an empty sample at seed={design.seed}; give a larger size")
        taken = last.scored.taken(sample)
        if design.target is None or staged.factor is None:
            return sample, taken, last.reads
        lazy = matrix_of(staged.matrix, taken).to_dask_array()
        rows = np.concatenate(phase.blocks_of(lazy, "nlis-certificate"))
        reached = realised_epsilon(rows, sample.weights, staged.factor)
        if reached > design.target and size >= most:
            phase.warn(
                f"size='auto' ends at {size:,} rows, half of all, with epsilon {reached:.3g} above {design.target:g}",
                NlisWarning,
            )
        if reached <= design.target or size >= most:
            return sample, taken, last.reads
        size = min(2 * size, most)


def target_of(size: Any, epsilon: Any, scores: str) -> float | None:
    """The epsilon that size="auto" is to reach; None for a size that is given."""
    if not isinstance(size, str) or size != "auto":
        if epsilon is not None:
            raise InputError(f"epsilon={epsilon!r} is for size='auto', but size={size!r} is given; leave one out")
        return None
    if epsilon is None:
        raise InputTypeError("epsilon is None, but size='auto' needs one to reach; give a number such as 0.3")
    if not is_number(epsilon):
        raise InputTypeError(f"epsilon={epsilon!r} is {type(epsilon).__name__}; give a positive number such as 0.3")
    if not 0 < epsilon < np.inf:
        raise InputError(f"epsilon={epsilon!r} is not allowed; give a positive number such as 0.3")
    if scores == "norm":
        raise InputError(
            "size='auto' needs a certificate, which norm scores have none of; give other scores, or a size"
        )
    return float(epsilon)


def first_size(problem: Problem, n: int, d: int) -> int:
    """Where size="auto" starts: room for a pilot four times over, and no more than it may end at."""
    p = problem.model.n_parameters(d)
    return max(1, min(n // 2, max(_AUTO_START * p, 4 * least_rows(problem, d))))
