"""What a user's function may do to us: return the wrong thing, write into its arguments, be nowhere finite but in the data."""

import dask.array as da
import numpy as np
import pytest

import dask_nlis as nlis

D = 3


def index(theta, x):
    return x @ theta


def features(theta, x):
    return x


def square(p, y):
    return (p - y) ** 2


def twice(p, y):
    return 2 * (p - y)


def as_list(*arguments):
    return [1.0]


def as_number(*arguments):
    return 1.0


def as_nothing(*arguments):
    return None


def as_column(first, second):
    return np.ones((len(second), 1))


def as_single(first, second):
    return np.ones(len(second), dtype=np.float32)


def as_complex(first, second):
    return np.ones(len(second), dtype=complex)


def as_objects(first, second):
    return np.ones(len(second)).astype(object)


def as_masked(first, second):
    return np.ma.array(np.ones(len(second)), mask=True)


def homogeneous(value, gradient=features):
    return nlis.Problem(nlis.Homogeneous(value, gradient, 1, D))


def numerical(value, gradient=features):
    return nlis.Problem(nlis.Numerical(value, gradient, D))


def custom(value, derivative=twice):
    return nlis.Problem(nlis.Linear(intercept=False), nlis.CustomLoss(value, derivative))


KINDS = {"Homogeneous value": homogeneous, "Numerical value": numerical, "CustomLoss value": custom}

#: What comes back, and how the message names it.
RETURNED = {
    as_list: r"returned a list",
    as_number: r"returned a float",
    as_nothing: r"returned a NoneType",
    as_column: r"returned shape \(20, 1\)",
    as_single: r"returned float32 for float64 arguments",
    as_complex: r"returned complex128",
    as_objects: r"returned object",
    as_masked: r"returned a MaskedArray",
}


def matrix(problem, x, y=None, theta=(1.0, -2.0, 0.5), **options):
    return nlis.dual_matrix(problem, x, y, theta=theta, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("function", "says"), RETURNED.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_what_is_no_array_of_float64_is_refused_by_name(kind, function, says, rng):
    A = matrix(KINDS[kind](function), rng.normal(size=(20, D)), rng.normal(size=20))
    with pytest.raises(nlis.InputError, match=rf"^{kind} {function.__name__} ({says})") as caught:
        nlis.factorize(A)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def whole(theta, x):
    return np.rint(x @ theta).astype(np.int64)


def of_integers(p, y):
    return np.rint(p - y).astype(np.int64) ** 2


def of_integers_derivative(p, y):
    return 2 * np.rint(p - y).astype(np.int64)


def test_integers_are_numbers(rng):
    x = 2 * rng.integers(-3, 4, size=(20, D))
    same = matrix(homogeneous(index), x, theta=np.ones(D)), matrix(homogeneous(whole), x, theta=np.ones(D))
    np.testing.assert_array_equal(*(nlis.norm_scores(A) for A in same))
    y = 2 * rng.integers(-3, 4, size=20) + 1  # never equal to a prediction
    problems = custom(square), custom(of_integers, of_integers_derivative)
    scores = (nlis.norm_scores(matrix(p, x, y, theta=np.ones(D))) for p in problems)
    np.testing.assert_allclose(*scores, rtol=1e-12)


def writing_index(theta, x):
    x *= 2
    theta *= 3
    return x @ theta / 6


def writing_features(theta, x):
    x += 1
    theta[:] = 0
    return x - 1


def writing_square(p, y):
    p -= y
    y *= 0
    p *= p
    return p


def writing_twice(p, y):
    p -= y
    y -= y
    return 2 * p


@pytest.mark.parametrize(
    ("writing", "pure"),
    [
        (homogeneous(writing_index, writing_features), homogeneous(index)),
        (numerical(writing_index, writing_features), numerical(index)),
        (custom(writing_square, writing_twice), custom(square)),
    ],
    ids=["homogeneous", "numerical", "custom"],
)
def test_functions_that_write_into_their_arguments_change_nothing_but_their_copies(writing, pure, rng):
    x, y, theta = rng.normal(size=(20, D)), rng.normal(size=20), rng.normal(size=D)
    held = [da.from_array(part.copy(), chunks=10).rechunk({0: 10}).persist() for part in (x[:, 0], y)]
    held[0] = da.from_array(x.copy(), chunks=(10, D)).persist()
    scores = []
    for problem in (writing, pure):
        A = matrix(problem, *held, theta=theta)
        scores.append(nlis.leverage_scores(A, nlis.factorize(A)).compute())
        np.testing.assert_array_equal(held[0].compute(), x)
        np.testing.assert_array_equal(held[1].compute(), y)
    np.testing.assert_allclose(*scores, atol=1e-12)
    weights = np.ones(20)
    np.testing.assert_allclose(
        nlis.refit(writing, x, y, weights).theta, nlis.refit(pure, x, y, weights).theta, atol=1e-9
    )


def root_of_first(theta, x):
    return np.sqrt(x[:, 0]) * theta[0] + x[:, 1:] @ theta[1:]


def root_of_first_gradient(theta, x):
    return np.column_stack([np.sqrt(x[:, 0]), x[:, 1:]])


def nan_above_two(p, y):
    return np.where(y > 2, np.nan, (p - y) ** 2)


def computed_norms(A):
    return nlis.norm_scores(A).compute()


@pytest.mark.parametrize("chunk", [20, 2])
@pytest.mark.parametrize("verb", [nlis.factorize, computed_norms])
def test_nan_of_a_function_is_reported_with_its_name_and_row(verb, chunk, rng):
    x, y = np.abs(rng.normal(size=(20, D))), rng.uniform(0, 1, size=20)
    x[[10, 11], 0], y[12] = -1.0, 3.0
    scope = "in all" if verb is nlis.factorize else "in its block"
    for problem in (
        homogeneous(root_of_first, root_of_first_gradient),
        numerical(root_of_first, root_of_first_gradient),
    ):
        A = matrix(problem, da.from_array(x, chunks=(chunk, D)), y)
        kind = type(problem.model).__name__
        says = rf"^{kind} value root_of_first returned NaN at row 10, .*2 rows {scope}"
        with np.errstate(all="ignore"), pytest.raises(nlis.NonFiniteError, match=says):
            verb(A)
    A = matrix(custom(nan_above_two), da.from_array(x, chunks=(chunk, D)), y)
    says = rf"^CustomLoss value nan_above_two returned NaN at row 12, .*1 row {scope}"
    with pytest.raises(nlis.NonFiniteError, match=says):
        verb(A)


def negative_above_two(p, y):
    return np.where(y > 2, -1.0, (p - y) ** 2)


@pytest.mark.parametrize("chunk", [20, 7])
def test_a_negative_loss_is_reported_with_its_row(chunk, rng):
    x, y = da.from_array(rng.normal(size=(20, D)), chunks=(chunk, D)), np.ones(20)
    y[12] = 3.0
    problem = custom(negative_above_two)
    for call in (
        lambda: nlis.factorize(matrix(problem, x, y)),
        lambda: nlis.factorize(nlis.reference_matrix(problem, x, y)),
        lambda: nlis.norm_scores(matrix(problem, x, y)).compute(),
        lambda: nlis.total_loss(problem, x, y, np.zeros(D)),
    ):
        with pytest.raises(
            nlis.InputError, match=r"^row 12: CustomLoss value negative_above_two returned -1 .*y 3;"
        ) as e:
            call()
        assert len(str(e.value)) <= 300


def doubled(theta, x):
    return 2 * x


def test_a_gradient_that_is_not_that_of_the_value_is_refused(rng):
    with pytest.raises(nlis.NotHomogeneousError, match=r"^gradient doubled is not that of value index:") as caught:
        nlis.factorize(matrix(homogeneous(index, doubled), rng.normal(size=(20, D))))
    assert len(str(caught.value)) <= 300
    nlis.factorize(matrix(homogeneous(index), np.ones((20, D)), theta=np.zeros(D)))  # 0 = 0


def over_first(theta, x):
    return x @ theta / x[:, 0]


def over_first_gradient(theta, x):
    return x / x[:, :1]


def over_label(p, y):
    return (p / y - 1) ** 2


def over_label_derivative(p, y):
    return 2 * (p / y - 1) / y


@pytest.mark.parametrize("way", ["dropped", "weight 0", "whole blocks"])
@pytest.mark.parametrize("method", ["auto", "tsqr", "sketch"])
def test_rows_that_do_not_count_are_shown_to_no_function(way, method, rng):
    """A function that divides by a feature or a label is not finite where nothing is."""
    x, y = 1 + rng.uniform(size=(40, D)), 1 + rng.uniform(size=40)
    out = np.arange(10, 20) if way == "whole blocks" else np.array([0, 7, 15, 39])
    kept = np.setdiff1d(np.arange(40), out)
    spoiled, weight = x.copy(), None
    if way == "dropped":
        spoiled[out, 1] = np.nan
    else:
        spoiled[out] = 0.0
        weight = np.ones(40)
        weight[out] = 0.0
    problems = (
        nlis.Problem(nlis.Numerical(over_first, over_first_gradient, D)),
        nlis.Problem(nlis.Homogeneous(over_first, over_first_gradient, 1, D), nlis.Huber(0.3)),
        nlis.Problem(nlis.Linear(intercept=False), nlis.CustomLoss(over_label, over_label_derivative)),
    )
    for problem in problems:
        A = matrix(problem, da.from_array(spoiled, chunks=(10, D)), y, sample_weight=weight, missing="drop")
        B = matrix(problem, x[kept], y[kept])
        factor = nlis.factorize(A, method=method)
        h, norms = nlis.leverage_scores(A, factor).compute(), nlis.norm_scores(A).compute()
        np.testing.assert_allclose(h[kept], nlis.leverage_scores(B, nlis.factorize(B)), atol=1e-11)
        np.testing.assert_allclose(norms[kept], nlis.norm_scores(B), rtol=1e-12)
        assert not h[out].any()
        assert not norms[out].any()
        theta = [1.0, -2.0, 0.5]
        loss = nlis.total_loss(problem, spoiled, y, theta, sample_weight=weight, missing="drop")
        assert loss == pytest.approx(nlis.total_loss(problem, x[kept], y[kept], theta), rel=1e-12)


def test_an_index_that_overflows_at_the_origin_is_no_fault_of_dropped_rows(rng):
    x = -10 + 0.01 * rng.normal(size=(8, 1))
    x[2] = np.nan
    y = rng.normal(size=8)
    A = nlis.dual_matrix(nlis.Problem(nlis.SingleIndex(nlis.Exp())), x, y, theta=[80.0, 800.0], missing="drop")
    h = nlis.leverage_scores(A, nlis.factorize(A))
    assert h[2] == 0
    assert h.sum() == pytest.approx(3)


def test_a_dropped_row_has_no_singular_loss(rng):
    # Three units of phi(0) = 1/2: the prediction of a row of zeros is 1.5 at every theta.
    model = nlis.ReluNetwork(3, nlis.Logistic(), per_unit=True)
    x, y = rng.normal(size=(30, 2)), 5 + rng.uniform(size=30)
    x[4] = np.nan
    A = nlis.dual_matrix(nlis.Problem(model, nlis.AbsoluteError()), x, y, theta=rng.normal(size=9), missing="drop")
    assert nlis.factorize(A).n_dropped == 1


def gated(theta, x):
    return np.tanh(x[:, 0] * theta[1]) * theta[0] + theta[2] * x[:, 1]


def gated_gradient(theta, x):
    gate = np.tanh(x[:, 0] * theta[1])
    return np.stack([gate, theta[0] * (1 - gate**2) * x[:, 0], x[:, 1]], axis=1)


def test_entries_of_the_adjoint_that_the_identity_does_not_see_are_right_too(rng):
    """At theta = (0, b, c) the identity holds whatever stands in the column of the outer weight 0."""
    x = np.column_stack([rng.uniform(-60, 60, size=200), rng.normal(size=200)])
    x[100:, 0] *= 1e-3
    A = nlis.dual_matrix(nlis.Problem(nlis.Numerical(gated, gated_gradient, D)), x, theta=[0.0, 1.0, 1.0])
    integral = np.log(np.cosh(x[:, 0])) / x[:, 0]  # of tanh(t x) over t in [0, 1]
    np.testing.assert_allclose(A.to_dask_array().compute()[:, 0], integral, rtol=1e-9, atol=1e-12)


def blown_up(theta, x):
    return np.exp(x @ theta)


def blown_up_gradient(theta, x):
    return np.exp(x @ theta)[:, None] * x


def test_a_prediction_that_overflows_at_theta_alone_is_reported(rng):
    # The nodes lie below 1, where all is finite; only f(theta) is infinite, and the identity is NaN.
    x = np.column_stack([rng.uniform(0, 0.01, size=20), np.zeros((20, 2))])
    x[7, 0] = 0.70979
    A = matrix(numerical(blown_up, blown_up_gradient), x, theta=[1000.0, 0.0, 0.0])
    with np.errstate(all="ignore"), pytest.raises(nlis.NonFiniteError, match="row 7, overflows in the model"):
        nlis.factorize(A)
