"""The loss over all rows, for one theta or many in one read."""

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, cut, rows_of
from scipy.special import expit, ndtr
from tables import MODELS

import dask_nlis as nlis

X, Y = rows_of(41, 900, 3)

# Predictions from their definition, index t = <coef, x> + intercept.
PHI = {
    "Identity": lambda phi, t: t,
    "Logistic": lambda phi, t: expit(t),
    "Tanh": lambda phi, t: np.tanh(t),
    "Softplus": lambda phi, t: np.log(1 + np.exp(t)),
    "Exp": lambda phi, t: np.exp(t),
    "Probit": lambda phi, t: ndtr(t),
    "Sin": lambda phi, t: np.sin(t),
    "Cos": lambda phi, t: np.cos(t),
    "Arctan": lambda phi, t: np.arctan(t),
    "Gelu": lambda phi, t: t * ndtr(t),
    "Relu": lambda phi, t: np.maximum(t, 0.0),
    "LeakyRelu": lambda phi, t: np.where(t > 0, t, phi.slope * t),
    "SquaredRelu": lambda phi, t: np.maximum(t, 0.0) ** 2,
    "Elu": lambda phi, t: np.where(t > 0, t, np.exp(t) - 1),
    "Swish": lambda phi, t: t * (phi.c1**0.5 + (phi.c2**0.5 - phi.c1**0.5) * expit(phi.zeta * t)),
}


def direct(model, theta, weight=1.0, x=X, y=Y):
    """Sum of squared residuals, row by row."""
    index = x @ theta[:3] + (theta[3] if model.intercept else 0.0)
    prediction = PHI[type(model.activation).__name__](model.activation, index)
    return float((weight * (prediction - y) ** 2).sum())


def thetas_of(model, k, rng):
    return rng.standard_normal((k, model.n_parameters(3)))


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_sum_of_the_losses_of_the_rows(name, rng):
    model = MODELS[name]
    thetas = thetas_of(model, 5, rng)
    problem = nlis.Problem(model, constraint=nlis.Ball(1e-3))  # the set plays no part
    expected = [direct(model, theta) for theta in thetas]
    for x, y in ((X, Y), (da.from_array(X, (70, 3)), da.from_array(Y, 33))):
        np.testing.assert_allclose(nlis.total_loss(problem, x, y, thetas), expected, rtol=1e-13)
        one = nlis.total_loss(problem, x, y, thetas[0])
        assert type(one) is float
        assert one == pytest.approx(expected[0], rel=1e-13)


def test_theta_p_gives_a_float_and_k_p_gives_k_numbers():
    problem = nlis.Problem(nlis.Linear())
    theta = [0.1, 0.2, 0.3, 0.4]
    one = nlis.total_loss(problem, X, Y, theta)
    table = nlis.total_loss(problem, X, Y, [theta])
    assert (type(one), type(table), table.shape) == (float, np.ndarray, (1,))
    assert table[0] == one
    assert nlis.total_loss(problem, X, Y, [theta] * 3).tolist() == [one] * 3


@pytest.mark.parametrize("k", [1, 2, 100])
def test_one_read_for_any_number_of_thetas(k, rng):
    counted = CountingArray(X), CountingArray(Y)
    model = nlis.SingleIndex(nlis.Swish(1, 2))
    nlis.total_loss(nlis.Problem(model), counted[0].dask(50), counted[1].dask(50), thetas_of(model, k, rng))
    assert [array.reads() for array in counted] == [1, 1]


@pytest.mark.parametrize("sizes", [(900,), (1,), (7,), (449, 2)])
def test_chunks_do_not_matter(sizes, rng):
    model = nlis.SingleIndex(nlis.Tanh())
    thetas = thetas_of(model, 3, rng)
    x = da.from_array(X, (cut(900, sizes), (3,)))
    found = nlis.total_loss(nlis.Problem(model), x, Y, thetas)
    np.testing.assert_allclose(found, [direct(model, theta) for theta in thetas], rtol=1e-13)


def test_row_weights_multiply_and_whole_ones_repeat_rows(rng):
    model = nlis.SingleIndex(nlis.Logistic())
    problem, theta = nlis.Problem(model), thetas_of(model, 1, rng)[0]
    weight = rng.integers(0, 4, 900)
    repeated = np.repeat(np.arange(900), weight)
    for given in (weight, da.from_array(weight, 11), weight.astype(np.uint8)):
        found = nlis.total_loss(problem, X, Y, theta, sample_weight=given)
        assert found == pytest.approx(direct(model, theta, weight), rel=1e-13)
        assert found == pytest.approx(nlis.total_loss(problem, X[repeated], Y[repeated], theta), rel=1e-13)
    third = nlis.total_loss(problem, X, Y, theta, sample_weight=np.full(900, 1 / 3))
    assert third == pytest.approx(direct(model, theta) / 3, rel=1e-13)


def test_losses_of_very_unequal_size_over_many_blocks_are_summed_without_drift():
    y = np.where(np.arange(900) % 2, 1e8, 1e-8)  # squares 1e16 and 1e-16
    x = da.from_array(np.zeros((900, 1)), (1, 1))
    found = nlis.total_loss(nlis.Problem(nlis.Linear(intercept=False)), x, y, [0.0])
    assert found == 450 * 1e16


def test_it_agrees_with_the_squared_distance_of_the_dual_matrix(rng):
    """|f(0) + F* theta|^2 is the loss: the identity behind the whole method."""
    model = nlis.SingleIndex(nlis.Swish(0.5, 3))
    problem, theta = nlis.Problem(model), thetas_of(model, 1, rng)[0]
    rows = nlis.dual_matrix(problem, X, Y, theta=theta).to_dask_array().compute()
    assert ((rows @ np.append(theta, 1.0)) ** 2).sum() == pytest.approx(
        nlis.total_loss(problem, X, Y, theta), rel=1e-12
    )


def test_the_loss_of_a_fit_is_what_its_own_weights_say():
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(0.5))
    fit = nlis.refit(problem, X, Y, np.ones(900))
    assert nlis.total_loss(problem, da.from_array(X, (100, 3)), Y, fit.theta) == pytest.approx(fit.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("theta", "kind", "says"),
    [
        (np.zeros((0, 4)), nlis.InputError, r"theta has shape \(0, 4\)"),
        (np.zeros((2, 3)), nlis.InputError, r"theta .*\(2, 3\)|theta has shape \(3,\).*\(4,\)"),
        ([[0, 0, 0, 0], [0, np.nan, 0, 0]], nlis.InputError, r"theta.*\[1\]=nan"),
        (None, nlis.InputTypeError, "theta"),
        ([[1, 2, 3, 4], [1, 2]], nlis.InputTypeError, "theta is list"),
    ],
)
def test_thetas_that_fit_no_model_are_refused(theta, kind, says):
    with pytest.raises(kind, match=says):
        nlis.total_loss(nlis.Problem(nlis.Linear()), X, Y, theta)
