"""Tangent matrices, influence and mixtures of ReLU networks by activation pattern: those of formed rows, in fewer reads."""

import pickle
import sys
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
from dask_nlis.factor.gram import grams_block
from dask_nlis.factor.sketch import read_sketch
from dask_nlis.kernels import patterns as kernels
from dask_nlis.matrix import as_matrix
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.patterns import units_of
from dask_nlis.pipeline.held import score_held
from dask_nlis.scores import Share, lazy_deletion, lazy_scores, mixture_scorer
from dask_nlis.scores.blend import mixture_block
from dask_nlis.scores.patterns import forms_of

EPS = np.finfo(np.float64).eps
SHARE = Share(0.1, 0.2, 0.3)


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def network(rng, n, *, model=None, loss=None, d=5, weights=False, spoil=False, missing="raise", mix=None, wrap=None):
    """Dual and tangent matrix of the same rows; spoiled: a dead unit, one without outer weight, a pixel of zeros."""
    model, loss = model or nlis.ReluNetwork(4), loss or nlis.SquaredError()
    x = rng.normal(size=(n, d)) if mix is None else rng.normal(size=(n, d)) @ mix
    parts = {name: part.copy() for name, part in model.unpack(rng.normal(size=model.n_parameters(d))).items()}
    if spoil:
        x[:, 0], x[:, d // 2] = np.abs(x[:, 0]) + 0.1, 0.0
        parts["b"][0] = -np.eye(parts["b"].shape[1])[0]
        parts["a"][1] = 0.0
    x[0], x[1] = 0.0, 1e-12 * x[1]
    y = (rng.random(n) < 0.5).astype(float) if isinstance(loss, nlis.LogisticLoss) else 2 * rng.normal(size=n)
    if missing == "drop":
        x[7, 1] = y[-3] = np.nan
    options = {"theta": model.pack(**parts), "missing": missing}
    options |= {"sample_weight": rng.integers(0, 3, size=n).astype(float) if weights else None}
    rows = da.from_array(x, (250, d)) if wrap is None else wrap(x)
    problem = nlis.Problem(model, loss)
    return tuple(make(problem, rows, y, **options) for make in (nlis.dual_matrix, nlis.tangent_matrix))


def basis_of(F):
    """Left singular vectors of columns brought to norm 1, and the condition."""
    norms = np.linalg.norm(F, axis=0)
    left, s, right = np.linalg.svd(F / np.where(norms > 0, norms, 1.0), full_matrices=False)
    kept = s > 1e-10 * s[0]
    return left[:, kept], (right[kept] / s[kept, None]).T / np.where(norms > 0, norms, 1.0)[:, None], s[0] / s[kept][-1]


def defined(A, T):
    """Leverage of A and T, and influence, by the dense SVD of formed rows and the definition of psi."""
    ok = np.isfinite(np.asarray(T.source.y.compute())) & np.isfinite(np.asarray(T.source.x.compute())).all(axis=1)
    x, y = np.asarray(T.source.x.compute())[ok], np.asarray(T.source.y.compute())[ok]
    v = np.ones(len(ok)) if T.source.weight is None else np.asarray(T.source.weight.compute())
    problem, theta = T.problem, T.theta
    psi = np.zeros((len(ok), T.shape[1]))
    prediction = problem.model.predict(theta, x)
    slopes = problem.loss.derivative(prediction, y)
    psi[ok] = (v[ok] * slopes)[:, None] * problem.model.jacobian(theta, x)
    F = np.asarray(T.to_dask_array().compute())
    left, whitener, kappa = basis_of(F)
    dual, _, other = basis_of(np.asarray(A.to_dask_array().compute()))
    lengths = np.linalg.norm(psi @ whitener, axis=1)
    return (dual**2).sum(axis=1), (left**2).sum(axis=1), lengths, v * ok > 0, max(kappa, other)


def worth(monkeypatch, answer):
    """Group all rows by pattern, or form all of them, whatever that costs."""
    rooms = {"factor.patterns": "worth_grouping", "matrix.sliced": "worth_slicing", "scores.patterns": "worth_a_form"}
    for room, name in ((f"dask_nlis.{room}", name) for room, name in rooms.items()):
        monkeypatch.setattr(f"{room}.{name}", lambda sizes, *_: np.full(len(sizes), answer))


def formed_only(monkeypatch):
    """No matrix has patterns, so that all rows are formed."""
    for room in ("matrix.grouping", "factor.climb", "factor.gram", "factor.sketch", "scores.leverage"):
        monkeypatch.setattr(f"dask_nlis.{room}.units_of", lambda *_: None)


def in_blocks(x):
    return da.from_array(x, (600, x.shape[1]))


CASES = {
    "identity": (nlis.ReluNetwork(4), nlis.SquaredError()),
    "logistic loss": (nlis.ReluNetwork(4), nlis.LogisticLoss()),
    "tanh, with biases": (nlis.ReluNetwork(4, nlis.Tanh(), hidden_bias=True), nlis.PseudoHuber(1.0)),
    "phi(0) is not 0": (nlis.ReluNetwork(4, nlis.Logistic()), nlis.SquaredError()),
    "rows without curvature": (nlis.ReluNetwork(4, nlis.Swish(1, 2)), nlis.Huber(1.0)),
    "leaky": (nlis.ReluNetwork(4, nlis.Tanh(), unit=nlis.LeakyRelu(0.2)), nlis.SquaredError()),
    "identity on each unit": (nlis.ReluNetwork(4, per_unit=True), nlis.SquaredError()),
}


@pytest.mark.parametrize("spoil", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_factor_influence_and_mixture_are_those_of_the_definitions(name, spoil, rng, monkeypatch):
    monkeypatch.setattr("dask_nlis.device.memory._SUB_BLOCK_BYTES", {"cpu": 1})  # 256 rows, several to a block
    model, loss = CASES[name]
    A, T = network(
        rng,
        900,
        model=model,
        loss=loss,
        weights=True,
        spoil=spoil,
        missing="drop" if spoil else "raise",
        wrap=in_blocks,
    )
    h, tangent, lengths, counts, kappa = defined(A, T)
    factors, reads = factorize_together([A, T])
    one = {"patterns"} if kappa < 50 else {"patterns", "cholesky-qr2"}
    assert {factor.method for factor in factors} <= one
    assert reads == max(factor.reads for factor in factors)
    assert factors[1].rank == round(tangent.sum())
    # Columns that depend on others by construction take part in no whitener but through them.
    tree = nlis.factorize(T, method="tsqr")
    assert (factors[1].rank, factors[1].dependent) == (tree.rank, tree.dependent)
    np.testing.assert_allclose(factors[1].r.T @ factors[1].r, tree.r.T @ tree.r, atol=1e-13 * np.abs(tree.r).max() ** 2)
    np.testing.assert_allclose(nlis.leverage_scores(T, factors[1]).compute(), tangent, atol=1e-12)
    np.testing.assert_allclose(nlis.influence_scores(T, factors[1]).compute(), lengths, rtol=1e-12, atol=1e-25)
    mixed = lazy_scores(A, mixture_scorer(A, T, factors, SHARE)).compute()
    np.testing.assert_allclose(mixed, 0.1 * h + 0.2 * lengths + 0.3 * counts, rtol=1e-12, atol=1e-25)
    assert (mixed[~counts] == 0).all()
    deleted = lazy_deletion(A, factors[0]).compute()
    np.testing.assert_allclose(deleted, nlis.loss_scores(A).compute() / (1 - h) ** 2, rtol=1e-11, atol=1e-25)


@pytest.mark.parametrize("group", [True, False])
def test_one_read_for_both_factors_one_for_the_mixture_and_no_row_is_formed(group, rng, monkeypatch):
    worth(monkeypatch, group)
    counted = []

    def wrap(x):
        counted.append(CountingArray(x))
        return counted[0].dask(250)

    A, T = network(rng, 1000, loss=nlis.LogisticLoss(), weights=True, wrap=wrap)
    h, _, lengths, counts, _ = defined(A, T)
    seen = []
    sorted_once = kernels.grouped
    monkeypatch.setattr(kernels, "grouped", lambda *given: seen.append(1) or sorted_once(*given))
    for room in ("factor.gram", "scores.leverage", "scores.blend", "scores.deletion"):
        monkeypatch.setattr(sys.modules[f"dask_nlis.{room}"], "matrix_rows", None)
    for room in ("scores.blend", "scores.influence"):
        monkeypatch.setattr(sys.modules[f"dask_nlis.{room}"], "gradient_rows", None)
    (X,) = counted
    X.reads()
    with Tasks() as tasks:
        factors, reads = factorize_together([A, T])
    assert (X.reads(), reads, len(seen)) == (1, 1, 4)  # both matrices' rows were sorted at once
    assert tasks.labels == {"nlis-factor": 4, "nlis-factor-sum": 1}
    assert [factor.method for factor in factors] == ["patterns", "patterns"]
    assert same_bits(factors[0].r, nlis.factorize(A).r)
    assert same_bits(factors[1].r, nlis.factorize(T).r)
    X.reads()
    seen.clear()
    monkeypatch.setattr("dask_nlis.scores.patterns.sliced", None)  # forms serve
    scores = lazy_scores(A, mixture_scorer(A, T, factors, SHARE))
    assert executed(scores) == 4 + 1  # both forms are made at once
    np.testing.assert_allclose(scores.compute(), 0.1 * h + 0.2 * lengths + 0.3 * counts, rtol=1e-12, atol=1e-25)
    assert (X.reads(), len(seen)) == (1, 4)
    np.testing.assert_allclose(nlis.influence_scores(T, factors[1]).compute(), lengths, rtol=1e-12)
    alone = lazy_scores(A, mixture_scorer(A, T, factors, Share(0.0, 2.0, 0.0)))
    np.testing.assert_allclose(alone.compute(), 2 * lengths, rtol=1e-12)
    lazy_deletion(A, factors[0]).compute()


def test_scores_by_pattern_are_those_of_the_dense_path_and_of_any_scheduler(rng, monkeypatch):
    A, T = network(rng, 1000, model=nlis.ReluNetwork(4, nlis.Tanh()), weights=True, spoil=True)
    factors, _ = factorize_together([A, T])

    def scores():
        return [
            lazy_scores(A, mixture_scorer(A, T, factors, SHARE)),
            nlis.influence_scores(T, factors[1]),
            lazy_deletion(A, factors[0]),
        ]

    found = dask.compute(*scores())
    with dask.config.set(scheduler="threads", num_workers=3):
        assert all(map(same_bits, dask.compute(*scores()), found))
    formed_only(monkeypatch)
    dense = dask.compute(*scores())
    for one, other in zip(found, dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-25)
    # The path that formed rows have ends in the QR tree, at the same scores.
    (_, tree), reads = factorize_together([A, T])
    assert (tree.method, reads) == ("tsqr", 3)
    np.testing.assert_allclose(nlis.influence_scores(T, tree).compute(), found[1], rtol=1e-12)


def test_rows_of_one_matrix_that_are_zero_leave_the_other_as_if_alone(rng):
    A, T = network(rng, 900, loss=nlis.Huber(0.5), weights=True)
    bent = np.asarray(T.to_dask_array().compute()).any(axis=1)
    assert 50 < bent.sum() < 400
    block = [np.asarray(part.compute()) for part in (A.source.x, A.source.y, A.source.weight)]
    sought = [Sought(A.job), Sought(T.job), None, Sought(T.job, gradients=True)]
    together = groupings(*block, 0, sought, choose("cpu"))
    assert together[2] is None
    for each, found in zip(sought, together, strict=True):
        (alone,) = groupings(*block, 0, [each], choose("cpu"))
        assert (found is None) == (each is None)
        assert found is None or all(map(np.array_equal, found.groups[2:], alone.groups[2:]))
    np.testing.assert_array_equal(np.sort(together[1].groups.order), np.flatnonzero(bent))


def test_matrices_at_other_thetas_have_patterns_of_their_own(rng):
    A, T = network(rng, 900, loss=nlis.LogisticLoss())
    other = nlis.tangent_matrix(A.problem, A.source.x, A.source.y, theta=rng.normal(size=24))
    factors, reads = factorize_together([A, other, T])
    assert reads == 1
    assert all(same_bits(f.r, nlis.factorize(M).r) for f, M in zip(factors, (A, other, T), strict=True))


@pytest.mark.parametrize(("kappa", "method"), [(1e4, "cholesky-qr2"), (1e8, "tsqr")])
def test_ill_conditioned_data_climb_and_stay_as_exact_as_the_condition_lets_them(kappa, method, rng):
    turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A, T = network(rng, 1500, model=nlis.ReluNetwork(3), mix=turned * np.geomspace(1, 1 / kappa, 5) @ turned.T)
    factors, _ = factorize_together([A, T])
    assert factors[1].method == method
    _, h, lengths, _, condition = defined(A, T)
    atol = 100 * condition * EPS
    np.testing.assert_allclose(nlis.leverage_scores(T, factors[1]).compute(), h, atol=atol)
    found = nlis.influence_scores(T, factors[1]).compute()
    np.testing.assert_allclose(found, lengths, rtol=atol, atol=atol * lengths.max())
    assert factors[1].correction is not None


def test_jobs_that_reached_a_worker_one_by_one_are_grouped_together(rng, monkeypatch):
    jobs = [pickle.loads(pickle.dumps(matrix.job)) for matrix in network(rng, 500)]
    x, seen, sorted_once = rng.normal(size=(500, 5)), [], kernels.grouped
    monkeypatch.setattr(kernels, "grouped", lambda *given: seen.append(1) or sorted_once(*given))
    assert jobs[0].rule.problem is not jobs[1].rule.problem
    made = groupings(x, x[:, 0], None, 0, [Sought(each) for each in jobs], choose("cpu"))
    assert (len(seen), [each.groups is not None for each in made]) == (1, [True, True])


def test_where_one_factor_is_by_pattern_and_the_other_is_not(rng, monkeypatch):
    A, T = network(rng, 900, loss=nlis.LogisticLoss())
    trees = [nlis.factorize(M, method="tsqr") for M in (A, T)]
    dual, tangent = (  # as of a high condition: a correction belongs to formed rows
        nlis.Factor.from_dict(tree.to_dict() | {"correction": np.eye(tree.rank)}) for tree in trees
    )
    h, _, lengths, counts, _ = defined(A, T)
    formed = []
    for name in ("gradient_rows", "matrix_rows"):
        used = getattr(sys.modules["dask_nlis.scores.blend"], name)
        spy = lambda *given, name=name, used=used: formed.append(name) or used(*given)  # noqa: E731
        monkeypatch.setattr(sys.modules["dask_nlis.scores.blend"], name, spy)
    for factors, name in (
        ((nlis.factorize(A), tangent), {"gradient_rows"}),
        ((dual, nlis.factorize(T)), {"matrix_rows"}),
        (trees, set()),  # without a correction, and with a small condition
    ):
        formed.clear()
        found = lazy_scores(A, mixture_scorer(A, T, factors, SHARE)).compute()
        np.testing.assert_allclose(found, 0.1 * h + 0.2 * lengths + 0.3 * counts, rtol=1e-12, atol=1e-25)
        assert set(formed) == name


def test_tangent_rows_that_are_no_linear_map_by_pattern_are_formed_and_others_need_no_closed_adjoint(rng):
    for model, loss, has in (
        (nlis.ReluNetwork(2, nlis.Tanh(), per_unit=True), nlis.SquaredError(), False),
        (nlis.ReluNetwork(2, unit=nlis.SquaredRelu()), nlis.SquaredError(), False),
        (nlis.ReluNetwork(2, per_unit=True), nlis.PseudoHuber(1.0), True),  # the dual row is an integral
    ):
        A, T = network(rng, 300, model=model, loss=loss, d=3)
        assert (units_of(T.rule, True) is not None) == has
        if has:
            assert units_of(A.rule, True) is None
        _, _, lengths, _, _ = defined(A, T)
        found = nlis.influence_scores(T, nlis.factorize(T)).compute()
        np.testing.assert_allclose(found, lengths, rtol=1e-11, atol=1e-25)


def test_an_index_that_overflows_is_left_to_formed_rows(rng):
    model = nlis.ReluNetwork(2, nlis.Tanh())
    x, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    theta = model.pack(a=[1.0, -2.0], b=rng.normal(size=(2, 3)))
    x[17] = 1.7e308
    problem = nlis.Problem(model)
    T = nlis.tangent_matrix(problem, da.from_array(x, (50, 3)), y, theta=np.abs(theta))
    with pytest.raises(nlis.NonFiniteError, match="X, finite at row 17, overflows in the model"):
        nlis.factorize(T)
    x[17] = np.nan
    T = nlis.tangent_matrix(problem, da.from_array(x, (50, 3)), y, theta=theta)
    with pytest.raises(nlis.NonFiniteError, match="at row 17 "):
        nlis.factorize(T)


def test_bad_rows_between_the_reads_are_named_by_influence_and_mixture(rng):
    held = []

    def wrap(x):
        held.append(x)
        return CountingArray(x).dask(250)

    A, T = network(rng, 600, wrap=wrap)
    factors, _ = factorize_together([A, T])
    influence, mixed = nlis.influence_scores(T, factors[1]), lazy_scores(A, mixture_scorer(A, T, factors, SHARE))
    held[0][123, 1] = np.nan
    for scores in (influence, mixed):
        with pytest.raises(nlis.NonFiniteError, match=r"column 1 \('x1'\).* at row 123 "):
            scores.compute()
    held[0][123] = 1e200
    with pytest.raises(nlis.NonFiniteError, match="X, finite at row 123, overflows in the model"):
        influence.compute()
    held[0][123] = 1e5
    with pytest.raises(nlis.NonFiniteError, match="row 123 exceeds 1: X or y changed since factorize"):
        mixed.compute()


@pytest.mark.parametrize("method", ["auto", "sketch", "sketch-only"])
def test_a_device_whose_arrays_are_not_numpys_gives_the_same_by_forming_rows(method, rng, monkeypatch):
    A, T = network(rng, 400, weights=True, spoil=True)
    known = [nlis.factorize(M, method=method) for M in (A, T)]
    expected = lazy_scores(A, mixture_scorer(A, T, known, SHARE)).compute()
    gpu = FakeGPU()
    monkeypatch.setattr(device, "opened", gpu.opened)
    factors = [nlis.factorize(M, method=method) for M in (A, T)]
    assert [factor.rank for factor in factors] == [factor.rank for factor in known]
    np.testing.assert_allclose(lazy_scores(A, mixture_scorer(A, T, factors, SHARE)).compute(), expected, rtol=1e-11)
    assert gpu.puts


def test_the_sketch_of_a_tangent_matrix_by_unit_is_that_of_the_formed_rows(rng):
    _, T = network(rng, 700, model=nlis.ReluNetwork(3, hidden_bias=True), weights=True, spoil=True, d=3)
    units = units_of(T.rule, True)
    B = np.asarray(T.to_dask_array().compute())[:, units.basis]
    found, _ = read_sketch(T, 2, units)
    expected, _ = read_sketch(as_matrix(B), 2)
    for r, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(r, other, atol=1e-12 * np.abs(other).max())


def test_no_array_of_rows_times_columns_is_in_memory(rng):
    n, d = 40_000, 40
    A, T = network(rng, n, model=nlis.ReluNetwork(10), loss=nlis.LogisticLoss(), d=d)
    block = [np.asarray(part.compute()) for part in (A.source.x, A.source.y)]
    pairs = [(1e-6 * rng.normal(size=(M.shape[1], M.shape[1])), None) for M in (A, T)]
    mixed = {"job": A.job, "tangent": T.rule, "whiteners": pairs, "share": SHARE, "tolerance": 1e-9}
    mixed |= {"forms": forms_of([(units_of(M.rule, True), w) for M, (w, _) in zip((A, T), pairs, strict=True)])}
    for run in (
        lambda: grams_block(
            *block, None, 0, job=A.job, jobs=(A.job, T.job), whiteners=(None, None), narrow=(True, True)
        ),
        lambda: mixture_block(*block, None, 0, by_pattern=(True, True), **mixed),
    ):
        tracemalloc.start()
        run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60 * 2**20 < 8 * n * A.shape[1] / 2  # a few numbers a row, and batches of 16 MB


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")
@pytest.mark.parametrize("scores", ["two-stage", "influence"])
def test_a_run_reads_and_draws_as_its_plan_says_fused_or_not(scores, rng, monkeypatch):
    x = rng.normal(size=(6000, 3))
    theta = nlis.ReluNetwork(2).pack(a=[1.0, -1.5], b=[[1.0, 0.4, 0.2], [-0.3, 1.0, 0.5]])
    problem = nlis.Problem(nlis.ReluNetwork(2))
    y = problem.model.predict(theta, x) + 0.3 * rng.normal(size=len(x))
    options = {"size": 400, "scores": scores, "rounds": 3 if scores == "two-stage" else 2}
    X = CountingArray(x)
    plan = nlis.plan(problem, X.dask(500), y, **options, calibrate=False)
    X.reads()
    with Tasks() as tasks:
        done = nlis.run(problem, X.dask(500), y, **options, seed=2)
    assert X.reads() == sum(done.reads.values()) == plan.reads
    assert len(tasks.keys) <= plan.tasks
    assert done.factor.method == "patterns"
    used = []
    monkeypatch.setattr("dask_nlis.pipeline.fused.fuses", lambda *_: False)
    monkeypatch.setattr("dask_nlis.pipeline.fused.score_held", lambda *given: used.append(1) or score_held(*given))
    held = nlis.run(problem, da.from_array(x, (500, 3)), y, **options, seed=2)
    assert same_bits(held.sample.indices, done.sample.indices)
    assert same_bits(held.sample.probabilities, done.sample.probabilities)
    assert used
