"""Kernels give what NumPy gives in every array namespace, and the R factor and the rank obey their rules."""

import importlib

import numpy as np
import pytest
from tables import ACTIVATIONS, LABELS, LOSSES, MODELS, PAIRS, allowed

from dask_nlis import Problem
from dask_nlis.device import probe
from dask_nlis.kernels import linalg, products, special
from dask_nlis.kernels.complement import inside, outside_share
from dask_nlis.kernels.sketch import STREAMS, entries, sketch_size, sketched
from dask_nlis.matrix import Dual, Plain, Reference
from dask_nlis.problem import (
    dual_rows,
    dual_squared_norms,
    loss_gradients,
    reference_rows,
    reference_squared_norms,
    tangent_rows,
)
from dask_nlis.scores import gradient_lengths

_GPU = [] if isinstance(probe(), str) else [pytest.param("cupy", marks=pytest.mark.gpu)]


@pytest.fixture(params=["array_api_strict", *_GPU])
def xp(request):
    """A namespace other than NumPy: the strictest there is, and CuPy where this process has a GPU."""
    return importlib.import_module(request.param)


def _fetch(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _same(xp, function, *arrays):
    """The function gives the same numbers on NumPy arrays and on arrays of the namespace, and stays in each."""
    arrays = [None if a is None else np.asarray(a, dtype=np.float64) for a in arrays]
    expected = function(*arrays)
    got = function(*(None if a is None else xp.asarray(a) for a in arrays))
    assert isinstance(expected, np.ndarray)
    assert type(got) is type(xp.zeros(1))
    size = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(_fetch(got), expected, rtol=1e-13, atol=1e-14 * size)


@pytest.mark.parametrize("method", ["value", "derivative", "second_derivative", "secant"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_numpy(name, method, xp):
    t = np.array([0.0, 1e-300, -1e-17, 1e-8, 0.3, -2.0, 30.0, -800.0, 1e4])
    activation = ACTIVATIONS[name].activation
    _same(xp, getattr(activation, method), t[t <= activation.domain[1]])


@pytest.mark.parametrize("method", ["value", "derivative", "curvature", "root", "root_slope"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_numpy(name, method, xp, rng):
    arrays = rng.normal(size=(3 if method == "root_slope" else 2, 20))
    _same(xp, getattr(LOSSES[name], method), *arrays)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_rows_of_matrices_and_their_norms_agree_with_numpy(model, loss, labels, xp, rng):
    problem = Problem(MODELS[model], LOSSES[loss])
    x, theta = rng.normal(size=(15, 3)), rng.normal(size=problem.model.n_parameters(3))
    y = allowed(problem.loss, LABELS[labels](x[:, 0], rng))
    y = y if y is None else np.clip(y, -1e150, 1e150)  # beyond that the squares overflow on every device
    _same(xp, lambda t, x, y: dual_rows(problem, t, x, y), theta, x, y)
    _same(xp, lambda t, x, y: dual_squared_norms(problem, t, x, y), theta, x, y)
    _same(xp, lambda x, y: reference_rows(problem, x, y), x, y)
    _same(xp, lambda x, y: reference_squared_norms(problem, x, y), x, y)
    for rule in (Plain(), Reference(problem), Dual(problem, theta)):
        _same(xp, rule.rows, x, y)
        _same(xp, rule.squared_norms, x, y)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 5), (5, 5), (40, 4)])
def test_linear_algebra_agrees_with_numpy(shape, xp, rng):
    a, w = rng.normal(size=shape), rng.normal(size=(shape[1], 2))
    _same(xp, linalg.r_factor, a)
    _same(xp, linalg.squared_row_norms, a)
    _same(xp, linalg.leverage, a, w)
    _same(xp, lambda *parts: linalg.merge_r(parts), *(linalg.r_factor(rng.normal(size=shape)) for _ in range(20)))
    _same(xp, products.gram, a)
    _same(xp, linalg.leverage, a, w, rng.normal(size=(2, 2)))
    _same(xp, gradient_lengths, a, w)
    outward = np.linalg.qr(rng.normal(size=(shape[1], 1)))[0]
    _same(xp, inside, a, outward)
    _same(xp, outside_share, np.vstack([a, np.zeros(shape[1])]), outward)
    size = sketch_size(shape[1])
    nonzeros = entries(STREAMS[0], 5, shape[0], size)
    _same(xp, lambda rows: sketched(rows, *nonzeros, size), a)


@pytest.mark.parametrize("name", ["expit", "erf", "normal_cdf", "normal_density"])
def test_special_functions_agree_with_scipy(name, xp):
    _same(xp, getattr(special, name), np.array([0.0, 1e-300, -1e-8, 0.3, -2.0, 8.0, -30.0, 800.0, -1e200]))


@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_gradients_and_tangent_rows_agree_with_numpy(model, loss, xp, rng):
    problem = Problem(MODELS[model], LOSSES[loss])
    x, theta = rng.normal(size=(15, 3)), rng.normal(size=problem.model.n_parameters(3))
    y = allowed(problem.loss, rng.normal(size=15))
    _same(xp, lambda t, x, y: loss_gradients(problem, t, x, y), theta, x, y)
    _same(xp, lambda t, x, y: tangent_rows(problem, t, x, y), theta, x, y)
    _same(xp, lambda t, x, y: problem.loss.value(problem.model.predict(t, x), y), theta, x, y)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 5), (5, 5), (40, 4), (2, 1)])
def test_r_factor_is_upper_triangular_with_the_gram_matrix_of_its_rows(shape, rng):
    a = rng.normal(size=shape)
    a[:, 0] = np.abs(a[:, 0])  # an R of LAPACK has a negative first entry then
    r = linalg.r_factor(a)
    assert r.shape == (shape[1], shape[1])
    np.testing.assert_array_equal(np.tril(r, -1), 0.0)
    assert np.all(np.diagonal(r) >= 0)
    np.testing.assert_allclose(r.T @ r, a.T @ a, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("pieces", [1, 2, 15, 16, 17, 33, 300])
def test_merged_r_factors_are_the_r_factor_of_all_rows(pieces, rng):
    a = rng.normal(size=(900, 4))
    merged = linalg.merge_r(linalg.r_factor(piece) for piece in np.array_split(a, pieces))
    np.testing.assert_allclose(merged, linalg.r_factor(a), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("exponent", [-1030, -1010, -400, -1, 0, 1, 400, 1019])
def test_column_scale_is_a_power_of_two_that_brings_norms_between_a_half_and_one(exponent, rng):
    r = np.ldexp(np.triu(rng.integers(1, 8, size=(4, 4))).astype(float), [0, exponent, 3, 0])
    r[:, 3] = 0.0
    scale = linalg.spectrum(r).column_scale
    assert np.all(np.isfinite(scale))
    assert scale[3] == 1.0
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    norms = np.linalg.norm(r * scale, axis=0)[:3]
    if exponent == -1030:  # no float64 brings a subnormal column that far up
        norms = np.delete(norms, 1)
    assert np.all((norms >= 0.5) & (norms < 1.0))


# [[1, 1], [0, delta]] has relative singular values 1 and delta / 2 (to order delta^2); p = 2, so tol = 4.4e-15.
@pytest.mark.parametrize(
    ("delta", "rank", "ambiguous"),
    [
        (0.0, 1, False),  # an exact dependency
        (1e-15, 1, False),  # below max(tol / 10, 8 eps): rounding leaves this much
        (6e-15, 1, True),  # dropped, and suspiciously large for rounding
        (2e-14, 2, True),  # kept, close above tol
        (6e-12, 2, True),  # kept, below 1000 tol
        (2e-11, 2, False),  # kept, above 1000 tol
        (1.0, 2, False),
    ],
)
def test_rank_and_its_ambiguity_follow_the_tolerance(delta, rank, ambiguous):
    r = np.array([[1.0, 1.0], [0.0, delta]])
    decided = linalg.spectrum(r)
    assert decided.rank == rank
    assert bool(decided.ambiguous) is ambiguous
    np.testing.assert_allclose(decided.singular_values[1] / decided.singular_values[0], delta / 2, rtol=0.6, atol=2e-16)


def test_whitener_makes_r_orthonormal_and_the_null_space_is_its_kernel(rng):
    r = linalg.r_factor(rng.normal(size=(30, 3)) @ rng.normal(size=(3, 5)) * [1.0, 1e-9, 1e6, 1.0, 1e3])
    decided = linalg.spectrum(r)
    assert decided.rank == 3
    q = r @ decided.whitener
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-12)
    scaled = r * decided.column_scale
    assert np.abs(scaled @ decided.null_space).max() < 1e-14
    assert decided.condition == pytest.approx(decided.singular_values[0] / decided.singular_values[2])
