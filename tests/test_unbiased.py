"""Weighted sums estimate sums over all rows without bias: 2,000 seeds of each scheme, bounds at 4 standard errors."""

from contextlib import nullcontext
from functools import cache
from unittest.mock import patch

import dask
import numpy as np
import pytest
from scipy.stats import chi2

import dask_nlis as nlis
from dask_nlis import phase

SCHEMES = ("multinomial", "poisson")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)

SEEDS = 2_000
SIZE = 12


def table() -> tuple[np.ndarray, np.ndarray]:
    """Scores and losses of 40 rows: five rows are 40 times heavier, so that draws repeat; one row is unreachable."""
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.5, 1.5, size=40)
    scores[[3, 11, 19, 27, 35]] *= 40
    losses = scores * rng.uniform(0.5, 2.0, size=40)
    scores[[0, 39]] = losses[[0, 39]] = 0.0
    return scores, losses


@cache
def samples(scheme: str) -> list[nlis.Sample]:
    scores, _ = table()
    # A small draw spends half of its time on finding BLAS in the process, which plays no part in it.
    no_limits = patch.object(phase, "threadpool_limits", lambda *_, **__: nullcontext(), create=True)
    with dask.config.set(scheduler="sync"), no_limits:
        return [nlis.draw(scores, SIZE, scheme=scheme, seed=seed) for seed in range(SEEDS)]


def deviation(estimates: list[float], truth: float) -> float:
    """Distance of the mean from the truth in standard errors."""
    return abs(np.mean(estimates) - truth) / (np.std(estimates, ddof=1) / np.sqrt(len(estimates)))


@each_scheme
def test_the_weighted_sum_estimates_the_sum_over_all_rows(scheme):
    _, losses = table()
    estimates = [float(s.weights @ losses[s.indices]) for s in samples(scheme)]
    assert deviation(estimates, losses.sum()) < 4


@each_scheme
def test_the_weights_estimate_the_number_of_rows_that_can_be_drawn(scheme):
    assert deviation([float(s.weights.sum()) for s in samples(scheme)], 38) < 4


@each_scheme
def test_the_variance_weights_estimate_the_variance_of_the_weighted_sum(scheme):
    scores, losses = table()
    if scheme == "multinomial":
        share = scores[scores > 0] / scores.sum()
        values = losses[scores > 0]
        truth = (values**2 / share).sum() / SIZE - values.sum() ** 2 / SIZE
        # The weighted squares, centred at the mean of the draws, with the usual s / (s - 1).
        estimates = [
            SIZE
            / (SIZE - 1)
            * (s.variance_weights @ losses[s.indices] ** 2 - (s.weights @ losses[s.indices]) ** 2 / SIZE)
            for s in samples(scheme)
        ]
    else:
        inclusion = samples(scheme)[0].expected_count(scores)
        inside = scores > 0
        truth = (losses[inside] ** 2 * (1 / inclusion[inside] - 1)).sum()
        estimates = [s.variance_weights @ losses[s.indices] ** 2 for s in samples(scheme)]
    assert deviation(estimates, truth) < 4
    totals = [float(s.weights @ losses[s.indices]) for s in samples(scheme)]
    assert np.var(totals, ddof=1) == pytest.approx(truth, rel=0.2)


def test_dropping_duplicate_draws_would_be_caught():
    # The mutation: distinct rows with the weight of one draw. The same bound must refuse it.
    _, losses = table()
    estimates = [float((1 / (s.n_draws * s.probabilities)) @ losses[s.indices]) for s in samples("multinomial")]
    assert deviation(estimates, losses.sum()) > 20


def test_poisson_rows_with_multinomial_weights_would_be_caught():
    # The other mutation: rows that are in or out, weighted by 1 / (s tau) although tau s exceeds 1 for the heavy ones.
    scores, losses = table()
    share = scores / scores.sum()
    estimates = [float((1 / (SIZE * share[s.indices])) @ losses[s.indices]) for s in samples("poisson")]
    assert deviation(estimates, losses.sum()) > 20


def test_multinomial_draws_follow_the_scores():
    scores, _ = table()
    drawn = np.zeros(len(scores), dtype=np.int64)
    for sample in samples("multinomial"):
        drawn[sample.indices] += sample.counts
    expected = SEEDS * SIZE * scores / scores.sum()
    inside = scores > 0
    assert (drawn[~inside] == 0).all()
    statistic = ((drawn[inside] - expected[inside]) ** 2 / expected[inside]).sum()
    assert statistic < chi2.ppf(1 - 1e-6, inside.sum() - 1)


def test_multinomial_draws_of_one_sample_follow_the_scores():
    # A million draws of one seed: a tilt of half of the cells by 2 % would show.
    scores = np.random.default_rng(2).uniform(0.5, 1.5, size=50)
    with pytest.warns(nlis.NlisWarning, match="drawn repeatedly"):
        sample = nlis.draw(scores, 200_000, seed=0)
    expected = 200_000 * scores / scores.sum()
    assert ((sample.counts - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, 49)
    # The order of the draws tells nothing: the first half follows the scores as well.
    first = np.bincount(sample.draws[:100_000], minlength=50)
    assert ((first - expected / 2) ** 2 / (expected / 2)).sum() < chi2.ppf(1 - 1e-6, 49)


def test_poisson_rows_are_drawn_as_often_as_their_probability_says_and_independently():
    scores, _ = table()
    inclusion = samples("poisson")[0].expected_count(scores)
    inside = np.zeros((SEEDS, len(scores)))
    for k, sample in enumerate(samples("poisson")):
        inside[k, sample.indices] = 1
    assert (inside[:, inclusion == 1] == 1).all()
    assert (inside[:, inclusion == 0] == 0).all()
    free = (inclusion > 0) & (inclusion < 1)
    spread = np.sqrt(inclusion[free] * (1 - inclusion[free]))
    z = (inside[:, free].mean(axis=0) - inclusion[free]) / (spread / np.sqrt(SEEDS))
    assert np.abs(z).max() < 5
    assert (z**2).sum() < chi2.ppf(1 - 1e-6, free.sum())
    together = np.corrcoef(inside[:, free].T) - np.eye(free.sum())
    assert np.abs(together).max() < 5 / np.sqrt(SEEDS)
    sizes = inside.sum(axis=1)
    assert deviation(sizes.tolist(), SIZE) < 4
    assert sizes.var() == pytest.approx((spread**2).sum(), rel=0.2)
