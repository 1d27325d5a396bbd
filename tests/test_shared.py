"""What every task needs is in a graph once, and where it is large not at all: a file holds it."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from counting import rows_of, same_bits
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis import workers
from dask_nlis.intake import scratch
from dask_nlis.intake.score_files import scratch_scores
from dask_nlis.matrix import sharing

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Ball(10.0))


def files():
    return sorted(Path(scratch._folder()).glob("*.npy"))


def test_a_theta_of_32_mb_is_in_no_graph():
    d, problem = 40_000, nlis.Problem(nlis.ReluNetwork(100))
    theta = np.random.default_rng(0).normal(size=problem.model.n_parameters(d))
    X, y = da.ones((4, d), chunks=(2, -1)), da.ones(4, chunks=2)
    A, T = nlis.dual_matrix(problem, X, y, theta=theta), nlis.tangent_matrix(problem, X, y, theta=theta)
    for lazy in (nlis.norm_scores(A), nlis.loss_scores(A), T.to_dask_array()):
        assert len(pickle.dumps(dict(lazy.dask))) < 500_000
    expected = nlis.norm_scores(nlis.dual_matrix(problem, np.ones((4, d)), np.ones(4), theta=theta))
    np.testing.assert_allclose(nlis.norm_scores(A).compute(), expected, rtol=1e-12)


def test_a_run_on_a_cluster_whose_arrays_lie_in_files_gives_the_same_bits(monkeypatch):
    X, y = rows_of(3, 2000, 5)
    x, labels = da.from_array(X, (250, -1)), da.from_array(y, 250)
    with dask.config.set(scheduler="synchronous"):
        plain = nlis.run(PROBLEM, x, labels, size=200, seed=0)
        drifts = nlis.drift(PROBLEM, x, labels, np.stack([plain.fit.theta, plain.pilot.theta]))
    monkeypatch.setattr(sharing, "LARGE", 16)
    before = len(files())
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        done = nlis.run(PROBLEM, x, labels, size=200, seed=0)
        scores = np.asarray(done.scores)
        assert nlis.drift(PROBLEM, x, labels, np.stack([plain.fit.theta, plain.pilot.theta])) == drifts
    assert len(files()) > before + 4
    assert done.fit == plain.fit
    assert same_bits(done.sample.weights, plain.sample.weights)
    assert same_bits(scores, np.asarray(plain.scores))


def test_what_is_left_is_left_once_and_whole(tmp_path):
    values = np.arange(6.0).reshape(2, 3)[:, ::-1]
    path = scratch.leave_array(values, "values")
    stamp = Path(path).stat().st_mtime_ns
    assert scratch.leave_array(values, "values") == path
    assert Path(path).stat().st_mtime_ns == stamp
    assert np.array_equal(scratch.left_array(path), values)
    assert list(Path(path).parent.glob("*.partial")) == []
    with pytest.raises(nlis.MissingDataError, match="set Dask's temporary-directory to a folder that all see"):
        scratch.left_array(str(tmp_path / "gone.npy"))


def test_nothing_stays_of_an_array_that_does_not_fit_on_the_disk(monkeypatch):
    def half(file, values, **options):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", half)
    with pytest.raises(OSError, match="No space left"):
        scratch.leave_array(np.ones(3), "too-large")
    assert [path.name for path in Path(scratch._folder()).iterdir() if path.suffix != ".npy"] == []
    assert not (Path(scratch._folder()) / "too-large.npy").exists()


def test_scores_that_do_not_fit_go_where_dask_keeps_temporary_files(tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        _, _, folder = scratch_scores(da.ones(6, chunks=3), "nlis-score")
    with folder:
        assert Path(folder.name).parent == tmp_path


@pytest.mark.parametrize("fault", ["workers elsewhere", "a disk that is full"])
def test_arrays_travel_in_the_graph_where_a_file_would_not_serve(fault, monkeypatch):
    monkeypatch.setattr(sharing, "LARGE", 16)
    if fault == "workers elsewhere":
        monkeypatch.setattr(workers, "see_files", lambda: False)
    else:

        def full(values, name):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(sharing, "leave_array", full)
    before = files()
    X, y = rows_of(4, 300, 3)
    A = nlis.dual_matrix(PROBLEM, da.from_array(X, (50, -1)), y, theta=np.array([0.1, 0.2, -0.3, 0.4]))
    scores = nlis.leverage_scores(A, nlis.factorize(A)).compute()
    assert files() == before
    B = nlis.dual_matrix(PROBLEM, X, y, theta=np.array([0.1, 0.2, -0.3, 0.4]))
    np.testing.assert_allclose(scores, nlis.leverage_scores(B, nlis.factorize(B)), rtol=1e-10)


def test_workers_that_are_yet_to_start_count_as_elsewhere():
    with (
        LocalCluster(
            n_workers=0, processes=False, dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        assert not workers.see_files()
        cluster.scale(1)
        client.wait_for_workers(1)
        assert workers.see_files()
    assert workers.see_files()


def test_threads_that_leave_arrays_first_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "_FOLDERS", {})
    together, paths = threading.Barrier(4), []
    made = scratch.tempfile.mkdtemp

    def at_once(**options):
        folder = made(**options)
        together.wait(timeout=10)  # each has made one before any is kept
        return folder

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", at_once)
    with dask.config.set({"temporary-directory": os.fspath(tmp_path)}):
        leave = lambda k: paths.append(scratch.leave_array(np.arange(3.0), f"values-{k % 2}"))  # noqa: E731
        threads = [threading.Thread(target=leave, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(paths)) == 2
    assert len(list(tmp_path.iterdir())) == 1
    for path in paths:
        assert np.array_equal(scratch.left_array(path), np.arange(3.0))


ENDS = """
import os, sys
import dask, numpy as np
from dask_nlis.intake import scratch
os.chdir(sys.argv[1])
dask.config.set({"temporary-directory": "."})
path = scratch.leave_array(np.arange(3.0), "values")
assert os.path.isabs(path)
child = os.fork()
if not child:
    assert scratch.leave_array(np.arange(3.0), "values") != path
    sys.exit()
os.waitpid(child, 0)
assert os.listdir(".") == [os.path.basename(os.path.dirname(path))]
scratch.left_array(path)
raise RuntimeError("the end")
"""


def test_a_folder_goes_with_the_process_that_made_it_and_not_with_a_fork(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", ENDS, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.endswith("RuntimeError: the end\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
