"""A run that is cut off goes on where it was: identical in every bit, reading only what is missing, and never mistaken."""

import itertools
import os
import random
import shutil
import signal
from importlib.metadata import version

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import rows_of, same_bits
from distributed import Client, LocalCluster
from resuming import N_ROWS, PROBLEM, ROWS, Reads, job, killed_at, write_data, written_by

import dask_nlis as nlis
from dask_nlis import phase
from dask_nlis.store import Folder

N_BLOCKS = N_ROWS // ROWS


@pytest.fixture(autouse=True)
def in_order():
    """One task after another, so that a cut leaves no thread behind that still writes."""
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data of all runs, not to be touched."""
    return write_data(tmp_path_factory.mktemp("resume") / "data.zarr")


@pytest.fixture(scope="module")
def clean(data, tmp_path_factory):
    """A run that nothing disturbed, and the writes it made of its store."""
    return written_by(data, tmp_path_factory.mktemp("clean") / "run.zarr")


def assert_same_results(found, expected):
    """Everything but the times and how often it was taken up."""
    for name in ("factor", "sample", "fit", "pilot", "certificate", "total_loss", "reads"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("scores", "sample_X", "sample_y"):
        assert same_bits(np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))), name
    for name in ("r", "whitener"):
        assert same_bits(getattr(found.factor, name), getattr(expected.factor, name))
    assert same_bits(found.fit.theta, expected.fit.theta)


def cut_off(k, make, *arguments, **options):
    """Make something until the k-th write of a store, which is the last one, as by Ctrl-C."""
    done = 0
    whole = Folder._beside

    def counted(self, target, content, sync):
        nonlocal done
        done += 1
        if done > k:
            raise KeyboardInterrupt
        return whole(self, target, content, sync)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Folder, "_beside", counted)
        with pytest.raises(KeyboardInterrupt):
            make(*arguments, **options)


def _points(clean, n, seed):
    return random.Random(seed).sample(range(2, len(clean[1])), n)


def _killed_and_resumed(data, clean, store, write, before):
    assert killed_at(write, data, store, before=before) == -signal.SIGKILL
    with pytest.raises(nlis.IncompleteRunError, match=r"never finished.*resume=True"):
        nlis.open_run(store)
    n_kept = sum(path.name.count("-") for path in store.glob("work/scores-*/*"))
    partial = set(store.rglob("*.partial"))
    assert partial if before else True
    with Reads() as reads, pytest.warns(nlis.NlisWarning, match="is gone; its lock is taken over"):
        again = job(data, store, resume=True)
    assert not set(store.rglob("*.partial"))
    assert_same_results(again, clean[0])
    # Blocks of factors and losses are read again unless the whole group was kept; those that were scored are not.
    assert len(reads.blocks) <= 5 * N_BLOCKS - n_kept
    assert again.manifest["resumed"] == 1
    assert nlis.open_run(store).fit == clean[0].fit


@pytest.mark.parametrize("point", range(6))
def test_a_run_that_was_killed_goes_on_to_the_same_bits(point, data, clean, tmp_path):
    _killed_and_resumed(data, clean, tmp_path / "run.zarr", _points(clean, 6, seed=8)[point], before=point % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("point", range(20))
def test_twenty_more_points(point, data, clean, tmp_path):
    _killed_and_resumed(data, clean, tmp_path / "run.zarr", _points(clean, 20, seed=9)[point], before=point % 2 == 1)


def test_a_run_killed_before_it_held_its_lock_has_not_begun(data, clean, tmp_path):
    store = tmp_path / "run.zarr"
    assert killed_at(1, data, store, before=True) == -signal.SIGKILL
    with pytest.raises(nlis.MissingDataError):
        nlis.open_run(store)
    assert_same_results(job(data, store, resume=True), clean[0])
    assert not list(store.rglob("*.partial"))


def test_each_pass_goes_on_where_it_was(data, clean, tmp_path):
    keys = clean[1]
    marks = {
        "work/factors-0/factors": 4 * N_BLOCKS,
        "work/fit-0": 3 * N_BLOCKS,
        "work/factors-1/factors": 2 * N_BLOCKS,
        "work/fit": N_BLOCKS,
        "work/losses/0": 0,
    }
    for key, n_reads in marks.items():
        store = tmp_path / key.replace("/", "-")
        cut_off(keys.index(key) + 1, job, data, store)
        with Reads() as reads:
            assert_same_results(job(data, store, resume=True), clean[0])
        assert len(reads.blocks) == n_reads, key


def test_a_run_killed_at_its_marker_needs_nothing_but_the_marker(data, clean, tmp_path):
    store = tmp_path / "run.zarr"
    assert killed_at(len(clean[1]), data, store, before=True) == -signal.SIGKILL
    assert not (store / "complete.json").exists()
    with pytest.raises(nlis.IncompleteRunError):
        nlis.open_run(store)
    with Reads() as reads, pytest.warns(nlis.NlisWarning, match="taken over"):
        assert_same_results(job(data, store, resume=True), clean[0])
    assert not reads.blocks


VARIANTS = {
    "shares held": {"scheme": "systematic"},
    "no scores kept": {"keep_scores": False},
    "held, no scores kept": {"scheme": "stratified", "keep_scores": False},
    "a size that grows": {"size": "auto", "epsilon": 0.35},
    "one stage": {"size": 20, "rounds": 1},
    "no room for two stages": {"size": 9},
    "norms": {"scores": "norm"},
    "influence": {"scores": "influence"},
    "leverage at a theta": {"theta": [0.4, -0.1, 0.9, 0.0]},
    "three rounds": {"rounds": 3, "size": 200},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_points", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_every_kind_of_run_goes_on(variant, n_points, data, tmp_path):
    options = VARIANTS[variant]
    expected, keys = written_by(data, tmp_path / "clean.zarr", **options)
    for point in random.Random(variant).sample(range(len(keys) // 2, len(keys)), n_points):
        store = tmp_path / f"{point}.zarr"
        cut_off(point, job, data, store, **options)
        found = job(data, store, resume=True, **options)
        for name in ("factor", "sample", "fit", "pilot", "certificate", "total_loss", "reads"):
            assert getattr(found, name) == getattr(expected, name), (name, keys[point - 1])
        assert (found.scores is None) == (not options.get("keep_scores", True))
        if found.scores is not None:
            assert same_bits(found.scores.compute(), expected.scores.compute())
        assert {path.name for path in store.iterdir()} == {path.name for path in (tmp_path / "clean.zarr").iterdir()}


def test_the_factor_of_dependent_columns_goes_on_group_by_group(tmp_path, monkeypatch):
    monkeypatch.setattr("dask_nlis.blocks._GROUP", 16)
    values, _ = rows_of(3, 640, 3)
    values = np.column_stack([values, values[:, 0] - values[:, 1]])
    y = values @ [1, 2, 3, 4]
    problem = nlis.Problem(nlis.Linear(), constraint=nlis.Ball(9.0))

    def run(store, **options):
        X = da.from_array(values, chunks=(20, 4))
        return nlis.run(problem, X, y, size=100, seed=0, store=store, **options)

    expected = run(tmp_path / "clean.zarr")
    assert expected.factor.rank < 5
    assert expected.factor.method == "tsqr"
    for point in (3, 6):
        store = tmp_path / f"{point}.zarr"
        cut_off(point, run, store)
        assert list((store / "work").rglob("read-*/*"))
        found = run(store, resume=True)
        assert same_bits(found.factor.r, expected.factor.r)
        assert_same_results(found, expected)


def test_rows_that_are_dropped_and_row_weights_go_on_too(tmp_path):
    values, y = rows_of(4, 600, 3)
    values[77, 1] = np.nan
    weight = np.where(np.arange(600) % 7, 1.0 + np.arange(600) % 3, 0.0)

    def run(store, **options):
        X = da.from_array(values.copy(), chunks=((90, 0, 110, 200, 200), (3,)))
        return nlis.run(
            PROBLEM,
            X,
            y,
            size=100,
            seed=0,
            store=store,
            missing="drop",
            sample_weight=weight,
            scheme="poisson",
            **options,
        )

    expected = run(tmp_path / "clean.zarr")
    for point in (4, 6, 11, 13):
        store = tmp_path / f"{point}.zarr"
        cut_off(point, run, store)
        found = run(store, resume=True)
        assert_same_results(found, expected)
        assert found.n_dropped == 1
        assert same_bits(found.sample_weight, expected.sample_weight)


def _half_done(data, store, k=40, **options):
    """A run that was cut off while it scored for the last time."""
    cut_off(k, job, data, store, **options)
    return store


@pytest.mark.parametrize("damage", ["parcel", "truncated parcel", "score chunk", "missing score chunk"])
def test_what_is_damaged_is_made_again(damage, data, clean, tmp_path):
    store = _half_done(data, tmp_path / "run.zarr")
    boxes = sorted((store / "work" / "scores-1-last").iterdir())
    assert len(boxes) > 5
    start = int(boxes[2].name.split("-")[0])
    chunk = store / "scores" / "c" / str(start // ROWS)
    target = chunk if "chunk" in damage else boxes[2]
    content = bytearray(target.read_bytes())
    if damage == "missing score chunk":
        target.unlink()
    elif damage == "truncated parcel":
        target.write_bytes(content[:-9])
    else:
        content[len(content) // 2] ^= 4
        target.write_bytes(content)
    with Reads() as reads:
        assert_same_results(job(data, store, resume=True), clean[0])
    starts = [index.start for index in reads.blocks]
    assert start in starts[:-N_BLOCKS]  # besides the losses, which come last
    assert len(reads.blocks) == 2 * N_BLOCKS - len(boxes) + 1


def test_a_finished_run_is_returned_and_nothing_is_read(data, clean, tmp_path):
    store = shutil.copytree(clean[0].path, tmp_path / "run.zarr")
    with Reads() as reads:
        found = job(data, store, resume=True)
        assert job(data, store, resume=True, seed=None).manifest["seed"] == 3
    assert not reads.blocks
    assert_same_results(found, clean[0])
    with pytest.raises(nlis.FingerprintMismatchError, match="seed=3, but now it is 4"):
        job(data, store, resume=True, seed=4)
    with pytest.raises(FileExistsError, match=r"exists; open_run\(\) reads the finished run there"):
        job(data, store)


def test_what_a_run_leaves_that_is_killed_after_its_marker_is_cleared_away(data, clean, tmp_path):
    store = shutil.copytree(clean[0].path, tmp_path / "run.zarr")
    (store / "work").mkdir()
    (store / "work" / "fit-0").write_bytes(b"x")
    (store / "lock.json").write_text("{}")
    job(data, store, resume=True)
    # The owner of such a lock is unknown: it is left alone until it has been silent for long.
    assert (store / "work").exists()
    (store / "lock.json").unlink()
    assert_same_results(job(data, store, resume=True), clean[0])
    assert not (store / "work").exists()


def test_a_seed_that_was_drawn_is_the_one_that_goes_on(data, tmp_path):
    store = _half_done(data, tmp_path / "run.zarr", seed=None)
    seed = zarr.open_group(store, mode="r").attrs["manifest"]["seed"]
    found = job(data, store, resume=True, seed=None)
    assert found.manifest["seed"] == seed
    assert found.fit == job(data, tmp_path / "other.zarr", seed=seed).fit


OTHER = {
    "size": ({"size": 121}, "size=120, but now it is 121"),
    "scheme": ({"scheme": "systematic"}, "scheme=poisson, but now it is systematic"),
    "scores": ({"scores": "norm"}, "scores=two-stage, but now it is norm"),
    "theta": ({"theta": [1, 2, 3, 4]}, "theta=None, but now it is"),
    "rounds": ({"rounds": 3}, "rounds=2, but now it is 3"),
    "missing": ({"missing": "drop"}, "missing=raise, but now it is drop"),
    "keep_scores": ({"keep_scores": False}, "keep_scores=True, but now it is False"),
    "blocks": ({"block_bytes": 48 * ROWS}, r"data\.block_rows="),
    "pilot_size": ({"pilot_size": 30}, "pilot_size=None, but now it is 30"),
    "device": ({"device": "cpu"}, "device=auto, but now it is cpu"),
    "row weights": ({"sample_weight": np.ones(N_ROWS)}, "sample_weight has changed"),
}


@pytest.mark.parametrize("field", OTHER)
def test_another_job_is_refused_naming_the_field(field, data, tmp_path):
    store = _half_done(data, tmp_path / "run.zarr", k=5)
    options, message = OTHER[field]
    with Reads() as reads, pytest.raises(nlis.FingerprintMismatchError, match=message) as caught:
        job(data, store, resume=True, **options)
    assert not reads.blocks
    assert "run.zarr" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert not (store / "lock.json").exists()
    job(data, store, resume=True)  # and nothing was spoiled by the attempt


def test_another_problem_or_version_is_refused_naming_the_field(data, tmp_path, monkeypatch):
    store = _half_done(data, tmp_path / "run.zarr", k=5)
    X, y = nlis.open_rows(data, X="X", y="y", block_bytes=24 * ROWS)
    options = {"size": 120, "seed": 3, "block_bytes": 24 * ROWS, "store": store, "resume": True}
    for problem, field in (
        (nlis.Problem(PROBLEM.model, nlis.Huber(1.0), constraint=PROBLEM.constraint), "problem.loss.noun=SquaredError"),
        (nlis.Problem(PROBLEM.model, constraint=nlis.Ball(4.0)), "problem.constraint.radius=5.0, but now it is 4.0"),
        (nlis.Problem(nlis.SingleIndex(nlis.Arctan()), constraint=PROBLEM.constraint), "problem.model.activation.noun"),
    ):
        with pytest.raises(nlis.FingerprintMismatchError, match=field):
            nlis.run(problem, X, y, **options)
    other = {"numpy": "0.0.1"}
    monkeypatch.setattr("dask_nlis.pipeline.manifest.version", lambda name: other.get(name) or version(name))
    with pytest.raises(nlis.FingerprintMismatchError, match=r"versions\.numpy=.*, but now it is 0\.0\.1"):
        nlis.run(PROBLEM, X, y, **options)


@pytest.mark.parametrize("name", ["X", "y"])
def test_data_that_changed_in_between_are_refused_naming_the_array(name, data, tmp_path):
    mine = shutil.copytree(data, tmp_path / "data.zarr")
    store = _half_done(mine, tmp_path / "run.zarr")
    array = zarr.open_group(mine)[name]
    array[100:150] = np.asarray(array[100:150]) + 1
    chunk = "c/2/0" if name == "X" else "c/2"
    said = (
        rf"other data: {name} has changed \(1 chunk was written since, the first '{chunk}' with rows 100 to 149\); give"
    )
    with Reads() as reads, pytest.raises(nlis.FingerprintMismatchError, match=said):
        job(mine, store, resume=True)
    array[50:150] = np.asarray(array[50:150]) + 1
    with pytest.raises(
        nlis.FingerprintMismatchError, match=r"\(2 chunks were written since, the first 'c/1.* rows 50 to 99"
    ):
        job(mine, store, resume=True)
    assert not reads.blocks


def test_a_finished_run_names_the_chunk_that_changed_too(data, tmp_path):
    mine = shutil.copytree(data, tmp_path / "data.zarr")
    job(mine, tmp_path / "run.zarr")
    zarr.open_group(mine)["X"][0] = 0.5
    with pytest.raises(
        nlis.FingerprintMismatchError, match=r"\(1 chunk was written since, the first 'c/0/0' with rows 0"
    ):
        job(mine, tmp_path / "run.zarr", resume=True)


def test_a_copy_of_the_data_cannot_be_told_to_be_the_same(data, tmp_path):
    store = _half_done(data, tmp_path / "run.zarr")
    copied = shutil.copytree(data, tmp_path / "copy.zarr", copy_function=shutil.copy2)
    with pytest.raises(nlis.FingerprintMismatchError, match="X has changed, or cannot be told to be the same; give"):
        job(copied, store, resume=True)


def _changed_without_a_trace(array):
    """Write other cells into an array whose files keep their size, times and inodes."""
    path = array.store.root / array.path / "c" / "2" / "0"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    with open(path, "r+b") as opened:
        opened.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _plain_data(folder):
    """The data of all runs without compression, so that a bit of a file is a bit of a cell."""
    source = zarr.open_group(write_data(folder / "source.zarr"), mode="r")
    group = zarr.create_group(folder / "data.zarr")
    for name, array in source.arrays():
        options = {"shape": array.shape, "chunks": array.chunks, "dtype": array.dtype, "compressors": None}
        group.create_array(name, **options)[...] = array[...]
    return folder / "data.zarr", group["X"]


@pytest.mark.parametrize("scheme", ["poisson", "stratified"])
def test_verified_all_is_read_again_and_a_silent_change_is_found(scheme, tmp_path):
    mine, X = _plain_data(tmp_path)
    store = _half_done(mine, tmp_path / "run.zarr", scheme=scheme)
    with Reads() as reads:
        done = job(mine, shutil.copytree(store, tmp_path / "same.zarr"), resume=True, verify=True, scheme=scheme)
    assert len(reads.blocks) >= 5 * N_BLOCKS
    assert_same_results(done, job(mine, tmp_path / "clean.zarr", scheme=scheme))
    _changed_without_a_trace(X)
    trusting = shutil.copytree(store, tmp_path / "trusting.zarr")
    job(mine, trusting, resume=True, scheme=scheme)  # nothing tells it
    with pytest.raises(nlis.FingerprintMismatchError, match=r"step 'factors-0/.*changed without a trace"):
        job(mine, store, resume=True, verify=True, scheme=scheme)


def test_a_finished_run_is_verified_too(tmp_path):
    mine, X = _plain_data(tmp_path)
    store = tmp_path / "run.zarr"
    done = job(mine, store)
    with Reads() as reads:
        assert job(mine, store, resume=True, verify=True).fit == done.fit
    assert len(reads.blocks) >= 5 * N_BLOCKS
    _changed_without_a_trace(X)
    with Reads() as reads:
        job(mine, store, resume=True)
    assert not reads.blocks
    with pytest.raises(nlis.FingerprintMismatchError, match="holds another factor than data and libraries give now"):
        job(mine, store, resume=True, verify=True)


def test_scored_blocks_are_verified_by_their_rows(tmp_path):
    """Factors that are kept in all their bits: the scores alone have changed."""
    mine, _ = _plain_data(tmp_path)
    store = _half_done(mine, tmp_path / "run.zarr")
    box = sorted((store / "work" / "scores-1-last").iterdir())[2]
    shutil.copy(sorted((store / "work" / "scores-0").iterdir())[0], box)
    first, rows = map(int, box.name.split("-"))
    with pytest.raises(nlis.FingerprintMismatchError, match=f"rows {first} to {first + rows - 1}, was kept with other"):
        job(mine, store, resume=True, verify=True)


def test_only_what_is_kept_can_be_verified(data, tmp_path):
    with pytest.raises(nlis.InputError, match="verify=True is given without resume=True"):
        job(data, tmp_path / "run.zarr", verify=True)
    assert not (tmp_path / "run.zarr").exists()


def test_a_run_that_goes_on_on_another_kind_of_device_says_so(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("dask_nlis.phase.devices_in_force", lambda label: ["cuda"])
        store = _half_done(data, tmp_path / "run.zarr")
    with pytest.warns(
        nlis.NlisWarning, match=r"begun where tasks ran on cuda, and goes on on cpu: .*give device='cpu'"
    ):
        job(data, store, resume=True)
    assert nlis.open_run(store).manifest["ran_on"] == ["cpu"]


def test_the_devices_of_workers_are_asked_for():
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
        dask.config.set(scheduler=client),
    ):
        assert phase.devices_in_force("nlis-run") == ["cpu"]


def test_a_result_of_another_step_or_another_run_is_made_again(data, clean, tmp_path):
    """A parcel that is intact, but not the one that belongs there."""
    store = _half_done(data, tmp_path / "run.zarr")
    other = _half_done(data, tmp_path / "other.zarr", seed=4)
    parcels = sorted(path for path in (store / "work").rglob("*") if path.is_file())
    assert len(parcels) > 6
    for one, two in itertools.pairwise(parcels[::2]):
        shutil.copy(one, two)
    for path in parcels[1::2]:
        theirs = other / path.relative_to(store)
        if theirs.exists():
            shutil.copy(theirs, path)
    assert_same_results(job(data, store, resume=True), clean[0])


def test_arrays_without_a_lasting_name_need_a_version(tmp_path):
    values, y = rows_of(6, 400, 3)

    def run(store, **options):
        X = da.from_array(values, chunks=(40, 3), name=False)  # named anew each time
        return nlis.run(PROBLEM, X, y, size=80, seed=0, store=store, **options)

    for point, options in ((20, {}), (22, {"data_version": "2026-07"})):
        store = tmp_path / f"{point}.zarr"
        cut_off(point, run, store, **options)
    with pytest.raises(nlis.FingerprintMismatchError, match=r"X has changed, or cannot be told.*data_version="):
        run(tmp_path / "20.zarr", resume=True)
    with pytest.raises(nlis.FingerprintMismatchError, match="data_version"):
        run(tmp_path / "22.zarr", resume=True, data_version="2026-08")
    assert run(tmp_path / "22.zarr", resume=True, data_version="2026-07").fit == run(None).fit


def test_what_is_refused_once_it_is_seen_leaves_nothing_behind(tmp_path):
    values, y = rows_of(7, 400, 3)
    values[311, 1] = np.inf
    with pytest.raises(nlis.NonFiniteError, match="row 311"):
        nlis.run(PROBLEM, da.from_array(values, chunks=(40, 3)), y, size=80, seed=0, store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


def test_resume_is_checked_like_any_argument(data, tmp_path):
    with pytest.raises(nlis.InputTypeError, match="resume='yes' is str; give True or False"):
        job(data, tmp_path / "run.zarr", resume="yes")
    with pytest.raises(nlis.InputError, match="resume=True is given without store"):
        job(data, None, resume=True)
    with pytest.raises(nlis.InputTypeError, match="data_version is int"):
        job(data, tmp_path / "run.zarr", data_version=3)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thing.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is no run store"):
        job(data, tmp_path / "else", resume=True)
    assert (tmp_path / "else" / "thing.txt").read_text() == "mine"
