"""What standard errors are worth: samples drawn again and again, fits counted that their intervals cover."""

import dask
import numpy as np
import pytest
import scripts

import dask_nlis as nlis

coverage = scripts.example("coverage")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize(
    ("model", "scheme"), [("single index", "multinomial"), ("logistic", "poisson"), ("single index", "stratified"), ("logistic", "systematic")]
)  # fmt: skip
def test_intervals_cover_the_fit_to_all_rows(model, scheme):
    ratio, covered = coverage.simulated(coverage.population("synthetic", model, 4_000, 3), scheme, 200, 150)
    # Standard errors over 150 samples: 0.058 of a ratio, 0.018 of a coverage; three of them.
    assert 0.83 < ratio.mean() < 1.18
    assert 0.896 < covered.mean() < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scheme", coverage.SCHEMES)
@pytest.mark.parametrize("model", coverage.MODELS)
@pytest.mark.parametrize("rows", coverage.ROWS)
def test_errors_and_coverage_over_800_samples(rows, model, scheme):
    all_rows = coverage.population(rows, model)
    ratio, covered = coverage.simulated(all_rows, scheme, 50 * len(all_rows.full.theta), 800)
    # Standard errors: 0.025 of a ratio, 0.008 of the coverage of one coefficient.
    if scheme in ("multinomial", "poisson"):
        assert 0.93 <= ratio.mean() <= 1.1
        assert 0.93 <= covered.mean() <= 0.97
        assert covered.min() >= 0.90
        assert covered.max() <= 0.99
    else:
        assert 0.93 <= covered.mean() <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("model", coverage.MODELS)
def test_intervals_of_a_run_in_two_stages_cover_the_fit_to_all_rows(model):
    all_rows = coverage.population("california", model)
    ratio, covered = coverage.simulated(all_rows, "two stages", 50 * len(all_rows.full.theta), 400)
    assert 0.93 <= ratio.mean() <= 1.1
    assert 0.93 <= covered.mean() <= 0.97
    assert covered.min() >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("model", coverage.MODELS)
def test_a_few_rows_carry_a_coefficient_that_uniform_samples_miss(model):
    all_rows = coverage.population("california", model)
    size = 50 * len(all_rows.full.theta)
    _, uniform = coverage.simulated(all_rows, "multinomial", size, 400, np.ones(len(all_rows.y)))
    _, leverage = coverage.simulated(all_rows, "multinomial", size, 400)
    assert uniform.min() < 0.7
    assert leverage.min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", coverage.MODELS)
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
