"""Laws of every model under every label mode, and of every loss: adjoint, reference, norms, row weights."""

import pickle

import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from tables import LABELS, LOSSES, MODELS, PAIRS, SETS, SMOOTH, allowed, slope_scale

import dask_nlis as nlis
from dask_nlis.problem import dual_rows, dual_squared_norms, reference_rows, reference_squared_norms

EPS = np.finfo(np.float64).eps
D = 3

every_model = pytest.mark.parametrize("model", MODELS)
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_pair = pytest.mark.parametrize(("model", "loss"), PAIRS)
every_label_mode = pytest.mark.parametrize("labels", LABELS)


def _setting(model, loss, labels, rng, size=3.0, n=420):  # 24 label modes and sizes: 10,080 rows a pair
    """A problem with rows whose index is 0, tiny, moderate and, for the first ones, far in the tails."""
    problem = nlis.Problem(MODELS[model], LOSSES[loss])
    theta = rng.normal(size=problem.model.n_parameters(D))
    x = rng.normal(size=(n, D))
    # Where phi overflows the tails stay so short that the square of a row, exp(2u), is finite; beyond an index of 1418
    # the root of the Poisson deviance is no float64.
    tail = 300.0 if loss != "poisson" else 900.0 / max(size, 9.0)
    x[:20] *= min(tail, problem.model.activation.domain[1] / (4 * max(size, 1.0)))
    x[20:40] *= 1e-12
    x[40] = 0.0
    if problem.model.intercept:
        theta[-1] = -theta[:-1] @ x[41]  # the index of row 41 is 0 up to rounding
    theta *= size / np.abs(problem.model.index(theta, x[50:])).max()
    prediction = problem.model.activation.value(problem.model.index(theta, x))
    return problem, theta, x, allowed(problem.loss, LABELS[labels](prediction, rng))


def _f(problem, theta, x, y):
    """f_i(theta) by its definition: the root of the loss of the prediction, or the prediction without labels."""
    prediction = problem.model.activation.value(problem.model.index(theta, x))
    return prediction if y is None else problem.loss.root(prediction, y)


def _gradient(problem, theta, x, y):
    """Gradient of f_i at theta, by the chain rule."""
    phi = problem.model.activation
    u = problem.model.index(theta, x)
    prediction = phi.value(u)
    outer = phi.derivative(u) * (1.0 if y is None else problem.loss.root_slope(prediction, prediction, y))
    return outer[:, None] * problem.model.index_gradient(theta, x)


@every_label_mode
@every_pair
@pytest.mark.parametrize("size", [0.0, 1e-9, 3.0, 50.0])  # of the largest index: theta = 0, tiny, usual, saturated
def test_value_is_value_at_zero_plus_theta_times_adjoint(model, loss, labels, size, rng):
    problem, theta, x, y = _setting(model, loss, labels, rng, size)
    if loss == "squared":
        rows = nlis.dual_matrix(problem, x, y, theta=theta).to_dask_array().compute()
    else:  # tasks compute under errstate("ignore"); here every warning is an error
        with np.errstate(all="raise", under="ignore"):
            rows = dual_rows(problem, theta, x, y)
    f, f_zero = _f(problem, theta, x, y), _f(problem, np.zeros_like(theta), x, y)
    np.testing.assert_array_equal(rows[:, -1], f_zero)
    defect = np.abs(f - f_zero - rows[:, :-1] @ theta)
    slack = 0.0
    if loss == "absolute" and y is not None:  # near zero loss sqrt|t| multiplies the rounding of the prediction
        prediction = problem.model.activation.value(problem.model.index(theta, x))
        start = np.full_like(prediction, problem.model.activation.at_zero)
        slack = 2 * EPS * problem.loss.root_slope(prediction, start, y) * (np.abs(prediction) + np.abs(start))
    assert np.all(defect <= 1e-12 * (np.abs(f) + np.abs(f_zero) + 1) + slack)


#: Thirds of the rows.
THIRDS = [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]


@every_label_mode
@pytest.mark.parametrize("part", THIRDS)
@pytest.mark.parametrize(("model", "loss"), [pair for pair in PAIRS if pair[1] in SMOOTH])
def test_adjoint_is_the_mean_gradient_along_the_ray(model, loss, part, labels, rng):
    # The gradient AT t theta; differentiating f(t theta) in theta instead brings a factor t, which is another matrix.
    problem, theta, x, y = _setting(model, loss, labels, rng, size=6.0 / slope_scale(MODELS[model]))
    keep = np.arange(len(x)) >= 20  # 64 nodes do not resolve the tails
    left, right = problem.model.activation.derivative(np.array([-1e-300, 1e-300]))
    keep[41] = left == right  # at a kink the side of an index that is 0 up to rounding differs from node to node
    keep &= np.arange(len(x)) % 3 == part
    x, y = x[keep], None if y is None else y[keep]
    # Where phi grows fast or has a kink the root of a loss can bend within a hundredth of the ray.
    pieces = (
        256
        if model == "exp"
        else 64
        if any(word in model for word in ("exp", "relu")) and loss not in ("squared",)
        else 1
    )
    nodes, weights = np.polynomial.legendre.leggauss(20 if pieces > 1 else 64)
    mean = sum(
        w / 2 / pieces * _gradient(problem, ((t + 1) / 2 + k) / pieces * theta, x, y)
        for k in range(pieces)
        for t, w in zip(nodes, weights, strict=True)
    )
    rows = dual_rows(problem, theta, x, y)
    np.testing.assert_allclose(rows[:, :-1], mean, rtol=1e-12, atol=1e-13)


@every_model
def test_gradient_and_squared_norms_of_the_index_agree_with_their_definitions(model, rng):
    problem, theta, x, _ = _setting(model, "squared", "no labels", rng)
    model = problem.model
    inner = model.index_gradient(theta, x)
    np.testing.assert_allclose(model.index_and_norms(theta, x)[1], np.linalg.norm(inner, axis=1) ** 2, rtol=1e-13)
    for t in (0.5, 2.0, 7.0):
        np.testing.assert_allclose(model.index(t * theta, x), t**model.degree * model.index(theta, x), rtol=1e-12)
    # Euler: <theta, grad u> = degree u for a homogeneous u.
    np.testing.assert_allclose(inner @ theta, model.degree * model.index(theta, x), rtol=1e-9, atol=1e-11)
    step = 1e-6 * np.eye(len(theta))
    slopes = [(model.index(theta + e, x) - model.index(theta - e, x)) / 2e-6 for e in step]
    np.testing.assert_allclose(inner, np.stack(slopes, axis=1), rtol=1e-6, atol=1e-6)


@every_model
def test_pack_inverts_unpack_and_every_parameter_has_a_name(model, rng):
    model = MODELS[model]
    theta = rng.normal(size=model.n_parameters(D))
    np.testing.assert_array_equal(model.pack(**model.unpack(theta)), theta)
    names = model.parameter_names(["a", "b", "c"])
    assert len(names) == len(set(names)) == len(theta)


@pytest.mark.parametrize("labels", [name for name in LABELS if name != "beyond squaring"])
@every_pair
def test_closed_form_norms_are_the_norms_of_the_rows(model, loss, labels, rng):
    problem, theta, x, y = _setting(model, loss, labels, rng)
    dual = (dual_rows(problem, theta, x, y) ** 2).sum(axis=1)
    # Squares of the saturated rows of a swish with c1 = 0 are subnormal.
    np.testing.assert_allclose(dual_squared_norms(problem, theta, x, y), dual, rtol=1e-13, atol=1e-290)
    reference = (reference_rows(problem, x, y) ** 2).sum(axis=1)
    np.testing.assert_allclose(reference_squared_norms(problem, x, y), reference, rtol=1e-13)


@every_label_mode
@every_model
def test_reference_rows_are_the_dual_rows_with_every_slope_replaced_by_its_sign(model, labels, rng):
    problem, theta, x, y = _setting(model, "squared", labels, rng)
    reference = nlis.reference_matrix(problem, x, y).to_dask_array().compute()
    ones = np.ones((len(x), 1)) if problem.model.intercept else np.empty((len(x), 0))
    last = problem.model.activation.at_zero - (0.0 if y is None else y)
    np.testing.assert_array_equal(reference, np.column_stack([x, ones, np.broadcast_to(last, len(x))]))
    secant = np.sign(problem.model.activation.secant(problem.model.index(theta, x)))
    dual = dual_rows(problem, theta, x, y)
    np.testing.assert_array_equal(np.sign(dual[40:, :-1]), secant[40:, None] * np.sign(reference[40:, :-1]))
    # A rectifier's secant is 0 on dead rows; that of sin and cos counts as positive by convention.
    assert np.all(secant >= 0) or isinstance(problem.model.activation, nlis.Sin | nlis.Cos)


def test_logistic_factors_are_positive_and_exact_from_zero_to_the_far_tails(rng):
    u = np.array([0.0, 1e-300, 1e-17, 1e-12, 1e-8, -1e-17, 800.0, -800.0, 1e4, -1e4])
    x = np.column_stack([u, np.ones_like(u)])
    problem = nlis.Problem(MODELS["logistic, no intercept"])
    factor = nlis.dual_matrix(problem, x, theta=[1.0, 0.0]).to_dask_array().compute()[:, 1]
    np.testing.assert_allclose(factor[:6], 0.25, rtol=1e-12)  # the quotient is 0/0 or 0 here
    np.testing.assert_allclose(factor[6:], 0.5 / np.abs(u[6:]), rtol=1e-12)


def _flat_at_zero(model):
    return model.activation.derivative(np.zeros(1))[0] == 0


@pytest.mark.parametrize("labels", ["no labels", "noisy", "zero"])
@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if not _flat_at_zero(model)])
def test_reference_leverage_is_dual_leverage_at_theta_zero(model, labels, rng):
    problem = nlis.Problem(MODELS[model])
    x = rng.normal(size=(90, 3))
    y = LABELS[labels](x[:, 0], rng)
    reference = nlis.reference_matrix(problem, x, y)
    dual = nlis.dual_matrix(problem, x, y, theta=np.zeros(problem.model.n_parameters(3)))
    h = nlis.leverage_scores(reference, nlis.factorize(reference))
    np.testing.assert_allclose(nlis.leverage_scores(dual, nlis.factorize(dual)), h, atol=1e-12)


@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if _flat_at_zero(model)])
def test_where_phi_is_flat_at_zero_the_dual_rows_at_theta_zero_are_their_last_entry(model, rng):
    problem = nlis.Problem(MODELS[model])
    x, y = rng.normal(size=(9, D)), rng.normal(size=9)
    rows = dual_rows(problem, np.zeros(problem.model.n_parameters(D)), x, y)
    np.testing.assert_array_equal(rows[:, :-1], 0.0)
    np.testing.assert_array_equal(rows[:, -1], problem.model.activation.at_zero - y)


def test_linear_model_without_labels_has_the_hat_diagonal_of_statsmodels(rng):
    import statsmodels.api as sm

    x = rng.normal(size=(200, 4)) * [1.0, 100.0, 1e-4, 1.0]
    expected = sm.OLS(rng.normal(size=200), sm.add_constant(x)).fit().get_influence().hat_matrix_diag
    problem = nlis.Problem(nlis.Linear())
    for A in (nlis.reference_matrix(problem, x), nlis.dual_matrix(problem, x, theta=rng.normal(size=5))):
        np.testing.assert_allclose(nlis.leverage_scores(A, nlis.factorize(A)), expected, atol=1e-12)


@pytest.mark.parametrize("at", ["reference", "dual"])
@every_loss
def test_integer_row_weights_are_repeated_rows(loss, at, rng):
    takes = LOSSES[loss].takes
    problem = nlis.Problem(MODELS["swish 1, 2" if takes == "prediction" else "linear"], LOSSES[loss])
    x, v = rng.normal(size=(80, 3)), rng.integers(0, 5, size=80)
    y = allowed(problem.loss, rng.normal(size=80))
    theta = np.array([0.5, -1.0, 2.0, 0.1])

    def matrix(x, y, v=None):
        if at == "reference":
            return nlis.reference_matrix(problem, x, y, sample_weight=v)
        return nlis.dual_matrix(problem, x, y, theta=theta, sample_weight=v)

    owner = np.repeat(np.arange(80), v)
    A, B = matrix(da.from_array(x, chunks=(30, 3)), y, v), matrix(x[owner], y[owner])
    repeated = nlis.leverage_scores(B, nlis.factorize(B))
    weighted = nlis.leverage_scores(A, nlis.factorize(A)).compute()
    np.testing.assert_allclose(weighted, np.bincount(owner, repeated, minlength=80), atol=1e-12)
    norms = np.bincount(owner, nlis.norm_scores(B), minlength=80)
    np.testing.assert_allclose(nlis.norm_scores(A).compute(), norms, rtol=1e-12)
    total = nlis.total_loss(problem, x, y, theta, sample_weight=v)
    assert total == pytest.approx(nlis.total_loss(problem, x[owner], y[owner], theta), rel=1e-12)


def test_norm_scores_are_squared_row_norms_and_know_nothing_of_chunks(rng):
    rows = rng.normal(size=(240, 6))
    for chunks in (1, 7, (100, 0, 140)):
        norms = nlis.norm_scores(da.from_array(rows, chunks=(chunks, 6))).compute()
        np.testing.assert_allclose(norms, np.linalg.norm(rows, axis=1) ** 2, rtol=1e-13)


@pytest.mark.parametrize("scale", [1e160, 1e200, 1e-160, 1e-200, 1e-310])
def test_norm_scores_name_the_scale_that_keeps_them_and_give_the_same_shares_with_it(scale, rng):
    rows = rng.normal(size=(240, 6))
    with pytest.raises(nlis.NonFiniteError, match=r"give log2_scale=-?\d+$") as refused:
        nlis.norm_scores(rows * scale)
    named = int(str(refused.value).rpartition("=")[2])
    norms = nlis.norm_scores(rows * scale, log2_scale=named)
    expected = np.linalg.norm(rows, axis=1) ** 2
    np.testing.assert_allclose(norms / norms.sum(), expected / expected.sum(), rtol=1e-10)


def test_one_row_whose_square_vanishes_beside_ordinary_rows_is_no_obstacle(rng):
    rows = rng.normal(size=(240, 6))
    rows[7] = 1e-170  # its share is 0 to hundreds of digits, and no power of two serves both kinds of row
    norms = nlis.norm_scores(rows)
    assert norms[7] < 1e-300
    np.testing.assert_allclose(norms[:7], np.linalg.norm(rows[:7], axis=1) ** 2, rtol=1e-13)


def test_norm_scores_warn_of_a_column_whose_unit_decides_them(rng):
    rows = rng.normal(size=(240, 6)) * [1, 1, 20, 1, 1, 1]
    with pytest.warns(nlis.ScaleWarning, match="column 'x2' carries 99% of the squared norms"):
        nlis.norm_scores(rows)


@every_loss
def test_root_is_signed_and_squares_to_the_loss_and_its_slope_is_the_divided_difference(loss, rng):
    loss = LOSSES[loss]
    a, b, y = rng.normal(size=(3, 500))
    y = allowed(loss, y)
    root = loss.root(a, y)
    np.testing.assert_allclose(root**2, loss.value(a, y), rtol=1e-14)
    assert np.all(np.sign(root) == np.sign(loss.response(a) - y))
    np.testing.assert_allclose(loss.root_slope(a, b, y) * (a - b), root - loss.root(b, y), rtol=1e-12, atol=1e-14)
    slope = (loss.value(a + 1e-6, y) - loss.value(a - 1e-6, y)) / 2e-6
    np.testing.assert_allclose(loss.derivative(a, y), slope, rtol=1e-6, atol=1e-8)
    bend = (loss.derivative(a + 1e-6, y) - loss.derivative(a - 1e-6, y)) / 2e-6
    np.testing.assert_allclose(loss.curvature(a, y), bend, rtol=1e-6, atol=1e-8)


@every_pair
def test_problem_is_rebuilt_from_its_dictionary_and_its_set_changes_no_row(model, loss, rng):
    free = nlis.Problem(MODELS[model], LOSSES[loss])
    x, y, theta = rng.normal(size=(9, D)), rng.normal(size=9), rng.normal(size=free.model.n_parameters(D))
    y = allowed(free.loss, y)
    rows = dual_rows(free, theta, x, y)
    for constraint in SETS.values():
        problem = nlis.Problem(MODELS[model], LOSSES[loss], constraint=constraint)
        written = [] if loss == "custom" else [nlis.Problem.from_dict(problem.to_dict())]
        for other in [*written, pickle.loads(pickle.dumps(problem))]:
            assert other == problem
            assert tokenize(other) == tokenize(problem)
        np.testing.assert_array_equal(dual_rows(problem, theta, x, y), rows)
