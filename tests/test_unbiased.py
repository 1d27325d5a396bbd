"""Weighted sums estimate sums over all rows without bias: 1,000 seeds of each scheme, bounds at 4 standard errors."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

import dask_nlis as nlis
from dask_nlis.sampling.passes import Part, carry_out_on
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.summary import summary_of
from dask_nlis.sampling.verb import DESIGNS

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)
each_mix = pytest.mark.parametrize("mix", [0.0, 0.2])

SEEDS = 1_000
SIZE = 12


def table() -> tuple[np.ndarray, np.ndarray]:
    """Scores and losses of 40 rows: five rows are 40 times heavier, so that draws repeat; one row is unreachable."""
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.5, 1.5, size=40)
    scores[[3, 11, 19, 27, 35]] *= 40
    losses = scores * rng.uniform(0.5, 2.0, size=40)
    scores[[0, 39]] = losses[[0, 39]] = 0.0
    return scores, losses


def carried_out(design, scores):
    """What a design comes to on scores in one block, without Dask, whose overhead is a hundred times the draw's."""
    return carry_out_on(Part(scores, 0, len(scores), None), design)


def drawn(scores, size, scheme, mix, seeds):
    summary = carried_out(summary_of(1), scores)
    return [carried_out(DESIGNS[scheme](Plan(scheme, size, mix, seed, 0, summary)), scores) for seed in seeds]


@cache
def samples(scheme: str, mix: float = 0.0) -> list[nlis.Sample]:
    return drawn(table()[0], SIZE, scheme, mix, range(SEEDS))


@each_scheme
@each_mix
def test_these_samples_are_those_of_draw(scheme, mix):
    for seed in (0, 1, SEEDS - 1):
        assert samples(scheme, mix)[seed] == nlis.draw(table()[0], SIZE, scheme=scheme, mix=mix, seed=seed)


def deviation(estimates: list[float], truth: float) -> float:
    """Distance of the mean from the truth in standard errors."""
    return abs(np.mean(estimates) - truth) / (np.std(estimates, ddof=1) / np.sqrt(len(estimates)))


@each_scheme
@each_mix
def test_the_weighted_sum_estimates_the_sum_over_all_rows(scheme, mix):
    _, losses = table()
    estimates = [float(s.weights @ losses[s.indices]) for s in samples(scheme, mix)]
    assert deviation(estimates, losses.sum()) < 4


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@each_scheme
def test_the_weighted_sum_is_without_bias_over_200_000_seeds(scheme):
    _, losses = table()
    found = (drawn(table()[0], SIZE, scheme, 0.0, range(k, k + 1_000)) for k in range(0, 200_000, 1_000))
    estimates = [float(s.weights @ losses[s.indices]) for part in found for s in part]
    assert deviation(estimates, losses.sum()) < 5
    # Sharp enough: a bias of one part in a thousand of the total would show.
    assert 5 * np.std(estimates) / np.sqrt(len(estimates)) < 2e-3 * losses.sum()


@each_scheme
@each_mix
def test_the_weights_estimate_the_number_of_rows_that_can_be_drawn(scheme, mix):
    estimates = np.array([float(s.weights.sum()) for s in samples(scheme, mix)])
    assert deviation(estimates, 38) < 4


@each_scheme
@each_mix
def test_every_row_is_drawn_as_often_as_expected(scheme, mix):
    scores, _ = table()
    made = samples(scheme, mix)
    expected = made[0].expected_count(scores)
    counts = np.zeros((SEEDS, len(scores)))
    for k, sample in enumerate(made):
        counts[k, sample.indices] = sample.counts
    assert (counts[:, scores == 0] == 0).all()
    spread = counts.std(axis=0)
    fixed = spread == 0
    np.testing.assert_allclose(counts[0, fixed], expected[fixed], rtol=1e-12)
    z = (counts.mean(axis=0) - expected)[~fixed] / (spread[~fixed] / np.sqrt(SEEDS))
    assert np.abs(z).max() < 5
    if scheme in ("poisson", "systematic"):
        assert counts.max() == 1
    if scheme == "stratified":  # no count is further than one draw from its expectation at either end
        assert (np.abs(counts - expected) < 2).all()
    if scheme == "systematic":
        assert (counts.sum(axis=1) == SIZE).all()


@pytest.mark.parametrize("scheme", ["multinomial", "poisson"])
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


@each_mix
def test_the_variance_weights_of_slices_estimate_the_variance_where_values_vanish_but_in_one_row(mix):
    # With one value alone nothing is centred: sum over slices of share (1 - share) (value / s p)^2 is the variance.
    _, losses = table()
    for row in (3, 10):
        value = np.where(np.arange(40) == row, losses, 0.0)
        totals = [float(s.weights @ value[s.indices]) for s in samples("stratified", mix)]
        estimates = [float(s.variance_weights @ value[s.indices] ** 2) for s in samples("stratified", mix)]
        se = np.std(estimates) / np.sqrt(SEEDS) + np.var(totals) * np.sqrt(8 / SEEDS)
        assert abs(np.mean(estimates) - np.var(totals, ddof=1)) < 4 * se


@pytest.mark.parametrize("scheme", ["stratified", "systematic"])
def test_slices_vary_less_than_independent_draws_where_rows_have_an_order(scheme):
    # Losses follow the row number besides the score: the order inside a bin carries it into the slices.
    rng = np.random.default_rng(8)
    scores = rng.lognormal(sigma=0.7, size=2_000)
    losses = scores * (1 + np.linspace(0, 3, 2_000)) * rng.uniform(0.9, 1.1, size=2_000)
    spread = {}
    for name in ("multinomial", scheme):
        totals = [s.weights @ losses[s.indices] for s in drawn(scores, 100, name, 0.0, range(300))]
        assert deviation(totals, losses.sum()) < 4
        spread[name] = np.var(totals, ddof=1)
    assert spread[scheme] < 0.3 * spread["multinomial"]


@pytest.mark.parametrize("scheme", ["multinomial", "stratified"])
def test_dropping_duplicate_draws_would_be_caught(scheme):
    # The mutation: distinct rows with the weight of one draw. The same bound must refuse it.
    _, losses = table()
    estimates = [float((1 / (s.n_draws * s.probabilities)) @ losses[s.indices]) for s in samples(scheme)]
    assert deviation(estimates, losses.sum()) > 20


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
def test_distinct_rows_with_multinomial_weights_would_be_caught(scheme):
    # The other mutation: rows that are in or out, weighted by 1 / (s tau) although tau s exceeds 1 for the heavy ones.
    scores, losses = table()
    share = scores / scores.sum()
    estimates = [float((1 / (SIZE * share[s.indices])) @ losses[s.indices]) for s in samples(scheme)]
    assert deviation(estimates, losses.sum()) > 15


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


def test_a_million_multinomial_draws_of_one_seed_follow_the_scores():
    # A tilt of half of the cells by 2 % would show, and any single cell off by a twentieth.
    scores = np.random.default_rng(2).uniform(0.5, 1.5, size=50)
    sample = drawn(scores, 1_000_000, "multinomial", 0.0, [0])[0]
    p = scores / scores.sum()
    assert ((sample.counts - 1e6 * p) ** 2 / (1e6 * p)).sum() < chi2.ppf(1 - 1e-6, 49)
    assert (binom.cdf(sample.counts, 1_000_000, p) > 5e-10).all()
    assert (binom.sf(sample.counts - 1, 1_000_000, p) > 5e-10).all()
    # The order of the draws tells nothing: the first half follows the scores as well.
    first = np.bincount(sample.draws[:500_000], minlength=50)
    assert ((first - 5e5 * p) ** 2 / (5e5 * p)).sum() < chi2.ppf(1 - 1e-6, 49)


@each_scheme
def test_drawn_positions_follow_the_cumulated_scores(scheme):
    scores = np.random.default_rng(3).lognormal(size=1_000_000)
    (sample,) = drawn(scores, 20_000, scheme, 0.0, [1])
    expected = np.cumsum(sample.expected_count(scores))
    assert kstest(expected[sample.indices[sample.draws]] / expected[-1], "uniform").pvalue > 1e-6


ZEROS = {
    "first": slice(1),
    "last": slice(3_999, None),
    "a whole block": slice(1_000, 2_000),
    "all but one": slice(1, None),
}


@each_scheme
@pytest.mark.parametrize("n_draws", [50_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ZEROS.values(), ids=ZEROS)
def test_zero_rows_are_never_drawn_in_many_draws(scheme, where, n_draws):
    scores = np.ones(4_000)
    scores[where] = 0
    size = n_draws if scheme in ("multinomial", "stratified") else max(1, int((scores > 0).sum()) // 2)
    for sample in drawn(scores, size, scheme, 0.0, range(min(max(1, n_draws // size), 200))):
        assert scores[sample.indices].all()
        assert sample.expected_count(np.zeros(3)).tolist() == [0, 0, 0]


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
