"""Laws of networks and users' models under every loss and label mode; a new model is one line in nets.NETS.

`test_laws` has the same laws for models of one linear index, the lines of tables.MODELS.
"""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from counting import same_bits
from dask.base import tokenize
from nets import KINKED, NETS, D, setting
from tables import LABELS, LOSSES, MODELS, SMOOTH, allowed

import dask_nlis as nlis
from dask_nlis.problem import adjoint, dual_rows, has_closed_form

EPS = np.finfo(np.float64).eps
#: Linear indexes differ in their activation alone, so a few stand for all where the path is that of the data.
FEW = ("linear", "linear, no intercept", "swish 1, 2", "logistic", "exp")
EVERY = {**{name: MODELS[name] for name in FEW}, **NETS}


def pairs_of(models):
    """Models and losses that go together: a loss with its link inside wants a linear predictor."""
    return [
        (model, loss)
        for model in models
        for loss in LOSSES
        if LOSSES[loss].takes == "prediction"
        or isinstance(getattr(models[model], "activation", nlis.Identity()), nlis.Identity)
    ]


PAIRS = pairs_of(NETS)
pytestmark = [  # rows and labels of very unlike sizes are part of the setting
    pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning"),
    pytest.mark.filterwarnings("ignore::dask_nlis.RankAmbiguityWarning"),
]
every_model = pytest.mark.parametrize("model", EVERY)
every_pair = pytest.mark.parametrize(("model", "loss"), PAIRS)
#: Without labels the loss is left out, so one loss stands for all.
CELLS = [(*pair, labels) for pair in PAIRS for labels in LABELS if labels != "no labels" or pair[1] == "squared"]


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def f(problem, theta, x, y):
    """f_i(theta) by its definition: the signed root of the loss of the prediction, or that prediction."""
    prediction = problem.model.predict(theta, x)
    return prediction if y is None else problem.loss.root(prediction, y)


def gradient(problem, theta, x, y):
    """Gradient of f_i in theta, by the chain rule."""
    prediction = problem.model.predict(theta, x)
    inner = problem.model.jacobian(theta, x)
    return inner if y is None else problem.loss.root_slope(prediction, prediction, y)[:, None] * inner


def placed(model, loss, labels, rng, n=700, size=1.0):
    """A problem, theta of a size, rows (zero, tiny and large ones among them) and labels that the loss allows."""
    problem = nlis.Problem(EVERY[model], LOSSES[loss])
    theta, x, _ = setting(problem.model, rng, n if has_closed_form(problem, labels != "no labels") else min(n, 120))
    theta = size * theta / (4 if problem.model.form == "ray" else 1)  # a wave of 40 radians is beyond quadrature
    return problem, theta, x, allowed(problem.loss, LABELS[labels](problem.model.predict(theta, x), rng))


# 700 rows x 3 sizes x 5 label modes: 10,500 rows for each model and loss with a closed form.
@pytest.mark.parametrize(("model", "loss", "labels"), CELLS)
def test_value_is_value_at_zero_plus_theta_times_adjoint(model, loss, labels, rng):
    for size in (0.0, 1e-6, 1.0):
        problem, theta, x, y = placed(model, loss, labels, rng, size=size)
        if loss == "absolute" and y is not None:
            y = np.where(
                problem.loss.singular(problem.model.predict(theta, x), problem.model.at_zero(x), y), y + 1.0, y
            )
        here, zero = f(problem, theta, x, y), f(problem, np.zeros_like(theta), x, y)
        exact = has_closed_form(problem, y is not None)
        try:
            if exact:  # tasks compute under errstate("ignore"); here every warning is an error
                with np.errstate(all="raise", under="ignore"):
                    rows = dual_rows(problem, theta, x, y)
            else:
                rows = nlis.dual_matrix(problem, x, y, theta=theta).to_dask_array().compute()
        except nlis.IdentityResidualError:
            assert loss not in SMOOTH  # a corner of the root along the ray is beyond quadrature, and is said to be
            continue
        np.testing.assert_array_equal(rows[:, -1], zero)
        scale = np.abs(here) + np.abs(zero) + 1
        if exact:
            allowance = 1e-12 * scale
            if loss == "absolute" and y is not None:  # near zero loss sqrt|t| multiplies the rounding of the prediction
                ends = problem.model.predict(theta, x), problem.model.at_zero(x)
                allowance = allowance + 4 * EPS * problem.loss.root_slope(*ends, y) * (
                    np.abs(ends[0]) + np.abs(ends[1])
                )
        else:
            allowance = (1e-10 if loss in SMOOTH else 1e-6) * scale
        defect = np.abs(here - zero - rows[:, :-1] @ theta)
        assert np.all(defect <= allowance), float((defect / allowance).max())


@pytest.mark.parametrize(
    ("model", "loss", "labels"),
    [
        cell
        for cell in CELLS
        if cell[0] not in KINKED and cell[1] in SMOOTH and cell[2] in ("no labels", "noisy", "equal to f")
    ],
)
def test_adjoint_is_the_mean_gradient_along_the_ray(model, loss, labels, rng):
    problem, theta, x, y = placed(model, loss, labels, rng, n=33)
    x, y = x[3:], None if y is None else y[3:]
    nodes, weights = np.polynomial.legendre.leggauss(64)
    pieces = 2  # the largest index of a net bends the root of a Poisson deviance most
    mean = sum(
        w / 2 / pieces * gradient(problem, ((t + 1) / 2 + k) / pieces * theta, x, y)
        for k in range(pieces)
        for t, w in zip(nodes, weights, strict=True)
    )
    exact = has_closed_form(problem, y is not None)
    np.testing.assert_allclose(adjoint(problem, theta, x, y), mean, rtol=1e-12 if exact else 1e-9, atol=1e-12)


@pytest.mark.parametrize(("model", "loss"), [pair for pair in PAIRS if pair[1] in SMOOTH])
def test_gradient_of_the_root_is_that_of_finite_differences(model, loss, rng):
    problem, theta, x, y = placed(model, loss, "noisy", rng, n=60)
    x, y = x[3:], y[3:]
    step = 1e-6
    slopes = [
        (f(problem, theta + e, x, y) - f(problem, theta - e, x, y)) / (2 * step) for e in step * np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient(problem, theta, x, y), np.stack(slopes, axis=1), rtol=1e-6, atol=1e-6)


def scores_of(A):
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A))), np.asarray(nlis.norm_scores(A))


@every_pair
def test_integer_row_weights_are_repeated_rows(model, loss, rng):
    problem, theta, x, y = placed(model, loss, "noisy", rng, n=83)
    x, y = x[3:], y[3:]
    v = rng.integers(0, 4, size=len(x))
    owner = np.repeat(np.arange(len(x)), v)

    def summed(repeated):
        return np.bincount(owner, repeated, minlength=len(x))

    lazy = da.from_array(x, chunks=(30, D))
    A = nlis.reference_matrix(problem, lazy, y, sample_weight=v)
    leverage, norms = scores_of(nlis.reference_matrix(problem, x[owner], y[owner]))
    for got, expected in zip(scores_of(A), (leverage, norms), strict=True):
        np.testing.assert_allclose(got, summed(expected), rtol=1e-11, atol=1e-11)
    total = nlis.total_loss(problem, x, y, theta, sample_weight=v)
    assert total == pytest.approx(nlis.total_loss(problem, x[owner], y[owner], theta), rel=1e-12)
    if has_closed_form(problem, True) or loss in SMOOTH:
        weighted = nlis.norm_scores(nlis.dual_matrix(problem, lazy, y, theta=theta, sample_weight=v)).compute()
        norms = nlis.norm_scores(nlis.dual_matrix(problem, x[owner], y[owner], theta=theta))
        np.testing.assert_allclose(weighted, summed(norms), rtol=1e-11)


@pytest.mark.parametrize("kind", ["float16", "float32"])
@every_model
def test_narrow_rows_labels_and_weights_are_computed_in_float64(model, kind, rng):
    problem, theta, x, y = placed(model, "squared", "noisy", rng, n=60)
    narrow = [np.asarray(a, dtype=kind) for a in (x[3:], y[3:], rng.random(57))]
    wide = [a.astype(np.float64) for a in narrow]
    for rule in (nlis.reference_matrix, lambda *data, **v: nlis.dual_matrix(*data, theta=theta, **v)):
        A, B = (rule(problem, x, y, sample_weight=v) for x, y, v in (narrow, wide))
        for got, expected in zip(scores_of(A), scores_of(B), strict=True):
            assert same_bits(got, expected)


@pytest.mark.parametrize("wide", [nlis.Huber(1e300), nlis.PseudoHuber(1e300)])
@every_model
def test_a_very_wide_huber_scores_as_squared_error(model, wide, rng):
    problem, theta, x, y = placed(model, "squared", "noisy", rng, n=203)
    x, y = x[3:], y[3:]
    expected = scores_of(nlis.dual_matrix(problem, x, y, theta=theta))
    got = scores_of(nlis.dual_matrix(nlis.Problem(problem.model, wide), x, y, theta=theta))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@every_pair
def test_problems_survive_their_pickle_and_where_they_have_one_their_dictionary(model, loss):
    problem = nlis.Problem(NETS[model], LOSSES[loss])
    again = [pickle.loads(pickle.dumps(problem))]
    if loss == "custom" or isinstance(problem.model, nlis.Homogeneous | nlis.Numerical):
        with pytest.raises(nlis.InputTypeError, match="no file may name"):
            problem.to_dict()
    else:
        again.append(nlis.Problem.from_dict(problem.to_dict()))
    for other in again:
        assert other == problem
        assert tokenize(other) == tokenize(problem)
