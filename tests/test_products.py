"""Products with half the work, rows written once, and networks' norms: the same numbers, without the copies."""

import tracemalloc

import array_api_strict
import dask
import numpy as np
import pytest
from counting import rows_of, same_bits
from nets import RECTIFIED

import dask_nlis as nlis
from dask_nlis.factor.gram import gram_block
from dask_nlis.kernels import linalg, products
from dask_nlis.kernels.joined import joined
from dask_nlis.matrix import as_matrix, tasks
from dask_nlis.problem import dual_rows, reference_rows, tangent_rows
from dask_nlis.scores import norms
from dask_nlis.scores.leverage import leverage_block
from dask_nlis.scores.norms import norm_block

EPS = np.finfo(np.float64).eps
SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


def unknown_where_y_is_large(prediction, y):
    return np.where(y > 1e6, np.nan, (prediction - y) ** 2)


def twice(prediction, y):
    return 2 * (prediction - y)


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


# -- products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (40, 4), (700, 30)])
def test_the_lower_triangle_of_a_gram_matrix_is_that_of_the_whole(shape, rng):
    a = rng.normal(size=shape)
    exact = array_api_strict.asarray(a)
    found = products.lower_gram(a)
    np.testing.assert_allclose(found, np.tril(a.T @ a), rtol=1e-13, atol=1e-13 * shape[0])
    np.testing.assert_allclose(products.mirrored(found), np.asarray(products.lower_gram(exact)), rtol=1e-13, atol=1e-12)
    assert same_bits(products.mirrored(found), products.mirrored(found).T)


@pytest.mark.parametrize("zero", [(), (0,), (4,), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("m", [1, 7, 50])
def test_a_triangular_factor_gives_the_product_with_and_without_room(zero, m, rng):
    kept = [k for k in range(5) if k not in zero]
    w = np.zeros((5, len(kept)))
    w[kept] = np.triu(rng.normal(size=(len(kept),) * 2))
    rows, target = rng.normal(size=(m, 5)), products.triangular(w)
    assert isinstance(target, products.Triangular)
    given = rows.copy()
    for room in (None, np.full((60, 5), np.nan)):
        np.testing.assert_allclose(products.times(rows, target, room), rows @ w, rtol=1e-13, atol=1e-15)
        h = linalg.leverage(rows, target, room=room)
        np.testing.assert_allclose(h, ((rows @ w) ** 2).sum(axis=1), rtol=1e-13)
        assert same_bits(rows, given)  # rows that are not in the room are left alone
    room[:m] = rows
    np.testing.assert_allclose(products.times(room[:m], target, room), rows @ w, rtol=1e-13, atol=1e-15)
    c = rng.normal(size=(len(kept),) * 2)
    for correction in (c, products.triangular(np.triu(c))):
        dense = getattr(correction, "values", correction)
        found = linalg.whitened(rows, target, correction, room=np.empty((m, 5)))
        np.testing.assert_allclose(found, rows @ w @ dense, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("entry", [(2, 0), (4, 3)])
def test_a_factor_with_one_entry_below_the_diagonal_is_multiplied_whole(entry, rng):
    w = np.triu(rng.normal(size=(5, 5)))
    w[entry] = 1e-300
    assert products.triangular(w) is w
    assert products.triangular(w[:, :3]) is not None
    wide = np.zeros((5, 2))
    wide[:3] = rng.normal(size=(3, 2))  # more nonzero rows than columns
    assert products.triangular(wide) is wide
    other = array_api_strict.asarray(np.eye(3))
    assert products.triangular(other) is other


@pytest.mark.parametrize("column", [0, 2, 4])
def test_a_number_that_is_none_spreads_to_the_leverage_also_where_the_factor_is_zero(column, rng):
    w = np.zeros((5, 4))
    w[:4] = np.triu(rng.normal(size=(4, 4)))  # column 4 has no part in it
    rows = rng.normal(size=(3, 5))
    rows[1, column] = np.nan
    h = linalg.leverage(rows, products.triangular(w))
    np.testing.assert_array_equal(np.isnan(h), [False, True, False])


# -- whiteners ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kappa", "method", "used"),
    [
        (10.0, "auto", "gram"),
        (1e5, "auto", "cholesky-qr2"),
        (1e9, "auto", "tsqr"),
        (10.0, "sketch", "sketch"),
        (1e9, "sketch", "sketch"),
    ],
)
@pytest.mark.parametrize("zero", [False, True])
def test_whiteners_of_cholesky_factors_are_triangular_and_whiten(kappa, method, used, zero, rng):
    n, p = 900, 12
    left, right = (np.linalg.qr(rng.normal(size=(k, p)))[0] for k in (n, p))
    scale = np.ldexp(1.0, rng.integers(-300, 300, p))
    F = (left * np.geomspace(1, 1 / kappa, p) @ right) * scale
    if zero:
        F[:, 5] = 0.0
    factor = nlis.factorize(F, method=method)
    assert (factor.method, factor.rank) == (used, p - zero)
    white = linalg.whitened(F, factor.whitener, factor.correction)
    np.testing.assert_allclose(white.T @ white, np.eye(p - zero), atol=100 * min(factor.condition, 1e4) * EPS)
    for part in (factor.whitener, factor.correction):
        if part is not None and used != "tsqr":
            assert isinstance(products.triangular(part), products.Triangular)
    r, rows = factor.r / scale, F / scale
    np.testing.assert_allclose(r.T @ r, rows.T @ rows, atol=1e-13)
    again = nlis.Factor.from_dict(factor.to_dict())
    assert same_bits(again.whitener, factor.whitener)


# -- rows written once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("labels", [True, False])
def test_rows_in_a_buffer_have_the_bits_of_rows_joined_from_copies(labels, intercept, rng):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh(), intercept=intercept), nlis.PseudoHuber(1.3))
    x, theta = rng.normal(size=(40, 6)), rng.normal(size=6 + intercept)
    x[3] = 0.0
    y = rng.normal(size=40) if labels else None
    strict = [None if a is None else array_api_strict.asarray(a) for a in (theta, x, y)]
    room = np.full((50, 6 + intercept + 1), np.nan)
    for make, arguments, other in (
        (dual_rows, (theta, x, y), strict),
        (reference_rows, (x, y), strict[1:]),
        *(((tangent_rows, (theta, x, y), strict),) if labels else ()),
    ):
        copied = np.asarray(make(problem, *other))
        space = room[:, : copied.shape[1]].copy()
        found = make(problem, *arguments, space)
        assert found.base is space
        assert same_bits(make(problem, *arguments), found)
        assert np.isnan(space[40:]).all()
        np.testing.assert_allclose(found, copied, rtol=4 * EPS, atol=1e-300)  # functions differ by namespace, at most
    factor, last = rng.normal(size=40), rng.normal(size=40)
    copied = joined(*(array_api_strict.asarray(a) for a in (x, factor, last)), constant=intercept)
    np.testing.assert_array_equal(joined(x, factor, last, constant=intercept), np.asarray(copied))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("kind", "weighted"),
    [("plain", False), *((kind, weighted) for kind in ("reference", "dual", "tangent") for weighted in (True, False))],
)
def test_the_buffer_of_a_block_is_used_by_sub_block_after_sub_block(kind, weighted, dtype, monkeypatch):
    x, y = rows_of(7, 400, 3)
    x = x.astype(dtype)
    weight = np.where(np.arange(400) % 5, np.linspace(0.5, 2, 400), 0.0) if weighted else None
    x[10] = np.nan if weighted else x[10]  # a row of weight 0
    missing = {"missing": "drop"} if weighted else {}
    theta = np.linspace(-0.3, 0.4, 4)
    A = {
        "plain": lambda: as_matrix(x),
        "reference": lambda: nlis.reference_matrix(SWISH, x, y, sample_weight=weight, **missing),
        "dual": lambda: nlis.dual_matrix(SWISH, x, y, theta=theta, sample_weight=weight, **missing),
        "tangent": lambda: nlis.tangent_matrix(SWISH, x, y, theta=theta, sample_weight=weight, **missing),
    }
    A = A[kind]()
    before = x.tobytes()
    F = A.to_dask_array().compute()
    assert np.isfinite(F).all()
    monkeypatch.setattr(tasks, "sub_block_rows", lambda *a, **k: 37)  # eleven sub-blocks, the last one shorter
    given = (x, None if kind == "plain" else y, weight, 0)
    (total,) = gram_block(*given, job=A.job).ravel()
    np.testing.assert_allclose(total.values, F.T @ F, rtol=1e-12, atol=1e-12)
    factor = nlis.factorize(A)
    pair = (factor.whitener, factor.correction)
    h = leverage_block(*given, job=A.job, whitener=pair, tolerance=1e-9)
    np.testing.assert_allclose(h, linalg.leverage(F, np.linalg.inv(np.linalg.qr(F)[1])), rtol=1e-9, atol=1e-14)
    (again,) = gram_block(*given, job=A.job, whitener=factor.whitener).ravel()
    np.testing.assert_allclose(again.values, np.eye(factor.rank), atol=1e-12)
    found = norm_block(*given, job=A.job, log2_scale=0)
    np.testing.assert_allclose(found, (F**2).sum(axis=1), rtol=1e-13)
    assert x.tobytes() == before  # rows of a plain matrix are the block itself


def test_rows_that_overflow_are_named_although_their_buffer_was_overwritten(rng):
    x, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    factor = nlis.factorize(nlis.reference_matrix(SWISH, x, y))
    x[217] = [1e308, 1e308, 1e308]
    problem = nlis.Problem(nlis.Linear())
    A = nlis.dual_matrix(problem, x, y, theta=[1e5, 1e5, 1e5, 0.0])
    for whitener in (None, factor.whitener):
        (found,) = gram_block(x, y, None, 40, job=A.job, whitener=whitener).ravel()
        assert (found.finding.n_bad, found.finding.row) == (1, 257)


def test_rows_of_no_weight_stay_zero_beside_one_that_overflows(rng):
    x, weight = rng.normal(size=(60, 3)), np.zeros(60)
    x[11], weight[[11, 40]] = 1e308, 1.0  # the first row that counts stands in for those that do not
    A = nlis.dual_matrix(nlis.Problem(nlis.Linear()), x, x[:, 0], theta=[1e5, 1e5, 1e5, 0.0], sample_weight=weight)
    with pytest.raises(nlis.NonFiniteError, match=r"at row 11, overflows in the model \(1 row in"):
        leverage_block(x, x[:, 0], weight, 0, job=A.job, whitener=(np.eye(5), None), tolerance=1e-9)


# -- norms of networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("name", RECTIFIED)
def test_norms_of_a_network_are_those_of_its_rows(name, labels, rng):
    model = RECTIFIED[name]
    x, y = rows_of(8, 900, 4)
    x[5] = 0.0  # every unit is off, but for biases
    theta = rng.normal(size=model.n_parameters(4))
    y = y if labels else None
    A = nlis.dual_matrix(nlis.Problem(model), x, y, theta=theta)
    rows = A.to_dask_array().compute()
    found = norm_block(x, y, None, 1, job=A.job, log2_scale=0)
    np.testing.assert_allclose(found, (rows**2).sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("per_unit", [True, False])
def test_norms_of_a_network_form_no_rows_but_those_of_dead_units(per_unit, monkeypatch, rng):
    d, units, n = 40, 30, 4_000
    model = nlis.ReluNetwork(units, nlis.Tanh(), per_unit=per_unit)
    x = np.abs(rng.normal(size=(n, d)))
    dead = np.array([17, 700, 701, 3999])
    x[dead] *= -1.0
    theta = model.pack(a=rng.normal(size=units), b=np.abs(rng.normal(size=(units, d))) / d)
    A = nlis.dual_matrix(nlis.Problem(model), x, theta=theta)  # without labels: rows of dead units are zero
    formed = []
    real = tasks.matrix_rows
    monkeypatch.setattr(norms, "matrix_rows", lambda leaf, job: formed.append(leaf.x.shape[0]) or real(leaf, job))
    job, names = A.job, A.columns
    tracemalloc.start()
    try:
        found = norm_block(x, None, None, 1, job=job, log2_scale=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(formed) == len(dead)
    np.testing.assert_array_equal(np.flatnonzero(found == 0), dead)
    assert peak < 8 * n * len(names) / 4  # n p numbers would be 39 MB
    expected = (dual_rows(nlis.Problem(model), theta, x[:50], None) ** 2).sum(axis=1)
    np.testing.assert_allclose(found[:50], expected, rtol=1e-13)


def test_a_row_of_a_network_that_overflows_is_named_by_its_number(rng):
    model = nlis.ReluNetwork(30)
    x = rng.normal(size=(5_000, 40))
    x[4321] = 1e300
    x[100] = 0.0  # beside it in the sub-block of rows that are formed
    theta = np.abs(model.pack(a=1e10 * rng.normal(size=30), b=rng.normal(size=(30, 40))))
    A = nlis.dual_matrix(nlis.Problem(model), x, theta=theta)
    with pytest.raises(nlis.NonFiniteError, match=r"row 4321, overflows in the model"):
        nlis.norm_scores(A)


def test_a_loss_that_is_no_number_for_a_row_of_a_network_is_named_by_the_number_of_that_row(rng):
    loss = nlis.CustomLoss(unknown_where_y_is_large, twice)
    model, (x, y) = nlis.ReluNetwork(30), rows_of(9, 5_000, 40)
    y[[3210, 4000]] = 1e7
    A = nlis.dual_matrix(nlis.Problem(model, loss), x, y, theta=rng.normal(size=model.n_parameters(40)))
    with pytest.raises(nlis.NonFiniteError, match=r"value .* returned NaN at row 3210, .*\(2 rows"):
        norm_block(x, y, None, 0, job=A.job, log2_scale=0)


def test_a_warning_of_scale_costs_a_megabyte_of_rows(monkeypatch, rng):
    model = nlis.ReluNetwork(30)
    x = rng.normal(size=(4_000, 40))
    theta = model.pack(a=1e-6 * rng.normal(size=30), b=rng.normal(size=(30, 40)))
    A = nlis.dual_matrix(nlis.Problem(model), x, rng.normal(size=4_000), theta=theta)
    formed = []
    real = tasks.matrix_rows
    monkeypatch.setattr(norms, "matrix_rows", lambda leaf, job: formed.append(leaf.x.shape[0]) or real(leaf, job))
    nlis.norm_scores(A)
    assert formed == [2**20 // (8 * len(A.columns))]  # a megabyte of them
