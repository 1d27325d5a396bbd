"""Rows of one matrix beside the factor of another: what lies inside its row space, and how much lies outside."""

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, executed, no_compute, rows_of
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
THETA = np.array([0.4, -0.3, 0.2, 0.1])


def dense(target, source, rank):
    """Squared norms of a F^+, and shares of |a|^2 outside the row space, by the SVD of F itself."""
    _, s, vt = np.linalg.svd(target, full_matrices=True)
    inward, outward = vt[:rank], vt[rank:]
    scores = ((source @ inward.T / s[:rank]) ** 2).sum(axis=1)
    return scores, ((source @ outward.T) ** 2).sum(axis=1) / (source**2).sum(axis=1)


def spoiled(rng, kind, n=60, p=6):
    """A matrix whose rows leave some directions out, and its rank."""
    F = rng.normal(size=(n, p))
    if kind == "a sum of columns":
        F[:, 4] = F[:, 0] + F[:, 1]
    elif kind == "sums of unequal units":
        F *= [1.0, 30.0, 0.02, 5.0, 1.0, 400.0]
        F[:, 4] = F[:, 0] - 2 * F[:, 1]
        F[:, 5] = F[:, 2] + F[:, 3] / 7
    elif kind == "zero columns and a sum":
        F[:, [1, 3]] = 0.0
        F[:, 5] = 3 * F[:, 0]
    elif kind == "few rows":
        F = F[:4]
    return F, KINDS[kind]


KINDS = {
    "full rank": 6,
    "a sum of columns": 5,
    "sums of unequal units": 4,
    "zero columns and a sum": 3,
    "few rows": 4,
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_outside_shares_are_those_of_the_dense_svd(kind, rng):
    F, rank = spoiled(rng, kind)
    factor = nlis.factorize(F)
    assert factor.rank == rank
    source = rng.normal(size=(200, 6)) * np.abs(F).max(axis=0).clip(1e-3)
    expected, outside = dense(F, source, rank)
    np.testing.assert_allclose(nlis.cross_leverage_scores(source, factor), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factor.outside(source), outside, rtol=1e-9, atol=1e-14)
    assert expected.max() > 1  # no hat matrix bounds these
    assert (outside.max() > 0.1) == (rank < 6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_inside_score_their_leverage_and_lie_outside_by_rounding_squared(kind, rng):
    F, rank = spoiled(rng, kind)
    factor = nlis.factorize(F)
    inside = rng.normal(size=(50, len(F))) @ F
    assert np.max(factor.outside(inside)) < 1e-26
    np.testing.assert_allclose(
        nlis.cross_leverage_scores(inside, factor), dense(F, inside, rank)[0], rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(
        nlis.cross_leverage_scores(F, factor), nlis.leverage_scores(F, factor), rtol=1e-10, atol=1e-13
    )


def test_adding_a_row_gives_it_the_leverage_that_its_score_foretells(rng):
    F, row = rng.normal(size=(40, 4)), 3 * rng.normal(size=(1, 4))
    score = nlis.cross_leverage_scores(row, nlis.factorize(F))[0]
    both = np.concatenate([F, row])
    assert nlis.leverage_scores(both, nlis.factorize(both))[-1] == pytest.approx(score / (1 + score), rel=1e-12)


def test_units_of_columns_from_1e_minus_200_to_1e200_do_not_spoil_what_is_inside(rng):
    F = rng.normal(size=(60, 5))
    F[:, 4] = F[:, 0] + F[:, 1]
    source = rng.normal(size=(30, 5))
    units = np.array([1.0, 1.0, 1e-200, 1e150, 1.0])
    inside = source.copy()
    inside[:, 4] = inside[:, 0] + inside[:, 1]
    expected, _ = dense(F, inside, 4)
    factor = nlis.factorize(F * units)
    np.testing.assert_allclose(nlis.cross_leverage_scores(inside * units, factor), expected, rtol=1e-9)
    # Of columns of units so unequal the largest is the whole norm; here it takes part in no dependency.
    assert np.max(factor.outside(source * units)) < 1e-100
    share = dense(F[:, [0, 1, 4]], source[:, [0, 1, 4]], 2)[1]
    np.testing.assert_allclose(factor.outside(source * units * [1, 1, 1, 0, 1]), share, rtol=1e-9)


def test_a_zero_row_lies_nowhere_and_a_row_beyond_squaring_has_its_share():
    factor = nlis.factorize(np.array([[1.0, 0.0], [2.0, 0.0]]))
    rows = np.array([[0.0, 0.0], [1e200, 1e200], [3e-300, 4e-300], [0.0, 1e-320]])
    np.testing.assert_allclose(factor.outside(rows), [0.0, 0.5, 0.64, 1.0], rtol=1e-12)


@pytest.mark.parametrize("rows", [7, 160])
def test_dual_rows_of_other_data_are_read_once_in_a_task_a_block(rows):
    (x, y), (x2, y2) = rows_of(31, 300, 3), rows_of(32, 160, 3)
    factor = nlis.factorize(nlis.dual_matrix(PROBLEM, x, y, theta=THETA))
    counted = CountingArray(2 * x2), CountingArray(y2)
    A = nlis.dual_matrix(PROBLEM, *(array.dask(rows) for array in counted), theta=THETA)
    with no_compute():
        scores, outside = nlis.cross_leverage_scores(A, factor), factor.outside(A)
    for lazy in (scores, outside):
        assert (lazy.shape, lazy.dtype) == ((160,), np.float64)
        # The factor's part travels under a key of its own.
        assert executed(lazy) - len(A.source.chunks) <= 1
    dense_rows = nlis.dual_matrix(PROBLEM, 2 * x2, y2, theta=THETA).to_dask_array().compute()
    F = nlis.dual_matrix(PROBLEM, x, y, theta=THETA).to_dask_array().compute()
    np.testing.assert_allclose(scores.compute(), dense(F, dense_rows, 5)[0], rtol=1e-10)
    assert [array.reads() for array in counted] == [1, 1]
    assert not outside.compute().any()
    assert [array.reads() for array in counted] == [1, 1]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_chunks_and_schedulers_give_the_same_numbers(scheduler, rng):
    F, _ = spoiled(rng, "a sum of columns")
    factor, source = nlis.factorize(F), rng.normal(size=(370, 6))
    lazy = da.from_array(source, (37, 6))
    with threadpool_limits(1, user_api="blas"):
        for score in (lambda A: nlis.cross_leverage_scores(A, factor), factor.outside):
            np.testing.assert_allclose(score(lazy).compute(scheduler=scheduler), score(source), rtol=1e-12, atol=1e-15)


def test_weights_and_dropped_rows(rng):
    x, y = rows_of(33, 80, 3)
    factor = nlis.factorize(nlis.dual_matrix(PROBLEM, x, y, theta=THETA))
    weight = rng.uniform(0, 3, 80)
    weight[5] = 0.0
    plain = nlis.cross_leverage_scores(nlis.dual_matrix(PROBLEM, x + 1, y, theta=THETA), factor)
    x = x + 1
    x[9, 1] = np.nan
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, sample_weight=weight, missing="drop")
    weight[9] = 0.0
    np.testing.assert_allclose(nlis.cross_leverage_scores(A, factor), weight * plain, rtol=1e-12)
    with pytest.raises(nlis.NonFiniteError, match=r"column 1 .* row 9 "):
        nlis.cross_leverage_scores(nlis.dual_matrix(PROBLEM, x, y, theta=THETA), factor)


def test_only_rows_made_alike_are_compared():
    x, y = rows_of(34, 40, 3)
    factor = nlis.factorize(nlis.dual_matrix(PROBLEM, x, y, theta=THETA))
    other = nlis.Problem(nlis.SingleIndex(nlis.Arctan()))
    cases = [
        (nlis.dual_matrix(PROBLEM, x, y, theta=THETA + 1), nlis.MatrixMismatchError, "another problem or theta"),
        (nlis.dual_matrix(other, x, y, theta=THETA), nlis.MatrixMismatchError, "another problem or theta"),
        (np.ones((9, 5)), nlis.InputError, "columns"),
        (np.ones((9, 4)), nlis.InputError, "4 and 5 columns"),
        (nlis.dual_matrix(PROBLEM, x, theta=THETA), nlis.InputError, r"'phi\(0\)' and 'f\(0\), with label'"),
    ]
    for A, kind, message in cases:
        for call in (factor.outside, lambda A: nlis.cross_leverage_scores(A, factor)):
            with no_compute(), pytest.raises(kind, match=message) as caught:
                call(A)
            assert len(str(caught.value)) <= 300
            assert "\n" not in str(caught.value)
    with pytest.raises(nlis.InputTypeError, match="factor is ndarray"):
        nlis.cross_leverage_scores(x, np.eye(3))


def test_what_came_in_goes_out():
    pd = pytest.importorskip("pandas")
    x = rows_of(35, 30, 2)[0]
    factor = nlis.factorize(pd.DataFrame(x, columns=["a", "b"]))
    frame = pd.DataFrame(x[:9] * 2, columns=["a", "b"], index=list("abcdefghi"))
    for series in (nlis.cross_leverage_scores(frame, factor), factor.outside(frame)):
        assert isinstance(series, pd.Series)
        assert list(series.index) == list("abcdefghi")
    assert type(nlis.factorize(x).outside(x[:3])) is np.ndarray
