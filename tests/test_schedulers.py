"""The same bits from every scheduler and any number of workers; spans, labels, retries and a failing reader on a cluster."""

import multiprocessing
import os
import resource
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, rows_of, same_bits
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis import phase, prepared

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(5.0))
X, Y = rows_of(71, 1800, 4)
X[:, 1] = X[:, 0] + 1e-5 * X[:, 1]  # ill-conditioned: a second read and a whitener in the graph
NETS = {
    "net": nlis.Problem(nlis.MultilayerPerceptron((3,), unit=nlis.Tanh())),
    "relu": nlis.Problem(nlis.ReluNetwork(3)),
    "classes": nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3)),
}
THETA = np.array([0.3, -0.2, 0.1, 0.4, 0.05])


def pair():
    return da.from_array(X, (100, 4)), da.from_array(Y, 70)


def results():
    """Factor, scores, samples, loss and table, each from its own computes."""
    x, y = pair()
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA)
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor)
    return {
        "factor": factor,
        "tree": nlis.factorize(A, method="tsqr"),
        "sketch": nlis.factorize(A, method="sketch"),
        "leverage": scores.compute(),
        "norm": nlis.norm_scores(A).compute(),
        "multinomial": nlis.draw(scores, 100, seed=1),
        "poisson": nlis.draw(scores, 100, seed=1, scheme="poisson"),
        "stratified": nlis.draw(scores, 100, seed=1, scheme="stratified", mix=0.1),
        "systematic": nlis.draw(scores, 100, seed=1, scheme="systematic"),
        "groups": nlis.draw(scores, 100, seed=1, scheme="systematic", by=np.arange(len(X)) % 3),
        "taken": np.column_stack(nlis.draw(scores, 100, seed=1).take(x, y)),
        "loss": nlis.total_loss(PROBLEM, x, y, np.tile(THETA, (3, 1))),
        "top": nlis.top_rows(scores, 10),
        "losses": nlis.loss_scores(A).compute(),
        "suspects": nlis.suspects(A, factor, 10, by="deletion"),
        "cross": nlis.cross_leverage_scores(nlis.dual_matrix(PROBLEM, x + 1, y, theta=THETA), factor).compute(),
        "drift": nlis.drift(PROBLEM, x, y, [THETA, 2 * THETA]),
        "compare": nlis.compare(PROBLEM, x, y, {"leverage": scores}, sizes=50, seeds=1, n_starts=1),
        "transform": nlis.standardize(x, y).transform,
        **results_of_nets(x, y),
    }


def results_of_nets(x, y):
    """Rows, factors and norms of networks, of one output and of several."""
    found = {}
    for name, problem in NETS.items():
        labels = (y > 0).astype(float) + (y > 1) if name == "classes" else y
        A = nlis.dual_matrix(problem, x, labels, theta=np.linspace(-0.5, 0.7, problem.model.n_parameters(4)))
        found |= {f"{name} rows": A.to_dask_array().compute(), f"{name} factor": nlis.factorize(A)}
        found |= {f"{name} norms": nlis.norm_scores(A).compute()}
    return found


@pytest.fixture(scope="module")
def expected():
    with dask.config.set(scheduler="synchronous"):
        return results()


def assert_same(found, expected):
    for name, value in expected.items():
        same = same_bits(found[name], value) if isinstance(value, np.ndarray) else found[name] == value
        assert same, name


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_threads_give_the_bits_of_one_thread(workers, expected):
    assert expected["factor"].reads == 2
    with dask.config.set(scheduler="threads", num_workers=workers):
        assert_same(results(), expected)


def test_a_thread_pool_of_ones_own_gives_the_same_bits(expected):
    with ThreadPoolExecutor(3) as pool, dask.config.set(pool=pool):
        assert_same(results(), expected)


def test_processes_give_the_same_bits(expected):
    # One pool for all computes: starting processes is what takes the time.
    with (
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        assert_same(results(), expected)


@pytest.fixture(autouse=True)
def no_profiler():
    """The statistical profiler of workers can lock up CPython 3.11 while many tasks fail at once (gh-106883)."""
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        yield


@pytest.mark.parametrize(("safe_from", "kept"), [((3, 0), True), ((99, 0), False)])
def test_the_profiler_of_tasks_is_stopped_on_workers_whose_python_it_locks_up(safe_from, kept, monkeypatch):
    monkeypatch.setattr(prepared, "_SAFE_TO_PROFILE", safe_from)
    with (
        dask.config.set({"distributed.worker.profile.enabled": True}),
        cluster_of(n_workers=1, threads_per_worker=1, processes=False) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(prepared.Prepared())
        cluster.scale(2)  # the second worker comes when the plugin is there already
        client.wait_for_workers(2, timeout=30)
        profilers = client.run(lambda dask_worker: dask_worker.periodic_callbacks.get("profile"))
        assert [callback is not None and callback.is_running() for callback in profilers.values()] == [kept, kept]


def cluster_of(**options):
    """A cluster on this machine, its status page on a free port."""
    return LocalCluster(
        dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0", silence_logs=50, **options
    )


@pytest.fixture
def client():
    """A client of a cluster inside this process."""
    with cluster_of(n_workers=2, threads_per_worker=2, processes=False) as cluster, Client(cluster) as client:
        yield client


def test_a_cluster_inside_the_process_gives_the_same_bits(client, expected):
    assert_same(results(), expected)


def test_persisted_scores_and_a_run_in_memory_work_on_a_cluster_as_without(client, expected):
    x, y = (array.persist() for array in pair())
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA)
    scores = nlis.leverage_scores(A, nlis.factorize(A)).persist()
    for scheme in ("multinomial", "poisson"):
        assert nlis.draw(scores, 100, seed=1, scheme=scheme) == expected[scheme]
    assert nlis.top_rows(scores, 10) == expected["top"]
    run = nlis.run(PROBLEM, x, y, size=100, seed=3, theta=THETA)
    found = run.scores.compute()
    with dask.config.set(scheduler="synchronous"):
        wanted = nlis.run(PROBLEM, *pair(), size=100, seed=3, theta=THETA)
        assert same_bits(found, wanted.scores.compute())
    assert (run.sample, run.fit) == (wanted.sample, wanted.fit)


BLOCK = 100 * 4 * 8  # bytes of 100 rows


class Storage:
    """An array-like whose first reads fail with an error of a given kind."""

    def __init__(self, kind, failures):
        self.counted, self.shape, self.dtype = CountingArray(X), X.shape, X.dtype
        self.kind, self.tickets = kind, CountingArray(np.zeros(failures))

    def __getitem__(self, index):
        with self.counted.lock:
            number = int(self.tickets.rows.sum())
            if number < len(self.tickets.rows):
                self.tickets.rows[number] += 1
                raise self.kind("storage is away")
        return self.counted[index]

    @property
    def failed(self):
        """How many reads failed."""
        return int(self.tickets.rows.sum())


def matrix(storage):
    return nlis.dual_matrix(PROBLEM, storage, Y, theta=THETA, block_bytes=BLOCK)


def test_a_read_that_fails_is_tried_again_inside_its_task(expected):
    storage = Storage(OSError, failures=3)
    factor = nlis.factorize(matrix(storage))
    assert storage.failed == 3
    assert storage.counted.reads() == 2  # no block was read more often than the two passes need
    assert same_bits(factor.r, expected["factor"].r)
    assert same_bits(factor.whitener, expected["factor"].whitener)


def test_a_read_that_keeps_failing_stops_the_pass_with_its_own_error(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    storage = Storage(OSError, failures=1000)
    with dask.config.set(scheduler="synchronous"), pytest.raises(OSError, match="storage is away"):
        nlis.norm_scores(matrix(storage)).compute()
    assert storage.failed == 4  # once and three times again


def test_a_task_that_fails_on_a_cluster_is_run_again_three_times(client, expected):
    storage = Storage(RuntimeError, failures=3)
    assert same_bits(nlis.factorize(matrix(storage)).r, expected["factor"].r)
    lasting = Storage(RuntimeError, failures=1000)
    with pytest.raises(nlis.ReadError, match=r"X \(Storage\), rows \d*0 to \d*99 cannot be read .*storage is away"):
        nlis.factorize(matrix(lasting))
    assert lasting.failed <= 4 * 18


def test_errors_and_warnings_of_tasks_reach_the_user_of_a_cluster(client):
    x, y = pair()
    bad = da.where(da.from_array(np.arange(1800) == 777, 100)[:, None], np.nan, x)
    with pytest.raises(nlis.NonFiniteError, match=r"column 0 .*row 777 \(1 row in all\)"):
        nlis.factorize(nlis.dual_matrix(PROBLEM, bad, y, theta=THETA))
    with pytest.raises(nlis.NonFiniteError, match="row 777 "):
        nlis.total_loss(PROBLEM, bad, y, THETA)


def test_a_cluster_without_workers_says_so_instead_of_waiting_for_ever():
    with (
        dask.config.set({"dask-nlis.no-workers-timeout": 0.2}),
        cluster_of(n_workers=0, processes=False) as cluster,
        Client(cluster),
        pytest.raises(nlis.ClusterError, match=r"no workers joined within 0.2 s; start workers"),
    ):
        nlis.factorize(nlis.reference_matrix(PROBLEM, *pair()))


def test_verbs_inside_a_task_leave_its_thread_to_the_tasks_they_wait_for(expected):
    """As searches of scikit-learn have them that joblib runs on Dask; more of them than there are threads."""
    with (
        dask.config.set({"dask-nlis.timeout": 30}),  # where they waited for one another
        cluster_of(n_workers=1, threads_per_worker=1, processes=False) as cluster,
        Client(cluster) as client,
    ):
        found = client.gather([client.submit(_factor_inside, k, pure=False) for k in range(3)])
        after = client.submit(sum, [1, 2]).result(timeout=30)
    assert all(same_bits(r, expected["factor"].r) for r in found)
    assert after == 3


def _factor_inside(k):
    return nlis.factorize(nlis.dual_matrix(PROBLEM, *pair(), theta=THETA)).r


@pytest.mark.cluster
def test_two_worker_processes_give_the_same_bits_and_show_the_phases_as_spans(tmp_path):
    group = zarr.open_group(tmp_path / "data", mode="w")
    group.create_array("X", data=X, chunks=(100, 4))
    group.create_array("y", data=Y, chunks=(100,))
    x, y = nlis.open_rows(tmp_path / "data", X="X", y="y", block_bytes=BLOCK)
    with dask.config.set(scheduler="synchronous"):
        wanted = nlis.run(PROBLEM, x, y, size=200, seed=3, store=tmp_path / "one")

    with cluster_of(n_workers=2, threads_per_worker=1, host="127.0.0.1") as cluster, Client(cluster) as client:
        assert all(address.startswith("tcp://127.0.0.1:") for address in client.scheduler_info()["workers"])
        found = nlis.run(PROBLEM, x, y, size=200, seed=3, store=tmp_path / "two")
        found.sample.take(x, y)
        nlis.factorize(nlis.reference_matrix(PROBLEM, x, y), method="tsqr")  # the tree has a merge of its own

        def spans(dask_scheduler):
            return [span.name for span in dask_scheduler.extensions["spans"].spans.values()]

        phases = {name[1] for name in client.run_on_scheduler(spans) if len(name) == 2 and name[0] == "nlis"}
    assert phases >= {"nlis-factor", "nlis-merge", "nlis-score", "nlis-draw", "nlis-gather", "nlis-loss"}
    assert (found.sample, found.factor, found.fit) == (wanted.sample, wanted.factor, wanted.fit)
    assert same_bits(found.scores.compute(), wanted.scores.compute())
    assert found.total_loss == wanted.total_loss
    assert nlis.open_run(tmp_path / "two").sample == wanted.sample


@pytest.mark.cluster
def test_a_worker_killed_in_the_middle_of_a_draw_changes_no_row(expected, monkeypatch):
    asked, passes, killed = phase.on_blocks, [], []

    def and_kill(array, label, *rest):
        found = asked(array, label, *rest)
        passes.append(label)
        if passes.count("nlis-draw") == 1:  # between two passes: the scores it held are lost
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return found

    monkeypatch.setattr(phase, "on_blocks", and_kill)
    with cluster_of(n_workers=2, threads_per_worker=1, host="127.0.0.1") as cluster, Client(cluster) as client:
        x, y = pair()
        A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA)
        factor = nlis.factorize(A)
        for scheme, options in (("poisson", {}), ("stratified", {"mix": 0.1}), ("systematic", {}), ("multinomial", {})):
            passes.clear()
            scores = nlis.leverage_scores(A, factor)
            assert nlis.draw(scores, 100, seed=1, scheme=scheme, **options) == expected[scheme]
            assert len(passes) > 1
    assert len(set(killed)) == 4


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_workers_keep_the_memory_of_sub_blocks_between_uses(monkeypatch):
    def faults():
        """Pages a worker is given anew for forty arrays of a megabyte, one after the other."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(40):
            np.ones(2**17)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with cluster_of(n_workers=1, threads_per_worker=1) as cluster, Client(cluster) as client:
        (before,) = client.run(faults).values()
        x, y = pair()
        nlis.norm_scores(nlis.reference_matrix(PROBLEM, x, y))
        phase.blocks_of(x, "nlis-rows")
        (after,) = client.run(faults).values()
    assert before > 40 * 200  # 256 pages an array
    assert after < 40 * 20
