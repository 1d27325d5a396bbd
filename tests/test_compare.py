"""Refits on samples by several scores: each as the five words make it, all judged in one read."""

import re
import warnings

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, no_compute, rows_of

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
N = 600
X = rows_of(91, N, 3)[0] * np.exp(rows_of(92, N, 1)[0])
Y = np.tanh(X @ [0.5, -0.3, 0.2] + 0.1) + 0.3 * rows_of(93, N, 1)[1]
ONES = np.ones(N)
BEST = nlis.refit(PROBLEM, X, Y, ONES)


def leverage():
    A = nlis.reference_matrix(PROBLEM, X, Y)
    return nlis.leverage_scores(A, nlis.factorize(A))


SCORES = {"uniform": ONES, "leverage": leverage()}
OPTIONS = {"sizes": [60, 0.2], "seeds": [3, 8, 5]}


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "poisson", "systematic"])
@pytest.mark.parametrize("kind", ["NumPy", "Dask", "pandas"])
def test_each_line_is_what_draw_take_refit_and_total_loss_give(scheme, kind):
    x, y = X, Y
    if kind == "Dask":
        x, y = da.from_array(X, (70, 3)), da.from_array(Y, 90)
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        x, y = pd.DataFrame(X, columns=list("abc")), pd.Series(Y)
    found = nlis.compare(PROBLEM, x, y, SCORES, **OPTIONS, scheme=scheme, theta=BEST.theta, n_starts=2)
    assert len(found) == 2 * 2 * 3
    lines = iter(range(len(found)))
    for k, name in enumerate(SCORES):
        for size in (60, 120):
            for seed in (3, 8, 5):
                line = next(lines)
                sample = nlis.draw(SCORES[name], size, scheme=scheme, seed=seed)
                fit = nlis.refit(PROBLEM, *sample.take(X, Y), sample.weights, n_starts=2)
                assert (found.name[line], found.size[line], found.seed[line]) == (k, size, seed)
                assert (found.n_distinct[line], found.ok[line]) == (len(sample), fit.ok)
                np.testing.assert_array_equal(found.thetas[line], fit.theta)
                loss = nlis.total_loss(PROBLEM, X, Y, fit.theta)
                assert found.loss[line] == pytest.approx(loss, rel=1e-12)
                assert found.excess[line] == pytest.approx(loss / found.reference_loss - 1, rel=1e-9)
    assert found.reference_loss == pytest.approx(nlis.total_loss(PROBLEM, X, Y, BEST.theta), rel=1e-12)
    assert (found.excess > -1e-9).all()


@pytest.mark.parametrize("given", [None, BEST.theta])
def test_losses_take_one_read_scores_one_each_and_drawn_blocks_one_at_most(given):
    counted = CountingArray(X), CountingArray(Y)
    x, y = (array.dask(50) for array in counted)
    plain = nlis.compare(PROBLEM, x, y, SCORES, **OPTIONS, theta=given)
    # One read of every row for the losses, one more of the blocks that hold a drawn row.
    for array in counted:
        assert set(array.rows.tolist()) <= {1, 2}
        array.rows[:] = 0
    A = nlis.reference_matrix(PROBLEM, x, y)
    factor = nlis.factorize(A)
    for array in counted:
        array.reads()
    lazy = nlis.compare(PROBLEM, x, y, {"uniform": ONES, "leverage": nlis.leverage_scores(A, factor)}, **OPTIONS)
    for array in counted:
        assert set(array.rows.tolist()) <= {2, 3}
    np.testing.assert_allclose(lazy.loss, plain.loss, rtol=1e-6)  # scores differ by rounding


def test_weights_of_the_data_count_in_refits_and_losses(rng):
    weight = rng.integers(0, 4, N).astype(float)
    found = nlis.compare(PROBLEM, X, Y, {"w": weight}, sizes=80, seeds=2, sample_weight=weight)
    for seed in range(2):
        sample = nlis.draw(weight, 80, seed=seed)
        fit = nlis.refit(PROBLEM, *sample.take(X, Y), sample.weights, sample_weight=weight[sample.indices])
        np.testing.assert_array_equal(found.thetas[seed], fit.theta)
        assert found.loss[seed] == nlis.total_loss(PROBLEM, X, Y, fit.theta, sample_weight=weight)
    assert found.excess is None
    assert found.reference_loss is None


def test_medians_and_quartiles_and_a_tidy_frame():
    pytest.importorskip("pandas")
    found = nlis.compare(PROBLEM, X, Y, SCORES, sizes=[40, 80], seeds=7, theta=BEST.theta, n_starts=1)
    frame = found.to_frame()
    assert list(frame.columns) == ["name", "size", "seed", "n_distinct", "ok", "loss", "excess"]
    assert len(frame) == len(found) == 28
    cells = frame.groupby(["name", "size"])["excess"].quantile([0.25, 0.5, 0.75]).unstack()
    assert set(found.quartiles()) == set(cells.index)
    for key, quartiles in found.quartiles().items():
        np.testing.assert_allclose(quartiles, cells.loc[key], rtol=1e-12)
    head, *table = found.summary().splitlines()
    assert re.fullmatch(r"median \[quartiles\] of the excess over .* [\d.]+, 7 seeds, multinomial draws", head)
    assert table[0].split() == ["scores", "40", "80"]
    for line, name in zip(table[2:], SCORES, strict=True):
        low, middle, high = found.quartiles()[name, 40]
        assert line.startswith(f"{name} ")
        assert f"{middle:.4g} [{low:.4g}, {high:.4g}]" in line
    loss = nlis.compare(PROBLEM, X, Y, SCORES, sizes=40, seeds=2, n_starts=1)
    assert "loss over all rows, 2 seeds" in loss.summary()
    assert list(loss.to_frame().columns)[-1] == "loss"
    assert repr(loss) == (
        "Comparison(names=('uniform', 'leverage'), sizes=[40], seeds=2, scheme='multinomial', failed=0)"
    )


def test_a_sample_without_rows_has_no_loss_and_counts_as_failed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(nlis.ConvergenceWarning, match=r"\d of 12 refits did not pass"):
            found = nlis.compare(
                PROBLEM, X, Y, {"uniform": ONES}, sizes=1, seeds=12, scheme="poisson", theta=BEST.theta, n_starts=1
            )
    empty = found.n_distinct == 0
    assert empty.any()
    assert np.isnan(found.loss[empty]).all()
    assert np.isnan(found.thetas[empty]).all()
    assert not found.ok[empty].any()
    assert np.isfinite(found.loss[~empty]).all()
    assert np.isfinite(found.quartiles()["uniform", 1]).all()
    assert f"{(~found.ok).sum()} of 12 refits" in found.summary()


def test_a_reference_without_loss_is_exceeded_infinitely_or_not_at_all():
    y = X @ [1.0, 2.0, 3.0]
    problem = nlis.Problem(nlis.Linear(intercept=False), constraint=nlis.Ball(1.0))
    found = nlis.compare(problem, X, y, {"u": ONES}, sizes=30, seeds=2, theta=[1.0, 2.0, 3.0])
    assert found.reference_loss == pytest.approx(0, abs=1e-20)
    assert (found.excess > 1e20).all()


def test_leverage_leads_where_few_rows_decide(rng):
    x = rng.normal(size=(2_000, 3)) * np.where(np.arange(2_000) % 100 == 0, 30.0, 0.3)[:, None]
    y = x @ [1.0, -1.0, 0.5] + rng.normal(size=2_000)
    problem = nlis.Problem(nlis.Linear())
    best = nlis.refit(problem, x, y, np.ones(2_000)).theta
    A = nlis.reference_matrix(problem, x)
    scores = {"uniform": np.ones(2_000), "leverage": nlis.leverage_scores(A, nlis.factorize(A))}
    found = nlis.compare(problem, x, y, scores, sizes=50, seeds=30, theta=best)
    quartiles = found.quartiles()
    assert quartiles["leverage", 50][2] < quartiles["uniform", 50][0]


@pytest.mark.parametrize(
    ("scores", "options", "kind", "message"),
    [
        ({}, {}, nlis.InputError, "scores is empty"),
        (ONES, {}, nlis.InputTypeError, "scores is ndarray"),
        ({1: ONES}, {}, nlis.InputTypeError, "scores has the key 1"),
        ({"a": ONES[:5]}, {}, nlis.InputError, r"scores\['a'\] have shape \(5,\), but X has 600 rows"),
        (SCORES, {"sizes": []}, nlis.InputError, "sizes is empty"),
        (SCORES, {"sizes": "10"}, nlis.InputTypeError, "sizes is str"),
        (SCORES, {"sizes": [10, -1]}, nlis.InputError, "sizes=-1"),
        (SCORES, {"sizes": [60, 0.1]}, nlis.InputError, "sizes hold the same value twice"),
        (SCORES, {"seeds": [1, 1]}, nlis.InputError, "seeds hold the same value twice"),
        (SCORES, {"seeds": 0}, nlis.InputError, "seeds=0"),
        (SCORES, {"seeds": [1.5]}, nlis.InputTypeError, "seeds=1.5"),
        (SCORES, {"scheme": "bins"}, nlis.InputError, "scheme='bins'"),
        (SCORES, {"mix": 2}, nlis.InputError, "mix=2"),
        (SCORES, {"theta": [0.0]}, nlis.InputError, r"theta has shape \(1,\)"),
        (SCORES, {"start": [0.0]}, nlis.InputError, r"start has shape \(1,\)"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(scores, options, kind, message):
    with no_compute(), pytest.raises(kind, match=message) as caught:
        nlis.compare(PROBLEM, X, Y, scores, **({"sizes": 50} | options))
    assert len(str(caught.value)) <= 300


def test_data_that_do_not_fit_are_refused_and_too_many_rows_are_not_taken():
    with no_compute():
        with pytest.raises(nlis.InputTypeError, match="problem is str"):
            nlis.compare("linear", X, Y, SCORES, sizes=5)
        with pytest.raises(nlis.InputTypeError, match="y is None"):
            nlis.compare(PROBLEM, X, None, SCORES, sizes=5)
        with pytest.raises(nlis.InputError, match="inconsistent numbers of rows"):
            nlis.compare(PROBLEM, X, Y[:9], SCORES, sizes=5)
    with pytest.raises(nlis.InputError, match="above max_bytes=100"):
        nlis.compare(PROBLEM, X, Y, SCORES, sizes=50, max_bytes=100)
