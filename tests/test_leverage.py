"""Leverage is the diagonal of F F^+ whatever the chunks, order, units, basis, rank and condition of F."""

import dask.array as da
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from statsmodels.datasets.longley import load as load_longley

import dask_nlis as nlis
from dask_nlis.kernels.linalg import leverage, spectrum

EPS = np.finfo(np.float64).eps


def hat_diagonal(F):
    """diag(F F^+) by the dense pseudo-inverse, columns brought to unit norm first."""
    norms = np.linalg.norm(F, axis=0)
    F = F / np.where(norms > 0, norms, 1.0)
    return np.einsum("ij,ji->i", F, np.linalg.pinv(F, rtol=1e-11))


def scored(F, chunks=None, method="auto"):
    """Leverage scores of a plain matrix, and its factor."""
    if chunks is not None:
        F = da.from_array(F, chunks=(chunks, F.shape[1]))
    factor = nlis.factorize(F, method=method)
    return np.asarray(nlis.leverage_scores(F, factor)), factor


@pytest.fixture
def F(rng):
    """240 ordinary rows, some heavy, one zero, one alone in its column."""
    F = rng.normal(size=(240, 6)) @ rng.normal(size=(6, 6))
    F[:5] *= 50.0
    F[5] = 0.0
    F[6:, 3] = 0.0
    F[:6, 3] = 0.0
    F[6, 3] = 1e-8
    return F


def test_scores_are_the_hat_diagonal_and_sum_to_the_rank(F):
    h, factor = scored(F)
    np.testing.assert_allclose(h, hat_diagonal(F), atol=1e-12)
    assert factor.rank == np.linalg.matrix_rank(F / np.linalg.norm(F, axis=0))
    assert h.sum() == pytest.approx(factor.rank, rel=1e-12)
    assert h[5] == 0.0
    assert h[6] == pytest.approx(1.0, abs=1e-12)  # deleting the row would lower the rank


@pytest.mark.parametrize(
    "chunks",
    [
        1,  # every block thinner than p
        2,
        7,  # a last block of two rows
        100,
        (239, 1),  # one huge and one tiny
        (1, 239),
        (100, 0, 140),  # an empty block inside
        (0, 3, 0, 237, 0),
        (5,) * 48,  # three stacks, every block thinner than p
        (8,) * 30,  # a last stack that is not full
    ],
)
def test_chunks_do_not_matter(F, chunks):
    h, factor = scored(F)
    chunked, other = scored(F, chunks)
    np.testing.assert_allclose(chunked, h, atol=1e-12)
    assert other.rank == factor.rank
    assert other.n_rows == len(F)
    np.testing.assert_allclose(other.singular_values, factor.singular_values, rtol=1e-12)
    np.testing.assert_allclose(other.frobenius, np.linalg.norm(F), rtol=1e-12)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any), st.integers(0, 2**32 - 1))
def test_chunks_do_not_matter_for_any_partition(chunks, seed):
    F = np.random.default_rng(seed).normal(size=(sum(chunks), 4))
    h, factor = scored(F, tuple(chunks))
    np.testing.assert_allclose(h, hat_diagonal(F), atol=1e-10 * factor.condition)
    assert factor.rank == min(F.shape)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_fewer_rows_than_columns_give_one_on_every_independent_row(n, chunks, rng):
    # Dask's own tsqr gives row sums of 2 and 3 here.
    F = rng.normal(size=(n, 5))
    h, factor = scored(F, chunks)
    np.testing.assert_allclose(h, 1.0, atol=1e-12)
    assert factor.rank == n
    twice, _ = scored(np.vstack([F, F[:1]]), chunks)
    np.testing.assert_allclose(twice, [0.5, *np.ones(n - 1), 0.5], atol=1e-12)


def test_order_of_rows_does_not_matter(F, rng):
    order = rng.permutation(len(F))
    np.testing.assert_allclose(scored(F[order], 50)[0], scored(F, 50)[0][order], atol=1e-12)


def test_powers_of_two_on_columns_change_no_bit(F):
    h, _ = scored(F, 50)
    for exponents in ([0, 3, -7, 1, 30, -30], [400, -400, 0, 0, 12, 1], [-660] * 6, [660] * 6):
        np.testing.assert_array_equal(scored(np.ldexp(F, exponents), 50)[0], h)


@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e200, 1e-200, 1e300, 1e-300])
def test_units_of_the_whole_matrix_do_not_matter(F, scale):
    h, factor = scored(F * scale, 50)
    np.testing.assert_allclose(h, scored(F, 50)[0], atol=1e-12)
    largest = np.abs(F).max()
    np.testing.assert_allclose(factor.frobenius / scale, largest * np.linalg.norm(F / largest), rtol=1e-12)


def test_units_of_each_column_do_not_matter(F, rng):
    scaled = F * [1.0, 1e-9, 3e7, 0.1, 1e100, 1e-100]
    h, factor = scored(scaled, 50)
    np.testing.assert_allclose(h, scored(F, 50)[0], atol=1e-11)
    assert factor.condition < 1e3  # pure column scale is no ill-conditioning
    assert factor.reads == 1


@pytest.mark.parametrize("columns", [slice(None), slice(1, 2)])
def test_subnormal_columns_are_scored_rightly_or_refused(rng, columns):
    F = rng.normal(size=(60, 4))
    small = F.copy()
    small[:, columns] *= 1e-310
    try:
        h, _ = scored(small, 20)
    except nlis.NlisError:
        return
    np.testing.assert_allclose(h, scored(F, 20)[0], atol=1e-10)


def test_invertible_change_of_basis_does_not_matter(F, rng):
    F = np.delete(F, 3, axis=1)
    q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    basis = q * np.geomspace(1, 30, 5) @ rng.permutation(q)
    np.testing.assert_allclose(scored(F @ basis, 50)[0], scored(F, 50)[0], atol=1e-12)


@pytest.mark.parametrize("k", [2, 5, 1000])
def test_all_rows_repeated_share_their_leverage(F, k):
    h, factor = scored(F)
    repeated, other = scored(np.tile(F, (k, 1)), 5000)
    np.testing.assert_allclose(repeated.reshape(k, -1), np.broadcast_to(h / k, (k, len(F))), atol=1e-12 / k)
    assert other.rank == factor.rank  # the tolerance does not depend on n


def test_further_copies_of_one_row_share_its_leverage(F):
    h, _ = scored(F)
    for row in (0, 6, 100):
        for k in (1, 7):
            more, _ = scored(np.vstack([F, *[F[row : row + 1]] * k]), 60)
            copies = more[[row, *range(len(F), len(F) + k)]]
            np.testing.assert_allclose(copies, h[row] / (1 + k * h[row]), atol=1e-12)


def _one_hot(rng):
    group = rng.integers(0, 4, size=1000)
    return np.column_stack([group[:, None] == np.arange(4), rng.random(1000), np.ones(1000)]).astype(float)


def _pixels(rng):
    images = rng.integers(0, 256, size=(300, 10)).astype(float)
    images[:, [0, 9]] = 0.0  # a dark border
    images[:, [3, 4]] = 255.0  # saturated
    return images


def _with(column):
    def build(rng):
        F = rng.normal(size=(240, 5))
        return np.column_stack([F, column(F)])

    return build


#: Exact dependencies: the matrix, its rank and the columns that take part.
DEFICIENT = {
    "one-hot and intercept": (_one_hot, 5, (0, 1, 2, 3, 5)),
    "zero column": (_with(lambda F: 0 * F[:, 0]), 5, (5,)),
    "duplicate column": (_with(lambda F: F[:, 2]), 5, (2, 5)),
    "duplicate in other units": (_with(lambda F: 1e12 * F[:, 2]), 5, (2, 5)),
    "sum of columns": (_with(lambda F: F[:, :3].sum(axis=1)), 5, (0, 1, 2, 5)),
    "constant pixels": (_pixels, 7, (0, 3, 4, 9)),
    "all rows equal": (lambda rng: np.ones((50, 4)), 1, (0, 1, 2, 3)),
}


@pytest.mark.parametrize("chunks", [None, 3, 100])
@pytest.mark.parametrize("name", DEFICIENT)
def test_exact_dependencies_lower_the_rank_quietly_and_are_named(name, chunks, rng):
    # Row norms of an explicit Q sum to p here, and single scores are off by as much as the largest.
    build, rank, dependent = DEFICIENT[name]
    F = build(rng)
    h, factor = scored(F, chunks)
    assert factor.rank == rank
    assert factor.dependent == tuple(f"x{j}" for j in dependent)
    np.testing.assert_allclose(h, hat_diagonal(F), atol=1e-10)
    assert h.sum() == pytest.approx(rank, rel=1e-10)


def test_columns_outside_a_dependency_are_not_named_however_ill_conditioned_they_are(rng):
    for _ in range(20):
        F = rng.normal(size=(50, 5))
        F[:, 1] = F[:, 0] + 1e-9 * F[:, 1]  # nearly dependent, and of full rank
        F[:, 4] = F[:, 3]
        assert scored(F)[1].dependent == ("x3", "x4")


def _conditioned(kappa):
    def build(rng):
        left, _ = np.linalg.qr(rng.normal(size=(60, 5)))
        right, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        return left * np.geomspace(1, 1 / kappa, 5) @ right

    return build


def _longley(rng):
    return np.column_stack([np.ones(16), load_longley().exog.to_numpy()])


#: Matrices of full rank that cost digits: the matrix, reads of X by the tree, and the largest error where 10 kappa eps is too mild.
HARD = {
    "condition 1e2": (_conditioned(1e2), 1, 1.0),
    "condition 1e4": (_conditioned(1e4), 2, 1.0),
    "condition 1e7": (_conditioned(1e7), 2, 1.0),
    "condition 1e10": (_conditioned(1e10), 2, 1.0),  # a Gram matrix is singular from 1e8
    "Longley": (_longley, 2, 1e-11),  # real; the pseudo-inverse of the Gram matrix is off by 0.4
    "Wampler": (lambda rng: np.vander(np.arange(21.0), 6), 2, 1e-12),
    "offset 1e6": (lambda rng: np.column_stack([np.ones(60), 1e6 + rng.normal(size=60)]), 2, 1.0),
    "one row times 1e10": (lambda rng: np.vstack([1e10 * np.ones(5), rng.normal(size=(60, 5))]), 2, 1e-12),
    "graded rows": (lambda rng: rng.normal(size=(60, 5)) * np.geomspace(1, 1e-100, 60)[:, None], None, 1e-12),
    "a row alone in a small column": (lambda rng: np.diag([1.0, 1e-8, 1.0])[[0, 0, 1, 2, 2, 0]], 1, 1e-12),
}


def _exact_leverage(F):
    """a_i' (F'F)^-1 a_i in 300 digits."""
    with mp.workdps(300):
        rows = mp.matrix(F.tolist())
        inverse = (rows.T * rows) ** -1
        return np.array([float((rows[i, :] * inverse * rows[i, :].T)[0]) for i in range(len(F))])


@pytest.mark.parametrize("chunks", [None, 4])
@pytest.mark.parametrize("name", HARD)
def test_ill_conditioned_matrices_are_read_twice_and_scored_to_ten_kappa_eps(name, chunks, rng):
    build, reads, bound = HARD[name]
    for _ in range(4):
        F = build(rng)
        h, factor = scored(F, chunks, method="tsqr")
        assert factor.rank == F.shape[1]
        assert factor.reads == (1 if factor.condition <= 1e3 else 2)
        assert reads in (None, factor.reads)
        np.testing.assert_allclose(h, _exact_leverage(F), atol=min(bound, 10 * factor.condition * EPS), rtol=0)


@pytest.mark.parametrize("chunks", [None, 4])
@pytest.mark.parametrize("name", ["Wampler", "offset 1e6"])
def test_second_read_gains_digits(name, chunks, rng):
    F = HARD[name][0](rng)
    exact = _exact_leverage(F)
    h, factor = scored(F, chunks, method="tsqr")
    once = leverage(F, spectrum(factor.r).whitener)
    assert np.abs(h - exact).max() < np.abs(once - exact).max() / 5


# Relative singular values 1 and delta / 2; the tolerance is 4.4e-15 for two columns.
@pytest.mark.parametrize(("delta", "rank"), [(6e-15, 1), (2e-14, 2), (6e-12, 2)])
def test_a_rank_near_the_tolerance_is_decided_with_a_warning(delta, rank):
    with pytest.warns(nlis.RankAmbiguityWarning, match=f"rank {rank} of 2 is uncertain"):
        assert nlis.factorize(np.array([[1.0, 1.0], [0.0, delta], [1.0, 1.0]])).rank == rank
