"""Standard errors: against statsmodels, finite differences, enumerated designs, and laws of units and of rows."""

import itertools
import warnings

import nets
import numpy as np
import pytest
import statsmodels.api as sm
from array_api_strict import asarray as strict
from tables import LOSSES, MODELS, PAIRS, allowed

import dask_nlis as nlis
from dask_nlis.refit.covariance import spread
from dask_nlis.refit.design import scatter
from dask_nlis.refit.objective import Objective

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")

#: Kinks of the first derivative lie between the ends of a difference now and then; these are smooth.
BEYOND = {**MODELS, **nets.NETS}


def finite_differences(function, theta, step=1e-6):
    """Derivative of a vector function of theta, row j by central differences in theta_j."""
    unit = step * np.eye(len(theta))
    return np.stack([(function(theta + e) - function(theta - e)) / (2 * step) for e in unit])


def setting(model, rng, n=60):
    x = rng.normal(size=(n, nets.D))
    theta = 0.7 * rng.normal(size=model.n_parameters(nets.D))
    return theta, x, model.predict(theta, x) + rng.normal(size=n)


@pytest.mark.parametrize("name", BEYOND)
def test_second_derivatives_of_a_model_are_those_of_its_gradient(name, rng):
    model = BEYOND[name]
    theta, x, _ = setting(model, rng)
    weights = rng.normal(size=len(x))
    expected = finite_differences(lambda t: weights @ model.jacobian(t, x), theta)
    found = model.hessian(theta, x, weights)
    np.testing.assert_allclose(found, expected, atol=2e-8 * max(1.0, np.abs(expected).max()))
    if not isinstance(model, nlis.Homogeneous | nlis.Numerical):  # those have NumPy functions here
        np.testing.assert_array_equal(np.asarray(model.hessian(*map(strict, (theta, x, weights)))), found)


def test_rows_whose_unit_changes_side_within_a_difference_add_no_jump(rng):
    def value(theta, x):
        return np.maximum(x @ theta, 0.0) ** 2 / 2 + np.maximum(x @ theta, 0.0)

    def gradient(theta, x):
        u = (x @ theta)[:, None]
        return np.where(u > 0, u + 1, 0.0) * x

    model = nlis.Numerical(value, gradient, 3)
    theta, x = np.array([1.0, -0.5, 0.25]), rng.normal(size=(50, 3))
    x[:20] -= np.outer(x[:20] @ theta + rng.uniform(-1e-7, 1e-7, 20), theta) / (theta @ theta)  # on their kink
    weights = np.ones(50)
    active = (x @ theta > 0)[:, None]
    sides = [model.hessian(theta, x[[k]], weights[:1]) for k in range(20)]
    for k, found in enumerate(sides):  # one-sided: of either side of the kink, never the jump over the step
        assert min(np.abs(found).max(), np.abs(found - np.outer(x[k], x[k])).max()) < 1e-4
    rest = x[20:] * active[20:]
    np.testing.assert_allclose(model.hessian(theta, x[20:], weights[20:]), rest.T @ rest, atol=1e-7)


@pytest.mark.parametrize(
    ("model_name", "loss_name"), [*PAIRS, *itertools.product(nets.NETS, ["squared", "pseudo-huber"])]
)
def test_the_sandwich_of_every_model_and_loss_has_the_hessian_of_the_objective(model_name, loss_name, rng):
    model, loss = BEYOND[model_name], LOSSES[loss_name]
    theta, x, y = setting(model, rng, 80)
    y = allowed(loss, y)
    weights = rng.random(80) + 0.5
    plain = Objective(nlis.Problem(model, loss), x, y, weights)
    bare = finite_differences(lambda t: plain.at(t).gradient, theta)
    # theta is no optimum: a ridge makes the objective convex there, no larger than need be.
    ridge = 0.2 * np.abs(bare).max() - 0.5 * min(0.0, np.linalg.eigvalsh((bare + bare.T) / 2)[0])
    objective = Objective(nlis.Problem(model, loss), x, y, weights, ridge)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = spread(objective, theta, weights, ok=True, active=())
    if loss_name == "absolute":
        assert "no curvature" in found.withheld
        return
    assert found.withheld == ""
    inverse = np.linalg.inv(bare + 2 * ridge * np.eye(len(theta)))
    rows = model.jacobian(theta, x)
    slopes = loss.derivative(model.predict(theta, x), y)
    gradients = slopes[:, None] * rows
    # Gradients by differences of the loss of single rows, so that the per-row form is checked as well.
    alone = finite_differences(lambda t: loss.value(model.predict(t, x), y), theta).T
    np.testing.assert_allclose(gradients, alone, atol=1e-4 * max(1.0, np.abs(alone).max()))
    bend = np.maximum(loss.curvature(model.predict(theta, x), y), 0.0)
    flat = np.linalg.inv(rows.T @ ((weights * bend)[:, None] * rows) + 2 * ridge * np.eye(len(theta)))
    leverage = weights * bend * np.einsum("ij,jk,ik->i", rows, flat, rows)
    z = weights[:, None] * gradients / (1 - leverage)[:, None]
    z = z - z.mean(axis=0)
    for covariance, middle in (
        (found.covariance, 80 / 79 * z.T @ z),
        (found.population, gradients.T @ (weights[:, None] * gradients)),
    ):
        expected = inverse @ middle @ inverse
        np.testing.assert_allclose(covariance, expected, atol=2e-5 * np.abs(expected).max())
        np.testing.assert_array_equal(covariance, covariance.T)


def test_where_the_hessian_is_not_positive_definite_that_of_gauss_newton_stands_in(rng):
    model, x = nlis.SingleIndex(nlis.Tanh(), intercept=False), rng.normal(size=(40, 2))
    theta = np.array([1.5, -1.0])
    y = model.predict(theta, x) - 5 * np.sign(model.predict(theta, x))  # far on the wrong side: concave
    objective = Objective(nlis.Problem(model), x, y, np.ones(40))
    hessian = finite_differences(lambda t: objective.at(t).gradient, theta)
    assert np.linalg.eigvalsh((hessian + hessian.T) / 2)[0] < 0
    found = spread(objective, theta, np.ones(40), ok=True, active=())
    rows = model.jacobian(theta, x)
    inverse = np.linalg.inv(2 * rows.T @ rows)
    gradients = 2 * (model.predict(theta, x) - y)[:, None] * rows
    np.testing.assert_allclose(found.population, inverse @ gradients.T @ gradients @ inverse, rtol=1e-9)


def test_unit_weights_of_a_linear_model_give_hc3_of_statsmodels(rng):
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=80) * (1 + X[:, 0] ** 2)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(80))
    design = np.column_stack([X, np.ones(80)])
    oracle = sm.OLS(y, design).fit()
    np.testing.assert_allclose(fit.theta, oracle.params, rtol=1e-8)
    # HC3 but for the mean of the gradients over 1 - h, which is taken off, and 80 / 79.
    inverse = np.linalg.inv(design.T @ design)
    h = np.einsum("ij,jk,ik->i", design, inverse, design)
    mean = (design * (oracle.resid / (1 - h))[:, None]).mean(axis=0)
    expected = 80 / 79 * (oracle.cov_HC3 - 80 * inverse @ np.outer(mean, mean) @ inverse)
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-6)
    np.testing.assert_allclose(fit.standard_errors, oracle.HC3_se, rtol=0.02)
    np.testing.assert_allclose(fit.population_covariance, oracle.cov_HC0, rtol=1e-6)


def enumerated(probabilities, rows, n_draws):
    """Exact covariance of the weighted sum, and the exact mean of its estimate, over all multinomial samples."""
    n = len(rows)
    totals, estimates, chances = [], [], []
    for drawn in itertools.product(range(n), repeat=n_draws):
        sample = nlis.Sample.from_probabilities(drawn, probabilities[list(drawn)], n_rows=n)
        chances.append(np.prod(probabilities[list(drawn)]))
        totals.append(sample.weights @ rows[sample.indices])
        estimates.append(scatter(sample, rows[sample.indices]))
    chances, totals = np.array(chances), np.array(totals)
    around = totals - chances @ totals
    return around.T @ (chances[:, None] * around), np.einsum("k,kij->ij", chances, np.array(estimates))


def test_the_variance_of_a_multinomial_sum_is_estimated_without_bias(rng):
    rows = rng.normal(1.0, 2.0, size=(4, 3))
    true, mean = enumerated(np.array([0.1, 0.4, 0.3, 0.2]), rows, 3)
    np.testing.assert_allclose(mean, true, rtol=1e-12)


def test_the_variance_of_a_poisson_sum_is_estimated_without_bias(rng):
    rows, pi = rng.normal(1.0, 2.0, size=(5, 3)), np.array([0.2, 0.9, 1.0, 0.4, 0.6])
    mean = np.zeros((3, 3))
    for kept in itertools.product([False, True], repeat=5):
        chance = np.prod(np.where(kept, pi, 1 - pi))
        if chance and any(kept):
            index = np.flatnonzero(kept)
            sample = nlis.Sample.from_probabilities(index, pi[index], n_rows=5, scheme="poisson")
            mean += chance * scatter(sample, rows[index])
    np.testing.assert_allclose(mean, rows.T @ ((1 / pi - 1)[:, None] * rows), rtol=1e-12)  # Horvitz & Thompson


def test_stages_of_independent_draws_in_a_pool_are_centred_and_others_are_not(rng):
    rows, scores = rng.normal(1.0, 2.0, size=(300, 3)), [rng.random(300), rng.random(300), rng.random(300)]
    parts = [
        nlis.draw(q, size, scheme=scheme, seed=k)
        for k, (q, size, scheme) in enumerate(zip(scores, (30, 50, 40), ("multinomial", "multinomial", "poisson"), strict=True))
    ]  # fmt: skip
    pooled = nlis.pool(parts, scores)
    expected = sum(part.expected_count(q) for part, q in zip(parts, scores, strict=True))
    found = np.zeros((3, 3))
    for part in parts[:2]:
        z = np.repeat(rows[part.indices] / expected[part.indices, None], part.counts, axis=0)
        found += len(z) * np.cov(z.T)  # m / (m - 1) sum of squares around the mean
    last = parts[2]
    found += (rows[last.indices].T / expected[last.indices] ** 2 * (1 - last.probabilities)) @ rows[last.indices]
    np.testing.assert_allclose(scatter(pooled, rows[pooled.indices]), found, rtol=1e-10)


def test_stages_of_a_pool_are_centred_though_all_their_rows_are_shared(rng):
    rows, q = rng.normal(1.0, 2.0, size=(4, 3)), np.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.NlisWarning)  # more draws than rows
        parts = [nlis.draw(q, 40, seed=seed) for seed in range(2)]
    pooled = nlis.pool(parts, [q, q])
    assert all(len(part) == 4 for part in parts)
    found = sum(40 * np.cov(np.repeat(rows / 20, part.counts, axis=0).T) for part in parts)
    np.testing.assert_allclose(scatter(pooled, rows), found, rtol=1e-10)


def by_hand(scheme, probabilities, draws, stage, variance_weights=None):
    """A sample of distinct rows, drawn in this order."""
    place = np.argsort(np.argsort(draws))
    order = np.argsort(draws)
    chances = np.asarray(probabilities, dtype=float)[order]
    weights = 1 / chances / (len(draws) if scheme == "stratified" else 1)
    return nlis.Sample(
        indices=np.sort(draws), counts=np.ones(len(draws), dtype=np.int64), probabilities=chances, weights=weights,
        variance_weights=weights * (weights - 1) if variance_weights is None else variance_weights, draws=place,
        stage=np.asarray(stage), scale=nlis.sample.Scale("given"), n_draws=len(draws), n_rows=100, scheme=scheme, seed=0,
    )  # fmt: skip


def test_stratified_and_systematic_take_differences_of_neighbouring_slices_within_a_stage(rng):
    draws, stage = np.array([7, 3, 9, 1, 8]), np.array([0, 0, 0, 1, 1])
    values = {row: rng.normal(size=2) for row in draws}
    rows = np.array([values[row] for row in np.sort(draws)])

    def square(a):
        return np.outer(a, a)

    p = dict(zip(draws.tolist(), [0.1, 0.2, 0.3, 0.4, 0.5], strict=True))
    z = {k: values[k] / (5 * p[k]) for k in values}
    expected = 3 / 4 * (square(z[7] - z[3]) + square(z[3] - z[9])) + square(z[1] - z[8])
    sample = by_hand("stratified", [p[k] for k in draws], draws, stage, np.ones(5))
    np.testing.assert_allclose(scatter(sample, rows), expected, rtol=1e-12)
    pi = dict(zip(draws.tolist(), [0.1, 0.2, 0.3, 0.4, 1.0], strict=True))  # row 8 is certain, 1 stands alone
    z = {k: values[k] / pi[k] for k in values}
    expected = 3 / 4 * (0.85 * square(z[7] - z[3]) + 0.75 * square(z[3] - z[9])) + 0.6 * square(z[1])
    sample = by_hand("systematic", [pi[k] for k in draws], draws, stage)
    np.testing.assert_allclose(scatter(sample, rows), expected, rtol=1e-12)


def test_draws_of_stages_may_lie_among_one_another(rng):
    rows, draws = rng.normal(size=(6, 2)), np.array([4, 0, 5, 2, 1, 3])
    apart = by_hand("stratified", np.full(6, 0.5), draws, [0, 0, 0, 1, 1, 1], np.ones(6))
    mixed = by_hand("stratified", np.full(6, 0.5), draws[[0, 3, 1, 4, 5, 2]], [0, 1, 0, 1, 1, 0], np.ones(6))
    np.testing.assert_allclose(scatter(mixed, rows), scatter(apart, rows), rtol=1e-12)


def test_stages_of_one_draw_are_taken_together_and_not_for_certain(rng):
    rows = rng.normal(size=(4, 2))
    sample = by_hand("stratified", np.full(4, 0.25), np.arange(4), np.arange(4), np.ones(4))
    steps = np.diff(rows, axis=0)
    np.testing.assert_allclose(scatter(sample, rows), 4 / 6 * steps.T @ steps, rtol=1e-12)
    lone = by_hand("stratified", np.ones(1), np.arange(1), np.zeros(1, dtype=int), np.ones(1))
    np.testing.assert_allclose(scatter(lone, rows[:1]), rows[:1].T @ rows[:1], rtol=1e-12)


@pytest.mark.parametrize("scheme", [*SCHEMES, "own weights"])
def test_powers_of_two_in_the_units_of_columns_change_no_digit(scheme, rng):
    X, y = rng.normal(size=(90, 3)), rng.normal(size=90)
    for model in (nlis.Linear(), nlis.SingleIndex(nlis.Tanh())):
        problem = nlis.Problem(model)
        sample = nlis.draw(rng.random(90), 60, scheme=scheme, seed=1) if scheme != "own weights" else rng.random(90)
        taken, labels = sample.take(X, y) if scheme != "own weights" else (X, y)
        weights = sample.weights if scheme != "own weights" else sample
        theta = nlis.refit(problem, taken, labels, sample).theta
        units = np.array([2.0**-20, 1.0, 2.0**30, 1.0])
        found = spread(Objective(problem, taken, labels, weights), theta, sample, ok=True, active=())
        scaled = Objective(problem, taken * units[:3], labels, weights)
        other = spread(scaled, theta / units, sample, ok=True, active=())
        np.testing.assert_array_equal(other.covariance * np.outer(units, units), found.covariance)
        np.testing.assert_array_equal(other.population * np.outer(units, units), found.population)
        assert found.withheld == ""


def test_units_of_columns_and_of_a_users_model_scale_its_errors(rng):
    X = rng.normal(size=(200, nets.D))
    problem = nlis.Problem(nlis.Numerical(nets.wave, nets.wave_gradient, nets.D + 1))
    units = np.array([1e-6, 1.0, 1e7, 1.0, 1.0])
    theta = 0.3 * rng.normal(size=nets.D + 1)
    weights = np.ones(200)
    found = problem.model.hessian(theta, X, weights)
    scaled = problem.model.hessian(theta / units, X * units[: nets.D], weights)
    np.testing.assert_allclose(scaled / np.outer(units, units), found, atol=1e-7 * np.abs(found).max())


def test_labels_and_weights_scale_errors_as_they_should(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    sample = nlis.draw(np.ones(60), 40, seed=1)
    X_s, y_s = sample.take(X, y)
    problem = nlis.Problem(nlis.Linear())
    fit = nlis.refit(problem, X_s, y_s, sample)
    np.testing.assert_allclose(nlis.refit(problem, X_s, 3 * y_s, sample).covariance, 9 * fit.covariance, rtol=1e-8)
    # Twice the weight of every row of the data changes no fit and no error around the fit to all rows.
    double = nlis.refit(problem, X_s, y_s, sample, sample_weight=np.full(len(sample), 2.0))
    np.testing.assert_allclose(double.covariance, fit.covariance, rtol=1e-8)
    np.testing.assert_allclose(double.population_covariance, fit.population_covariance, rtol=1e-8)


def test_weights_of_ones_own_are_those_of_one_independent_draw_a_row(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    sample = nlis.Sample.from_probabilities(np.arange(60), np.full(60, 1 / 90), n_rows=90)
    problem, v = nlis.Problem(nlis.Linear()), rng.random(60)
    of_sample = nlis.refit(problem, X, y, sample, sample_weight=v)
    of_weights = nlis.refit(problem, X, y, sample.weights, sample_weight=v)
    assert (of_sample.design, of_weights.design) == ("multinomial sample", "one independent draw a row")
    np.testing.assert_allclose(of_weights.covariance, of_sample.covariance, rtol=1e-10)
    np.testing.assert_allclose(of_weights.population_covariance, of_sample.population_covariance, rtol=1e-10)
    # Rows of no weight are no draws.
    more = [np.concatenate([part, part[:7]]) for part in (X, y, v)]
    again = nlis.refit(problem, *more[:2], np.append(sample.weights, np.zeros(7)), sample_weight=more[2])
    np.testing.assert_allclose(again.covariance, of_weights.covariance, rtol=1e-8)
    np.testing.assert_allclose(again.population_covariance, of_weights.population_covariance, rtol=1e-8)


def test_a_row_drawn_twice_is_two_draws(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    sample = nlis.draw(np.linspace(0.1, 3.0, 30) ** 2, 28, seed=3)
    assert sample.counts.max() > 2
    problem = nlis.Problem(nlis.Linear())
    fit = nlis.refit(problem, *sample.take(X, y), sample)
    place = sample.draws
    each = nlis.refit(problem, *(part[place] for part in sample.take(X, y)), (sample.weights / sample.counts)[place])
    np.testing.assert_allclose(fit.covariance, each.covariance, rtol=1e-8)
    np.testing.assert_allclose(fit.population_covariance, each.population_covariance, rtol=1e-8)


def test_a_sample_of_all_rows_has_no_error_around_their_fit(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    sample = nlis.draw(np.ones(30), 30, scheme="poisson", seed=0)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), *sample.take(X, y), sample)
    assert not fit.standard_errors.any()
    low, high = fit.confidence_interval(target="population")
    assert (low < high).all()


def test_errors_are_withheld_with_a_sentence_where_they_would_mislead(rng):
    X = rng.normal(size=(50, 2))
    y = X @ [3.0, 1.0] + 0.1 * rng.normal(size=50)
    linear, ones = nlis.Problem(nlis.Linear()), np.ones(50)
    lone = np.column_stack([X, np.arange(50) == 17])
    cases = {
        "a constraint is active": nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Ball(1.0)), X, y, ones),
        "too few rows": nlis.refit(linear, X[:2], y[:2], np.ones(2)),
        "dependent columns": nlis.refit(linear, np.column_stack([X, X[:, 0]]), y, ones),
        "no curvature": nlis.refit(nlis.Problem(nlis.Linear(), nlis.AbsoluteError()), X, y, ones),
        "rescaled": nlis.refit(nlis.Problem(nlis.ReluNetwork(1)), X, np.maximum(X @ [1.0, 1.0], 0) + y / 9, ones),
        "taken row 17 alone": nlis.refit(linear, lone, y, ones),
    }
    with pytest.warns(nlis.ConvergenceWarning):
        cases["the fit is not ok"] = nlis.refit(
            nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), X, (X[:, 0] > 0).astype(float), ones
        )
    for says, fit in cases.items():
        assert says in fit.withheld
        assert "\n" not in fit.withheld
        assert len(fit.withheld) <= 200
        for found in (fit.covariance, fit.standard_errors, *fit.confidence_interval(target="population")):
            assert np.isnan(found).all()
        assert nlis.Fit.from_dict(fit.to_dict()) == fit
    for fit in (
        nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Ball(10.0)), X, y, ones),  # the set is not in the way
        nlis.refit(linear, X * [1e-9, 1e9], y, ones),  # nor are units
        nlis.refit(linear, lone, y, ones, ridge=1.0),
        nlis.refit(nlis.Problem(nlis.ReluNetwork(1)), X, np.maximum(X @ [1.0, 1.0], 0) + y / 9, ones, ridge=0.1),
    ):
        assert fit.withheld == ""
        assert (fit.standard_errors > 0).all()


def test_dependent_columns_are_told_from_nearly_dependent_ones():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(60, 6)), rng.normal(size=60)
        mixed = np.column_stack([X, X @ rng.normal(size=6)])
        objective = Objective(nlis.Problem(nlis.Linear()), mixed, y, np.ones(60))
        assert "not unique" in spread(objective, np.zeros(8), np.ones(60), ok=True, active=()).withheld
        near = mixed + np.where(np.arange(7) == 6, 1e-5, 0.0) * rng.normal(size=(60, 7))
        design = np.column_stack([near, np.ones(60)])
        theta = np.linalg.lstsq(design, y, rcond=None)[0]
        objective = Objective(nlis.Problem(nlis.Linear()), near, y, np.ones(60))
        found = spread(objective, theta, np.ones(60), ok=True, active=())
        np.testing.assert_allclose(found.population, sm.OLS(y, design).fit().cov_HC0, rtol=1e-3)


def test_a_row_drawn_for_certain_may_decide_a_parameter(rng):
    X = np.column_stack([rng.normal(size=40), np.arange(40) == 5])
    y = rng.normal(size=40)
    pi = np.where(np.arange(40) == 5, 1.0, 0.5)
    sample = nlis.Sample.from_probabilities(np.arange(0, 40), pi, n_rows=40, scheme="poisson")
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, sample)
    assert fit.withheld == ""
    assert (fit.standard_errors > 0).all()
