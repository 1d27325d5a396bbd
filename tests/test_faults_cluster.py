"""Faults of a cluster: workers that die, hang, come and go, a lost scheduler, a closed client, an interrupt, a deadline."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from acting import ActingRows, matrix, scores_of
from chaos import chaos
from distributed import Client, Future, LocalCluster
from distributed.comm import CommClosedError
from zarr.storage import LocalStore

import dask_nlis as nlis
from dask_nlis import failures, phase
from dask_nlis.graph import optimised
from dask_nlis.intake import create_scores, write_block

HERE = Path(__file__).parent
OPTIONS = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes that a nanny starts again."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 3}),
        LocalCluster(n_workers=2, **OPTIONS) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    with dask.config.set(scheduler="synchronous"):
        return scores_of(matrix(ActingRows(tmp_path_factory.mktemp("clean"))))


@pytest.fixture
def beside():
    """Run something while the test computes, and have its errors in the test."""
    threads, errors = [], []

    def run(call):
        def kept():
            try:
                call()
            except BaseException as error:
                errors.append(error)

        threads.append(threading.Thread(target=kept))
        threads[-1].start()

    yield run
    for thread in threads:
        thread.join(60)
    assert not errors


def said_by(error, call):
    with pytest.raises(error) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300
    return str(caught.value)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


# -- workers ------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_worker_that_hangs_ends_at_the_deadline(client, beside, tmp_path, wanted):
    pid = next(iter(client.run(os.getpid).values()))
    assert scores_of(matrix(ActingRows(tmp_path / "first"))) == wanted
    rows = ActingRows(tmp_path / "marks", "slow")

    def stop():
        rows.wait(3)
        os.kill(pid, signal.SIGSTOP)

    beside(stop)
    try:
        with dask.config.set({"dask-nlis.timeout": 2}):
            message = said_by(nlis.DeadlineError, lambda: nlis.factorize(matrix(rows)))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "nlis-factor was not done after 2 s, the Dask config key dask-nlis.timeout" in message
    assert scores_of(matrix(rows)) == wanted


@pytest.mark.cluster
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one", "all"])
def test_workers_killed_in_the_middle_change_no_bit(all_of_them, client, beside, tmp_path, wanted):
    rows = ActingRows(tmp_path / "marks", "slow")
    pids = list(client.run(os.getpid).values())[: None if all_of_them else 1]

    def murder():
        rows.wait(4)
        for pid in pids:
            kill(pid)

    beside(murder)
    assert scores_of(matrix(rows)) == wanted
    assert rows.marks() > 40  # of twenty blocks in two passes: some were read again


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_that_join_and_leave_change_no_bit(beside, tmp_path, wanted):
    with LocalCluster(n_workers=1, **OPTIONS) as cluster, Client(cluster):
        rows = ActingRows(tmp_path / "marks", "slow")

        def scale():
            rows.wait(3)
            cluster.scale(3)
            rows.wait(20)
            cluster.scale(1)

        beside(scale)
        assert scores_of(matrix(rows)) == wanted
        end = time.monotonic() + 30
        while len(cluster.scheduler_info["workers"]) != 1 and time.monotonic() < end:
            time.sleep(0.05)  # a cluster closed while it scales raises


@pytest.mark.cluster
def test_a_block_that_kills_its_workers_is_named_with_its_rows(client, tmp_path):
    A = matrix(ActingRows(tmp_path / "marks", "die", at=620))
    message = said_by(nlis.ClusterError, lambda: nlis.factorize(A))
    # Also a block that ran just before it on each of the dead workers would be among them.
    found = re.match(r"nlis-factor: 4 workers died, one after the other, at (.*): 1,200 bytes ", message)
    assert found is not None
    assert "rows 600 to 649" in found[1].split(" or ")
    assert "where a worker of 1 threads may use " in message


@pytest.mark.slow
@pytest.mark.cluster
def test_a_block_too_large_for_its_workers_is_told_with_the_limit_and_a_size_that_would_do(tmp_path):
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, memory_limit="900 MB", **OPTIONS) as cluster,
        Client(cluster),
    ):
        A = matrix(ActingRows(tmp_path / "marks", "fill"), 500)
        message = said_by(nlis.ClusterError, lambda: nlis.factorize(A))
    # After one death the block that waited behind it on that worker is as suspect.
    found = re.search(r"at (.*): 12,000 bytes where a worker of 1 threads may use 900,000,000", message)
    assert found is not None
    assert "rows 500 to 999" in found[1].split(" or ")
    assert "give block_bytes=6,000" in message


@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_that_hangs_before_the_job_ends_at_the_deadline_too(tmp_path):
    """It answers no question either."""
    with LocalCluster(n_workers=2, **OPTIONS) as cluster, Client(cluster) as client:
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGSTOP)
        try:
            with dask.config.set({"dask-nlis.timeout": 2}):
                said_by(nlis.DeadlineError, lambda: nlis.factorize(matrix(ActingRows(tmp_path / "marks"))))
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_that_die_all_the_time_change_no_bit():
    rounds, killed = chaos(15, 2, 40_000)
    assert rounds >= 1
    assert killed >= 3


# -- scheduler and client -----------------------------------------------------------------------------------------

SCHEDULER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    options = {"threads_per_worker": 1, "processes": False, "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, host="127.0.0.1", **options) as c:
        print(c.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.mark.cluster
def test_a_lost_scheduler_is_an_error_at_once(beside, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", SCHEDULER], **options) as process:
        address = process.stdout.readline().strip()
        rows = ActingRows(tmp_path / "marks", "slow")

        def murder():
            rows.wait(3)
            kill(process.pid)

        with Client(address, timeout=2) as client:
            beside(murder)
            began = time.monotonic()
            message = said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(rows)))
            assert time.monotonic() - began < 60
            assert message.startswith("nlis-factor: lost the scheduler")
            again = said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(rows)))
            assert "scheduler" in again
            assert client.status != "running"


@pytest.mark.cluster
def test_a_client_closed_in_the_middle_is_an_error_of_ours(cluster, beside, tmp_path):
    rows = ActingRows(tmp_path / "marks", "slow")
    with Client(cluster) as client:

        def close():
            rows.wait(3)
            client.close()

        beside(close)
        message = said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(rows)))
    assert message.startswith("nlis-factor: the client was closed")


def test_a_closed_client_by_name_is_an_error_of_ours(tmp_path):
    with LocalCluster(
        n_workers=1, processes=False, dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0"
    ) as cluster:
        client = Client(cluster, set_as_default=False)
        client.close()
        with dask.config.set(scheduler=client):
            message = said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(ActingRows(tmp_path / "marks"))))
    assert "closed" in message


def test_work_that_others_cancel_is_an_error_of_ours(beside, tmp_path):
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        rows = ActingRows(tmp_path / "marks", "slow")

        def cancel():
            rows.wait(3)
            client.cancel([Future(key, client) for key in list(client.futures)])

        beside(cancel)
        assert "cancelled" in said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(rows)))


@pytest.mark.parametrize("failures", [1, 100])
def test_a_worker_that_dies_while_it_is_made_ready_is_no_reason_to_fail(failures, tmp_path, wanted, monkeypatch):
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        told = []
        register = client.register_plugin

        async def lost():
            raise CommClosedError("worker is gone")

        def register_plugin(plugin):
            told.append(plugin)
            return lost() if len(told) <= failures else register(plugin)

        monkeypatch.setattr(client, "register_plugin", register_plugin)
        monkeypatch.setattr("time.sleep", lambda _: None)
        A = matrix(ActingRows(tmp_path / "marks"))
        if failures == 1:
            assert wanted.startswith(nlis.factorize(A).r.tobytes())
            assert len(told) == 2
        else:
            said_by(nlis.ClusterError, lambda: nlis.factorize(A))
            assert len(told) == 5


def test_workers_that_all_leave_for_too_long_are_an_error(beside, tmp_path):
    with (
        dask.config.set({"dask-nlis.no-workers-timeout": "0.5 s"}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):
        rows = ActingRows(tmp_path / "marks", "slow")

        def leave():
            rows.wait(3)
            cluster.scale(0)

        beside(leave)
        message = said_by(nlis.ClusterError, lambda: nlis.factorize(matrix(rows)))
    assert "all workers have been gone for 0.5 s; start workers" in message


# -- interrupts and deadlines -------------------------------------------------------------------------------------


def children_of(pid):
    found = []
    for each in os.listdir("/proc"):
        if each.isdigit():
            try:
                text = Path(f"/proc/{each}/stat").read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) == pid:
                found += [int(each), *children_of(int(each))]
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.cluster
@pytest.mark.parametrize(
    "where",
    ["threads", *(pytest.param(where, marks=pytest.mark.slow) for where in ("synchronous", "processes", "cluster"))],
)
def test_an_interrupt_ends_the_job_and_leaves_no_process_behind(where, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    rows = ActingRows(tmp_path / "marks", "slow")
    command = [sys.executable, HERE / "interrupted.py", tmp_path / "marks", where]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        rows.wait(4)
        family = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode in (-signal.SIGINT, 130), err
    assert err.rstrip().endswith("KeyboardInterrupt")
    if where == "cluster":
        assert len(family) >= 2
        assert "left on the scheduler: 0" in out
    end = time.monotonic() + 10
    while any(map(alive, family)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, family))


@pytest.mark.parametrize("where", ["threads", "synchronous"])
def test_a_local_compute_ends_at_the_deadline(where, tmp_path):
    rows = ActingRows(tmp_path / "marks", "slow", n=10_000)
    with dask.config.set({"scheduler": where, "dask-nlis.timeout": "500 ms", "num_workers": 2}):
        message = said_by(nlis.DeadlineError, lambda: nlis.factorize(matrix(rows)))
    assert "nlis-factor was not done after 0.5 s" in message
    assert rows.marks() < 100
    with pytest.raises(TimeoutError):
        raise nlis.DeadlineError("also one")


def test_threads_that_hang_are_not_waited_for(tmp_path):
    event = threading.Event()

    class Hanging(ActingRows):
        def __getitem__(self, index):
            event.wait(60)
            return super().__getitem__(index)

    with dask.config.set({"scheduler": "threads", "dask-nlis.timeout": 0.3, "num_workers": 2}):
        said_by(nlis.DeadlineError, lambda: nlis.factorize(matrix(Hanging(tmp_path / "marks"))))
    assert not event.is_set()
    event.set()


def test_what_is_done_before_the_deadline_has_the_same_bits(tmp_path, wanted):
    with dask.config.set({"scheduler": "threads", "dask-nlis.timeout": 600}):
        assert scores_of(matrix(ActingRows(tmp_path / "marks"))) == wanted
        bad = ActingRows(tmp_path / "other")
        bad.folder = None  # where nothing can be marked: a TypeError
        assert "rows " in said_by(nlis.ReadError, lambda: nlis.factorize(matrix(bad)))


@pytest.mark.parametrize("given", [0, -1, "soon", True, [3]])
def test_timeouts_are_seconds(given, tmp_path):
    with dask.config.set({"dask-nlis.timeout": given}):
        message = said_by(nlis.InputError, lambda: nlis.factorize(matrix(ActingRows(tmp_path / "marks"))))
    assert f"dask-nlis.timeout={given!r} is not allowed; give a number of seconds" in message


# -- tasks --------------------------------------------------------------------------------------------------------


def out_of_memory(x):
    raise MemoryError("of the host")


@pytest.mark.parametrize("where", ["threads", "synchronous", "cluster"])
def test_memory_that_runs_out_in_a_task_names_rows_block_and_remedy(where, tmp_path):
    model = nlis.Homogeneous(lambda theta, x: out_of_memory(x), lambda theta, x: x, degree=1, n_params=3)
    x = matrix(ActingRows(tmp_path / "marks"), 500).source.x

    def call():
        return nlis.factorize(nlis.dual_matrix(nlis.Problem(model), x, np.ones(1000), theta=[1.0, 2.0, 3.0]))

    if where == "cluster":
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
            ) as cluster,
            Client(cluster),
        ):
            message = said_by(nlis.MemoryLimitError, call)
    else:
        with dask.config.set(scheduler=where):
            message = said_by(nlis.MemoryLimitError, call)
    assert "memory ran out at rows " in message
    assert "(of the host), a block of 12,000 bytes where a process of " in message
    assert "; give block_bytes=6,000, or fewer threads" in message


def test_memory_that_runs_out_elsewhere_names_the_work():
    with dask.config.set(scheduler="synchronous"):
        message = said_by(
            nlis.MemoryLimitError,
            lambda: phase.blocks_of(dask.array.ones(4).map_blocks(out_of_memory, meta=np.ones(0)), "nlis-loss"),
        )
    assert message.startswith("nlis-loss: memory ran out (of the host)")


@pytest.mark.parametrize("kind", ["stored", "blockwise", "memory"])
def test_the_rows_of_a_task_are_read_off_its_graph(kind, tmp_path):
    if kind == "memory":
        A = nlis.dual_matrix(
            nlis.Problem(nlis.Linear()),
            dask.array.from_array(np.ones((100, 3)), (30, 3)),
            np.ones(100),
            theta=np.ones(4),
        )
    else:
        A = matrix(ActingRows(tmp_path / "marks", n=100), 30)
        if kind == "blockwise":
            A = nlis.reference_matrix(A.problem, A.source.x * 2)
    lazy = A.to_dask_array()
    graph = optimised(lazy)
    found = [failures.rows_of(graph, (lazy.name, k, 0)) for k in range(4)]
    assert found == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert failures.rows_of(graph, "no such key") is None


def test_a_task_that_runs_twice_writes_the_same_bytes_and_one_record(tmp_path):
    target = create_scores(LocalStore(tmp_path), "scores", (40, 40, 20))
    block = np.random.default_rng(0).random(40)
    records, contents = [], []
    for _ in range(2):
        records.append(write_block(block, 40, target))
        contents.append({p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()})
    assert records[0] == records[1]
    assert contents[0] == contents[1]
    assert zarr.open_array(tmp_path / "scores").nchunks_initialized == 1


def test_a_cluster_runs_a_task_again_to_the_same_bits(tmp_path, wanted):
    class Twice(ActingRows):
        """Every block fails once after it was read."""

        def __getitem__(self, index):
            values = super().__getitem__(index)
            first = index[0].start
            if sum(name.startswith(f"{first}-") for name in os.listdir(self.folder)) % 2:
                raise RuntimeError("once")
            return values

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):
        rows = Twice(tmp_path / "marks")
        r = nlis.factorize(matrix(rows)).r.tobytes()
        assert wanted.startswith(r)
        assert rows.marks() == 40


def test_one_bad_block_gives_one_error_with_its_rows(tmp_path):
    def value(theta, x):
        if (x[:, 0] == 7.5).any():
            raise ValueError("cannot do 7.5")
        return x @ theta

    model = nlis.Homogeneous(value, lambda theta, x: x, degree=1, n_params=3)
    x = np.random.default_rng(0).standard_normal((1000, 3))
    x[620, 0] = 7.5
    lazy = dask.array.from_array(x, (100, 3))
    matrices = {
        "a function of the user": nlis.dual_matrix(nlis.Problem(model), lazy, np.ones(1000), theta=[1.0, 2.0, 3.0]),
        "a cell": nlis.reference_matrix(nlis.Problem(nlis.Linear()), np.where(x == 7.5, np.nan, x), block_bytes=2400),
    }
    for kind, A in matrices.items():
        (told,) = {told_of(A, where) for where in ("synchronous", "threads", "cluster")}
        if kind == "a cell":
            assert "row 620 " in told[0]
        else:
            assert told == ("cannot do 7.5", "in a block with rows 600 to 699 of X")


def told_of(A, where):
    """Message and notes of the error of a factor."""
    with ExitStack() as stack:
        if where == "cluster":
            cluster = LocalCluster(
                n_workers=2, processes=False, dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0"
            )
            stack.enter_context(Client(stack.enter_context(cluster)))
        else:
            stack.enter_context(dask.config.set(scheduler=where))
        with pytest.raises(Exception, match=r".") as caught:
            nlis.factorize(A)
    return str(caught.value), *getattr(caught.value, "__notes__", [])
