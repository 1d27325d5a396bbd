"""Rows to ask labels for, drawn without any: against uniform rows, and against what labels would have told.

Uses the functions of examples/active_learning.py. The decisive cells are slow: mean log excess loss over 40 seeds, of
which the thresholds leave three standard errors.
"""

from functools import cache

import numpy as np
import pytest
import scripts

import dask_nlis as nlis

pytestmark = pytest.mark.adapters

SEEDS = 40
SIZE = {"california": 180, "diamonds": 200, "california, ranked": 180}


@pytest.fixture
def example():
    """The example as a module; it needs pandas and matplotlib."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    return scripts.example("active_learning")


@cache
def decisive(name):
    return scripts.example("active_learning").experiment(
        name, SEEDS, [SIZE[name]], ("uniform", "label-free", "all labels")
    )


def test_one_round_asks_for_the_labels_of_its_budget_and_fits_what_compare_fits(example):
    of = example.experiment("california", 2, [90], ("label-free",))
    asked = []

    def ask(indices):
        asked.append(indices)
        return of.y[indices]

    for seed in range(2):
        fit = example.learn(of.X, ask, 90, seed)
        np.testing.assert_allclose(fit.theta, of.found.thetas[seed], rtol=1e-8)
    assert [len(np.unique(indices)) for indices in asked] == [90, 90]


def test_label_free_reference_leverage_is_that_of_the_features_with_a_one(example):
    X, _ = example.rows("california")
    with_one = np.column_stack([X, np.ones(len(X))])
    A = nlis.reference_matrix(example.PROBLEM, X)
    assert not A.has_labels
    q = np.linalg.qr(with_one)[0]
    np.testing.assert_allclose(example.leverage(A), (q * q).sum(axis=1), rtol=1e-9)


def test_the_theorems_constant_is_the_steepest_slope(example):
    t = np.linspace(-20, 20, 400_001)
    slope = np.gradient(example.PROBLEM.model.activation.value(t), t).max()
    assert nlis.lipschitz_bound(example.PROBLEM, 1.0) == pytest.approx(slope, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "margin"), [("california", -3.0), ("diamonds", -2.0)])
def test_label_free_leverage_beats_uniform_rows(example, name, margin):
    mean, error = example.difference(decisive(name).found, "label-free", "uniform", SIZE[name])
    assert mean + 3 * error < margin


@pytest.mark.slow
def test_labels_would_have_told_more_on_california(example):
    mean, error = example.difference(decisive("california").found, "label-free", "all labels", 180)
    assert mean - 3 * error > 0


@pytest.mark.slow
def test_where_no_row_is_far_out_there_is_little_to_gain(example):
    mean, error = example.difference(decisive("california, ranked").found, "label-free", "uniform", 180)
    assert abs(mean) + 3 * error < 1
    assert mean > -0.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["california", "diamonds"])
def test_theorems_ask_for_many_times_the_labels_at_constant_one(example, name):
    of = decisive(name)
    slope = nlis.lipschitz_bound(example.PROBLEM, 1.0)
    index = of.X @ of.best.theta[:-1] + of.best.theta[-1]
    excess = of.found.quartiles()["label-free", SIZE[name]][1] * of.found.reference_loss
    asked = nlis.active_learning_size(len(of.best.theta), excess / (slope**2 * index @ index), n_rows=len(of.y))
    assert asked.size > 20 * SIZE[name]
