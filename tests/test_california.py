"""What the method is for, on real data: at 2 % of California housing, nonlinear leverage beats the alternatives."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))

#: 2 % of 20,640 rows.
SIZE = 413


class Full(NamedTuple):
    """All rows in memory, the smallest loss on them, and scores by name."""

    X: np.ndarray
    y: np.ndarray
    best: float
    scores: dict[str, np.ndarray]


@cache
def full() -> Full:
    X, y = (array.compute() for array in nlis.datasets.california_housing(standardized=True))
    theta = nlis.refit(PROBLEM, X, y, np.ones(len(y)), n_starts=2).theta
    dual = nlis.dual_matrix(PROBLEM, X, y, theta=theta)
    scores = {
        "nonlinear": nlis.leverage_scores(dual, nlis.factorize(dual)),
        "linear": nlis.leverage_scores(X, nlis.factorize(X)),
        "uniform": np.ones(len(y)),
    }
    return Full(X, y, float(nlis.total_loss(PROBLEM, X, y, theta)), scores)


def thetas(name: str, seeds: int, weighted: bool = True) -> np.ndarray:
    """One fit a seed, on multinomial samples; unweighted, every draw counts 1."""
    data = full()
    found = []
    for seed in range(seeds):
        sample = nlis.draw(data.scores[name], SIZE, seed=seed)
        weights = sample.weights if weighted else sample.counts
        found.append(nlis.refit(PROBLEM, *sample.take(data.X, data.y), weights, n_starts=1).theta)
    return np.array(found)


def medians(*groups: np.ndarray) -> list[float]:
    """Median log excess loss of each group of fits, over all rows, in one read."""
    data = full()
    losses = nlis.total_loss(PROBLEM, data.X, data.y, np.concatenate(groups))
    excess = np.log(losses / data.best - 1)
    return [float(np.median(part)) for part in np.split(excess, np.cumsum([len(g) for g in groups])[:-1])]


def test_a_weighted_leverage_sample_beats_uniform_and_unweighted_samples():
    leverage, uniform, unweighted = medians(
        thetas("nonlinear", 50), thetas("uniform", 50), thetas("nonlinear", 50, weighted=False)
    )
    assert leverage < uniform - 3
    assert leverage < unweighted - 0.5


@pytest.mark.slow
def test_nonlinear_leverage_beats_linear_leverage_and_uniform_over_200_seeds():
    nonlinear, linear, uniform, unweighted = medians(
        thetas("nonlinear", 200),
        thetas("linear", 200),
        thetas("uniform", 200),
        thetas("nonlinear", 200, weighted=False),
    )
    assert nonlinear < linear - 0.1
    assert nonlinear < uniform - 3
    assert nonlinear < unweighted - 0.5
