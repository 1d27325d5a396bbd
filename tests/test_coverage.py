"""What standard errors are worth: samples drawn again and again, fits counted that their intervals cover."""

import functools
from typing import NamedTuple

import dask
import numpy as np
import pytest

import dask_nlis as nlis

ROWS = ("synthetic", "heavy-tailed", "california")
MODELS = ("single index", "logistic")
SCHEMES = ("multinomial", "poisson", "stratified", "systematic")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


class Population(NamedTuple):
    """Rows, the fit to all of them, and leverage scores there."""

    X: np.ndarray
    y: np.ndarray
    full: nlis.Fit
    scores: np.ndarray


def table(rows, n, d, rng):
    if rows == "california":
        X, y = nlis.datasets.california_housing(standardized=True)
        return X.compute(), y.compute()
    if rows == "synthetic":
        return rng.normal(size=(n, d)), None
    heavy, rare = rng.standard_t(4, size=(n, 4)), rng.random((n, 2)) < 0.05
    return np.column_stack([heavy, np.exp(rng.normal(size=(n, 3))) - np.exp(0.5), rare]), None


@functools.cache
def population(rows, model, n=20_000, d=9):
    rng = np.random.default_rng(7)
    X, y = table(rows, n, d, rng)
    theta = np.append(np.linspace(0.6, -0.6, X.shape[1]), 0.2)
    if model == "single index":
        problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
        y = problem.model.predict(theta, X) + 0.5 * rng.normal(size=len(X)) if y is None else y
    else:
        problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
        chance = 1 / (1 + np.exp(-X @ theta[:-1] - theta[-1]))
        y = (rng.random(len(X)) < chance if y is None else y > np.median(y)).astype(float)
    full = nlis.refit(problem, X, y, np.ones(len(y)), n_starts=1)
    A = nlis.dual_matrix(problem, X, y, theta=full.theta)
    return Population(X, y, full, np.asarray(nlis.leverage_scores(A, nlis.factorize(A))))


def simulated(all_rows, scheme, size, times, scores=None):
    """Root mean square of the standard errors over that of the errors, and coverage, of each coefficient."""
    X, y, full, leverage = all_rows
    away, errors = [], []
    for seed in range(times):
        sample = nlis.draw(leverage if scores is None else scores, size, scheme=scheme, seed=seed)
        fit = nlis.refit(full.problem, *sample.take(X, y), sample, start=full.theta, n_starts=1)
        assert fit.withheld == ""
        away.append(fit.theta - full.theta)
        errors.append(fit.standard_errors)
    away, errors = np.array(away), np.array(errors)
    ratio = np.sqrt((errors**2).mean(axis=0) / (away**2).mean(axis=0))
    return ratio, (np.abs(away) <= 1.959963984540054 * errors).mean(axis=0)


@pytest.mark.parametrize(
    ("model", "scheme"), [("single index", "multinomial"), ("logistic", "poisson"), ("single index", "stratified"), ("logistic", "systematic")]
)  # fmt: skip
def test_intervals_cover_the_fit_to_all_rows(model, scheme):
    ratio, covered = simulated(population("synthetic", model, 4_000, 3), scheme, 200, 150)
    # Standard errors over 150 samples: 0.058 of a ratio, 0.018 of a coverage; three of them.
    assert 0.83 < ratio.mean() < 1.18
    assert 0.896 < covered.mean() < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rows", ROWS)
def test_errors_and_coverage_over_800_samples(rows, model, scheme):
    all_rows = population(rows, model)
    ratio, covered = simulated(all_rows, scheme, 50 * len(all_rows.full.theta), 800)
    # Standard errors: 0.025 of a ratio, 0.008 of the coverage of one coefficient.
    if scheme in ("multinomial", "poisson"):
        assert 0.93 <= ratio.mean() <= 1.1
        assert 0.93 <= covered.mean() <= 0.97
        assert covered.min() >= 0.90
        assert covered.max() <= 0.99
    else:
        assert 0.93 <= covered.mean() <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_few_rows_carry_a_coefficient_that_uniform_samples_miss(model):
    all_rows = population("california", model)
    size = 50 * len(all_rows.full.theta)
    _, uniform = simulated(all_rows, "multinomial", size, 400, np.ones(len(all_rows.y)))
    _, leverage = simulated(all_rows, "multinomial", size, 400)
    assert uniform.min() < 0.7
    assert leverage.min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_population_target_covers_the_parameters_behind_the_data(model):
    """Rows and labels are made anew each time; samples of half of them, so that the rows' own error counts."""
    rng = np.random.default_rng(3)
    theta = np.array([0.6, 0.0, -0.6, 0.2])
    phi = nlis.SingleIndex(nlis.Swish(c1=1, c2=2))
    problem = nlis.Problem(phi) if model == "single index" else nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
    around = {"full_data": [], "population": []}
    for seed in range(800):
        X = rng.normal(size=(1_000, 3))
        index = X @ theta[:-1] + theta[-1]
        noisy = phi.predict(theta, X) + 0.5 * rng.normal(size=1_000)
        y = noisy if model == "single index" else (rng.random(1_000) < 1 / (1 + np.exp(-index))).astype(float)
        sample = nlis.draw(1 + np.abs(index), 500, scheme="poisson", seed=seed)
        fit = nlis.refit(problem, *sample.take(X, y), sample, start=theta, n_starts=1)
        for target, found in around.items():
            low, high = fit.confidence_interval(target=target)
            found.append((low <= theta) & (theta <= high))
    covered = {target: np.mean(found) for target, found in around.items()}
    assert 0.93 < covered["population"] < 0.97
    assert covered["full_data"] < 0.85  # a sample of half the rows knows half of their error
