"""Task graphs: waves that stand alone, no barrier between the groups of a factor, 100,000 blocks, tasks that queue."""

import logging
import math
import pickle
import subprocess
import sys
from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, Tasks, rows_of, same_bits
from dask._task_spec import DataNode, Task, TaskRef, convert_legacy_graph
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dask_nlis as nlis
from dask_nlis import blocks, graph, phase

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
THETA = np.array([0.3, -0.2, 0.1, 0.05])


def dual(n_blocks, rows=4, **options):
    x, y = nlis.datasets.generated_rows(rows * n_blocks, 3, block_rows=rows)
    return nlis.dual_matrix(PROBLEM, x, y, theta=THETA, **options)


def node(key, *needed):
    return Task(key, max, 0, *map(TaskRef, needed))


def chain(n):
    """n blocks that are read, worked on and added up by tens, with a constant that all share."""
    made = {"shared": DataNode("shared", 1)}
    for k in range(n):
        made |= {("read", k): node(("read", k)), ("work", k): node(("work", k), ("read", k), "shared")}
    for k in range(0, n, 10):
        made[("sum", k)] = node(("sum", k), *(("work", b) for b in range(k, min(k + 10, n))))
    return made, [("sum", k) for k in range(0, n, 10)]


@pytest.mark.parametrize("most", [1, 21, 50, 10_000])
def test_waves_stand_alone_hold_every_task_once_and_keep_the_order(most):
    whole, keys = chain(105)
    whole["unasked"] = node("unasked", ("read", 0))
    parts = graph.waves(whole, keys, most)
    assert [key for part in parts for key in part.keys] == keys
    for part in parts:
        assert all(each.dependencies <= part.graph.keys() for each in part.graph.values())
        tasks = sum(not isinstance(each, DataNode) for each in part.graph.values())
        assert tasks <= most or len(part.keys) == 1
    held = Counter(key for part in parts for key in part.graph)
    assert held == Counter(dict.fromkeys(whole, 1)) - Counter(["unasked"]) + Counter({"shared": len(parts) - 1})
    assert len(parts) == (11 if most <= 21 else 6 if most == 50 else 1)


def test_a_graph_whose_parts_share_much_is_not_cut():
    x = da.from_array(rows_of(1, 400, 3)[0], (4, 3), asarray=False)
    counted = CountingArray(rows_of(1, 400, 3)[0])
    lazy = counted.dask(4)
    centred = lazy - lazy.mean(axis=0)
    with dask.config.set(scheduler="synchronous"):
        expected = np.concatenate(phase.blocks_of(x - x.mean(axis=0), "nlis-rows"))
        with pytest.MonkeyPatch.context() as patched, Tasks() as tasks:
            patched.setattr(phase, "LOCAL_WAVE", 50)
            found = np.concatenate(phase.blocks_of(centred, "nlis-rows"))
    assert same_bits(found, expected)
    assert tasks.computes == 1
    assert counted.reads() <= 2  # by the mean and by its subtraction, not by every wave again


def test_blocks_are_handed_on_in_order_wave_by_wave(monkeypatch):
    monkeypatch.setattr(phase, "LOCAL_WAVE", 7)
    x = da.arange(100, chunks=4)
    seen = []
    with Tasks() as tasks:
        phase.each_block(x, "nlis-rows", lambda block: seen.append((tasks.computes, int(block[0]))))
    assert [first for _, first in seen] == list(range(0, 100, 4))
    assert tasks.computes == 4
    assert [Counter(wave for wave, _ in seen)[k] for k in (1, 2, 3, 4)] == [7, 7, 7, 4]


@pytest.mark.parametrize("method", ["gram", "tsqr", "sketch-only"])
def test_groups_of_a_factor_are_read_in_one_go_and_give_the_bits_of_one_after_the_other(method, monkeypatch):
    monkeypatch.setattr(blocks, "_GROUP", 32)
    A = dual(100)
    with Tasks() as tasks:
        together = nlis.factorize(A, method=method)
    read = [keys for keys in tasks.phases if any(key[0].startswith("nlis-factor") and key[1] == 99 for key in keys)]
    assert len(read) == 1  # one compute holds the blocks of all four groups
    assert len({key for key in read[0] if key[0].startswith("nlis-factor") and "-s" not in key[0]}) == 100
    monkeypatch.setattr(phase, "LOCAL_WAVE", 1)
    monkeypatch.setattr(blocks, "_TOGETHER", 1)
    with Tasks() as tasks:
        assert nlis.factorize(A, method=method) == together
    assert tasks.computes >= 4
    # Groups are part of the tree: other groups round otherwise.
    monkeypatch.setattr(blocks, "_GROUP", 1024)
    other = nlis.factorize(A, method=method)
    np.testing.assert_allclose(other.r, together.r, rtol=1e-12, atol=1e-12)


def test_a_job_of_many_blocks_takes_one_task_a_block_and_pass_and_the_tree():
    n_blocks = 1_500
    A = dual(n_blocks)
    taken = Counter()

    def counted(name, call):
        with Tasks() as tasks:
            found = call()
        taken[name] = len(tasks.keys)
        assert max(map(len, tasks.phases)) <= phase.LOCAL_WAVE
        return found

    factor = counted("factor", lambda: nlis.factorize(A))
    scores = nlis.leverage_scores(A, factor)
    sample = counted("draw", lambda: nlis.draw(scores, 2_000, seed=0))
    counted("take", lambda: sample.take(A.source.x, A.source.y))
    groups = math.ceil(n_blocks / 1024)
    stacks = math.ceil(n_blocks / 16)
    assert taken["factor"] == n_blocks + stacks + groups
    # Scores, what is in them, totals; and the rows, from the blocks that hold targets.
    touched = len(np.unique(sample.indices // 4))
    assert taken["draw"] == 3 * n_blocks + touched
    assert taken["take"] == 2 * touched


def test_taking_rows_takes_a_task_for_each_block_they_lie_in_and_gives_them_in_their_order(rng):
    n, rows = 1_000_000, 1_000
    x, _ = nlis.datasets.generated_rows(n, 2, block_rows=rows)
    chosen = rng.choice(n, 10_000, replace=False)
    chosen[:9_000] %= 300_000  # seven in ten blocks hold few or none
    chosen = np.unique(chosen)
    sample = nlis.Sample.from_probabilities(chosen, np.full(len(chosen), 1 / n), n_rows=n)
    with Tasks() as tasks:
        taken = sample.take(x)
    assert len(tasks.keys) <= len(np.unique(chosen // rows)) + 10
    everything = x.compute()
    assert same_bits(taken, everything[chosen])
    mixed = nlis.sample.take.take_rows("X", x, chosen[::-1], n)
    assert same_bits(mixed, everything[chosen[::-1]])


BUILD = """
import sys, resource
import dask, dask.array as da, numpy as np
import dask_nlis as nlis
from dask_nlis.sampling.verb import draw_held

n = int(sys.argv[1])
asked = []


class Stop(Exception):
    pass


def scheduler(graph, keys, **_):
    asked.append(sum(type(node).__name__ != "DataNode" for node in graph.values()))
    raise Stop


def build(call):
    try:
        call()
    except Stop:
        pass


def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


x, y = nlis.datasets.generated_rows(4 * n, 3, block_rows=4)
problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
nlis.factorize(nlis.reference_matrix(problem, x[:80], y[:80]))
before = peak()
with dask.config.set(scheduler=scheduler):
    A = nlis.dual_matrix(problem, x, y, theta=np.array([0.3, -0.2, 0.1, 0.05]))
    build(lambda: nlis.factorize(A))
    build(lambda: nlis.factorize(A, method="tsqr"))
    scores = nlis.norm_scores(A)
    build(lambda: nlis.draw(scores, 100, seed=0))
    held = da.Array({("held", k): np.ones(4) for k in range(n)}, "held", chunks=((4,) * n,), meta=np.empty(0))
    build(lambda: draw_held(held, 100, "poisson", 0, 0))
print(before, peak(), len(scores.dask), *asked)
"""


def built(n_blocks):
    ran = subprocess.run(
        [sys.executable, "-c", BUILD, str(n_blocks)], capture_output=True, text=True, check=True, timeout=880
    )
    before, peak, size, *asked = map(int, ran.stdout.split())
    assert (
        size == n_blocks + 1
    )  # one node a block in the graph of the scores, whatever reads X and y, and one for theta
    assert len(asked) == 4
    assert max(asked) <= phase.LOCAL_WAVE
    return before, peak


def test_the_graph_of_a_job_takes_less_than_ten_kilobytes_a_block():
    before, peak = built(3_000)
    assert peak - before < 3_000 * 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_graphs_of_100_000_blocks_are_made_in_less_than_a_gigabyte():
    _, peak = built(100_000)
    assert peak < 1e9


class Queue(SchedulerPlugin):
    """The largest number of tasks of each kind that waited in the scheduler's queue."""

    def __init__(self, scheduler):
        self.scheduler, self.most = scheduler, Counter()

    def transition(self, key, start, finish, *args, **kwargs):
        name = key if isinstance(key, str) else key[0]
        label = "-".join(name.split("-")[:2])
        waiting = sum(("-".join(ts.key[0].split("-")[:2]) == label) for ts in self.scheduler.queued)
        self.most[label] = max(self.most[label], waiting)


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["generated", "Dask arithmetic", "memory"])
def test_tasks_wait_in_the_queue_of_the_scheduler_and_not_on_workers(form):
    x, y = nlis.datasets.generated_rows(6_000, 3, block_rows=100)
    if form == "Dask arithmetic":
        x, y = (x - 1) / 2, y + 1
    elif form == "memory":
        x, y = x.compute(), y.compute()
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.1}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster),
    ):
        queue = Queue(cluster.scheduler)
        cluster.scheduler.add_plugin(queue)
        A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, block_bytes=2400)
        assert len(A.source.chunks) == 60
        factor = nlis.factorize(A)
        nlis.factorize(A, method="tsqr")
        nlis.draw(nlis.leverage_scores(A, factor), 100, seed=0)
    # Two threads and a tenth more: three tasks are on the worker, the others wait.
    assert queue.most["nlis-factor"] >= 50
    assert queue.most["nlis-score"] >= 50


def test_generated_rows_follow_from_their_numbers_alone():
    x, y = nlis.datasets.generated_rows(1_003, 9, seed=5, block_rows=100)
    other_x, other_y = nlis.datasets.generated_rows(1_003, 9, seed=5, block_rows=7)
    whole = x.compute()
    assert same_bits(other_x.compute(), whole)
    assert same_bits(other_y.compute(), y.compute())
    assert same_bits(x[400:900:7, 2:5].compute(), whole[400:900:7, 2:5])
    assert x.name != other_x.name
    assert not np.array_equal(nlis.datasets.generated_rows(1_003, 9, seed=6)[0].compute(), whole)
    assert whole.min() >= -1
    assert whole.max() < 1
    # A correlation above 5 standard errors would be no chance.
    assert np.abs(np.corrcoef(whole.T) - np.eye(9)).max() < 5 / math.sqrt(1_003)
    assert np.abs(whole.var(axis=0) * 3 - 1).max() < 5 * math.sqrt(0.8 / 1_003)
    single = nlis.datasets.generated_rows(1_003, 9, seed=5, dtype="float32")[0].compute()
    assert same_bits(single, whole.astype(np.float32))
    z = whole @ ((-1.0) ** np.arange(9) / (1 + np.arange(9)))
    noise = y.compute() - 0.5 - 0.5 * z / (1 + np.abs(z))
    assert np.abs(noise).max() < 0.1 * math.sqrt(3)
    assert abs(noise.var() / 0.01 - 1) < 5 * math.sqrt(0.8 / 1_003)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rows": 0}, r"^n_rows=0 is not allowed; give a positive one$"),
        ({"seed": -1}, r"^seed=-1 is not allowed; give a non-negative one$"),
        ({"n_columns": 2.5}, r"^n_columns=2.5 is float; give an integer$"),
        ({"dtype": "int8"}, r"^dtype='int8' is not allowed; give 'float64' or 'float32'$"),
    ],
)
def test_generated_rows_name_what_they_refuse(options, message):
    error = nlis.InputTypeError if "n_columns" in options else nlis.InputError
    with pytest.raises(error, match=message):
        nlis.datasets.generated_rows(**{"n_rows": 10, "n_columns": 3} | options)


def test_what_a_cluster_holds_is_not_sent_there_again_as_a_constant(caplog):
    X, y = rows_of(7, 300, 3)
    A = nlis.dual_matrix(
        nlis.Problem(nlis.Linear()), da.from_array(X, (50, -1)), da.from_array(y, 50), theta=np.ones(4)
    )
    scheduler = logging.getLogger("distributed.scheduler")
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
        scheduler.addHandler(caplog.handler)
        try:
            factor = nlis.factorize(A, method="tsqr")  # few stacks are held, and merged by tasks on them
        finally:
            scheduler.removeHandler(caplog.handler)
    assert [record.message for record in caplog.records if "run_spec" in record.message] == []
    assert factor.r.tobytes() == nlis.factorize(A, method="tsqr").r.tobytes()


class Sent:
    """A scheduler that records the bytes of each task as it would be sent to a worker, constants apart."""

    def __init__(self):
        self.sizes = {}

    def __call__(self, graph, keys, **options):
        made = graph if isinstance(graph, dict) else graph.__dask_graph__()
        for key, node in convert_legacy_graph(dict(made)).items():
            if not isinstance(node, DataNode):
                self.sizes[key] = len(pickle.dumps(node))
        return dask.local.get_sync(graph, keys, **options)


@pytest.mark.parametrize("computed", [False, True], ids=["read", "computed"])
def test_theta_is_in_a_graph_once_and_in_no_task(computed):
    n, d = 24, 1_000
    problem = nlis.Problem(nlis.ReluNetwork(100))
    X = da.ones((n, d), chunks=(4, -1)) if computed else da.from_array(np.ones((n, d)), (4, -1))
    y, theta = da.ones(n, chunks=4), np.full(problem.model.n_parameters(d), 0.01)  # 0.8 MB
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    sent = Sent()
    with dask.config.set(scheduler=sent):
        nlis.draw(nlis.norm_scores(A), 3, seed=0)
        nlis.loss_scores(A).compute()
        nlis.total_loss(problem, X, y, np.stack([theta, 2 * theta]))
        nlis.drift(problem, X, y, np.stack([theta, 2 * theta]), by="norm")
    assert len(sent.sizes) > 4 * n / 4
    assert max(sent.sizes.values()) < 50_000


def test_factors_are_in_the_graphs_of_a_run_once_and_in_no_task_of_a_block():
    n, d = 40, 240
    problem = nlis.Problem(nlis.Linear(), constraint=nlis.Ball(10.0))
    X, y = nlis.datasets.generated_rows(50 * n, d, block_rows=50)
    sent = Sent()
    with dask.config.set(scheduler=sent):
        done = nlis.run(problem, X, y, size=1200, seed=0)
    sizes = sorted(sent.sizes.values())
    assert done.pilot is not None
    assert done.factor.whitener.nbytes > 400_000
    assert len(sizes) > 5 * n
    assert sizes[-n // 2] < 20_000  # the largest are of rows that were drawn and of merges of factors
