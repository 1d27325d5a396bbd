"""refit_with: weights reach every part of a scikit-learn estimator that takes them, and what takes none is refused."""

import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import RFE
from sklearn.linear_model import LinearRegression, LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import dask_nlis as nlis


def logit(C=1.0):
    """Newton's method: a few steps, whatever the units."""
    return LogisticRegression(C=C, tol=1e-10, max_iter=10_000, solver="newton-cholesky")


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(400, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, 1.0]
    y = (X @ [1.0, -0.3, 2.0] + rng.logistic(size=400) > 0).astype(float)
    sample = nlis.draw(1 + X[:, 0] ** 2, 120, seed=2)
    return *sample.take(X, y), sample


def test_logistic_regression_is_our_logistic_refit(rows):
    X, y, sample = rows
    fitted = nlis.refit_with(LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000), X, y, sample)
    fit = nlis.refit(nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), X, y, sample)
    np.testing.assert_allclose(np.append(fitted.coef_, fitted.intercept_), fit.theta, rtol=1e-6, atol=1e-6)
    ours = nlis.refit(nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), X, y, sample, ridge=0.5 / 3)
    ridge = nlis.refit_with(logit(3.0), X, y, sample)
    np.testing.assert_allclose(np.append(ridge.coef_, ridge.intercept_), ours.theta, rtol=1e-6, atol=1e-6)


#: Estimators that take weights, at the top or inside.
TAKE = {
    "linear": LinearRegression(),
    "forest": RandomForestClassifier(5, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=2),
    "clusters": KMeans(2, n_init=1, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), logit()),
    "pipeline in a pipeline": make_pipeline(FunctionTransformer(), make_pipeline(StandardScaler(), logit())),
    "columns": make_pipeline(ColumnTransformer([("scaled", StandardScaler(), [0, 1])]), logit()),
    "union": make_pipeline(FeatureUnion([("a", StandardScaler()), ("b", FunctionTransformer())]), logit()),
    "search": GridSearchCV(logit(), {"C": [0.01, 1.0]}, cv=3),
    "search of pipelines": GridSearchCV(make_pipeline(StandardScaler(), logit()), {"logisticregression__C": [0.01, 1]}),
    "search of steps": GridSearchCV(
        make_pipeline(StandardScaler(), logit()), {"logisticregression": [logit(), DecisionTreeClassifier(max_depth=2)]}
    ),
    "search by names": GridSearchCV(
        logit(), {"C": [0.01, 1.0]}, scoring=["accuracy", "neg_log_loss"], refit="accuracy"
    ),
    "search by a worst case": GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, scoring="neg_max_error"),
    "cross-validated": make_pipeline(StandardScaler(), RidgeCV()),
    "bagging": BaggingClassifier(logit(), 3, random_state=0),
    "boosting of trees": AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=3),
    "voting": VotingClassifier([("a", logit()), ("b", DecisionTreeClassifier(max_depth=2))]),
    "stacking": StackingClassifier([("a", logit())], final_estimator=logit()),
    "calibrated pipeline": CalibratedClassifierCV(make_pipeline(StandardScaler(), logit())),
    "one against the rest": OneVsRestClassifier(logit()),
    "elimination": RFE(logit(), n_features_to_select=2),
    "target": TransformedTargetRegressor(Ridge(), func=np.negative, inverse_func=np.negative),
}


def answers(fitted, X):
    method = next(m for m in ("predict_proba", "predict", "transform") if hasattr(fitted, m))
    return getattr(fitted, method)(X)


@pytest.mark.parametrize("name", TAKE)
def test_weights_reach_an_estimator_and_leave_it_as_it_was(name, rows):
    X, y, sample = rows
    before, settings = repr(TAKE[name].get_params()), get_config()
    fitted = nlis.refit_with(TAKE[name], X, y, sample)
    assert type(fitted) is type(TAKE[name])
    assert fitted is not TAKE[name]
    assert repr(TAKE[name].get_params()) == before
    assert get_config() == settings
    plain = nlis.refit_with(TAKE[name], X, y, np.ones(len(y)))
    assert np.abs(answers(fitted, X) - answers(plain, X)).max() > 1e-6


@pytest.mark.parametrize("name", ["linear", "pipeline", "search by names", "boosting of trees"])
def test_routing_that_is_switched_on_already_changes_nothing(name, rows):
    X, y, sample = rows
    with config_context(enable_metadata_routing=True):
        fitted = nlis.refit_with(TAKE[name], X, y, sample)
    np.testing.assert_array_equal(answers(fitted, X), answers(nlis.refit_with(TAKE[name], X, y, sample), X))


def test_every_step_of_a_pipeline_has_the_weights(rows):
    X, y, sample = rows
    scaler = StandardScaler().fit(X, sample_weight=sample.weights)
    last = logit().fit(scaler.transform(X), y, sample_weight=sample.weights)
    fitted = nlis.refit_with(make_pipeline(StandardScaler(), logit()), X, y, sample)
    np.testing.assert_allclose(fitted[0].mean_, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(fitted[-1].coef_, last.coef_, rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), last.predict(scaler.transform(X)))  # without routing


@pytest.mark.parametrize("scoring", [None, "accuracy", make_scorer(accuracy_score)])
def test_candidates_of_a_search_are_scored_with_weights(scoring, rows):
    X, y, sample = rows
    grid, w = (0.001, 1.0), sample.weights
    fitted = nlis.refit_with(GridSearchCV(logit(), {"C": grid}, cv=3, scoring=scoring), X, y, sample)
    expected = [
        np.mean([
            logit(C).fit(X[a], y[a], sample_weight=w[a]).score(X[b], y[b], sample_weight=w[b])
            for a, b in StratifiedKFold(3).split(X, y)
        ]) for C in grid
    ]  # fmt: skip
    np.testing.assert_allclose(fitted.cv_results_["mean_test_score"], expected, rtol=1e-12)
    if scoring is not None and not isinstance(scoring, str):
        assert getattr(scoring, "_metadata_request", None) is None  # the caller's own asks for nothing


def test_a_step_that_opts_out_goes_without(rows):
    X, y, sample = rows
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
    fitted = nlis.refit_with(make_pipeline(scaler, logit()), X, y, sample)
    np.testing.assert_allclose(fitted[0].mean_, X.mean(axis=0), rtol=1e-12)


def test_classes_may_be_words_and_clusters_need_no_labels(rows):
    X, y, sample = rows
    words = np.where(y > 0, "yes", "no")
    assert set(nlis.refit_with(logit(), X, words, sample).classes_) == {"yes", "no"}
    assert nlis.refit_with(KMeans(2, n_init=1), X, None, sample).cluster_centers_.shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.*default value.*:FutureWarning")
def test_a_cross_validated_classifier_in_a_pipeline_is_scored_with_weights(rows):
    X, y, sample = rows
    fitted = nlis.refit_with(make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=2, cv=3)), X, y, sample)
    assert fitted.predict(X).shape == y.shape


def test_a_transformer_without_weights_is_named(rows):
    X, y, sample = rows
    with pytest.warns(nlis.NlisWarning, match="PCA in Pipeline takes no sample_weight"):
        nlis.refit_with(make_pipeline(PCA(2), logit()), X, y, sample)


class Plain(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


class Holder(BaseEstimator):
    """An estimator of an estimator that knows nothing of routing."""

    def __init__(self, inner=None):
        self.inner = inner

    def fit(self, X, y, **parameters):
        return self


@pytest.mark.parametrize(
    ("estimator", "named"),
    [
        (KNeighborsClassifier(), "KNeighborsClassifier takes no"),
        (Plain(), "Plain takes no"),
        (PCA(2), "PCA takes no"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "KNeighborsClassifier in Pipeline"),
        (VotingClassifier([("a", logit()), ("b", KNeighborsClassifier())]), "KNeighborsClassifier in VotingClassifier"),
        (GridSearchCV(Plain(), {}), "Plain in GridSearchCV"),
        (CalibratedClassifierCV(KNeighborsClassifier()), "KNeighborsClassifier in CalibratedClassifierCV"),
        (AdaBoostClassifier(make_pipeline(logit())), "Pipeline in AdaBoostClassifier"),
        (make_pipeline(StandardScaler(), "passthrough", Plain()), "Plain in Pipeline"),
        (Holder(logit()), "Holder takes no"),
        (LogisticRegression, "the class LogisticRegression"),
        ("logistic", "str"),
        (None, "NoneType"),
    ],
)
def test_estimators_without_weights_are_refused_by_name(estimator, named, rows):
    with pytest.raises(nlis.InputTypeError, match=named) as e:
        nlis.refit_with(estimator, *rows)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) <= 300


def test_rows_that_do_not_fit_are_refused(rows):
    X, y, sample = rows
    with pytest.raises(nlis.InputError, match=r"give sample\.take"):
        nlis.refit_with(logit(), X[1:], y[1:], sample)
    with pytest.raises(nlis.InputError, match="y has"):
        nlis.refit_with(logit(), X, y[1:], sample)
    with pytest.raises(nlis.InputError, match="sample"):
        nlis.refit_with(logit(), X, y, -sample.weights)
    with pytest.raises(nlis.InputTypeError, match="lazy"):
        nlis.refit_with(logit(), da.from_array(X), y, sample)


def test_weights_of_the_sample_cannot_be_written_into(rows):
    X, y, sample = rows

    class Writes(BaseEstimator):
        def fit(self, X, y, sample_weight=None):
            sample_weight *= 0
            return self

    before = sample.weights.copy()
    nlis.refit_with(Writes(), X, y, sample)
    np.testing.assert_array_equal(sample.weights, before)
    nlis.refit_with(Writes(), X, y, before)
    assert before.any()


def test_scikit_learn_is_imported_by_the_call_only():
    code = "import sys, dask_nlis; assert not any(m.split('.')[0] == 'sklearn' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_scikit_learn_the_extra_is_named(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"dask-nlis\[sklearn\]"):
        nlis.refit_with(logit(), *rows)


def test_nothing_is_warned_of_without_need(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlis.refit_with(make_pipeline(FunctionTransformer(), StandardScaler(), logit()), *rows)
