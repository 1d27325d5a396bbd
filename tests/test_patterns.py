"""ReLU networks by activation pattern: the factor and scores of formed rows, without forming them, in fewer reads."""

import tracemalloc

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, FakeGPU, Tasks, executed, same_bits

import dask_nlis as nlis
from dask_nlis import device
from dask_nlis.device import choose
from dask_nlis.factor import factorize_together
from dask_nlis.factor.gram import gram_block, read_gram
from dask_nlis.factor.sketch import read_sketch
from dask_nlis.kernels import patterns as kernels
from dask_nlis.matrix import as_matrix
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.patterns import units_of
from dask_nlis.matrix.sliced import sliced
from dask_nlis.scores.leverage import leverage_block
from dask_nlis.scores.patterns import form_of

EPS = np.finfo(np.float64).eps


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def network(rng, n, d, m, *, model=None, loss=None, labels=True, weights=False, chunks=None, spoil=(), mix=None):
    """A dual matrix of random rows; `spoil` names what real networks and data bring, `mix` (d, d) conditions X."""
    model = model or nlis.ReluNetwork(m)
    X = rng.normal(size=(n, d)) if mix is None else rng.normal(size=(n, d)) @ mix
    parts = {name: part.copy() for name, part in model.unpack(rng.normal(size=model.n_parameters(d))).items()}
    X[:, 0] = np.abs(X[:, 0]) + 0.1
    if "zero pixel" in spoil:
        X[:, d // 2] = 0.0
    if "dead unit" in spoil:
        parts["b"][0] = -np.eye(parts["b"].shape[1])[0]
    if "no outer weight" in spoil:
        parts["a"][1] = 0.0
    if "always active" in spoil:
        parts["b"][2:4] = np.eye(parts["b"].shape[1])[0]
    X[0] = 0.0
    X[1] *= 1e-12
    y = rng.normal(size=n) if loss is None else (rng.random(n) < 0.5).astype(float)
    weight = rng.integers(0, 3, size=n).astype(float) if weights else None
    rows = X if chunks is None else da.from_array(X, (chunks, d))
    problem = nlis.Problem(model, loss or nlis.SquaredError())
    return nlis.dual_matrix(problem, rows, y if labels else None, theta=model.pack(**parts), sample_weight=weight)


def formed(A):
    return np.asarray(A.to_dask_array().compute())


def basis_of(A):
    """The rows on the basis, formed; and the units."""
    units = units_of(A.rule, A.has_labels)
    return formed(A)[:, units.basis], units


def dense(F):
    """Rank, leverage and condition by the dense SVD of columns brought to norm 1."""
    norms = np.linalg.norm(F, axis=0)
    left, s, _ = np.linalg.svd(F / np.where(norms > 0, norms, 1.0), full_matrices=False)
    kept = s > 1e-11 * s[0]
    return int(kept.sum()), (left[:, kept] ** 2).sum(axis=1), s[0] / s[kept][-1]


def check(A, method="auto"):
    """Everything a factor says, and the scores, against the dense SVD and the tree of formed rows."""
    F = formed(A)
    rank, h, _ = dense(F)
    factor, tree = nlis.factorize(A, method=method), nlis.factorize(A, method="tsqr")
    scores = np.asarray(nlis.leverage_scores(A, factor))
    np.testing.assert_allclose(scores, h, rtol=0, atol=max(1e-12, 100 * tree.condition * EPS))
    assert factor.rank == rank
    assert scores.min() >= 0
    gram = F.T @ F
    np.testing.assert_allclose(factor.r.T @ factor.r, gram, rtol=0, atol=1e-13 * np.abs(gram).max())
    assert not np.tril(factor.r, -1).any()
    assert (np.diagonal(factor.r) >= 0).all()
    close = max(1e-9, 100 * tree.condition * EPS)
    assert factor.condition == pytest.approx(tree.condition, rel=close)
    np.testing.assert_allclose(factor.singular_values[:rank], tree.singular_values[:rank], rtol=close)
    np.testing.assert_array_equal(factor.column_scale, tree.column_scale)
    assert factor.dependent == tree.dependent
    assert (factor.n_rows, factor.frobenius) == (tree.n_rows, pytest.approx(tree.frobenius, rel=1e-12))
    white = F @ factor.whitener if factor.correction is None else F @ factor.whitener @ factor.correction
    np.testing.assert_allclose(white.T @ white, np.eye(rank), atol=1e4 * tree.condition * EPS)
    return factor


def worth(monkeypatch, answer):
    """Group all rows by pattern, or form all of them, whatever that costs."""
    rooms = {"factor.patterns": "worth_grouping", "matrix.sliced": "worth_slicing", "scores.patterns": "worth_a_form"}
    for room, name in ((f"dask_nlis.{room}", name) for room, name in rooms.items()):
        monkeypatch.setattr(f"{room}.{name}", lambda sizes, *_: np.full(len(sizes), answer))


# -- leverage, factor and reads ------------------------------------------------------------------------------------

NETWORKS = {
    "identity": nlis.ReluNetwork(4),
    "tanh": nlis.ReluNetwork(4, nlis.Tanh()),
    "logistic, phi(0) is not 0": nlis.ReluNetwork(4, nlis.Logistic()),
    "biases": nlis.ReluNetwork(4, nlis.Swish(1, 2), hidden_bias=True),
    "identity on each unit": nlis.ReluNetwork(4, nlis.Identity(), per_unit=True),
    "leaky": nlis.ReluNetwork(4, nlis.Tanh(), unit=nlis.LeakyRelu(0.2)),
    "leaky with biases": nlis.ReluNetwork(4, unit=nlis.LeakyRelu(1.5), hidden_bias=True),
}
SPOILED = {
    "plain": (),
    "zero pixel, dead unit": ("zero pixel", "dead unit"),
    "no outer weight": ("no outer weight",),
    "all of it": ("zero pixel", "dead unit", "no outer weight"),
}


CASES = [(name, spoil) for name in NETWORKS for spoil in ("plain", "all of it")]


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize(("name", "spoil"), [*CASES, *(("tanh", spoil) for spoil in list(SPOILED)[1:3])])
def test_factor_and_leverage_are_those_of_the_dense_svd(name, spoil, labels, rng):
    A = network(rng, 900, 5, 4, model=NETWORKS[name], labels=labels, weights=labels, chunks=250, spoil=SPOILED[spoil])
    factor = check(A)
    assert factor.method in ("patterns", "cholesky-qr2")  # the dependent columns cost no tree
    assert check(A, "sketch").method == "sketch"


@pytest.mark.parametrize("group", [True, False])
def test_one_read_for_the_factor_one_for_the_scores_and_no_row_is_formed(group, rng, monkeypatch):
    A = network(rng, 4000, 6, 3, loss=nlis.LogisticLoss(), chunks=1500, weights=True)
    expected = dense(formed(A))[1]
    counted = CountingArray(np.asarray(A.source.x.compute()))
    B = nlis.dual_matrix(
        A.problem, counted.dask(1500), A.source.y, theta=A.theta, sample_weight=A.source.weight.compute()
    )
    worth(monkeypatch, group)
    for room in ("factor.gram", "factor.sketch", "scores.leverage"):
        monkeypatch.setattr(f"dask_nlis.{room}.matrix_rows", None)
    with Tasks() as tasks:
        factor = nlis.factorize(B)
    assert (factor.method, factor.reads, counted.reads()) == ("patterns", 1, 1)
    assert tasks.labels == {"nlis-factor": 3, "nlis-factor-sum": 1}
    scores = nlis.leverage_scores(B, factor)
    assert executed(scores) == 3 + 1  # the quadratic form is made once
    np.testing.assert_allclose(scores.compute(), expected, atol=1e-14)
    assert counted.reads() == 1
    again = nlis.factorize(B, method="sketch")
    assert (again.method, again.reads, counted.reads()) == ("sketch", 2, 2)
    np.testing.assert_allclose(nlis.leverage_scores(B, again).compute(), expected, atol=1e-14)


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("chunks", [1, 7, 159, (1, 0, 158, 1)])
def test_blocks_of_any_size_and_patterns_of_one_row_each(chunks, group, rng, monkeypatch):
    worth(monkeypatch, group)
    A = network(rng, 160, 3, 12, chunks=chunks, weights=True, spoil=("no outer weight",))
    z = np.asarray(A.source.x.compute()) @ A.problem.model.unpack(A.theta)["b"].T
    assert np.unique(np.unique(z > 0, axis=0, return_counts=True)[1])[0] == 1
    check(A)


@pytest.mark.parametrize("group", [True, False])
def test_more_units_than_bits_of_a_word(group, rng, monkeypatch):
    worth(monkeypatch, group)
    check(network(rng, 700, 3, 70, chunks=350))


def test_always_active_units_make_columns_dependent_and_end_in_the_tree_of_the_basis(rng):
    A = network(rng, 600, 5, 5, chunks=200, spoil=("always active", "zero pixel"))
    factor = check(A)
    assert (factor.method, factor.rank, factor.reads) == ("tsqr", 4 * 4 + 1, 2)


@pytest.mark.parametrize(
    ("kappa", "method", "reads"), [(1e3, "cholesky-qr2", 2), (1e5, "cholesky-qr2", 2), (1e9, "tsqr", 3)]
)
def test_ill_conditioned_data_climb_as_other_matrices_do_and_stay_exact(kappa, method, reads, rng):
    turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A = network(rng, 1500, 5, 3, chunks=500, mix=turned * np.geomspace(1, 1 / kappa, 5) @ turned.T)
    factor = check(A)
    assert (factor.method, factor.reads) == (method, reads)
    error = np.abs(nlis.leverage_scores(A, factor).compute() - dense(formed(A))[1]).max()
    assert error < max(1e-15, factor.condition * EPS / 10)


@pytest.mark.parametrize("gap", [1e-3, 1e-5])
def test_the_condition_is_that_of_the_basis_though_a_column_of_an_outer_weight_hides_it(gap, rng):
    # Both columns of x are nearly one, and b_1 x is what they differ by: a column of full length after scaling.
    u, v = rng.normal(size=(2, 800))
    theta = np.array([0.7, 1.0, -1.0])
    A = nlis.dual_matrix(nlis.Problem(nlis.ReluNetwork(1)), np.column_stack([u, u + gap * v]), theta=theta)
    factor = nlis.factorize(A)
    assert factor.condition < 3
    assert (factor.method, factor.reads, factor.rank) == ("cholesky-qr2", 2, 2)
    on = (v < 0)[:, None] * np.column_stack([u, v])
    np.testing.assert_allclose(nlis.leverage_scores(A, factor), dense(on)[1], atol=100 * EPS / gap)


def test_labels_near_the_span_of_the_other_columns_climb_too(rng):
    A = network(rng, 2000, 4, 3, chunks=700)
    x, theta = np.asarray(A.source.x.compute()), A.theta
    fitted = A.problem.model.predict(theta, x)  # a combination of the columns
    for noise, method in ((1e-1, "patterns"), (1e-4, "cholesky-qr2"), (0.0, "tsqr")):
        B = nlis.dual_matrix(A.problem, A.source.x, fitted + noise * rng.normal(size=len(x)), theta=theta)
        factor = check(B)
        assert factor.method == method
        if method == "patterns":  # a Gram matrix squares the condition
            assert factor.score_tolerance == pytest.approx(100 * factor.condition**2 * EPS)


def test_theta_of_zeros_leaves_the_labels_alone(rng):
    x, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    A = nlis.dual_matrix(nlis.Problem(nlis.ReluNetwork(3)), x, y, theta=np.zeros(12))
    factor = nlis.factorize(A)
    assert (factor.rank, factor.method) == (1, "patterns")
    np.testing.assert_allclose(nlis.leverage_scores(A, factor), y**2 / (y @ y), rtol=1e-13)


def test_a_rank_near_the_tolerance_is_told_apart_from_columns_that_are_dependent_by_construction(rng):
    x = rng.normal(size=(400, 4))
    x[:, 3] = x[:, 0] + 1e-13 * x[:, 3]
    A = nlis.dual_matrix(nlis.Problem(nlis.ReluNetwork(2)), x, rng.normal(size=400), theta=rng.normal(size=10))
    # Two units see the near dependency; the columns of a_1 and a_2, dropped with no digit left, are not spoken of.
    with pytest.warns(nlis.RankAmbiguityWarning, match=r"rank \d+ of 11 .* singular values \S+, \S+ lie near"):
        nlis.factorize(A)


OTHERS = {
    "squared units": (nlis.ReluNetwork(2, unit=nlis.SquaredRelu()), nlis.SquaredError()),
    "phi on each unit": (nlis.ReluNetwork(2, nlis.Tanh(), per_unit=True), nlis.SquaredError()),
    "integrated": (nlis.ReluNetwork(2, per_unit=True), nlis.PseudoHuber(1.0)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_rows_that_are_no_linear_map_by_pattern_are_formed(name, rng):
    model, loss = OTHERS[name]
    problem = nlis.Problem(model, loss)
    A = nlis.dual_matrix(problem, rng.normal(size=(100, 2)), rng.normal(size=100), theta=rng.normal(size=6))
    assert units_of(A.rule, True) is None
    for other in (nlis.reference_matrix(problem, A.source.x), as_matrix(np.eye(3))):
        assert units_of(other.rule, False) is None


def test_weights_beyond_the_range_of_their_ratios_are_left_to_formed_rows(rng):
    model = nlis.ReluNetwork(2)
    x, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    b = rng.normal(size=(2, 2))
    for small in (1e-100, 2.0**10):
        A = nlis.dual_matrix(nlis.Problem(model), x, y, theta=model.pack(a=[small, 1.0], b=b / [[small], [1.0]]))
        assert (units_of(A.rule, True) is None) == (small == 1e-100)
        np.testing.assert_allclose(nlis.leverage_scores(A, nlis.factorize(A)), dense(formed(A))[1], atol=1e-11)


# -- columns at the ends of float64, bad rows, changed data -------------------------------------------------------------


@pytest.mark.parametrize("power", [-600, -300, 300, 520])
def test_powers_of_two_on_the_data_move_no_leverage(power, rng):
    A = network(rng, 300, 3, 2, chunks=100, labels=False)
    x = np.asarray(A.source.x.compute()).copy()
    x[:100] = 0.0  # a block of zeros has no scale of its own
    A, scaled = nlis.dual_matrix(A.problem, x, theta=A.theta), np.ldexp(x, power)
    B = nlis.dual_matrix(A.problem, da.from_array(scaled, (100, 3)), theta=A.theta)
    expected = dense(formed(A))[1]
    factor = nlis.factorize(B)
    assert (factor.rank, factor.reads) == (6, 1)
    np.testing.assert_allclose(nlis.leverage_scores(B, factor), expected, atol=1e-13)


def test_a_column_whose_squares_vanish_beside_ordinary_ones_is_a_column_as_any_other(rng):
    x = rng.normal(size=(300, 3))
    model = nlis.ReluNetwork(2)
    theta = model.pack(a=[1.0, -2.0], b=[[1.0, 1.0, 0.5], [-1.0, -0.9, -0.4]])
    x[:, 2] *= np.where(x @ theta[1:4] > 0, 1.0, 1e-200)  # so that it is tiny where the second unit is active
    A = nlis.dual_matrix(nlis.Problem(model), x, rng.normal(size=300), theta=theta)
    factor = nlis.factorize(A)
    rank, h, _ = dense(formed(A))
    assert factor.rank == rank == 7
    np.testing.assert_allclose(nlis.leverage_scores(A, factor), h, atol=1e-12)


def test_rows_that_are_not_finite_are_reported_as_from_formed_rows(rng):
    A = network(rng, 90, 3, 2)
    x, theta, problem = np.asarray(A.source.x.compute()).copy(), A.theta, A.problem
    y = np.asarray(A.source.y.compute())
    factor = nlis.factorize(A)
    x[17, 1] = x[60, 2] = np.nan
    B = nlis.dual_matrix(problem, da.from_array(x, (20, 3)), y, theta=theta)
    with pytest.raises(nlis.NonFiniteError, match=r"column 1 \('x1'\).* at row 17 \(2 rows in all\)"):
        nlis.factorize(B)
    C = nlis.dual_matrix(problem, da.from_array(x, (20, 3)), y, theta=theta, missing="drop")
    kept = nlis.factorize(C)
    assert (kept.n_rows, kept.n_dropped, kept.method) == (88, 2, "patterns")
    scores = nlis.leverage_scores(C, kept).compute()
    assert scores[17] == scores[60] == 0
    assert scores.sum() == pytest.approx(kept.rank)
    x[17, 1] = x[60, 2] = 1e308
    D = nlis.dual_matrix(problem, da.from_array(x, (20, 3)), y, theta=100 * theta)
    with pytest.raises(nlis.NonFiniteError, match=r"X, finite at row 17, overflows in the model"):
        nlis.factorize(D)
    assert factor.n_rows == 90


@pytest.mark.parametrize("kappa", [1.0, 1e4])
def test_data_that_change_between_the_reads_are_noticed(kappa, rng):
    A = network(rng, 200, 3, 2, mix=np.diag([1.0, 1.0, 1.0]) + (1 - 1 / kappa))
    counted = CountingArray(np.asarray(A.source.x.compute()).copy())
    B = nlis.dual_matrix(A.problem, counted.dask(50), A.source.y, theta=A.theta)
    scores = nlis.leverage_scores(B, nlis.factorize(B))
    counted.values[123] *= 1000
    with pytest.raises(nlis.NonFiniteError, match="row 123 exceeds 1: X or y changed since factorize"):
        scores.compute()


def test_a_form_that_rounding_brings_below_zero_is_zero_and_no_more_is_forgiven(rng, monkeypatch):
    A = network(rng, 100, 3, 2)
    x, y = (np.asarray(part.compute()) for part in (A.source.x, A.source.y))
    factor, units = nlis.factorize(A), units_of(A.rule, True)
    form = form_of(units, factor.whitener)
    options = {"job": A.job, "whitener": (factor.whitener, None), "tolerance": 1e-12, "by_pattern": True}
    worth(monkeypatch, True)
    for corner, lowest in ((form.corner, y[0] ** 2 * form.corner), (-1e-14, 0.0)):
        found = leverage_block(x[:1], y[:1], None, 0, form=form._replace(corner=corner), **options)  # x is 0 there
        np.testing.assert_allclose(found, lowest, rtol=1e-14)
    with pytest.raises(nlis.NonFiniteError, match=r"of row 7 is negative: .* factorize again"):
        leverage_block(x[:1], y[:1], None, 7, form=form._replace(corner=-1.0), **options)


def test_a_loss_without_a_slope_is_refused_by_row(rng):
    A = network(rng, 60, 3, 2)
    x, y = np.asarray(A.source.x.compute()), np.asarray(A.source.y.compute()).copy()
    y[0] = 0.0  # x is 0 there, so that the prediction and phi(0) are 0 too
    B = nlis.dual_matrix(nlis.Problem(A.problem.model, nlis.AbsoluteError()), x, y, theta=A.theta)
    with pytest.raises(nlis.NlisError, match="at row 0 "):
        nlis.factorize(B)


# -- the parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 8, 9, 16, 17, 64, 65, 130])
def test_groups_are_the_distinct_patterns_and_their_rows_in_order(m, rng):
    kinds = rng.random((6, m)) < 0.5
    kinds[3:] = kinds[:3]
    kinds[3:, -1] = ~kinds[:3, -1]  # patterns that differ at the end alone
    active = kinds[rng.integers(0, 6, size=200)]
    rows = np.flatnonzero(rng.random(200) < 0.8)
    order, edges = kernels.grouped(active, rows)
    np.testing.assert_array_equal(np.sort(order), rows)
    groups = np.split(order, edges[1:-1])
    assert len(groups) == len(np.unique(active[rows], axis=0))
    for group in groups:
        assert (active[group] == active[group[0]]).all()
        assert (np.diff(group) > 0).all()
    empty, none = kernels.grouped(active, rows[:0])
    assert (len(empty), none.tolist()) == (0, [0])


def test_windows_cut_all_rows_into_pieces_and_say_which_group_each_is_of(rng):
    edges = np.concatenate([[0], np.cumsum(rng.integers(1, 90, size=60))])
    found = np.full(edges[-1], -1)
    ends = [0]
    for first, last, members in kernels.windows(edges, 2**20, fewest=100):
        assert first == ends[-1] < last <= first + 100
        ends.append(last)
        for group, part in members:
            assert (found[first:last][part] == -1).all()
            found[first:last][part] = group
    assert ends[-1] == edges[-1]
    np.testing.assert_array_equal(found, np.repeat(np.arange(60), np.diff(edges)))


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("batch", [1, 2**24])
@pytest.mark.parametrize("spoil", [(), ("no outer weight", "dead unit")])
def test_gram_matrices_and_products_are_those_of_the_formed_basis(group, batch, spoil, rng, monkeypatch):
    worth(monkeypatch, group)
    monkeypatch.setattr(kernels, "BATCH_BYTES", batch)
    monkeypatch.setattr(kernels, "_WINDOW_BYTES", 1)  # 256 rows, so that groups are cut
    model = nlis.ReluNetwork(3, nlis.Logistic(), hidden_bias=True, unit=nlis.LeakyRelu(0.3))
    A = network(rng, 500, 3, 3, model=model, weights=True, spoil=spoil)
    B, units = basis_of(A)
    F = formed(A)
    np.testing.assert_allclose(B @ units.widening(), F, atol=1e-12 * np.abs(F).max())
    np.testing.assert_allclose(read_gram(A, narrow=units).values, B.T @ B, atol=1e-13 * (B.T @ B).max())
    W = rng.normal(size=(F.shape[1], 4))
    np.testing.assert_allclose(B @ units.narrowed(W), F @ W, atol=1e-12 * np.abs(F @ W).max())
    white = F @ W
    np.testing.assert_allclose(read_gram(A, W, narrow=units).values, white.T @ white, rtol=1e-11)
    x, y, v = (np.asarray(part.compute()) for part in (A.source.x, A.source.y, A.source.weight))
    ((groups, _),) = groupings(x, y, v, 0, [Sought(A.job)], choose("cpu"))
    found = np.zeros((500, 4))
    for place, rows in sliced(groups, units.narrowed(W), 1):
        found[place] = rows
    np.testing.assert_allclose(found, white, atol=1e-12 * np.abs(white).max())


def test_which_groups_are_worth_a_matrix_of_their_own_follows_the_work():
    sizes = np.arange(1, 400)
    assert kernels.worth_grouping(sizes, 10, 100, 1001).argmax() + 1 <= 4  # p = 1010: from a few rows on
    assert kernels.worth_grouping(sizes, 3, 5, 16).argmax() + 1 > 50  # small matrices: the loop costs more
    assert not kernels.worth_grouping(sizes, 1, 40, 41)[:20].any()
    assert 4 <= kernels.worth_slicing(sizes, 10, 100, 1001, 1001).argmax() + 1 <= 12
    assert kernels.worth_a_form(sizes, 10, 100, 1001, 1001).argmax() + 1 <= 2
    assert kernels.worth_a_form(sizes, 3, 5, 16, 16).argmax() + 1 > 20
    assert not kernels.worth_slicing(sizes, 1, 100, 101, 101)[:50].any()  # one unit: little to save


def test_no_array_of_rows_times_columns_is_in_memory(rng):
    n, d, m = 40_000, 40, 10
    A = network(rng, n, d, m, loss=nlis.LogisticLoss())
    x, y = (np.asarray(part.compute()) for part in (A.source.x, A.source.y))
    pair = 1e-6 * rng.normal(size=(A.shape[1], A.shape[1])), None
    for run in (
        lambda: gram_block(x, y, None, 0, job=A.job, narrow=True),
        lambda: leverage_block(x, y, None, 0, job=A.job, whitener=pair, tolerance=1e-9, by_pattern=True),
    ):
        tracemalloc.start()
        run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60 * 2**20 < 8 * n * A.shape[1] / 2  # a few numbers a row, and batches of 16 MB


# -- neighbours ---------------------------------------------------------------------------------------------------------


def test_matrices_of_the_same_rows_share_a_read(rng):
    A = network(rng, 600, 3, 2, chunks=200)
    counted = CountingArray(np.asarray(A.source.x.compute()))
    duals = [nlis.dual_matrix(A.problem, counted.dask(200), A.source.y, theta=k * A.theta) for k in (1, 2)]
    plain = nlis.reference_matrix(A.problem, counted.dask(200), A.source.y)
    factors, reads = factorize_together([*duals, plain])
    assert (reads, counted.reads()) == (1, 1)
    assert [factor.method for factor in factors] == ["patterns", "patterns", "gram"]
    assert all(same_bits(factor.r, nlis.factorize(M).r) for factor, M in zip(factors, [*duals, plain], strict=True))


def test_factors_merge_and_give_the_leverage_among_all_rows(rng):
    A = network(rng, 900, 4, 3)
    x, y = (np.asarray(part.compute()) for part in (A.source.x, A.source.y))
    halves = [nlis.dual_matrix(A.problem, x[s], y[s], theta=A.theta) for s in (slice(0, 400), slice(400, None))]
    a, b = map(nlis.factorize, halves)
    merged = a.merge(b)
    assert merged.method == "patterns"
    assert merged.rank == 13
    h = dense(formed(A))[1]
    for half, expected in zip(halves, (h[:400], h[400:]), strict=True):
        np.testing.assert_allclose(nlis.leverage_scores(half, merged), expected, atol=1e-13)


def test_bits_do_not_depend_on_the_scheduler(rng):
    A = network(rng, 3000, 4, 3, chunks=300)
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor)
    with dask.config.set(scheduler="threads", num_workers=3):
        assert same_bits(nlis.factorize(A).r, factor.r)
        other = scores.compute()
    assert same_bits(other, scores.compute())


@pytest.mark.parametrize("method", ["auto", "sketch", "sketch-only"])
def test_a_device_whose_arrays_are_not_numpys_gives_the_same_by_forming_rows(method, rng, monkeypatch):
    A = network(rng, 400, 3, 2, chunks=150, weights=True, spoil=("no outer weight",))
    known = nlis.factorize(A, method=method)
    expected = nlis.leverage_scores(A, known).compute()
    gpu = FakeGPU()
    monkeypatch.setattr(device, "opened", gpu.opened)
    factor = nlis.factorize(A, method=method)
    assert (factor.method, factor.rank, factor.reads) == (known.method, known.rank, known.reads)
    np.testing.assert_allclose(nlis.leverage_scores(A, factor).compute(), expected, atol=1e-12)
    assert gpu.puts


@pytest.mark.parametrize("spoil", [(), ("no outer weight", "dead unit", "zero pixel")])
@pytest.mark.parametrize("unit", [nlis.Relu(), nlis.LeakyRelu(0.2)])
def test_the_sketch_by_unit_is_that_of_the_formed_rows(unit, spoil, rng):
    A = network(rng, 700, 3, 3, model=nlis.ReluNetwork(3, unit=unit, hidden_bias=True), weights=True, spoil=spoil)
    B, units = basis_of(A)
    found, _ = read_sketch(A, 2, units)
    expected, _ = read_sketch(as_matrix(B), 2)
    for r, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(r, other, atol=1e-12 * np.abs(other).max())


def test_the_sketch_by_unit_does_not_know_the_chunks(rng):
    x = rng.integers(-4, 5, size=(400, 3)).astype(float)  # integers add up without rounding
    theta = np.array([1.0, 2.0, -1.0, 1.0, -2.0, 1.0, 1.0, -3.0])
    problem = nlis.Problem(nlis.ReluNetwork(2))
    whole, *cut = (
        nlis.dual_matrix(problem, da.from_array(x, (chunks, 3)), np.ones(400), theta=theta)
        for chunks in (400, 7, 33, (1, 300, 0, 99))
    )
    units = units_of(whole.rule, True)
    expected, _ = read_sketch(whole, 2, units)
    for matrix in cut:
        assert all(same_bits(*pair) for pair in zip(read_sketch(matrix, 2, units)[0], expected, strict=True))


def test_sketch_only_promises_a_share_of_the_leverage_of_a_network(rng):
    A = network(rng, 3000, 4, 3, chunks=1000)
    rough = nlis.factorize(A, method="sketch-only")
    assert (rough.rank, rough.reads) == (13, 1)
    h, exact = nlis.leverage_scores(A, rough).compute(), dense(formed(A))[1]
    assert 0.05 < rough.beta < 1
    assert ((h / h.sum()) >= rough.beta * exact / exact.sum()).all()
