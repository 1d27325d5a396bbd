"""Leverage against exact arithmetic: random matrices of any condition, NIST's regressions, matrices built to break things.

The oracle is the definition, a' (F'F)^-1 a, in integers of any length: float64 entries are integers once a power
of two is taken out of each column, and leverage does not see that. Not a digit is rounded before the end.
"""

import csv
import math
import warnings
from pathlib import Path

import dask
import dask.array as da
import mpmath as mp
import numpy as np
import pytest
from statsmodels.datasets.longley import load as load_longley

import dask_nlis as nlis

EPS = np.finfo(np.float64).eps
METHODS = ("auto", "tsqr", "sketch")


def whole(F):
    """The entries as Python integers, columns multiplied by powers of two."""
    mantissa, exponent = np.frexp(F)
    used = F != 0
    low = np.where(used, exponent, 2**20).min(axis=0)
    shifts = np.where(used, exponent - low, 0)
    return np.array(
        [
            [int(m * 2**53) << int(k) for m, k in zip(row, shift, strict=True)]
            for row, shift in zip(mantissa, shifts, strict=True)
        ],
        dtype=object,
    )


def exact_leverage(F):
    """a_i' (F'F)^-1 a_i of independent columns, by Gauss-Jordan elimination without fractions (Bareiss 1968)."""
    A = whole(np.asarray(F, dtype=np.float64))
    p = A.shape[1]
    table = np.concatenate([A.T @ A, np.array([[int(i == j) for j in range(p)] for i in range(p)], dtype=object)], 1)
    before = 1
    for k in range(p):
        pivot = table[k, k]
        for i in range(p):
            if i != k:
                table[i] = (pivot * table[i] - table[i, k] * table[k]) // before
        before = pivot
    return np.array([int(v) / int(before) for v in ((A @ table[:, p:]) * A).sum(axis=1)])


def scored(F, method="auto", chunks=None):
    """Leverage scores of a plain matrix, and its factor."""
    if chunks is not None:
        F = da.from_array(F, chunks=(chunks, F.shape[1]))
    factor = nlis.factorize(F, method=method)
    return np.asarray(nlis.leverage_scores(F, factor)), factor


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def conditioned(rng, n, p, kappa):
    """A matrix whose singular vectors know nothing of its columns, so that scaling does not help."""
    left, _ = np.linalg.qr(rng.normal(size=(n, p)))
    right, _ = np.linalg.qr(rng.normal(size=(p, p)))
    return left * np.geomspace(1, 1 / kappa, p) @ right


def test_the_oracle_is_what_mpmath_gives(rng):
    F = conditioned(rng, 20, 4, 1e6) * [1.0, 1e-200, 1e200, 3.0]
    with mp.workdps(900):
        rows = mp.matrix(F.tolist())
        inverse = (rows.T * rows) ** -1
        h = [float((rows[i, :] * inverse * rows[i, :].T)[0]) for i in range(len(F))]
    np.testing.assert_allclose(exact_leverage(F), h, rtol=1e-15)
    assert math.fsum(exact_leverage(F)) == pytest.approx(4, abs=1e-15)


@pytest.mark.parametrize("shape", [(240, 8), (60, 5), (90, 12)])
@pytest.mark.parametrize("kappa", [1.0, 1e3, 1e6, 1e9, 1e11, 1e12])
def test_error_stays_below_ten_kappa_eps(kappa, shape):
    for seed in range(30):
        F = conditioned(np.random.default_rng(seed), *shape, kappa)
        exact = exact_leverage(F)
        for method in METHODS if seed < 5 else METHODS[:1]:
            with warnings.catch_warnings():
                # Expected from 1e11 on: singular values come within 1000 tolerances.
                warnings.simplefilter("ignore" if kappa >= 1e11 else "error", nlis.RankAmbiguityWarning)
                h, factor = scored(F, method, chunks=None if seed % 2 else 37)
            assert factor.rank == shape[1]
            assert kappa / 10 <= factor.condition < 2.1 * kappa  # norms in [0.5, 1), not 1
            np.testing.assert_allclose(h, exact, atol=10 * factor.condition * EPS, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", range(13))
def test_rank_ambiguity_is_warned_of_from_a_condition_of_1e11_and_never_before(exponent, method, rng):
    p = 24  # 1000 tolerances are 1000 * 10 * 24 eps = 5e-11
    F = conditioned(rng, 100, p, 10.0**exponent)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        factor = nlis.factorize(F, method=method)
    assert factor.rank == p
    assert [w.category for w in caught] == [nlis.RankAmbiguityWarning] * (exponent >= 11)


def filip():
    """82 x-values of NIST's Filip, as powers 0 ... 10."""
    with (Path(__file__).parent / "data" / "filip.csv").open() as file:
        table = csv.DictReader(line for line in file if not line.startswith("#"))
        x = np.array([float(row["x"]) for row in table])
    return x[:, None] ** np.arange(11)


def test_the_filip_matrix_is_that_of_the_literature():
    assert filip().shape == (82, 11)
    assert np.linalg.cond(filip()) == pytest.approx(1.7679667695e15, rel=1e-5)


def longley():
    return np.column_stack([np.ones(16), load_longley().exog.to_numpy()])


#: NIST's regressions that cost digits: the matrix, and the largest relative error.
REGRESSIONS = {
    "Longley": (longley, 1e-11),
    "Wampler": (lambda: np.arange(21.0)[:, None] ** np.arange(6), 1e-12),
    "Filip": (filip, 1e-7),
}


@pytest.mark.parametrize("chunks", [None, 5])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_of_nist(name, method, chunks):
    build, bound = REGRESSIONS[name]
    F = build()
    h, factor = scored(F, method, chunks)
    assert factor.rank == F.shape[1]  # numpy.linalg.matrix_rank finds 10 of Filip's 11
    np.testing.assert_allclose(h, exact_leverage(F), rtol=bound)


def _lonely(rng):
    F = rng.normal(size=(240, 6))
    F[:, 3] = 0.0
    F[6, 3] = 1e-8
    return F


def _graded(rng):
    return rng.normal(size=(240, 6)) * np.geomspace(1, 1e-100, 240)[:, None]


def _with_zero_rows(rng):
    F = rng.normal(size=(240, 6))
    F[10:20] = 0.0
    return F


def _appended(column):
    def build(rng):
        F = rng.normal(size=(240, 5))
        return np.column_stack([F, column(F)])

    return build


def _times_1e10(rng):
    F = rng.normal(size=(240, 6))
    F[17] *= 1e10
    return F


def _groups(rng):
    group = rng.integers(0, 5, size=240)
    return np.column_stack([np.ones(240), group[:, None] == np.arange(5), rng.random(240)]).astype(float)


#: The matrix, and the columns that span it (None: all of them; what the others add is rounding).
SPECIAL = {
    "zero rows": (_with_zero_rows, None),
    "sum of columns": (_appended(lambda F: F.sum(axis=1)), 5),
    "combination of columns": (_appended(lambda F: F @ [1.7, -0.3, 1e3, 1e-3, 0.1]), 5),
    "duplicate column": (_appended(lambda F: F[:, 2]), 5),
    "duplicate column in other units": (_appended(lambda F: -1e-9 * F[:, 2]), 5),
    "zero column": (_appended(lambda F: 0 * F[:, 0]), 5),
    "one-hot and intercept": (_groups, (0, 1, 2, 3, 4, 6)),
    "one row times 1e10": (_times_1e10, None),
    "h exactly 1 by a lonely 1e-8": (_lonely, None),
    "rows graded to 1e-100": (_graded, None),
    "one row": (lambda rng: rng.normal(size=(1, 1)), None),
    "one column": (lambda rng: rng.normal(size=(50, 1)), None),
    "square": (lambda rng: rng.normal(size=(6, 6)), None),
}


def _spanning(F, columns):
    return F if columns is None else F[:, :columns] if isinstance(columns, int) else F[:, list(columns)]


@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150, 1e200, 1e-200])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrices_have_the_right_rank_and_scores_to_1e_12(name, method, scale, rng):
    build, columns = SPECIAL[name]
    F = build(rng) * scale
    basis = _spanning(F, columns)
    h, factor = scored(F, method, 50)
    assert factor.rank == basis.shape[1]
    np.testing.assert_allclose(h, exact_leverage(basis), atol=1e-12, rtol=0)
    if method != "tsqr" and factor.rank < F.shape[1]:
        assert factor.method == "tsqr" or name == "zero column"


@pytest.mark.parametrize("method", METHODS)
def test_an_offset_of_a_million_costs_kappa_eps_and_no_more(method, rng):
    F = np.column_stack([np.ones(240), 1e6 + rng.normal(size=240)])
    h, factor = scored(F, method)
    assert factor.rank == 2
    np.testing.assert_allclose(h, exact_leverage(F), atol=10 * factor.condition * EPS, rtol=0)


@pytest.mark.parametrize("columns", [slice(None), slice(2, 4), slice(0, 1)], ids=["all", "two", "one"])
@pytest.mark.parametrize("scale", [1e-310, 1e-306, 1e305])
@pytest.mark.parametrize("method", [*METHODS, "gram"])
def test_columns_at_the_ends_of_float64_are_columns_as_any_other(method, scale, columns, rng):
    F = rng.normal(size=(240, 6))
    F[:, columns] *= scale  # subnormal entries are rounded here, before the oracle sees them
    h, factor = scored(F, method, 50)
    assert factor.rank == 6
    np.testing.assert_allclose(h, exact_leverage(F), atol=1e-12, rtol=0)
    assert np.isfinite(factor.whitener).all()


@pytest.mark.parametrize("exponents", [500, -500, 660, -660, [300, -700, 0, 800, -3, 1]], ids=str)
@pytest.mark.parametrize("kappa", [3.0, 1e5, 1e10])
@pytest.mark.parametrize("method", METHODS)
def test_powers_of_two_on_the_columns_change_no_bit(method, kappa, exponents, rng):
    F = conditioned(rng, 240, 6, kappa)
    h, factor = scored(F, method, 50)
    scaled, other = scored(np.ldexp(F, exponents), method, 50)
    np.testing.assert_array_equal(scaled, h)
    assert (other.method, other.reads, other.condition) == (factor.method, factor.reads, factor.condition)
    np.testing.assert_array_equal(other.r, np.ldexp(factor.r, exponents))


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_unequal_scale_add_up(method, rng):
    # Exponents differ from block to block, and from sub-block to sub-block of the one large block.
    F = rng.normal(size=(90_000, 4))
    F[:30_000, 0] = 0.0
    F[20_000:, 1] *= 1e-200
    F[:50_000] *= 1e-180
    F[5] = [0.0, 0.0, 3e200, 0.0]
    u = np.linalg.svd(F / np.abs(F).max(axis=0), full_matrices=False)[0]
    for chunks in (90_000, 13_000):
        h, factor = scored(F, method, chunks)
        assert factor.rank == 4
        np.testing.assert_allclose(h, (u**2).sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int16"])
@pytest.mark.parametrize("kappa", [1.0, 1e3])
def test_narrow_input_is_computed_in_float64(dtype, kappa, method, rng):
    F = (1000 * conditioned(rng, 240, 5, kappa)).astype(dtype)
    h, factor = scored(F, method, 50)
    same, _ = scored(F.astype(np.float64), method, 50)
    np.testing.assert_array_equal(h, same)
    np.testing.assert_allclose(h, exact_leverage(F), atol=10 * factor.condition * EPS, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [1e-15, 6e-15, 2e-14, 1e-10])
def test_the_rank_decision_does_not_change_when_all_rows_are_repeated_a_thousand_times(delta, method):
    F = np.array([[1.0, 1.0], [0.0, delta], [1.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.RankAmbiguityWarning)
        h, factor = scored(F, method)
        many, other = scored(np.tile(F, (1000, 1)), method, 700)
    assert other.rank == factor.rank == (1 if delta < 8.9e-15 else 2)  # tolerance 4.4e-15 against delta / 2
    np.testing.assert_allclose(many[:3] * 1000, h, atol=10 * factor.condition * EPS + 1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 3, 4])
def test_fewer_rows_than_columns_give_one_on_every_independent_row(n, chunks, method, rng):
    F = rng.normal(size=(n, 6))
    h, factor = scored(F, method, chunks)
    np.testing.assert_allclose(h, 1.0, atol=1e-12)
    assert (factor.rank, factor.method) == (n, "tsqr")
    assert factor.reads == (2 if method == "sketch" else 1)
