"""Losses as scores, and the rows to look at first."""

import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, executed, no_compute, rows_of, same_bits
from nets import NETS, setting
from tables import LOSSES, MODELS, PAIRS, allowed

import dask_nlis as nlis
from dask_nlis.activations import Identity

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
THETA = np.array([0.3, -0.2, 0.1, 0.05])
N = 740
X, Y = rows_of(71, N, 3)
BY = ("loss", "deletion", "norm", "leverage")


def dual(x=X, y=Y, **options):
    return nlis.dual_matrix(PROBLEM, x, y, theta=THETA, **options)


@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_losses_are_squared_roots_and_add_up_to_the_total(model, loss, rng):
    problem = nlis.Problem(MODELS[model], LOSSES[loss])
    theta = rng.normal(size=problem.model.n_parameters(3))
    y = allowed(problem.loss, problem.model.predict(theta, X) + rng.normal(size=N))
    weight = rng.integers(0, 3, N).astype(float)
    A = nlis.dual_matrix(problem, da.from_array(X, (100, 3)), y, theta=theta, sample_weight=weight)
    found = nlis.loss_scores(A).compute()
    root = problem.loss.root(problem.model.predict(theta, X), y)
    np.testing.assert_allclose(found, weight * root**2, rtol=1e-9, atol=1e-12 * np.max(root**2))
    assert found.min() >= 0
    total = nlis.total_loss(problem, X, y, theta, sample_weight=weight)
    assert found.sum() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_losses_of_networks_without_their_rows(name, rng):
    model = NETS[name]
    theta, x, y = setting(model, rng)
    for loss in (nlis.SquaredError(), nlis.PseudoHuber(0.8)):
        problem = nlis.Problem(model, loss)
        found = nlis.loss_scores(nlis.dual_matrix(problem, x, y, theta=theta))
        np.testing.assert_allclose(found, loss.value(model.predict(theta, x), y), rtol=1e-12)
    if isinstance(getattr(model, "activation", Identity()), Identity):
        problem = nlis.Problem(model, nlis.LogisticLoss())
        s = np.where(y > 0, 1.0, -1.0)
        found = nlis.loss_scores(nlis.dual_matrix(problem, x, (s + 1) / 2, theta=theta))
        np.testing.assert_allclose(found, np.logaddexp(0, -s * model.predict(theta, x)), rtol=1e-12, atol=1e-300)


def test_losses_take_one_read_and_one_task_a_block():
    counted = CountingArray(X), CountingArray(Y)
    with no_compute():
        lazy = nlis.loss_scores(dual(*(array.dask(20) for array in counted)))
    assert executed(lazy) == 37
    assert (lazy.shape, lazy.dtype) == ((N,), np.float64)
    lazy.compute()
    assert [array.reads() for array in counted] == [1, 1]


def test_dropped_and_weightless_rows_have_no_loss_and_bad_ones_are_named():
    x, y, weight = X.copy(), Y.copy(), np.ones(N)
    x[5, 1], y[9], weight[11] = np.nan, np.inf, 0.0
    found = nlis.loss_scores(dual(x, y, sample_weight=weight, missing="drop"))
    whole = nlis.loss_scores(dual())
    away = np.isin(np.arange(N), [5, 9, 11])
    assert not found[away].any()
    np.testing.assert_allclose(found[~away], whole[~away], rtol=1e-14)
    with pytest.raises(nlis.NonFiniteError, match=r"column 1 .* row 5 "):
        nlis.loss_scores(dual(x, y))
    with pytest.raises(nlis.NonFiniteError, match="row 3"):
        nlis.loss_scores(dual(X, np.where(np.arange(N) == 3, 1e200, Y)))


def test_what_has_no_loss_is_refused_with_a_remedy():
    cases = [
        (X, nlis.InputTypeError, "a plain array"),
        (nlis.reference_matrix(PROBLEM, X, Y), nlis.InputTypeError, "a reference matrix"),
        (nlis.dual_matrix(PROBLEM, X, theta=THETA), nlis.InputError, "no labels"),
    ]
    for A, kind, message in cases:
        for call in (nlis.loss_scores, nlis.suspects, lambda A: nlis.suspects(A, by="deletion")):
            with no_compute(), pytest.raises(kind, match=rf"A .*{message}.*dual_matrix") as caught:
                call(A)
            assert len(str(caught.value)) <= 300


def by_hand(by):
    """Each score from its definition, rows formed and decomposed whole."""
    F = dual().to_dask_array().compute()
    r = PROBLEM.model.predict(THETA, X) - Y
    h = (np.linalg.svd(F, full_matrices=False)[0] ** 2).sum(axis=1)
    return {"loss": r**2, "deletion": r**2 / (1 - h) ** 2, "norm": (F**2).sum(axis=1), "leverage": h}[by]


@pytest.mark.parametrize("by", BY)
def test_suspects_are_ranked_by_the_definition(by):
    expected = by_hand(by)
    table = nlis.suspects(dual(), by=by)
    assert isinstance(table, nlis.RowTable)
    assert table.indices.tolist() == np.argsort(-expected, kind="stable")[:100].tolist()
    np.testing.assert_allclose(table.scores, expected[table.indices], rtol=1e-9)


def test_the_loss_is_the_default_and_the_rankings_differ():
    assert nlis.suspects(dual()) == nlis.suspects(dual(), by="loss")
    assert len({tuple(nlis.suspects(dual(), k=20, by=by).indices) for by in BY}) == 4


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as made:
        yield made


@pytest.mark.parametrize("by", BY)
def test_one_block_37_blocks_threads_and_processes_give_the_same_lists(by, pool):
    """A19: no low-memory mode that answers differently."""
    x = X.copy()
    x[[3, 500], 1] = np.nan
    lists = {}
    for rows, scheduler in ((N, "synchronous"), (20, "synchronous"), (20, "threads"), (20, "processes")):
        with dask.config.set({"scheduler": scheduler} | ({"pool": pool} if scheduler == "processes" else {})):
            A = dual(da.from_array(x, (rows, 3)), Y, missing="drop")
            factor = nlis.factorize(A)
            table = nlis.suspects(A, factor, by=by)
            lists[rows, scheduler] = [table]
            if by != "deletion":
                scores = {"loss": nlis.loss_scores, "norm": nlis.norm_scores}.get(by)
                lazy = scores(A) if scores else nlis.leverage_scores(A, factor)
                lists[rows, scheduler] += [nlis.top_rows(lazy, 20), nlis.bottom_rows(lazy, 20)]
                assert lists[rows, scheduler][1].indices.tolist() == table.indices[:20].tolist()
                assert lists[rows, scheduler][2].indices[:2].tolist() == [3, 500]
    whole, *cut = lists.values()
    for tables in cut:
        for table, first, expected in zip(tables, cut[0], whole, strict=True):
            assert table.indices.tolist() == expected.indices.tolist()
            np.testing.assert_allclose(table.scores, expected.scores, rtol=1e-10)
            assert same_bits(table.scores, first.scores)


def test_reads_are_one_and_those_of_the_factor_where_it_is_needed():
    counted = CountingArray(X), CountingArray(Y)
    A = dual(*(array.dask(100) for array in counted))
    for by, without in (("loss", 1), ("norm", 1), ("leverage", 2), ("deletion", 2)):
        nlis.suspects(A, by=by)
        assert [array.reads() for array in counted] == [without] * 2
        factor = nlis.factorize(A)
        assert [array.reads() for array in counted] == [1, 1]
        nlis.suspects(A, factor, by=by)
        assert [array.reads() for array in counted] == [1, 1]


def test_rows_of_leverage_one_come_first_with_a_loss_and_last_without():
    x = np.zeros((40, 3))
    x[:38, 0] = np.linspace(1, 2, 38)
    x[38, 1], x[39, 2] = 1.0, 1.0  # alone in their directions
    theta = np.array([1.0, 0.0, 3.0])
    y = x @ theta  # of row 38 exactly 0, so that its label says nothing either
    y[:38] += np.random.default_rng(5).normal(size=38)
    y[39] += 0.5
    problem = nlis.Problem(nlis.Linear(intercept=False))
    A = nlis.dual_matrix(problem, x, y, theta=theta)
    h = nlis.leverage_scores(A, nlis.factorize(A))
    assert h[38] == pytest.approx(1, abs=1e-14)
    assert h[39] > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = nlis.suspects(A, k=40, by="deletion")
    assert (table.indices[0], table.indices[-1]) == (39, 38)
    assert np.isfinite(table.scores).all()
    assert table.scores[-1] == 0.0


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((), {"by": "outlier"}, nlis.InputError, "by='outlier' is not known; give one of 'loss', 'deletion'"),
        ((), {"by": None}, nlis.InputError, "by=None"),
        ((), {"k": 0}, nlis.InputError, "k=0"),
        ((), {"k": 2.5}, nlis.InputTypeError, "k=2.5"),
        (("factor",), {}, nlis.InputTypeError, "factor is str"),
        ((nlis.factorize(np.eye(4)),), {}, nlis.MatrixMismatchError, "another matrix"),
        ((nlis.factorize(dual(), method="sketch-only"),), {"by": "deletion"}, nlis.InputError, "sketch"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(arguments, options, kind, message):
    A = dual()
    with no_compute(), pytest.raises(kind, match=message) as caught:
        nlis.suspects(A, *arguments, **options)
    assert len(str(caught.value)) <= 300


def test_flipped_labels_come_first_by_loss(rng):
    x = rng.normal(size=(2_000, 3))
    theta = np.array([3.0, -2.0, 1.0, 0.5])
    y = (rng.uniform(size=2_000) < 1 / (1 + np.exp(-3 * (x @ theta[:3] + theta[3])))).astype(float)
    flipped = rng.choice(2_000, 100, replace=False)
    y[flipped] = 1 - y[flipped]
    problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
    fit = nlis.refit(problem, x, y, np.ones(2_000))
    table = nlis.suspects(nlis.dual_matrix(problem, x, y, theta=fit.theta), k=100)
    assert np.isin(table.indices, flipped).mean() > 0.6  # by chance 0.05
