"""l G'G <= F*'F* <= u G'G, against dense algebra."""

import math

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, FakeGPU, Tasks, cut, rows_of
from scipy.linalg import eigh
from tables import ACTIVATIONS, LOSSES

import dask_nlis as nlis
from dask_nlis import device

X, Y = rows_of(17, 600, 3)
THETA = np.array([0.8, -0.5, 0.3, 0.2])
FEATURES = np.column_stack([X, np.ones(600)])
SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


def dense(problem, x, y, theta, features, weight=1.0):
    """Generalised eigenvalues by SciPy, on the range of the features."""
    F = nlis.dual_matrix(problem, x, y, theta=theta).to_dask_array().compute(scheduler="sync")[:, :-1]
    root = np.sqrt(weight) * np.ones(len(F))
    F, G = F * root[:, None], features * root[:, None]
    _, s, vt = np.linalg.svd(G, full_matrices=False)
    basis = vt[s > 1e-10 * s[0]].T
    values = eigh((F @ basis).T @ (F @ basis), (G @ basis).T @ (G @ basis), eigvals_only=True)
    return values[0], values[-1]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_eigenvalues_are_those_of_scipy_and_lie_between_the_bounds(name):
    problem = nlis.Problem(nlis.SingleIndex(ACTIVATIONS[name].activation))
    found = nlis.sandwich(problem, X, THETA)
    expected = dense(problem, X, None, THETA, FEATURES)
    assert (found.smallest, found.largest) == pytest.approx(expected, rel=1e-10, abs=1e-13)
    slope = problem.model.activation.secant(FEATURES @ THETA) ** 2
    assert found.lower * (1 - 1e-12) <= slope.min() <= slope.max() <= found.upper * (1 + 1e-12)
    assert found.holds
    assert found.constants[0] <= found.lower * (1 + 1e-12)
    assert found.upper <= found.constants[1] * (1 + 1e-12)
    index = FEATURES @ THETA
    assert found.index_range == pytest.approx((index.min(), index.max()), rel=1e-14)
    assert (found.rank, found.n_rows, found.active_share) == (4, 600, 1.0)


@pytest.mark.parametrize("loss", ["squared", "huber", "pseudo-huber", "logistic loss", "poisson"])
def test_with_labels_the_slope_includes_that_of_the_loss(loss, rng):
    problem = nlis.Problem(nlis.Linear(), LOSSES[loss])
    y = {"logistic loss": (Y > 0) * 1.0, "poisson": rng.poisson(2.0, 600) * 1.0}.get(loss, Y)
    found = nlis.sandwich(problem, X, THETA, y)
    expected = dense(problem, X, y, THETA, FEATURES)
    assert (found.smallest, found.largest) == pytest.approx(expected, rel=1e-11)
    assert found.holds
    assert found.beta == pytest.approx(
        nlis.misestimation_factor(problem, index_range=found.index_range, labels=y), rel=1e-12
    )
    assert 0 < found.lower <= found.upper < math.inf
    plain = nlis.sandwich(problem, X, THETA)
    assert (plain.lower, plain.upper) == (1.0, 1.0)


def test_bounds_of_roots_would_not_hold():
    """Rows at both ends of the index: the paper's sqrt(c1), sqrt(c2) leave the eigenvalues outside."""
    x = np.r_[np.full(50, -30.0), np.full(50, 29.0)][:, None]
    for c1, c2 in ((0.25, 0.5), (2, 4)):
        problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=c1, c2=c2), intercept=True))
        found = nlis.sandwich(problem, x, [1.0, 0.0])
        assert found.holds
        assert found.constants == pytest.approx((c1, c2))
        assert found.smallest < math.sqrt(c1) if c1 < 1 else found.largest > math.sqrt(c2)


def test_columns_that_depend_on_others_are_left_out():
    x = np.column_stack([X, X[:, 0] - 2 * X[:, 1], np.zeros(600)])
    theta = np.array([0.8, -0.5, 0.3, 0.4, 7.0, 0.2])
    found = nlis.sandwich(SWISH, x, theta)
    expected = dense(SWISH, x, None, theta, np.column_stack([x, np.ones(600)]))
    assert found.rank == 4
    assert (found.smallest, found.largest) == pytest.approx(expected, rel=1e-10)
    assert found.holds


@pytest.mark.parametrize("scale", [1e-295, 1e-200, 1e-3, 1e200])
def test_units_of_columns_do_not_matter(scale):
    sizes = np.array([1.0, scale, 1 / scale if scale > 1e100 else 1.0])
    plain = nlis.sandwich(SWISH, X, THETA)
    scaled = nlis.sandwich(SWISH, X * sizes, THETA / np.append(sizes, 1.0))
    assert (scaled.smallest, scaled.largest) == pytest.approx((plain.smallest, plain.largest), rel=1e-9)
    assert scaled.holds


def test_networks_compare_with_the_gradient_of_the_index(rng):
    theta = rng.standard_normal(16)
    theta[12:] = [0.0, -1.0, 0.0, 0.0]  # an outer weight of 0, whose inner weights have no part
    model = nlis.ReluNetwork(4, activation=nlis.Tanh())
    x = X.copy()
    x[:40] = 0.0  # no active unit
    found = nlis.sandwich(nlis.Problem(model), x, theta)
    G = model.index_gradient(theta, x) / 2
    assert (found.smallest, found.largest) == pytest.approx(dense(nlis.Problem(model), x, None, theta, G), rel=1e-9)
    assert found.holds
    assert found.rank == np.linalg.matrix_rank(G) < 16
    assert found.active_share == (G != 0).any(axis=1).mean() <= 560 / 600
    assert "active_share" in repr(found)


def test_one_read_and_the_same_for_any_chunks():
    counted = CountingArray(X), CountingArray(Y)
    reference = nlis.sandwich(SWISH, X, THETA, Y)
    for size in (600, 50, 7):
        with Tasks() as tasks:
            found = nlis.sandwich(SWISH, counted[0].dask(size), THETA, counted[1].dask(size))
        assert [array.reads() for array in counted] == [1, 1]
        blocks = -(-600 // size)
        assert len(tasks.keys) <= 1.2 * blocks + 3
        assert (found.smallest, found.largest) == pytest.approx((reference.smallest, reference.largest), rel=1e-12)
        assert found.index_range == pytest.approx(reference.index_range, rel=1e-14)
    one = nlis.sandwich(SWISH, da.from_array(X, (cut(600, (1, 300, 2)), 3)), THETA)
    assert (one.smallest, one.largest) == pytest.approx((reference.smallest, reference.largest), rel=1e-12)


def test_weights_and_missing_rows(rng):
    weight = rng.integers(0, 3, 600) * 1.0
    found = nlis.sandwich(SWISH, X, THETA, sample_weight=weight)
    kept = np.repeat(np.arange(600), weight.astype(int))
    repeated = nlis.sandwich(SWISH, X[kept], THETA)
    assert (found.smallest, found.largest) == pytest.approx((repeated.smallest, repeated.largest), rel=1e-12)
    assert found.index_range == pytest.approx(repeated.index_range, rel=1e-14)
    assert found.n_rows == (weight > 0).sum()
    assert found.active_share == 1.0
    x = X.copy()
    x[5, 1], x[100:150] = np.nan, np.inf
    x[6] *= 1e3
    kept = np.isfinite(x).all(axis=1)
    dropped = nlis.sandwich(SWISH, da.from_array(x, (50, 3)), THETA, missing="drop")
    without = nlis.sandwich(SWISH, x[kept], THETA)
    assert dropped.n_rows == without.n_rows == kept.sum()
    assert dropped.index_range == pytest.approx(without.index_range, rel=1e-14)
    assert (dropped.smallest, dropped.largest) == pytest.approx((without.smallest, without.largest), rel=1e-12)
    with pytest.raises(nlis.NonFiniteError, match="row 5"):
        nlis.sandwich(SWISH, x, THETA)


def test_kernels_run_on_another_device(monkeypatch):
    gpu = FakeGPU()
    expected = nlis.sandwich(SWISH, X, THETA, Y, sample_weight=np.abs(Y))
    monkeypatch.setattr(device, "opened", gpu.opened)
    found = nlis.sandwich(SWISH, X, THETA, Y, sample_weight=np.abs(Y))
    assert (found.smallest, found.largest) == pytest.approx((expected.smallest, expected.largest), rel=1e-12)
    assert found.index_range == pytest.approx(expected.index_range, rel=1e-14)
    assert gpu.transfers() == (3, 1, 1)  # X, y and the weights; theta; the factor


def test_what_has_no_bounds_is_refused_before_the_read():
    counted = CountingArray(X)
    custom = nlis.Problem(nlis.Linear(), LOSSES["custom"])
    for problem, theta, y, text in (
        (custom, THETA, Y, "CustomLoss"),
        (nlis.Problem(nlis.ReluNetwork(2, per_unit=True)), np.ones(8), None, "single index"),
        (SWISH, np.ones(3), None, "theta"),
    ):
        with pytest.raises(nlis.InputError, match=text) as caught:
            nlis.sandwich(problem, counted.dask(100), theta, y)
        assert len(str(caught.value)) <= 300
    assert counted.reads() == 0
    with pytest.raises(nlis.InputError, match="all gradients"):
        nlis.sandwich(nlis.Problem(nlis.SingleIndex(nlis.Tanh(), intercept=False)), np.zeros((5, 2)), [1.0, 1.0])


def test_few_rows_warn():
    with pytest.warns(nlis.UnderdeterminedWarning, match="n=3 rows are fewer than p=4"):
        found = nlis.sandwich(SWISH, X[:3], THETA)
    assert found.rank == 3
    assert found.holds


def test_it_reads_like_an_inequality():
    found = nlis.sandwich(SWISH, X, THETA)
    text = repr(found)
    places = [text.index(f"{name}=") for name in ("lower", "smallest", "largest", "upper", "holds=True")[:4]]
    assert places == sorted(places)
    assert "holds=True" in text
    assert "constants=(1.0, 2.0)" in text
    assert len(text) < 250
    assert found.beta == found.lower / found.upper
    assert nlis.sandwich(nlis.Problem(nlis.SingleIndex(nlis.Cos())), X, THETA).beta == 0.0
