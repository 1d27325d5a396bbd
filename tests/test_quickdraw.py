"""A trained ReLU network on drawings: its dual matrix lacks rank, and every score is right all the same.

The parameters are stored beside the script that trains them, tests/data/train_quickdraw.py.
"""

import importlib.util
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_quickdraw", DATA / "train_quickdraw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def theta():
    return np.load(DATA / "quickdraw_theta.npy", allow_pickle=False)


def dense(F):
    """Leverage and rank by SVD, singular values cut at 1e-10 of the largest."""
    with threadpool_limits(1):
        left, values, _ = np.linalg.svd(F, full_matrices=False)
    kept = values > 1e-10 * values[0]
    return (left[:, kept] ** 2).sum(axis=1), int(kept.sum())


def test_the_stored_network_is_the_trained_one(script, theta):
    X, y = script.drawings()
    assert X.shape == (6000, 100)
    assert 0 <= X.min() < X.max() <= 1
    value, gradient = script.objective(theta, X, y)
    assert value < 0.09
    # The loss has kinks wherever a unit changes side, so a minimum is no point of zero gradient; 1 is a start's.
    assert np.abs(gradient).max() < 2e-3
    loss = nlis.total_loss(script.PROBLEM, X, y, theta) / len(y)
    assert loss + script.DECAY / 2 * theta @ theta == pytest.approx(value, rel=1e-12)
    assert np.mean((script.MODEL.predict(theta, X) > 0) == y) > 0.98
    step = 1e-6 * np.random.default_rng(1).normal(size=len(theta))
    ahead, behind = (script.objective(theta + s * step, X, y)[0] for s in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(gradient @ step, rel=1e-3)


@pytest.mark.slow
def test_training_again_ends_as_low(script, theta):
    X, y = script.drawings()
    found = script.train(X, y)
    assert found.fun == pytest.approx(script.objective(theta, X, y)[0], rel=0.05)


@pytest.mark.parametrize(("every", "chunk"), [(4, 1500), pytest.param(1, 700, marks=pytest.mark.slow)])
def test_rank_and_leverage_are_those_of_the_dense_svd_and_q_would_be_wrong(script, theta, every, chunk):
    X, y = (part[::every] for part in script.drawings())
    X = da.from_array(X, (chunk, 100))
    A = nlis.dual_matrix(script.PROBLEM, X, y, theta=theta)
    factor = nlis.factorize(A)
    F = A.to_dask_array().compute()
    expected, rank = dense(F)
    assert factor.rank == rank <= 10 * 100 + 1 < F.shape[1]
    scores = nlis.leverage_scores(A, factor).compute()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
    assert scores.sum() == pytest.approx(rank, abs=1e-9)
    with threadpool_limits(1):
        q, _ = np.linalg.qr(F)
    assert np.abs((q**2).sum(axis=1) - scores).max() > 0.1  # row norms of Q are no leverage here
    assert len(repr(factor)) < 400

    dead = np.array(theta)
    dead[101:202] = -1.0  # a unit that no drawing switches on: none has a negative pixel
    dead[303] = 0.0  # an outer weight of zero
    B = nlis.dual_matrix(script.PROBLEM, X, y, theta=dead)
    spoiled = nlis.factorize(B)
    expected, rank = dense(B.to_dask_array().compute())
    assert spoiled.rank == rank < factor.rank
    np.testing.assert_allclose(nlis.leverage_scores(B, spoiled).compute(), expected, rtol=0, atol=1e-9)
    assert {"a2", "b2[x0]", "b2[x99]"} <= set(spoiled.dependent)


def test_the_identity_and_the_norms_hold_on_every_drawing(script, theta):
    X, y = script.drawings()
    problem = script.PROBLEM
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    F = A.to_dask_array().compute()
    root = problem.loss.root(script.MODEL.predict(theta, X), y)
    at_zero = problem.loss.root(np.zeros(len(y)), y)
    np.testing.assert_allclose(F[:, -1], at_zero, rtol=1e-15)
    np.testing.assert_allclose(F[:, :-1] @ theta, root - at_zero, rtol=0, atol=1e-12)
    np.testing.assert_allclose(nlis.norm_scores(A), (F**2).sum(axis=1), rtol=1e-12)
