"""NonlinearLeverageSampler: scikit-learn's conventions outside, the library's verbs inside."""

import pickle
import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from counting import CountingArray
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import dask_nlis as nlis

Sampler = nlis.NonlinearLeverageSampler
LOGISTIC = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
INDEX = nlis.Problem(nlis.SingleIndex(nlis.Softplus()), constraint=nlis.Ball(20.0))
N, D = 600, 3


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D)) * [1.0, 2.0, 0.5] + [0.0, 1.0, 0.3]


@pytest.fixture
def z(X, rng):
    """Continuous labels."""
    return np.logaddexp(0, X @ [1.0, -0.5, 1.0]) + 0.2 * rng.normal(size=N)


@pytest.fixture
def y(X, rng):
    """Two classes."""
    return (X @ [1.0, -0.3, 2.0] + rng.logistic(size=N) > 0).astype(int)


def logit(C=1.0):
    return LogisticRegression(C=C, tol=1e-10, max_iter=10_000, solver="newton-cholesky")


# --- scikit-learn's own checks --------------------------------------------------------------------------------------

#: A draw of n rows with weights is another draw than one of the repeated rows: scores agree, the rows drawn do not.
#: `test_row_weights_count_like_repeated_rows` is about what does agree.
ANOTHER_DRAW = {"check_sample_weight_equivalence_on_dense_data": "draws other rows at random from repeated ones"}


@pytest.mark.filterwarnings("ignore::dask_nlis.errors.ConvergenceWarning")  # classes that are separable
@pytest.mark.filterwarnings("ignore:no drawn row is of:dask_nlis.errors.NlisWarning")  # of 20 rows or fewer
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (Sampler(random_state=0), {}),
        (Sampler(size=0.5, scheme="systematic", random_state=0), {}),
        (Sampler(size=0.5, estimator=LogisticRegression(), random_state=0), ANOTHER_DRAW),
        (Sampler(size=0.5, estimator=LinearRegression(), random_state=0), ANOTHER_DRAW),
        (Sampler(size=0.5, estimator=make_pipeline(StandardScaler(), Ridge()), random_state=0), ANOTHER_DRAW),
    ],
    ids=["alone", "systematic", "classifier", "regressor", "pipeline"],
)
def test_scikit_learn_finds_nothing_to_object_to(estimator, expected):
    found = estimator_checks.check_estimator(
        estimator, expected_failed_checks=expected, on_fail=None, on_skip=None, legacy=True
    )
    assert len(found) > 40
    other = {each["check_name"]: each["status"] for each in found if each["status"] != "passed"}
    # Array API input is checked where the environment variable SCIPY_ARRAY_API is set only.
    assert {name for name, status in other.items() if status == "skipped"} <= {"check_array_api_input"}
    assert {name: status for name, status in other.items() if status != "skipped"} == dict.fromkeys(
        expected, "xfail"
    ), [each for each in found if each["status"] == "failed"]


# --- the verbs inside -----------------------------------------------------------------------------------------------


def by_hand(problem, X, y, *, size, seed, theta=None, sample_weight=None, **options):
    """Scores, sample and theta by the verbs."""
    given = {"sample_weight": sample_weight}
    if theta is None:
        p = problem.model.n_parameters(X.shape[1])
        pilot_seed = int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
        theta = nlis.pilot(problem, X, y, max(size // 4, 10 * p), seed=pilot_seed, **given).theta
    A = nlis.dual_matrix(problem, X, y, theta=theta, **given)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    return scores, nlis.draw(scores, size, seed=seed, **options), theta


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "poisson", "systematic"])
@pytest.mark.parametrize("given", [None, np.array([0.9, -0.4, 1.1, 0.1])], ids=["pilot", "theta"])
def test_scores_and_sample_are_those_of_the_verbs(scheme, given, X, z):
    options = {"scheme": scheme, "mix": 0.1}
    scores, sample, theta = by_hand(INDEX, X, z, size=200, seed=3, theta=given, **options)
    fitted = Sampler(INDEX, size=200, theta=given, random_state=3, **options).fit(X, z)
    np.testing.assert_array_equal(fitted.scores_, scores)
    np.testing.assert_array_equal(fitted.theta_, theta)
    np.testing.assert_array_equal(fitted.sample_indices_, sample.indices)
    np.testing.assert_array_equal(fitted.sample_weight_, sample.weights)
    assert fitted.sample_ == sample
    assert fitted.problem_ is INDEX
    assert fitted.n_features_in_ == D
    assert fitted.scores_.sum() == pytest.approx(5, rel=1e-9)  # the rank: d + intercept + label


def test_pilot_and_draw_are_independent(X, z):
    """Draws of one seed at one stage fall on the same places of the cumulated scores; the pilot has a seed of its own."""
    A = nlis.reference_matrix(INDEX, X, z)
    reference = nlis.leverage_scores(A, nlis.factorize(A))
    fitted = Sampler(INDEX, size=200, pilot_size=200, random_state=5).fit(X, z)
    own = nlis.pilot(INDEX, X, z, 200, seed=5).theta
    assert np.abs(fitted.theta_ - own).max() > 1e-6
    pilot_rows = nlis.draw(reference, 200, seed=int(np.random.SeedSequence([5, 1]).generate_state(1)[0]))
    np.testing.assert_allclose(fitted.theta_, nlis.refit(INDEX, *pilot_rows.take(X, z), pilot_rows).theta, rtol=1e-9)


def test_the_pilot_has_the_rows_that_are_asked_for(X, z):
    seed = int(np.random.SeedSequence([0, 1]).generate_state(1)[0])
    for pilot_size in (90, 0.15):
        fitted = Sampler(INDEX, size=50, pilot_size=pilot_size, random_state=0).fit(X, z)
        np.testing.assert_array_equal(fitted.theta_, nlis.pilot(INDEX, X, z, 90, seed=seed).theta)


def test_row_weights_reach_scores_and_are_joined_with_those_of_the_draw(X, z, rng):
    v = rng.uniform(0, 3, size=N) * (rng.random(N) < 0.8)
    scores, sample, theta = by_hand(INDEX, X, z, size=200, seed=3, sample_weight=v)
    fitted = Sampler(INDEX, size=200, random_state=3).fit(X, z, sample_weight=v)
    np.testing.assert_array_equal(fitted.scores_, scores)
    np.testing.assert_array_equal(fitted.theta_, theta)
    np.testing.assert_array_equal(fitted.sample_weight_, sample.weights * v[sample.indices])
    assert not np.intersect1d(fitted.sample_indices_, np.flatnonzero(v == 0)).size


def test_row_weights_count_like_repeated_rows(X, z, rng):
    """A row of weight k has the score of its k copies together, and is expected as often as they are."""
    theta, k = np.array([0.9, -0.4, 1.1, 0.1]), rng.integers(0, 4, size=N)
    rows = np.repeat(np.arange(N), k)
    weighted = Sampler(INDEX, size=100, theta=theta, random_state=0).fit(X, z, sample_weight=k)
    repeated = Sampler(INDEX, size=100, theta=theta, random_state=0).fit(X[rows], z[rows])
    together = np.bincount(rows, weights=repeated.scores_, minlength=N)
    np.testing.assert_allclose(weighted.scores_, together, rtol=1e-9, atol=1e-15)
    expected = repeated.sample_.expected_count(repeated.scores_)
    np.testing.assert_allclose(
        weighted.sample_.expected_count(weighted.scores_), np.bincount(rows, weights=expected, minlength=N), rtol=1e-9
    )


def test_without_labels_rows_are_scored_by_x_alone(X):
    hat = np.column_stack([X, np.ones(N)])
    expected = np.einsum("ij,ji->i", hat, np.linalg.pinv(hat))
    fitted = Sampler(size=50, random_state=0).fit(X)
    np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-9)
    assert fitted.theta_ is None
    assert fitted.problem_ == nlis.Problem(nlis.Linear())
    clusters = Sampler(size=200, estimator=KMeans(2, n_init=1, random_state=0), random_state=0).fit(X)
    assert clusters.predict(X).shape == (N,)
    theta = np.array([0.9, -0.4, 1.1, 0.1])
    A = nlis.dual_matrix(INDEX, X, theta=theta)
    found = Sampler(INDEX, theta=theta, random_state=0).fit(X).scores_
    np.testing.assert_array_equal(found, nlis.leverage_scores(A, nlis.factorize(A)))


LEAST_SQUARES = nlis.Problem(nlis.Linear())


@pytest.mark.parametrize(
    ("labels", "estimator", "problem", "with_labels"),
    [
        (lambda y: y + 0.25 * np.arange(N), None, LEAST_SQUARES, True),
        (lambda y: y, None, LOGISTIC, True),
        (lambda y: np.where(y, "yes", "no"), None, LOGISTIC, True),
        (lambda y: y.astype(bool), LogisticRegression(), LOGISTIC, True),
        (lambda y: y, Ridge(), LEAST_SQUARES, True),
        (lambda y: y + np.arange(N) % 2, None, LEAST_SQUARES, False),
        (lambda y: np.array(["a", "b", "c"])[y + np.arange(N) % 2], LogisticRegression(), LEAST_SQUARES, False),
        (lambda y: np.column_stack([y, 2.5 * y]), Ridge(), LEAST_SQUARES, False),
    ],
    ids=["continuous", "two", "words", "bool", "numbers", "three", "three words", "outputs"],
)
def test_the_labels_choose_a_problem(labels, estimator, problem, with_labels, X, y):
    fitted = Sampler(size=300, estimator=estimator, random_state=0).fit(X, labels(y))
    assert fitted.problem_ == problem
    rank = D + 1 + with_labels
    assert fitted.scores_.sum() == pytest.approx(rank, rel=1e-9)
    assert (fitted.theta_ is not None) == (problem == LOGISTIC)


@pytest.mark.parametrize("pair", [(0, 1), (-1, 1)])
def test_two_classes_of_a_logistic_loss_may_have_any_names(pair, X, y):
    problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss(labels=pair))
    expected = Sampler(problem, size=100, random_state=0).fit(X, np.asarray(pair)[y])
    for names in (["no", "yes"], [3, 7], [False, True]):
        fitted = Sampler(problem, size=100, random_state=0).fit(X, np.array(names)[y])
        np.testing.assert_array_equal(fitted.scores_, expected.scores_)
    with pytest.raises(nlis.InputError, match="y holds labels outside"):
        Sampler(problem, size=100, random_state=0).fit(X, y + np.arange(N) % 2)


def test_where_the_pilot_does_not_serve_rows_are_scored_without_theta(X):
    separable = (X[:, 0] > 0.2).astype(int)
    with pytest.warns(nlis.ConvergenceWarning, match=r"the pilot fit is not ok: no finite optimum.*give theta") as seen:
        fitted = Sampler(size=100, random_state=0).fit(X, separable)
    assert len(seen) == 1
    assert len(str(seen[0].message)) <= 300
    assert fitted.theta_ is None
    A = nlis.reference_matrix(LOGISTIC, X, separable)
    np.testing.assert_array_equal(fitted.scores_, nlis.leverage_scores(A, nlis.factorize(A)))


def test_dask_arrays_stay_lazy_and_give_the_rows_of_numpy(X, z, rng):
    v = rng.integers(1, 4, size=N)
    given = {"size": 150, "estimator": Ridge(), "random_state": 2}
    counted = CountingArray(X)
    fitted = Sampler(INDEX, **given).fit(counted.dask(70), da.from_array(z, 90), sample_weight=da.from_array(v, 50))
    expected = Sampler(INDEX, **given).fit(X, z, sample_weight=v)
    assert isinstance(fitted.scores_, da.Array)
    np.testing.assert_array_equal(fitted.sample_indices_, expected.sample_indices_)
    np.testing.assert_allclose(fitted.sample_weight_, expected.sample_weight_, rtol=1e-9)
    np.testing.assert_allclose(fitted.estimator_.coef_, expected.estimator_.coef_, rtol=1e-9)
    assert fitted.n_features_in_ == D
    beside = Sampler(INDEX, **given).fit(da.from_array(X, 70), z.tolist(), sample_weight=v.tolist())
    np.testing.assert_array_equal(beside.sample_weight_, fitted.sample_weight_)
    np.testing.assert_array_equal(beside.estimator_.coef_, fitted.estimator_.coef_)
    X_s, y_s = Sampler(INDEX, size=150, random_state=2).fit_resample(da.from_array(X, 70), z)
    np.testing.assert_array_equal(X_s, X[Sampler(INDEX, size=150, random_state=2).fit(X, z).sample_indices_])
    assert type(X_s) is type(y_s) is np.ndarray
    with pytest.raises(nlis.InputTypeError, match="problem is None, and a lazy y"):
        Sampler(random_state=0).fit(da.from_array(X), da.from_array(z))


# --- the estimator on the drawn rows --------------------------------------------------------------------------------


def test_the_last_step_of_a_pipeline_is_fitted_on_the_drawn_rows_with_their_weights(X, y, rng):
    v = rng.uniform(0.5, 2, size=N)
    pipeline = make_pipeline(StandardScaler(), Sampler(LOGISTIC, size=150, estimator=logit(), random_state=1))
    pipeline.fit(X, y, nonlinearleveragesampler__sample_weight=v)
    sampler = pipeline[-1]
    scaled = StandardScaler().fit_transform(X)
    rows = sampler.sample_indices_
    expected = logit().fit(scaled[rows], y[rows], sample_weight=sampler.sample_.weights * v[rows])
    np.testing.assert_allclose(sampler.estimator_.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_array_equal(pipeline.predict(X), expected.predict(scaled))
    np.testing.assert_allclose(pipeline.predict_proba(X), expected.predict_proba(scaled), rtol=1e-9)
    np.testing.assert_allclose(pipeline.predict_log_proba(X), expected.predict_log_proba(scaled), rtol=1e-9)
    np.testing.assert_allclose(pipeline.decision_function(X), expected.decision_function(scaled), rtol=1e-9)
    np.testing.assert_array_equal(pipeline.classes_, [0, 1])
    assert pipeline.score(X, y) == expected.score(scaled, y)
    assert (
        sampler.score(scaled, y, sample_weight=v) == expected.score(scaled, y, sample_weight=v) != pipeline.score(X, y)
    )
    assert not hasattr(sampler.estimator, "coef_")
    assert is_classifier(pipeline)


def test_methods_are_there_where_the_estimator_has_them(X, z):
    regressor = Sampler(size=100, estimator=Ridge(), random_state=0)
    assert is_regressor(regressor)
    assert hasattr(regressor, "predict")
    assert hasattr(regressor, "score")
    for name in ("predict_proba", "predict_log_proba", "decision_function", "classes_"):
        assert not hasattr(regressor, name)
        assert not hasattr(regressor.fit(X, z), name)
    with pytest.raises(NotFittedError):
        clone(regressor).predict(X)
    alone = Sampler(size=100, random_state=0).fit(X, z)
    assert not hasattr(alone, "predict")
    assert not is_regressor(alone)
    with pytest.raises(AttributeError, match="has no attribute 'predict'"):
        alone.predict(X)


def test_an_estimator_of_an_earlier_fit_is_forgotten(X, z):
    sampler = Sampler(size=100, estimator=Ridge(), random_state=0).fit(X, z)
    sampler.set_params(estimator=None).fit(X, z)
    assert not hasattr(sampler, "estimator_")
    sampler.set_params(estimator=Ridge()).fit(X, z).fit_resample(X, z)
    with pytest.raises(NotFittedError):
        sampler.predict(X)


def test_searches_and_cross_validation_go_through_it(X, y):
    pipeline = Pipeline([("scale", StandardScaler()), ("draw", Sampler(size=150, estimator=logit(), random_state=0))])
    squares = nlis.Problem(nlis.Linear(intercept=False))
    grid = {"draw__problem": [LOGISTIC, squares], "draw__size": [100, 0.5], "draw__estimator__C": [1e-4, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert len(search.cv_results_["params"]) == 8
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert search.best_params_["draw__estimator__C"] == 1.0
    assert search.best_estimator_[-1].problem_ is not None
    scores = cross_val_score(pipeline, X, y, cv=3)
    np.testing.assert_array_equal(scores, cross_val_score(pipeline, X, y, cv=3))  # an integer seed
    whole = cross_val_score(make_pipeline(StandardScaler(), logit()), X, y, cv=3)
    assert abs(scores.mean() - whole.mean()) < 0.05


def test_weights_are_routed_to_it_where_it_asks_for_them(X, y, rng):
    v = rng.integers(0, 3, size=N)
    with config_context(enable_metadata_routing=True):
        sampler = Sampler(LOGISTIC, size=150, estimator=logit(), random_state=0).set_fit_request(sample_weight=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), sampler).fit(
            X, y, sample_weight=v
        )
        search = GridSearchCV(sampler.set_score_request(sample_weight=True), {"size": [150]}, cv=3)
        search.fit(X, y, sample_weight=v)
    direct = clone(sampler).fit(StandardScaler().fit_transform(X), y, sample_weight=v)
    np.testing.assert_array_equal(routed[-1].estimator_.coef_, direct.estimator_.coef_)
    assert not np.intersect1d(search.best_estimator_.sample_indices_, np.flatnonzero(v == 0)).size


def test_classes_that_no_drawn_row_has_are_named_and_can_be_asked_for(X):
    rare = np.where(np.arange(N) % 300 == 7, "rare", np.where(np.arange(N) % 2, "one", "two"))
    sampler = Sampler(size=30, estimator=logit(), random_state=0)
    with pytest.warns(
        nlis.NlisWarning, match=r"no drawn row is of 1 of the 3 classes, 'rare' first; give min_per_group"
    ):
        assert "rare" not in sampler.fit(X, rare).classes_
    sampler.set_params(min_per_group=2).fit(X, rare)
    np.testing.assert_array_equal(sampler.classes_, ["one", "rare", "two"])
    assert sampler.sample_.counts[rare[sampler.sample_indices_] == "rare"].sum() >= 2
    by = nlis.draw(sampler.scores_, 30, by=rare, min_per_group=2, seed=0)
    np.testing.assert_array_equal(sampler.sample_indices_, by.indices)
    np.testing.assert_array_equal(sampler.sample_weight_, by.weights)


# --- conventions ----------------------------------------------------------------------------------------------------


def test_rows_come_back_in_the_containers_they_came_in(X, z):
    frame, series = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(N) + 5), pd.Series(z, name="z")
    sampler = Sampler(INDEX, size=100, random_state=0)
    X_s, z_s = sampler.fit_resample(frame, series)
    rows, weights = sampler.sample_indices_, sampler.sample_weight_
    pd.testing.assert_frame_equal(X_s, frame.iloc[rows])
    pd.testing.assert_series_equal(z_s, series.iloc[rows])
    np.testing.assert_array_equal(sampler.feature_names_in_, ["a", "b", "c"])
    assert sampler.sample_.feature_names == ("a", "b", "c")
    X_s, z_s = sampler.fit_resample(X, z)
    np.testing.assert_array_equal(X_s, X[rows])
    np.testing.assert_array_equal(z_s, z[rows])
    np.testing.assert_array_equal(sampler.sample_weight_, weights)
    assert not hasattr(sampler, "feature_names_in_")
    X_s, z_s = sampler.fit_resample(X.tolist(), z.tolist())
    assert X_s == [X[row].tolist() for row in rows]
    assert z_s == z[rows].tolist()
    X_s, nothing = Sampler(size=50, random_state=0).fit_resample(X)
    assert nothing is None
    assert X_s.shape == (len(X_s), D)


def test_the_estimator_sees_the_names_of_columns(X, z):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = Sampler(size=100, estimator=Ridge(), random_state=0).fit(frame, z)
    np.testing.assert_array_equal(fitted.estimator_.feature_names_in_, ["a", "b", "c"])
    assert fitted.predict(frame).shape == (N,)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[["b", "a", "c"]])


def test_seeds_are_integers_and_states_of_numpy_give_one(X, z):
    def rows(random_state):
        return Sampler(INDEX, size=100, random_state=random_state).fit(X, z).sample_

    assert rows(7) == rows(np.int64(7)) != rows(8)
    assert rows(7).seed == 7
    state = np.random.RandomState(0)
    first, second = rows(state), rows(state)
    assert first == rows(np.random.RandomState(0)) != second
    assert rows(first.seed) == first
    np.random.seed(3)  # noqa: NPY002 (the state that random_state=None is by scikit-learn's convention)
    first = rows(None)
    np.random.seed(3)  # noqa: NPY002
    assert rows(None) == first
    with pytest.raises(nlis.InputTypeError, match=r"random_state is a Generator.*give an integer"):
        rows(np.random.default_rng(0))


def test_parameters_are_kept_as_they_come_and_cloned(X, z):
    theta, inner = np.zeros(4), Ridge(3.0)
    sampler = Sampler(INDEX, size="many", theta=theta, estimator=inner, random_state="x")
    assert sampler.problem is INDEX
    assert sampler.theta is theta
    assert sampler.estimator is inner
    assert sampler.get_params()["estimator__alpha"] == 3.0
    copied = clone(sampler).set_params(size=100, random_state=0, estimator__alpha=1.0)
    assert copied.problem == INDEX
    assert inner.alpha == 3.0
    assert copied.fit(X, z).estimator_.alpha == 1.0
    assert "NonlinearLeverageSampler" in repr(copied)
    assert "estimator: Ridge" in copied._repr_html_()
    again = pickle.loads(pickle.dumps(copied))
    assert again.sample_ == copied.sample_
    np.testing.assert_array_equal(again.predict(X), copied.predict(X))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"problem": "logistic"}, nlis.InputTypeError, "problem is str; give Problem"),
        ({"size": 0}, nlis.InputError, "size=0 is not allowed"),
        ({"size": 1.5}, nlis.InputTypeError, "size=1.5 is float"),
        ({"scheme": "uniform"}, nlis.InputError, "scheme='uniform' is not known"),
        ({"mix": 2}, nlis.InputError, "mix=2 is not allowed"),
        ({"theta": [0.0]}, nlis.InputError, "theta has shape"),
        ({"pilot_size": 0}, nlis.InputError, "pilot_size=0 is not allowed"),
        ({"min_per_group": -1}, nlis.InputError, "min_per_group=-1 is negative"),
        ({"min_per_group": 60}, nlis.InputError, "min_per_group=60 in each of 2 groups"),
        ({"random_state": -1}, nlis.InputError, "random_state=-1 is negative"),
        ({"estimator": KNeighborsClassifier()}, nlis.InputTypeError, "KNeighborsClassifier takes no sample_weight"),
        ({"estimator": LogisticRegression}, nlis.InputTypeError, "estimator is the class LogisticRegression"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_arguments_are_refused_by_fit_in_a_line(given, error, says, X, y):
    sampler = Sampler(**{"size": 100, "random_state": 0} | given)
    with pytest.raises(error, match=says) as caught:
        sampler.fit(X, y)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300
    assert not hasattr(sampler, "sample_")


def test_bad_data_are_refused_in_scikit_learns_words(X, y):
    sampler = Sampler(size=100, estimator=LogisticRegression(), random_state=0)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        sampler.fit(scipy.sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sampler.fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        sampler.fit(X, y[1:])
    with pytest.raises(ValueError, match="requires y to be passed"):
        sampler.fit(X)
    with pytest.raises(nlis.InputError, match=r"sample_weight\[0\]=-1.0 is negative"):
        sampler.fit(X, y, sample_weight=-np.ones(N))
    with pytest.raises(nlis.InputTypeError, match="min_per_group is given, but y is no array"):
        Sampler(size=100, min_per_group=1, random_state=0).fit(X)


def test_an_estimator_that_takes_no_weights_is_refused_before_rows_are_read(y):
    class Unread:
        shape, ndim, dtype = (N, D), 2, np.dtype(float)

        def __array__(self, *args, **kwargs):
            raise AssertionError("read")

    with pytest.raises(nlis.InputTypeError, match="takes no sample_weight"):
        Sampler(estimator=KNeighborsClassifier()).fit(Unread(), y)


def test_nothing_is_warned_of_without_need(X, y, z):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(StandardScaler(), Sampler(size=100, estimator=logit(), random_state=0)).fit(X, y).predict(X)
        Sampler(INDEX, size=100, random_state=0).fit(X, z)


def _run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True).stdout


def test_scikit_learn_is_imported_on_first_use_only():
    code = "import sys, dask_nlis as nlis; assert 'NonlinearLeverageSampler' in dir(nlis); print('sklearn' in sys.modules)\n"
    code += "from dask_nlis import NonlinearLeverageSampler as S, draw; print('sklearn' in sys.modules, S.__name__)"
    assert _run(code).split() == ["False", "True", "NonlinearLeverageSampler"]
    with pytest.raises(AttributeError, match="has no attribute 'NonlinearSampler'"):
        nlis.NonlinearSampler  # noqa: B018 (what is tested)


def test_without_scikit_learn_the_extra_is_named_and_all_other_names_are_there():
    code = "import sys; sys.modules['sklearn'] = None\n"
    code += "from dask_nlis import *; import dask_nlis as nlis; print(draw.__name__, 'NonlinearLeverageSampler' in dir(nlis))\n"
    code += "try: nlis.NonlinearLeverageSampler\nexcept ImportError as error: print(error)"
    first, second = _run(code).splitlines()
    assert first == "draw False"
    assert second == "NonlinearLeverageSampler needs scikit-learn; pip install 'dask-nlis[sklearn]'"
