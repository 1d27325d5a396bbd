"""Two writers, dead owners, full disks, leftovers: what happens to a run store, and what its user is told."""

import json
import os
import resource
import shutil
import signal
import sys
import time

import dask
import distributed
import pytest
from counting import same_bits
from resuming import PROCESSES, Reads, job, write_data

import dask_nlis as nlis
from dask_nlis.pipeline import standing
from dask_nlis.store import Folder, lock as locks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data of all runs."""
    return write_data(tmp_path_factory.mktemp("faults") / "data.zarr")


@pytest.fixture(scope="module")
def clean(data, tmp_path_factory):
    """An undisturbed run."""
    return job(data, tmp_path_factory.mktemp("clean") / "run.zarr")


def _lock(store, **owner):
    """A lock of some owner on a store that was begun."""
    store.mkdir(exist_ok=True)
    found = locks.owner()._replace(**owner)
    (store / "lock.json").write_text(json.dumps(found._asdict()), "utf-8")
    return found


def test_a_second_writer_is_refused_with_the_owner_named(data, tmp_path):
    store = tmp_path / "run.zarr"
    mine = _lock(store)  # of this process, which lives
    with Reads() as reads, pytest.raises(nlis.StoreLockedError, match=f"process {os.getpid()} on {mine.host}; wait"):
        job(data, store, resume=True)
    assert not reads.blocks
    assert locks.read_owner(Folder(str(store))) == mine
    assert standing(store).owner == f"process {os.getpid()} on {mine.host}"


def test_the_lock_is_there_while_a_run_is_under_way_and_gone_after(data, tmp_path, monkeypatch):
    store = tmp_path / "run.zarr"
    seen = []
    write = Folder.write

    def looked(self, key, content, **options):
        seen.append(standing(store).state)
        with pytest.raises(nlis.StoreLockedError):
            locks.Lock(self, str(store), print)
        with pytest.raises(nlis.IncompleteRunError, match=rf"process {os.getpid()} on .* is at it, so wait"):
            nlis.open_run(store)
        write(self, key, content, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", looked)
        job(data, store)
    assert set(seen) == {"running"}
    assert standing(store) == standing(store)._replace(state="complete", owner="", progress="")
    assert not (store / "lock.json").exists()


@pytest.mark.parametrize(
    ("owner", "age", "lives"),
    [
        ({}, 0, True),
        ({"pid": 2**22 + 7}, 0, False),  # no such process
        ({"began": 1.0}, 0, False),  # its number was given to another
        ({"host": "elsewhere", "machine": "another"}, 10, True),  # it beat a moment ago
        ({"host": "elsewhere", "machine": "another"}, 301, False),  # silent for too long
        ({"host": "elsewhere", "machine": "another", "began": 1.0}, 10, True),
    ],
)
def test_who_lives_is_told_by_processes_here_and_by_beats_elsewhere(owner, age, lives, data, tmp_path):
    store = tmp_path / "run.zarr"
    found = _lock(store, **owner)
    then = time.time() - age
    os.utime(store / "lock.json", (then, then))
    assert locks.lives(Folder(str(store)), found) is lives
    if lives:
        with pytest.raises(nlis.StoreLockedError, match="wait for it, or give another path"):
            job(data, store, resume=True)
    else:
        with pytest.warns(nlis.NlisWarning, match=f"process {found.pid} on {found.host}, which wrote it, is gone"):
            assert job(data, store, resume=True).fit.ok


def test_a_clock_that_jumps_neither_frees_nor_keeps_a_lock(tmp_path, monkeypatch):
    found = _lock(tmp_path / "run.zarr", host="elsewhere", machine="another")
    for now in (0.0, 1e10):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert locks.lives(Folder(str(tmp_path / "run.zarr")), found)


def test_of_many_that_find_a_dead_owner_one_takes_over(tmp_path):
    store = tmp_path / "run.zarr"
    _lock(store, pid=2**22 + 7)
    with PROCESSES.Pool(6) as pool:
        found = pool.map(_try_lock, [str(store)] * 6, chunksize=1)
    assert sorted(found) == ["locked"] * 5 + ["mine"]


def _try_lock(store):
    try:
        lock = locks.Lock(Folder(store), store, lambda _: None)
    except nlis.StoreLockedError:
        return "locked"
    time.sleep(2)
    return "mine" if lock.is_mine() else "lost"


def test_a_run_whose_lock_was_taken_over_does_not_finish(data, tmp_path, monkeypatch):
    store = tmp_path / "run.zarr"
    write = Folder.write

    def robbed(self, key, content, **options):
        write(self, key, content, **options)
        if key == "work/losses/0":
            _lock(store, pid=1)

    monkeypatch.setattr(Folder, "write", robbed)
    with pytest.raises(nlis.StoreLockedError, match="was taken over by process 1 on"):
        job(data, store)
    assert not (store / "complete.json").exists()
    assert locks.read_owner(Folder(str(store))).pid == 1  # nor is it let go of


def test_a_lock_beats_and_survives_what_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.05)
    place = Folder(str(tmp_path))
    lock = locks.Lock(place, "run", print)
    os.utime(tmp_path / "lock.json", (1.0, 1.0))
    for _ in range(100):
        time.sleep(0.05)
        if (tmp_path / "lock.json").stat().st_mtime > 2:
            break
    assert (tmp_path / "lock.json").stat().st_mtime > 2
    lock.release()
    assert place.names() == set()
    for content in ("", "[]", "{", '{"pid": "x"}', "[" * 100_000, "x" * 100_000):
        (tmp_path / "lock.json").write_text(content)
        assert locks.read_owner(place) is None or "unknown machine" in str(locks.read_owner(place))


def _limited(data, store, limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with dask.config.set(scheduler="sync"):
            job(data, store)
    except OSError as error:
        cause = error.__cause__
        os._exit(17 if isinstance(error, nlis.StoreWriteError) and cause is not None and _message(error) else 18)
    os._exit(0)


def _message(error):
    text = str(error)
    return "make room and run again with resume=True" in text and "could not be" in text and len(text) <= 300


@pytest.mark.parametrize("limit", [300, 2_000, 3_100])
def test_a_full_disk_is_said_and_what_was_written_goes_on(limit, data, clean, tmp_path):
    child = PROCESSES.Process(target=_limited, args=(data, tmp_path / "run.zarr", limit))
    child.start()
    child.join(120)
    assert child.exitcode == 17
    assert not list((tmp_path / "run.zarr").rglob("*.partial"))
    kind = nlis.MissingDataError if not list((tmp_path / "run.zarr").iterdir()) else nlis.IncompleteRunError
    with pytest.raises(kind):
        nlis.open_run(tmp_path / "run.zarr")
    again = job(data, tmp_path / "run.zarr", resume=True)
    assert again.fit == clean.fit
    assert same_bits(again.scores.compute(), clean.scores.compute())


def test_leftovers_of_writes_are_cleared_away_and_never_read(data, clean, tmp_path):
    store = tmp_path / "run.zarr"
    _cut_off(data, store)
    for folder in (store, store / "work", store / "work" / "scores-0", store / "scores" / "c"):
        (folder / ".0-50.0f.partial").write_bytes(b"half")
    assert job(data, store, resume=True).fit == clean.fit
    assert not list(store.rglob("*.partial"))


def _cut_off(data, store):
    """A run that is interrupted once all is scored and fitted."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dask_nlis.pipeline.job.summed_losses", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job(data, store)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_that_cannot_be_written_is_refused_before_any_compute(data, clean, tmp_path):
    store = shutil.copytree(clean.path, tmp_path / "run.zarr")
    (store / "complete.json").unlink()
    store.chmod(0o500)
    with Reads() as reads, pytest.raises(PermissionError, match="not writable"):
        job(data, store, resume=True)
    assert not reads.blocks


def test_a_folder_that_cannot_be_written_is_refused_before_any_compute(data, clean, tmp_path, monkeypatch):
    store = shutil.copytree(clean.path, tmp_path / "run.zarr")
    (store / "complete.json").unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Reads() as reads, pytest.raises(PermissionError, match="not writable"):
        job(data, store, resume=True)
    assert not reads.blocks


def test_a_symbolic_link_is_no_store(data, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for resume in (False, True):
        with pytest.raises(FileExistsError, match="is a symbolic link"):
            job(data, tmp_path / "link", resume=resume)
    assert not list((tmp_path / "real").iterdir())


@pytest.mark.cluster
def test_on_a_cluster_a_run_goes_on_to_the_bits_of_threads(data, clean, tmp_path):
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster),
    ):
        _cut_off(data, tmp_path / "run.zarr")
        boxes = sorted((tmp_path / "run.zarr" / "work" / "scores-1-last").iterdir())
        for path in boxes[:3]:
            path.unlink()
        boxes[5].write_bytes(boxes[5].read_bytes()[:-1])
        again = job(data, tmp_path / "run.zarr", resume=True)
        assert again.manifest["resumed"] == 1
    for name in ("factor", "sample", "fit", "pilot"):
        assert getattr(again, name) == getattr(clean, name)
    assert same_bits(again.scores.compute(), clean.scores.compute())


@pytest.mark.parametrize("kind", [nlis.ClusterError, nlis.DeadlineError])
def test_what_ends_a_compute_is_told_with_what_is_kept(kind, data, clean, tmp_path):
    def ended(*_):
        raise kind("the scheduler of 'nlis-loss' is gone; start one")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dask_nlis.pipeline.job.summed_losses", ended)
        with pytest.raises(
            kind, match="is gone; start one; 24 of 24 blocks scored in scores-1-last: run again with resume"
        ):
            job(data, tmp_path / "run.zarr")
    assert job(data, tmp_path / "run.zarr", resume=True).fit == clean.fit


def test_workers_that_do_not_see_the_store_say_so(tmp_path):
    with pytest.raises(nlis.ClusterError, match="give one that all workers see"):
        Folder(str(tmp_path / "gone")).write("work/x", b"")


def test_how_a_run_stands(data, clean, tmp_path):
    assert standing(clean.path)[:3] == ("complete", "", "")
    assert standing(tmp_path / "nothing").state == ""
    assert standing(data).state == ""
    store = tmp_path / "run.zarr"
    _cut_off(data, store)
    found = standing(store)
    assert (found.state, found.progress) == ("cut off", "24 of 24 blocks scored in scores-1-last")
    assert found.asked == "size 120 of 1200 x 3, two-stage scores, poisson, seed 3"
    assert not found.differs
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules["dask_nlis.pipeline.standing"], "version", lambda name: "9.9")
        assert len(standing(store).differs) == 3


def test_scores_that_a_task_wrote_twice_are_the_same_scores(data, clean, tmp_path):
    again = job(data, tmp_path / "run.zarr")
    chunk = tmp_path / "run.zarr" / "scores" / "c" / "5"
    content = chunk.read_bytes()
    chunk.unlink()
    chunk.write_bytes(content)  # the same bytes in a new file, as of a task whose worker died after it
    os.utime(chunk, (2e9, 2e9))
    assert same_bits(again.scores.compute(), clean.scores.compute())
    chunk.unlink()
    with pytest.raises(nlis.MissingDataError, match="1 of 24 chunks is missing"):
        nlis.open_run(tmp_path / "run.zarr")
    with pytest.raises(nlis.MissingDataError, match="chunks is missing"):
        again.scores.compute()
