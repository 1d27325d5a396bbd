"""Functions of JAX taken over: against closed forms of this library, and JAX's own gradients."""

import doctest
import importlib
import sys

import dask
import numpy as np
import pytest

import dask_nlis as nlis

jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning")]
D, N = 5, 200


def index(theta, x):
    return jax.numpy.tanh(x @ theta["coef"] + theta["intercept"])


def rectified(theta, x):
    return jax.numpy.maximum(x @ theta[0].T, 0) @ theta[1]


def smooth(theta, x):
    return (jax.numpy.tanh(x @ theta["a"]["w"] + theta["a"]["b"]) @ theta["c"])[:, None]


@pytest.fixture
def data(rng):
    return rng.normal(size=(N, D)), rng.normal(size=N)


def test_single_index_and_rectified_nets_have_the_scores_of_the_closed_form(data, rng):
    X, y = data
    w, a = rng.normal(size=(4, D)), rng.normal(size=4)
    tanh = nlis.SingleIndex(nlis.Tanh())
    deep = nlis.DeepReluNetwork((4,))
    theta = rng.normal(size=D + 1)
    for taken, model, closed in (
        (nlis.from_jax(index, {"coef": theta[:-1], "intercept": theta[-1]}), tanh, theta),
        (nlis.from_jax(rectified, [w, a]), deep, deep.pack(W1=w, a=a)),
    ):
        np.testing.assert_array_equal(taken.theta, closed)
        found, wanted = (nlis.dual_matrix(nlis.Problem(m), X, y, theta=closed) for m in (taken, model))
        factor = nlis.factorize(found)
        assert factor.identity_residual < 1e-12
        np.testing.assert_allclose(
            found.to_dask_array().compute(), wanted.to_dask_array().compute(), rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(nlis.norm_scores(found), nlis.norm_scores(wanted), rtol=1e-10)
        expected = nlis.leverage_scores(wanted, nlis.factorize(wanted))
        np.testing.assert_allclose(nlis.leverage_scores(found, factor), expected, atol=1e-10)


def test_several_outputs_are_those_of_the_perceptron(data, rng):
    X, _ = data
    model = nlis.MultilayerPerceptron((4,), unit=nlis.Tanh(), n_outputs=3)
    theta = rng.normal(size=model.n_parameters(D))
    parts = model.unpack(theta)

    def both(theta, x):
        return jax.numpy.tanh(x @ theta["W1"].T + theta["b1"]) @ theta["W2"].T + theta["b2"]

    taken = nlis.from_jax(both, parts, n_outputs=3)
    order = np.concatenate([model.unpack(np.arange(len(theta)))[name].ravel() for name in sorted(parts)])
    y = rng.integers(0, 3, N)
    rows, wanted = (
        nlis.dual_matrix(nlis.Problem(m, nlis.SoftmaxLoss(3)), X, y, theta=at).to_dask_array().compute()
        for m, at in ((taken, taken.theta), (model, theta))
    )
    np.testing.assert_allclose(rows[:, :-1], wanted[:, order], atol=1e-11)
    with pytest.raises(
        nlis.InputError, match=r"returned shape \(200, 3\) for 200 rows; return n_outputs=2 numbers a row"
    ):
        nlis.from_jax(both, parts, n_outputs=2).predict(taken.theta, X)
    with pytest.raises(nlis.InputError, match="n_outputs=0 is not allowed"):
        nlis.from_jax(both, parts, n_outputs=0)


def test_parts_names_and_order_are_those_of_the_tree(rng):
    theta = {"a": {"w": rng.normal(size=(D, 3)).astype(np.float32), "b": np.zeros(3)}, "c": jax.numpy.ones(3)}
    model = nlis.from_jax(smooth, theta)
    leaves = [np.asarray(leaf, dtype=np.float64).ravel() for leaf in jax.tree_util.tree_leaves(theta)]
    np.testing.assert_array_equal(model.theta, np.concatenate(leaves))
    names = model.parameter_names([f"x{j}" for j in range(D)])
    assert len(names) == model.n_parameters(D) == len(model.theta)
    assert names[:4] == ("['a']['b'][0]", "['a']['b'][1]", "['a']['b'][2]", "['a']['w'][0,0]")
    np.testing.assert_array_equal(model.pack(**model.unpack(model.theta)), model.theta)


def test_float64_is_asked_for_in_every_thread_and_left_as_it_was(data, rng):
    X, y = data
    before = jax.numpy.ones(1).dtype
    model = nlis.from_jax(smooth, {"a": {"w": rng.normal(size=(D, 3)), "b": np.ones(3)}, "c": np.ones(3)})
    lazy = dask.array.from_array(X, chunks=(20, D)), dask.array.from_array(y, chunks=20)
    A = nlis.dual_matrix(nlis.Problem(model), *lazy, theta=model.theta)
    with dask.config.set(scheduler="threads", num_workers=4):
        many = nlis.norm_scores(A).compute()
    F = A.to_dask_array().compute()
    np.testing.assert_allclose(many, (F**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(F[:, :-1] @ model.theta, model.predict(model.theta, X) - model.at_zero(X), atol=1e-11)
    assert jax.numpy.ones(1).dtype == before


def test_gradients_are_those_of_differences(data, rng):
    X, _ = data
    model = nlis.from_jax(smooth, {"a": {"w": rng.normal(size=(D, 3)), "b": np.ones(3)}, "c": np.ones(3)})
    rows, step = model.jacobian(model.theta, X), 1e-6
    for j, unit in enumerate(np.eye(len(model.theta))):
        ends = [model.predict(model.theta + sign * step * unit, X) for sign in (1, -1)]
        np.testing.assert_allclose(rows[:, j], (ends[0] - ends[1]) / (2 * step), atol=1e-8)


def test_equal_functions_and_parameters_are_equal():
    theta = {"coef": np.ones(D), "intercept": 0.5}
    a, b = nlis.from_jax(index, theta), nlis.from_jax(index, dict(theta))
    assert a == b
    assert dask.base.tokenize(a) == dask.base.tokenize(b)
    assert a != nlis.from_jax(index, theta | {"intercept": 0.6})


def test_a_fit_goes_on_from_the_parameters(data):
    X, _ = data
    model = nlis.from_jax(index, {"coef": np.zeros(D), "intercept": 0.0})
    y = np.tanh(X @ np.arange(1, D + 1) / 5)
    fit = nlis.refit(nlis.Problem(model), X, y, np.ones(N), start=model.theta)
    np.testing.assert_allclose(model.unpack(fit.theta)["['coef']"], np.arange(1, D + 1) / 5, atol=1e-5)


MISTAKES = {
    "no function": (lambda: nlis.from_jax(3, np.ones(2)), nlis.InputTypeError, "function=3 is not callable"),
    "text": (
        lambda: nlis.from_jax(index, {"w": "a"}),
        nlis.InputTypeError,
        r"theta\['w'\] is str of dtype <U1; give an array",
    ),
    "nothing": (lambda: nlis.from_jax(index, {}), nlis.InputError, "theta holds no numbers"),
    "a tolerance": (
        lambda: nlis.from_jax(index, np.ones(2), tolerance=0),
        nlis.InputError,
        "tolerance=0 is not allowed",
    ),
    "two outputs": (
        lambda: nlis.from_jax(lambda theta, x: x[:, :2], np.ones(2)).predict(np.ones(2), np.ones((4, 3))),
        nlis.InputError,
        r"returned shape \(4, 2\) for 4 rows; return one number a row",
    ),
    "no array": (
        lambda: nlis.from_jax(lambda theta, x: 3, np.ones(2)).predict(np.ones(2), np.ones((4, 3))),
        nlis.InputError,
        "returned int for 4 rows",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["from_jax", "jax_model"])
def test_examples_of_the_docstrings(name):
    importlib.import_module("dask_nlis.adapters")
    found = doctest.testmod(sys.modules[f"dask_nlis.adapters.{name}"])
    assert found.attempted
    assert not found.failed
