"""What the example of detection claims: the loss finds wrong labels, leverage spoiled images."""

from functools import cache

import numpy as np
import pytest
import scripts
from scipy.optimize import approx_fprime
from sklearn.metrics import roc_auc_score

import dask_nlis as nlis


@cache
def example():
    return scripts.example("detection")


def test_its_images_are_those_of_the_tests_made_small():
    full = scripts.training().load()
    with np.load(scripts.EXAMPLES / "data" / "quickdraw_fish_bicycle_10x10.npz", allow_pickle=False) as stored:
        small, labels = stored["images"], stored["labels"]
    assert (small.shape, small.dtype) == ((6000, 10, 10), np.uint8)
    assert np.abs(small.reshape(6000, -1) - 255 * full.X).max() <= 0.5 + 1e-9
    assert np.array_equal(labels, full.y)


@pytest.mark.parametrize("name", ["Quick Draw", "digits"])
@pytest.mark.parametrize("way", ["noise", "inverted", "blank", "shuffled"])
def test_as_many_rows_as_it_says_are_spoiled_and_no_others(name, way, rng):
    X, y = example().load(name)
    n = len(y)
    assert X.min() == 0
    assert X.max() == 1
    assert np.isin(y, [0, 1]).all()
    data = example().spoil(X, y, way, rng)
    assert np.flatnonzero(data.y != y).tolist() == sorted(data.flipped)
    assert (len(data.flipped), len(data.spoiled)) == (round(0.05 * n), round(0.01 * n))
    assert not np.intersect1d(data.flipped, data.spoiled).size
    assert np.flatnonzero((data.X != X).any(axis=1)).tolist() == sorted(data.spoiled)
    before, after = X[data.spoiled], data.X[data.spoiled]
    if way == "shuffled":
        assert np.array_equal(np.sort(before, axis=1), np.sort(after, axis=1))
    elif way != "noise":
        assert np.array_equal(after, 1 - before if way == "inverted" else 0 * before)


def test_training_descends_along_the_gradient_and_areas_are_those_of_scikit_learn(rng):
    module = example()
    problem = module.network(0.1)
    X, y = module.load("digits", 300)
    theta = rng.normal(size=problem.model.n_parameters(64)) / 4
    value, gradient = module.objective(theta, problem, X, y)
    loss = nlis.total_loss(problem, X, y, theta)
    assert value == pytest.approx(loss / 300 + module.WEIGHT_DECAY / 2 * theta @ theta, rel=1e-12)
    numeric = approx_fprime(theta, lambda t: module.objective(t, problem, X, y)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)
    scores = rng.integers(0, 20, 300).astype(float)
    wrong = rng.permutation(300)[:40]
    truth = np.isin(np.arange(300), wrong)
    assert module.area(scores, wrong, np.flatnonzero(~truth)) == pytest.approx(roc_auc_score(truth, scores), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Quick Draw", "digits"])
def test_the_loss_finds_labels_and_leverage_finds_noise_and_shuffled_images(name):
    found = example().experiment(name, 5)
    for (where, what, by), bar in example().BARS.items():
        if where == name:
            assert found[what, by].mean() > bar, (what, by)
    assert len(found["flipped labels", "loss"]) == 20
    # Each is the better one at its own, in every run; and a blank image has the smallest leverage there is.
    assert (found["flipped labels", "loss"] > found["flipped labels", "leverage"]).all()
    for way in ("noise", "shuffled"):
        assert (found[way, "leverage"] > found[way, "loss"]).all()
    assert found["blank", "leverage"].max() < 0.01


@pytest.mark.slow
def test_relu_units_that_are_off_hide_noise_from_leverage():
    found = example().experiment("Quick Draw", 5, leak=0.0)
    assert found["noise", "leverage"].min() < 0.9
    assert found["flipped labels", "loss"].mean() > 0.95
