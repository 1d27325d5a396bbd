"""Estimators of scikit-learn taken over: they predict the same, and their scores are those of the definition."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    Ridge,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor

import dask_nlis as nlis

D, N = 5, 300


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, D))
    return X, np.maximum(X[:, 0] + 0.5, 0) - X[:, 1] + 0.1 * rng.normal(size=N)


def fitted(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def mlp(kind, hidden, activation="relu", **more):
    return kind(hidden_layer_sizes=hidden, activation=activation, max_iter=60, random_state=0, **more)


NETS = [
    (hidden, activation)
    for hidden in ((8,), (8, 6), (6, 5, 4))
    for activation in ("relu", "tanh", "logistic", "identity")
]


@pytest.mark.parametrize("intercept", [True, False])
def test_a_linear_regression_predicts_the_same_and_has_the_hat_matrix_of_statsmodels(data, intercept):
    X, y = data
    taken = nlis.from_sklearn(LinearRegression(fit_intercept=intercept).fit(X, y))
    assert taken.model == nlis.Linear(intercept=intercept)
    np.testing.assert_allclose(
        taken.predict(taken.theta, X), LinearRegression(fit_intercept=intercept).fit(X, y).predict(X)
    )
    J = nlis.tangent_matrix(nlis.Problem(taken), X, y, theta=taken.theta)
    hat = sm.OLS(y, sm.add_constant(X) if intercept else X).fit().get_influence().hat_matrix_diag
    np.testing.assert_allclose(nlis.leverage_scores(J, nlis.factorize(J)), hat, atol=1e-12)


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(C=10.0), LogisticRegressionCV(cv=3, use_legacy_attributes=False)]
)
@pytest.mark.parametrize("names", [("no", "yes"), (0, 1), (3, 7)])
def test_a_classifier_predicts_log_odds_and_its_classes_become_labels(data, names, estimator):
    X, y = data
    classes = np.where(y > 0, names[1], names[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        estimator = estimator.fit(X, classes)
    taken = nlis.from_sklearn(estimator)
    np.testing.assert_allclose(taken.predict(taken.theta, X), estimator.decision_function(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(taken.labels(classes), (y > 0).astype(float))
    assert taken.classes == names
    problem = nlis.Problem(taken, constraint=nlis.Ball(100.0))
    assert (problem.model, problem.loss) == (nlis.Linear(), nlis.LogisticLoss())
    assert nlis.Problem.from_dict(problem.to_dict()) == problem  # and so a run of it can be stored
    total = nlis.total_loss(problem, X, taken.labels(classes), taken.theta)
    proba = estimator.predict_proba(X)
    assert total == pytest.approx(-np.log(proba[np.arange(N), (y > 0).astype(int)]).sum(), rel=1e-10)


def test_a_poisson_regressor_predicts_logarithms_of_means(data):
    X, y = data
    counts = np.floor(np.exp(np.clip(y, -2, 2)))
    estimator = PoissonRegressor(alpha=0.0).fit(X, counts)
    taken = nlis.from_sklearn(estimator)
    np.testing.assert_allclose(np.exp(taken.predict(taken.theta, X)), estimator.predict(X), rtol=1e-12)
    assert nlis.Problem(taken).loss == nlis.PoissonDeviance()
    ours = nlis.refit(nlis.Problem(taken), X, counts, np.ones(N))
    np.testing.assert_allclose(ours.theta, taken.theta, atol=1e-3)


@pytest.mark.filterwarnings("ignore::dask_nlis.RankAmbiguityWarning")  # units far from their bend are nearly linear
@pytest.mark.parametrize(("hidden", "activation"), NETS, ids=str)
def test_perceptrons_predict_the_same_and_hold_the_identity(data, hidden, activation):
    X, y = data
    estimator = fitted(mlp(MLPRegressor, hidden, activation), X, y)
    taken = nlis.from_sklearn(estimator)
    np.testing.assert_allclose(taken.predict(taken.theta, X), estimator.predict(X), rtol=1e-12, atol=1e-12)
    A = nlis.dual_matrix(nlis.Problem(taken), X, y, theta=taken.theta)
    factor = nlis.factorize(A)
    assert factor.identity_residual < 1e-11
    F = A.to_dask_array().compute()
    f, zero = taken.predict(taken.theta, X) - y, -y
    np.testing.assert_allclose(F[:, :-1] @ taken.theta, f - zero, atol=1e-10)
    np.testing.assert_allclose(nlis.norm_scores(A), (F**2).sum(axis=1), rtol=1e-10)
    scores = nlis.leverage_scores(A, factor)
    assert scores.sum() == pytest.approx(factor.rank, abs=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_classifying_perceptron_has_the_logistic_loss(data, activation):
    X, y = data
    estimator = fitted(mlp(MLPClassifier, (6, 4), activation), X, y > 0)
    taken = nlis.from_sklearn(estimator)
    u = taken.predict(taken.theta, X)
    np.testing.assert_allclose(1 / (1 + np.exp(-u)), estimator.predict_proba(X)[:, 1], rtol=1e-10)
    A = nlis.dual_matrix(nlis.Problem(taken), X, taken.labels(y > 0), theta=taken.theta)
    assert nlis.factorize(A).identity_residual < 1e-8


def test_a_perceptron_of_counts_has_the_poisson_deviance(data):
    X, y = data
    counts = np.floor(np.exp(np.clip(y, -2, 2)))
    estimator = fitted(mlp(MLPRegressor, (5,), loss="poisson"), X, counts)
    taken = nlis.from_sklearn(estimator)
    np.testing.assert_allclose(np.exp(taken.predict(taken.theta, X)), estimator.predict(X), rtol=1e-10)
    assert taken.loss == nlis.PoissonDeviance()


def test_a_loss_that_is_given_wins_and_names_travel(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    table = pd.DataFrame(X, columns=list("abcde"))
    taken = nlis.from_sklearn(LinearRegression().fit(table, y))
    assert taken.feature_names == tuple("abcde")
    assert nlis.Problem(taken, nlis.Huber(1.0)).loss == nlis.Huber(1.0)
    assert (
        nlis.Problem(nlis.from_sklearn(LogisticRegression().fit(X, y > 0)), nlis.SquaredError()).loss
        == nlis.SquaredError()
    )
    assert taken.theta.flags.writeable is False


def test_the_whole_job_goes_from_an_estimator_to_a_stored_run(data, tmp_path):
    X, y = data
    taken = nlis.from_sklearn(LogisticRegression().fit(X, y > 0))
    problem = nlis.Problem(taken, constraint=nlis.Ball(20.0))
    made = nlis.run(
        problem,
        X,
        taken.labels(y > 0),
        size=100,
        seed=0,
        theta=taken.theta,
        scores="leverage",
        store=tmp_path / "run.zarr",
    )
    assert made.fit.ok
    assert nlis.open_run(tmp_path / "run.zarr").fit == made.fit


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (LogisticRegression(max_iter=500), "classes"),
        (LogisticRegression(max_iter=500, fit_intercept=False), "classes"),
        (mlp(MLPClassifier, (6,)), "classes"),
        (mlp(MLPClassifier, (4, 3)), "several labels"),
        (mlp(MLPRegressor, (6,)), "several numbers"),
        (LinearRegression(), "several numbers"),
        (LinearRegression(fit_intercept=False), "several numbers"),
    ],
    ids=str,
)
def test_several_outputs_and_classes_are_taken_over(estimator, target, data):
    X, y = data
    several = np.stack([y, -(y**2), y + X[:, 0]], axis=1)
    named = np.array(["low", "mid", "top", "zenith"])[np.digitize(y, [-1, 0, 1])]
    labels = {"classes": named, "several labels": (several > 0).astype(int), "several numbers": several}[target]
    fitted(estimator, X, labels)
    taken = nlis.from_sklearn(estimator)
    problem = nlis.Problem(taken, constraint=nlis.Ball(1e3))
    response = problem.row_loss.response(taken.predict(taken.theta, X))
    expected = estimator.predict(X) if target == "several numbers" else estimator.predict_proba(X)
    np.testing.assert_allclose(response, expected, rtol=1e-8, atol=1e-10)
    codes = taken.labels(labels) if target == "classes" else labels
    A = nlis.dual_matrix(problem, X, codes, theta=taken.theta)
    factor = nlis.factorize(A)
    assert factor.identity_residual < 1e-8
    scores = nlis.leverage_scores(A, factor)
    assert scores.shape == (len(X),)
    assert scores.sum() == pytest.approx(factor.rank, abs=1e-6)
    assert nlis.Problem.from_dict(problem.to_dict()) == problem
    if target == "classes":
        assert taken.classes == tuple(estimator.classes_)
        assert problem.loss == nlis.SoftmaxLoss(len(taken.classes))


TWO = np.arange(20) % 2
X2 = np.arange(40.0).reshape(20, 2) ** 0.5


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MLPClassifier, nlis.InputTypeError, "estimator is the class MLPClassifier"),
        (LinearRegression, nlis.InputError, r"LinearRegression is not fitted; call its fit\(X, y\) first"),
        (lambda: MLPRegressor(), nlis.InputError, "MLPRegressor is not fitted"),
        (lambda: Ridge().fit(X2, TWO), nlis.InputTypeError, "estimator is Ridge; allowed are LinearRegression, "),
        (
            lambda: LinearRegression,
            nlis.InputTypeError,
            "estimator is the class LinearRegression; give a fitted instance",
        ),
        (lambda: None, nlis.InputTypeError, "estimator is NoneType; allowed are"),
    ],
)
def test_what_cannot_be_taken_over_is_told_in_one_line(make, error, message):
    estimator = make()
    with pytest.raises(error, match=message) as caught:
        nlis.from_sklearn(estimator)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_labels_of_no_class_are_named_with_their_row():
    taken = nlis.from_sklearn(LogisticRegression().fit(X2, np.where(TWO, "b", "a")))
    with pytest.raises(nlis.InputError, match=r"y=.*'c'.* at row 1 is no class; allowed are 'a', 'b'"):
        taken.labels(["a", "c"])
    with pytest.raises(nlis.InputError, match="has no classes"):
        nlis.from_sklearn(LinearRegression().fit(X2, TWO)).labels(["a"])
