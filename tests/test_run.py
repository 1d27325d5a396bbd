"""nlis.run and nlis.open_run: one job, the same as the five words, kept as it was made."""

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import cache
from itertools import product
from multiprocessing import get_context

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, cut, no_compute, rows_of, same_bits
from dask.base import tokenize

import dask_nlis as nlis
from dask_nlis.datasets.california import FEATURES

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))
LINEAR = nlis.Problem(nlis.Linear())
THETA = np.array([0.5, 0.1, -0.1, 0.1, 0.0, 0.0, -0.7, -0.7, 0.0])
SIZE = 413  # 2 % of the rows
CASES = list(product(("leverage", "norm"), ("poisson", "multinomial"), (False, True)))  # scores, scheme, theta given
STAGED = [("two-stage", scheme, False) for scheme in ("poisson", "multinomial")]


@cache
def california():
    X, y = nlis.datasets.california_housing(standardized=True)
    return X, y, X.compute(), y.compute()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Runs on California, each made once."""

    @cache
    def made(scores="leverage", scheme="poisson", given=False, stored=True):
        store = tmp_path_factory.mktemp("run") / "run.zarr" if stored else None
        theta = THETA if given else None
        X, y, *_ = california()
        return nlis.run(PROBLEM, X, y, size=SIZE, seed=3, theta=theta, scores=scores, scheme=scheme, store=store)

    return made


def _phi(u):
    return u * (1 + (np.sqrt(2) - 1) / (1 + np.exp(-u)))


def _dual(theta):
    """The dual matrix of California by its definition, for squared error and phi(0) = 0."""
    *_, x, y = california()
    inputs = np.column_stack([x, np.ones(len(x))])
    u = inputs @ theta
    return np.column_stack([(_phi(u) / u)[:, None] * inputs, -y])


def _leverage(F):
    u, s, _ = np.linalg.svd(F, full_matrices=False)
    return (u[:, s > 1e-12 * s[0]] ** 2).sum(axis=1)


@pytest.mark.parametrize(("scores", "scheme", "given"), CASES)
def test_a_run_is_the_words_it_is_made_of(job, scores, scheme, given):
    made = job(scores, scheme, given)
    *_, x, y = california()
    theta = THETA if given else made.pilot.theta
    assert (made.pilot is None) == given
    F = _dual(theta)
    expected = _leverage(F) if scores == "leverage" else (F**2).sum(axis=1)
    np.testing.assert_allclose(made.scores.compute(), expected, rtol=1e-9, atol=1e-12)
    if given:
        assert made.sample == nlis.draw(made.scores, SIZE, scheme=scheme, seed=3)
    else:  # the second stage of the same seed: its coins are not the pilot's
        assert set(made.sample.stage) == {1}
        expected_count = made.sample.expected_count(made.scores)
        assert expected_count.sum() == pytest.approx(SIZE, rel=1e-12)
        drawn = made.sample.counts / expected_count[made.sample.indices]
        np.testing.assert_allclose(made.sample.weights, drawn, rtol=1e-14)
    assert same_bits(made.sample_X, x[made.sample.indices])
    assert same_bits(made.sample_y, y[made.sample.indices])
    again = nlis.refit(PROBLEM, made.sample_X, made.sample_y, made.sample, start=theta)
    assert same_bits(made.fit.theta, again.theta)
    assert made.fit.ok
    prediction = _phi(x @ made.fit.theta[:-1] + made.fit.theta[-1])
    assert made.total_loss == pytest.approx(((prediction - y) ** 2).sum(), rel=1e-12)
    assert (made.factor is None) == (scores == "norm")


@pytest.mark.parametrize(("scores", "scheme", "given"), CASES + STAGED)
def test_a_run_in_memory_is_bit_equal_to_one_in_a_store(job, scores, scheme, given):
    kept, held = job(scores, scheme, given), job(scores, scheme, given, stored=False)
    assert held.path is None
    assert same_bits(kept.scores, held.scores)
    for name in ("problem", "factor", "sample", "fit", "pilot", "certificate", "total_loss", "reads"):
        assert getattr(kept, name) == getattr(held, name), name
    assert same_bits(kept.sample_X, held.sample_X)
    assert same_bits(kept.sample_y, held.sample_y)


@pytest.mark.parametrize(("scores", "scheme", "given"), CASES + STAGED)
def test_open_run_gives_the_same_run(job, scores, scheme, given):
    made = job(scores, scheme, given)
    opened = nlis.open_run(made.path)
    assert same_bits(opened.scores, made.scores)
    for name in ("problem", "factor", "sample", "fit", "pilot", "certificate", "total_loss", "path", "manifest"):
        assert getattr(opened, name) == getattr(made, name), name
    assert same_bits(opened.sample_X, made.sample_X)
    assert same_bits(opened.sample_y, made.sample_y)
    assert opened == made


@pytest.mark.parametrize("scores", ["leverage", "norm"])
def test_row_weights_count_in_matrices_fit_and_loss_and_go_into_the_store(scores, tmp_path, rng):
    *_, x, y = california()
    x, y = x[:3000], y[:3000]
    weight = rng.integers(0, 4, len(y)).astype(float)
    options = {"size": 300, "seed": 5, "scores": scores, "sample_weight": da.from_array(weight, chunks=700)}
    made = nlis.run(PROBLEM, x, y, **options, store=tmp_path / "run.zarr")
    assert nlis.open_run(made.path) == made
    by_words = nlis.pilot(PROBLEM, x, y, 75, seed=5, scheme="poisson", sample_weight=weight)
    assert same_bits(made.pilot.theta, by_words.theta)
    A = nlis.dual_matrix(PROBLEM, x, y, theta=made.pilot.theta, sample_weight=weight)
    expected = nlis.leverage_scores(A, nlis.factorize(A)) if scores == "leverage" else nlis.norm_scores(A)
    np.testing.assert_allclose(made.scores.compute(), expected, rtol=1e-12, atol=1e-15)
    assert not made.scores.compute()[weight == 0].any()
    assert same_bits(made.sample_weight, weight[made.sample.indices])
    again = nlis.refit(
        PROBLEM,
        made.sample_X,
        made.sample_y,
        made.sample,
        sample_weight=made.sample_weight,
        start=made.pilot.theta,
    )
    assert again == made.fit
    # Repeated rows have the loss of weighted ones.
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    expected = nlis.total_loss(PROBLEM, x[repeated], y[repeated], made.fit.theta)
    assert made.total_loss == pytest.approx(expected, rel=1e-12)


def test_a_share_is_a_size(job):
    X, y, *_ = california()
    by_share = nlis.run(PROBLEM, X, y, size=0.02, seed=3, pilot_size=0.005, scores="leverage")
    assert by_share.manifest["size"] == SIZE
    assert by_share.manifest["pilot_size"] == SIZE // 4
    assert by_share.fit == job().fit


@pytest.mark.parametrize("scheme", ["poisson", "multinomial"])
@pytest.mark.parametrize("scores", ["leverage", "norm"])
def test_the_pilot_rows_are_drawn_by_reference_leverage_and_never_uniformly(job, scores, scheme):
    X, y, x, labels = california()
    made = job(scores, scheme)
    A = nlis.reference_matrix(PROBLEM, X, y)
    reference = nlis.leverage_scores(A, nlis.factorize(A))
    np.testing.assert_allclose(
        reference, _leverage(np.column_stack([x, np.ones(len(x)), -labels])), rtol=1e-9, atol=1e-12
    )
    assert made.manifest["pilot_size"] == SIZE // 4
    sample = nlis.draw(reference, SIZE // 4, scheme=scheme, seed=3)
    by_words = nlis.refit(PROBLEM, *sample.take(x, labels), sample)
    assert same_bits(made.pilot.theta, by_words.theta)
    uniform = nlis.draw(np.ones(len(x)), SIZE // 4, scheme=scheme, seed=3)
    assert not same_bits(made.pilot.theta, nlis.refit(PROBLEM, *uniform.take(x, labels), uniform).theta)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
@pytest.mark.parametrize(
    ("scores", "theta", "gap", "expected"),
    [
        ("leverage", None, 1.0, {"pilot": 2, "factor": 1, "scores": 1, "total loss": 1}),
        ("leverage", np.ones(4), 1.0, {"factor": 1, "scores": 1, "total loss": 1}),
        ("norm", None, 1.0, {"pilot": 2, "scores": 1, "total loss": 1}),
        ("norm", np.ones(4), 1.0, {"scores": 1, "total loss": 1}),
        # Two columns that differ by 1e-6: the condition exceeds 1e3, and each factor takes one more read.
        ("leverage", None, 1e-6, {"pilot": 3, "factor": 2, "scores": 1, "total loss": 1}),
    ],
    ids=["leverage", "leverage, theta", "norm", "norm, theta", "ill-conditioned"],
)
def test_reads_of_x_are_as_promised_and_as_counted(tmp_path, stored, scores, theta, gap, expected):
    values, y = rows_of(1, 600, 3)
    values[:, 1] = values[:, 0] + gap * values[:, 1]
    X = CountingArray(values)
    store = tmp_path / "run.zarr" if stored else None
    made = nlis.run(LINEAR, X.dask(100), y, size=200, seed=0, theta=theta, scores=scores, store=store)
    assert made.reads == expected
    assert X.reads() == sum(expected.values())
    if stored:
        nlis.open_run(store).scores.compute()
        assert X.reads() == 0


@pytest.mark.parametrize("scores", ["leverage", "norm"])
def test_dropped_rows_score_zero_and_take_no_part(tmp_path, scores):
    values, y = rows_of(2, 500, 3)
    bad = np.zeros(500, dtype=bool)
    bad[[3, 77, 400]] = True
    broken, labels = values.copy(), y.copy()
    broken[3, 1], broken[77, 0], labels[400] = np.nan, -np.inf, np.nan
    theta = np.array([1.0, -1.0, 0.5, 0.1])
    clean = nlis.run(LINEAR, values[~bad], y[~bad], size=100, seed=0, theta=theta, scores=scores)
    made = nlis.run(
        LINEAR, broken, labels, size=100, seed=0, theta=theta, scores=scores, missing="drop", store=tmp_path / "run"
    )
    found = made.scores.compute()
    assert (found[bad] == 0).all()
    np.testing.assert_allclose(found[~bad], clean.scores, rtol=1e-12)
    assert not set(made.sample.indices) & set(np.flatnonzero(bad))
    assert np.isfinite(made.sample_X).all()
    at_fit = nlis.total_loss(LINEAR, values[~bad], y[~bad], made.fit.theta)
    assert made.total_loss == pytest.approx(at_fit, rel=1e-12)
    if made.factor is not None:
        assert (made.factor.n_dropped, made.factor.n_rows) == (3, 497)
    with pytest.raises(nlis.NonFiniteError, match=r"row 3\b"):
        nlis.run(LINEAR, broken, labels, size=100, seed=0)


def test_parameters_carry_the_names_of_the_features(job):
    made = job()
    assert made.fit.names == (*FEATURES, "intercept")
    assert list(made.fit.params) == [*FEATURES, "intercept"]
    assert nlis.open_run(made.path).fit.feature_names == FEATURES
    assert made.manifest["data"]["feature_names"] == list(FEATURES)
    # They travel with the sample too, so that fitting its rows again gives the same names.
    assert nlis.refit(PROBLEM, made.sample_X, made.sample_y, made.sample).feature_names == FEATURES


def test_a_drawn_seed_is_recorded_and_repeats_the_run():
    X, y = rows_of(3, 400, 2)
    first = nlis.run(LINEAR, X, y, size=50)
    assert first.manifest["seed"] == first.sample.seed
    second = nlis.run(LINEAR, X, y, size=50, seed=first.sample.seed)
    assert (second.sample, second.fit) == (first.sample, first.fit)
    assert nlis.run(LINEAR, X, y, size=50).sample.seed != first.sample.seed


def test_scores_in_memory_come_in_the_container_of_x():
    X, y = rows_of(4, 300, 2)
    lazy = nlis.run(LINEAR, da.from_array(X, chunks=(300, 2)), y, size=50, seed=0).scores
    held = nlis.run(LINEAR, X, y, size=50, seed=0).scores
    assert isinstance(lazy, da.Array)
    assert isinstance(held, np.ndarray)
    assert same_bits(lazy, held)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_scores_are_the_same_bytes_under_every_scheduler(tmp_path, job, scheduler):
    X, y, *_ = california()
    # One pool for all computes of the run: Dask would start new processes for each.
    pool = ProcessPoolExecutor(2, get_context("spawn")) if scheduler == "processes" else nullcontext()
    with pool as workers, dask.config.set(scheduler=scheduler, num_workers=2, pool=workers):
        made = nlis.run(PROBLEM, X, y, size=SIZE, seed=3, store=tmp_path / "run.zarr")
    default = job("two-stage")
    assert same_bits(made.scores, default.scores)
    for name in ("factor", "sample", "pilot", "fit", "certificate"):
        assert getattr(made, name) == getattr(default, name), name


@pytest.mark.parametrize("attempt", range(5))
@pytest.mark.parametrize(
    "sizes",
    [(30, 50, 7, 999), (999, 30), (7,), (64, 1, 500)],
    ids=["mixed", "short last", "tiny", "growing"],
)
def test_score_chunks_written_in_parallel_lose_no_row(tmp_path, sizes, attempt):
    # Unaligned writes lose a third of the rows, silently: the store's chunks must be those of the tasks.
    values, y = rows_of(5, 1500, 3)
    chunks = cut(1500, sizes)
    X = da.from_array(values, chunks=(chunks, (3,)))
    theta = np.ones(4)
    made = nlis.run(LINEAR, X, y, size=50, seed=0, theta=theta, scores="norm", store=tmp_path / "run.zarr")
    written = zarr.open_array(tmp_path / "run.zarr" / "scores", mode="r")
    expected = (values**2).sum(axis=1) + 1 + y**2
    np.testing.assert_allclose(written[...], expected, rtol=1e-13)
    assert same_bits(written[...], made.scores)
    assert written.chunks == (max(chunks),)


def test_a_run_has_a_short_repr_a_table_a_token_and_travels_by_pickle(job):
    made = job()
    text = repr(made)
    assert text.startswith("Run(n_rows=20_640, drawn=")
    assert "\n" not in text
    assert len(text) < 300
    assert "<table>" in made._repr_html_()
    assert repr(job(scores="norm")).count("rank=None") == 1
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert tokenize(copy) == tokenize(made)
    assert same_bits(copy.scores, made.scores)


def test_relative_paths_stay_right_when_the_working_directory_changes(tmp_path, monkeypatch):
    values, y = rows_of(6, 200, 2)
    monkeypatch.chdir(tmp_path)
    group = zarr.open_group("data.zarr", mode="w")
    group.create_array("X", data=values, chunks=(50, 2))
    group.create_array("y", data=y, chunks=(50,))
    X, labels = nlis.open_rows("data.zarr", X="X", y="y")
    made = nlis.run(LINEAR, X, labels, size=50, seed=0, store="run.zarr")
    opened = nlis.open_run("run.zarr")
    before = made.scores.compute()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert same_bits(X, values)
    assert same_bits(made.scores, before)
    assert same_bits(opened.scores, before)
    assert os.listdir(".") == []


class Breaking(CountingArray):
    """Rows that can be read so often and then no more."""

    def __init__(self, values, row_reads):
        super().__init__(values)
        self.left = row_reads

    def __getitem__(self, index):
        block = super().__getitem__(index)
        with self.lock:
            self.left -= len(block)
            if self.left < 0:
                raise RuntimeError("the disk is gone")
        return block


def test_a_run_that_failed_in_its_last_read_is_refused_as_incomplete(tmp_path):
    values, y = rows_of(7, 600, 3)
    store = tmp_path / "run.zarr"
    # Factor and scores take two reads; the third is the total loss.
    X = Breaking(values, row_reads=2 * 600 + 250)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        nlis.run(LINEAR, X.dask(100), y, size=300, seed=0, theta=np.ones(4), store=store)
    assert not (store / "complete.json").exists()
    with pytest.raises(nlis.IncompleteRunError, match="6 of 6 blocks scored"):
        nlis.open_run(store)
    with pytest.raises(nlis.StoreExistsError):
        nlis.run(LINEAR, values, y, size=300, seed=0, store=store)


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link", "finished run"])
def test_a_store_that_exists_is_refused_before_any_compute_and_left_alone(tmp_path, job, kind):
    store = tmp_path / "run.zarr"
    if kind == "folder":
        store.mkdir()
        (store / "notes.txt").write_text("mine")
    elif kind == "file":
        store.write_text("mine")
    elif kind == "dangling link":
        store.symlink_to(tmp_path / "nowhere")
    else:
        store.symlink_to(job().path, target_is_directory=True)
    before = {path: path.lstat().st_mtime_ns for path in [store, *tmp_path.rglob("*"), *store.rglob("*")]}
    X, y, *_ = california()
    with no_compute(), pytest.raises(nlis.StoreExistsError) as refused:
        nlis.run(PROBLEM, X, y, size=SIZE, seed=0, store=store)
    assert isinstance(refused.value, FileExistsError)
    assert before == {path: path.lstat().st_mtime_ns for path in [store, *tmp_path.rglob("*"), *store.rglob("*")]}


REFUSED = {
    "unknown scores": ({"scores": "random"}, nlis.InputError, "scores"),
    "unknown scheme": ({"scheme": "bernoulli"}, nlis.InputError, "scheme"),
    "scheme of another type": ({"scheme": None}, nlis.InputError, "scheme"),
    "size 0": ({"size": 0}, nlis.InputError, "size"),
    "a share above 1 as size": ({"size": 1.5}, nlis.InputTypeError, "size"),
    "row weights of another length": ({"sample_weight": np.ones(299)}, nlis.InputError, "sample_weight"),
    "size as text": ({"size": "40"}, nlis.InputTypeError, "size"),
    "size True": ({"size": True}, nlis.InputTypeError, "size"),
    "more rows than there are": ({"size": 301}, nlis.InputError, "300"),
    "pilot size 0": ({"pilot_size": 0}, nlis.InputError, "pilot_size"),
    "pilot size 2.5": ({"pilot_size": 2.5}, nlis.InputTypeError, "pilot_size"),
    "negative seed": ({"seed": -1}, nlis.InputError, "seed"),
    "a generator as seed": ({"seed": np.random.default_rng(0)}, nlis.InputTypeError, "seed"),
    "theta too short": ({"theta": np.ones(3)}, nlis.InputError, "theta"),
    "theta not finite": ({"theta": [1.0, np.nan, 1.0, 1.0]}, nlis.InputError, "theta"),
    "theta no numbers": ({"theta": "ones"}, nlis.InputTypeError, "theta"),
    "ball of another length": (
        {"problem": nlis.Problem(nlis.Linear(), constraint=nlis.Ball(1.0, center=[0.0, 0.0]))},
        nlis.InputError,
        "center",
    ),
    "box of another length": (
        {"problem": nlis.Problem(nlis.Linear(), constraint=nlis.Box([0.0, 0.0], 1.0))},
        nlis.InputError,
        "lower",
    ),
    "a model as problem": ({"problem": nlis.Linear()}, nlis.InputTypeError, "problem"),
    "no folder for the store": ({"store": "missing/run.zarr"}, nlis.MissingDataError, "missing"),
    "a URL of another kind as store": (
        {"store": "ftp://bucket/run.zarr"},
        nlis.InputError,
        "'ftp', which is not known",
    ),
    "a bucket as store": ({"store": "s3://bucket/"}, nlis.InputError, "names no objects"),
    "a number as store": ({"store": 5}, nlis.InputTypeError, "store"),
    "no labels": ({"y": None}, nlis.InputTypeError, "y is None"),
    "labels of another length": ({"y": np.ones(299)}, nlis.InputError, "299"),
    "a pilot as large as all": ({"pilot_size": 40}, nlis.InputError, "leaves nothing"),
    "epsilon beside a size": ({"epsilon": 0.3}, nlis.InputError, "size='auto'"),
    "auto without epsilon": ({"size": "auto"}, nlis.InputTypeError, "epsilon is None"),
    "epsilon 0": ({"size": "auto", "epsilon": 0}, nlis.InputError, "epsilon=0"),
    "epsilon as text": ({"size": "auto", "epsilon": "low"}, nlis.InputTypeError, "epsilon='low'"),
    "auto by norms": ({"size": "auto", "epsilon": 0.3, "scores": "norm"}, nlis.InputError, "certificate"),
    "two shares": ({"shares": (0.5, 0.5)}, nlis.InputError, "2 numbers for 3"),
    "shares above 1": ({"shares": (0.5, 0.5, 0.5)}, nlis.InputError, "sum to 1.5"),
    "shares of one score": ({"shares": (1, 0, 0), "scores": "norm"}, nlis.InputError, "leave shares out"),
    "no round": ({"rounds": 0}, nlis.InputError, "rounds=0"),
    "half a round": ({"rounds": 1.5}, nlis.InputError, "rounds=1.5"),
    "unknown missing": ({"missing": "ignore"}, nlis.InputError, "missing"),
    "unknown device": ({"device": "tpu"}, nlis.InputError, "device"),
    "no bytes a block": ({"block_bytes": 0}, nlis.InputError, "block_bytes"),
    "rows that are no table": ({"X": np.ones(300)}, nlis.InputError, "X"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_in_one_line_before_any_read_or_write(tmp_path, monkeypatch, case):
    changes, error, word = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    values, y = rows_of(8, 300, 3)
    X = CountingArray(values)
    good = {"problem": LINEAR, "X": X.dask(100), "y": y, "size": 40, "seed": 0, "store": "run.zarr"}
    with no_compute(), pytest.raises(error, match=word) as refused:
        nlis.run(**(good | changes))
    assert "\n" not in str(refused.value)
    assert X.reads() == 0
    assert os.listdir(tmp_path) == []
