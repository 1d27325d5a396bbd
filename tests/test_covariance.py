"""Standard errors and intervals: against statsmodels, finite differences, and samples drawn again and again."""

import dask
import numpy as np
import pytest
import statsmodels.api as sm

import dask_nlis as nlis
from dask_nlis.refit.covariance import spread
from dask_nlis.refit.objective import Objective

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def test_unit_weights_of_a_linear_model_give_hc3_of_statsmodels(rng):
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=80) * (1 + X[:, 0] ** 2)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(80))
    oracle = sm.OLS(y, np.column_stack([X, np.ones(80)])).fit()
    np.testing.assert_allclose(fit.theta, oracle.params, rtol=1e-8)
    # Ours centres the scaled gradients, whose mean over 80 rows is nearly zero, and divides by 79.
    design = np.column_stack([X, np.ones(80)])
    inverse = np.linalg.inv(design.T @ design)
    h = np.einsum("ij,jk,ik->i", design, inverse, design)
    z = design * ((oracle.resid / (1 - h))[:, None])
    np.testing.assert_allclose(inverse @ (z.T @ z) @ inverse, oracle.cov_HC3, rtol=1e-10)
    z = z - z.mean(axis=0)
    np.testing.assert_allclose(fit.covariance, 80 / 79 * inverse @ (z.T @ z) @ inverse, rtol=1e-6)
    np.testing.assert_allclose(fit.standard_errors, oracle.HC3_se, rtol=0.02)
    np.testing.assert_allclose(fit.population_covariance, oracle.cov_HC0, rtol=1e-6)
    low, high = fit.confidence_interval(0.9)
    np.testing.assert_allclose((low + high) / 2, fit.theta)
    np.testing.assert_allclose(high - low, 2 * 1.6448536269514722 * fit.standard_errors, rtol=1e-12)
    low, high = fit.confidence_interval(0.9, target="population")
    wider = np.sqrt(np.diagonal(fit.covariance + fit.population_covariance))
    np.testing.assert_allclose(high - low, 2 * 1.6448536269514722 * wider, rtol=1e-12)


@pytest.mark.parametrize(
    "loss", [nlis.SquaredError(), nlis.PseudoHuber(0.8), nlis.LogisticLoss(), nlis.PoissonDeviance()]
)
@pytest.mark.parametrize("phi", [nlis.Identity(), nlis.Swish(1, 2), nlis.Tanh()])
def test_the_hessian_is_that_of_the_loss(loss, phi, rng):
    if loss.takes != "prediction" and phi != nlis.Identity():
        return
    model = nlis.Linear() if phi == nlis.Identity() else nlis.SingleIndex(phi)
    X, theta = rng.normal(size=(200, 3)), np.array([0.4, -0.3, 0.2, 0.1])
    y = model.predict(theta, X) + 0.1 * rng.normal(size=200)
    y = (y > 0).astype(float) if isinstance(loss, nlis.LogisticLoss) else np.abs(y) if loss.takes != "prediction" else y
    weights = rng.random(200) + 0.5
    objective = Objective(nlis.Problem(model, loss), X, y, weights)
    step = 1e-5 * np.eye(4)
    hessian = np.stack([(objective.at(theta + e).gradient - objective.at(theta - e).gradient) / 2e-5 for e in step])
    found = spread(objective, theta, None, ok=True, active=())
    # Away from the optimum as well: with the gradients' own M the sandwich tells H.
    slopes = loss.derivative(model.predict(theta, X), y)
    gradients = (weights * slopes)[:, None] * model.jacobian(theta, X)
    inverse = np.linalg.inv(hessian)
    np.testing.assert_allclose(found.population, inverse @ (gradients.T @ gradients) @ inverse, rtol=1e-5)


POPULATIONS = {}


def population(kind, n=20_000):
    """X, y, problem, the fit to all rows, scores."""
    if kind not in POPULATIONS:
        rng = np.random.default_rng(7)
        X = rng.normal(size=(n, 3)) if kind == "swish" else rng.standard_t(5, size=(n, 3))
        index = X @ [0.8, -0.5, 0.3] + 0.2
        if kind == "swish":
            problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
            y = problem.model.predict(np.array([0.8, -0.5, 0.3, 0.2]), X) + rng.normal(size=n) * 0.5
        else:
            problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
            y = (rng.random(n) < 1 / (1 + np.exp(-index))).astype(float)
        full = nlis.refit(problem, X, y, np.ones(n))
        A = nlis.dual_matrix(problem, X, y, theta=full.theta)
        POPULATIONS[kind] = X, y, problem, full, nlis.leverage_scores(A, nlis.factorize(A))
    return POPULATIONS[kind]


def simulated(kind, scheme, size, times):
    X, y, problem, full, scores = population(kind)
    thetas, errors = [], []
    for seed in range(times):
        sample = nlis.draw(scores, size, scheme=scheme, seed=seed)
        X_s, y_s = sample.take(X, y)
        fit = nlis.refit(problem, X_s, y_s, sample, start=full.theta, n_starts=1)
        thetas.append(fit.theta)
        errors.append(fit.standard_errors)
    errors = np.array(errors)
    away = np.array(thetas) - full.theta
    covered = (np.abs(away) <= 1.959964 * errors).mean(axis=0)
    return np.sqrt((errors**2).mean(axis=0)) / np.sqrt((away**2).mean(axis=0)), covered


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["swish", "logistic"])
def test_intervals_cover_the_fit_to_all_rows(kind, scheme):
    ratio, covered = simulated(kind, scheme, 200, 150)
    # 150 samples: a standard error of 0.06 of a ratio, and of 0.018 of a coverage, over four coefficients less.
    assert 0.87 < ratio.mean() < 1.2
    assert 0.92 < covered.mean() < 0.985
    assert covered.min() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["swish", "logistic"])
def test_errors_and_coverage_over_800_samples(kind, scheme):
    ratio, covered = simulated(kind, scheme, 200, 800)
    if scheme in ("multinomial", "poisson"):
        assert 0.93 < ratio.mean() < 1.1
        assert 0.93 < covered.mean() < 0.97
    else:
        assert 0.93 < covered.mean() < 0.98
    assert covered.min() > 0.9
    assert covered.max() < 0.99


def test_errors_follow_the_units_of_the_columns(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    sample = nlis.draw(np.ones(60), 40, seed=1)
    fit = nlis.refit(problem, *sample.take(X, y), sample)
    scaled = nlis.refit(problem, *sample.take(X * [8.0, 1.0], y), sample)
    np.testing.assert_allclose(scaled.standard_errors * [8.0, 1.0, 1.0], fit.standard_errors, rtol=1e-4)
    doubled = nlis.refit(problem, *sample.take(X, y), sample, sample_weight=np.full(len(sample), 2.0))
    np.testing.assert_allclose(doubled.standard_errors, fit.standard_errors, rtol=1e-4)


def test_errors_are_withheld_with_a_sentence_where_they_would_mislead(rng):
    X = rng.normal(size=(50, 2))
    y = X @ [3.0, 1.0] + 0.1 * rng.normal(size=50)
    cases = {
        "a constraint is active": nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Ball(1.0)), X, y, np.ones(50)),
        "optimum is not unique": nlis.refit(nlis.Problem(nlis.Linear()), X[:2], y[:2], np.ones(2)),
        "not unique": nlis.refit(nlis.Problem(nlis.Linear()), np.column_stack([X, X[:, 0]]), y, np.ones(50)),
        "singular": nlis.refit(nlis.Problem(nlis.Linear(), nlis.AbsoluteError()), X, y, np.ones(50)),
    }
    with pytest.warns(nlis.ConvergenceWarning):
        separable = nlis.refit(
            nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), X, (X[:, 0] > 0).astype(float), np.ones(50)
        )
    for says, fit in {**cases, "the fit is not ok": separable}.items():
        assert says in fit.withheld
        for found in (fit.covariance, fit.standard_errors, *fit.confidence_interval(target="population")):
            assert np.isnan(found).all()
        assert str(fit.summary()).splitlines()[-1] == f"no standard errors: {fit.withheld}"
        assert "nan" not in str(fit.summary())
        assert nlis.Fit.from_dict(fit.to_dict()) == fit
    free = nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Ball(10.0)), X, y, np.ones(50))
    assert free.withheld == ""
    assert np.isfinite(free.standard_errors).all()


def test_a_summary_says_names_numbers_design_and_target(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    sample = nlis.draw(np.ones(60), 30, scheme="poisson", seed=1)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), *sample.take(X, y), sample)
    summary = fit.summary(0.9, target="population")
    heading, columns, _, *lines, note = str(summary).splitlines()
    assert heading == f"{len(sample)} rows (poisson sample), loss {fit.loss:.5g}, ok"
    assert columns.split() == ["parameter", "estimate", "standard", "error", "90", "%", "from", "to"]
    assert [line.split()[0] for line in lines] == ["x0", "x1", "intercept"]
    low, high = fit.confidence_interval(0.9, target="population")
    for k, line in enumerate(lines):
        values = [float(cell) for cell in line.split()[1:]]
        np.testing.assert_allclose(values, [fit.theta[k], summary.standard_errors[k], low[k], high[k]], rtol=1e-4)
    assert "population" in note
    page = summary._repr_html_()
    assert page.count("<tr>") == 4
    assert "<td>intercept</td>" in page


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"confidence_level": 95}, nlis.InputError), ({"confidence_level": 0.0}, nlis.InputError),
     ({"confidence_level": float("nan")}, nlis.InputError), ({"confidence_level": "0.9"}, nlis.InputTypeError),
     ({"target": "data"}, nlis.InputError), ({"target": None}, nlis.InputError)],
)  # fmt: skip
def test_levels_and_targets_that_do_not_exist_are_refused(arguments, error):
    fit = nlis.refit(nlis.Problem(nlis.Linear()), np.arange(5.0)[:, None], np.array([0.0, 1, 2, 2, 5]), np.ones(5))
    for verb in (fit.confidence_interval, fit.summary):
        with pytest.raises(error, match=next(iter(arguments))) as e:
            verb(**arguments)
        assert "\n" not in str(e.value)
