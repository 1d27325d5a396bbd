"""The plan tells what run does: reads, tasks, bytes and memory; and what cannot fit is refused before anything is read."""

import json
import pickle

import dask
import distributed.system
import numpy as np
import pytest
import zarr
from counting import CountingArray, Tasks, no_compute, rows_of
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis import workers
from dask_nlis.factor.rungs import METHODS as RUNGS
from dask_nlis.pipeline.asked import SCORES
from dask_nlis.planner import FUSED, METHODS, layout_of
from dask_nlis.planner.steps import DRAW_PASSES, ONCE
from dask_nlis.sampling import SCHEMES

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))
THETA = np.array([0.3, -0.2, 0.1, 0.05])
ROWS = 25
WIDTHS = {"reference": 5, "dual": 5, "tangent": 4}


def data(blocks):
    """Counting X and y in equal blocks."""
    counted = tuple(map(CountingArray, rows_of(3, blocks * ROWS, 3)))
    return counted, tuple(array.dask(ROWS) for array in counted)


# Name: (options of run and plan, full reads of X).
JOBS = {
    "two stages": ({}, 5),
    "three stages": ({"rounds": 3}, 7),
    "one stage": ({"rounds": 1}, 3),
    "no room for a pilot": ({"size": 10}, 3),
    "a pilot of 12": ({"pilot_size": 12}, 5),
    "two stages, multinomial": ({"scheme": "multinomial"}, 5),
    "two stages, systematic": ({"scheme": "systematic"}, 5),
    "leverage": ({"scores": "leverage", "theta": THETA}, 3),
    "leverage at a pilot": ({"scores": "leverage", "scheme": "stratified"}, 5),
    "norm": ({"scores": "norm", "theta": THETA}, 2),
    "norm at a pilot": ({"scores": "norm"}, 4),
    "influence": ({"scores": "influence", "theta": THETA}, 3),
    "influence at a pilot": ({"scores": "influence"}, 5),
}


@pytest.mark.parametrize("blocks", [1, 2, 17, 40])
@pytest.mark.parametrize("job", JOBS)
def test_the_plan_is_what_the_run_does(job, blocks):
    options, reads = JOBS[job]
    counted, (x, y) = data(blocks)
    options = {"size": 24} | options
    if options["size"] > 10 and blocks == 1:
        options["size"] = 16
    with no_compute():
        plan = nlis.plan(PROBLEM, x, y, **options, calibrate=False)
    assert [array.rows.max() for array in counted] == [0, 0]
    with Tasks() as tasks:
        done = nlis.run(PROBLEM, x, y, **options, seed=1)
    assert plan.reads == sum(done.reads.values())
    if done.why_one_stage == "" or options["size"] == 10:
        assert plan.reads == reads
    rows_passes = sum(each.kind == "rows" for each in plan.passes)
    for array in counted:  # and the blocks of drawn rows, where they are read again
        assert plan.reads <= array.rows.min() <= array.rows.max() <= plan.reads + rows_passes
        assert array.rows.min() == plan.reads or blocks < 40
    labels = tasks.labels
    exact = {
        kind: sum(each.tasks for each in plan.passes if each.kind == kind) for kind in ("factor", "scores", "loss")
    }
    assert sum(count for name, count in labels.items() if name.startswith("nlis-factor")) == exact["factor"]
    assert labels["nlis-loss"] == exact["loss"] == blocks
    assert labels["nlis-score"] >= exact["scores"]
    assert all(each.exact for each in plan.passes if each.kind in exact)
    assert sum(exact.values()) <= len(tasks.keys) <= plan.tasks
    if options.get("scheme", "poisson") == "poisson" and blocks > 1:
        assert plan.tasks <= 2.5 * len(tasks.keys)


NET = nlis.Problem(nlis.ReluNetwork(2, hidden_bias=True))

# Name: (problem, options of run and plan, those of run alone).
BOUNDED = {
    "leverage of a network": (NET, {"size": 60, "scores": "leverage"}, {}),
    "a size that grows": (PROBLEM, {"size": "auto"}, {"epsilon": 1e6}),  # and is at once what it is to be
    "a size that grows, by influence": (PROBLEM, {"size": "auto", "scores": "influence"}, {"epsilon": 1e6}),
    "no memory for rows that may be drawn": (PROBLEM, {"size": 24}, {}),
}


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")
@pytest.mark.parametrize("blocks", [1, 17, 40])
@pytest.mark.parametrize("job", BOUNDED)
def test_a_run_takes_no_more_tasks_than_its_plan_says(job, blocks, monkeypatch):
    problem, options, more = BOUNDED[job]
    if job.startswith("no memory"):
        # What is kept of the drawn rows is more than a score for each row.
        monkeypatch.setattr(workers, "fits_in_memory", lambda size: size <= 8 * blocks * ROWS)
        options = {"size": 8 * blocks}
    _, (x, y) = data(max(blocks, 8))
    plan = nlis.plan(problem, x, y, **options, calibrate=False)
    with Tasks() as tasks:
        done = nlis.run(problem, x, y, **options, **more, seed=1)
    again = done.factor.reads - 1  # by the condition of the matrix, of which the plan says as much
    factor = next(each.tasks for each in plan.passes if each.label == "factor")
    assert sum(done.reads.values()) == plan.reads + again
    assert len(tasks.keys) <= plan.tasks + again * factor
    assert plan.tasks <= 2.5 * len(tasks.keys)
    assert any(each.kind == "draw" for each in plan.passes) == (problem is PROBLEM)
    with pytest.raises(nlis.InputError, match="size='auto' needs a certificate"):
        nlis.plan(PROBLEM, x, y, size="auto", scores="norm")


def test_the_tables_of_the_plan_name_what_there_is():
    assert set(METHODS) == set(RUNGS)
    assert {"two-stage", *ONCE} == set(SCORES)
    assert set(DRAW_PASSES) == set(SCHEMES) >= FUSED


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("blocks", [1, 33])
def test_the_reads_of_a_method_are_those_of_factorize(method, blocks):
    _, (x, y) = data(blocks)
    plan = nlis.plan(PROBLEM, x, y, size=16, method=method, calibrate=False)
    with Tasks() as tasks:
        factor = nlis.factorize(nlis.reference_matrix(PROBLEM, x, y), method=method)
    first = plan.passes[0]
    assert first.reads == factor.reads
    assert (
        len(tasks.keys) == first.tasks if first.exact else len(tasks.keys) <= first.tasks <= 1.6 * len(tasks.keys) + 8
    )


def test_bytes_and_operations_follow_from_the_shape():
    _, (x, y) = data(40)
    plan = nlis.plan(PROBLEM, x, y, size=24, calibrate=False)
    n, n_bytes = 40 * ROWS, 40 * ROWS * 4 * 8
    assert {each.n_bytes for each in plan.passes if each.reads} == {n_bytes}
    assert plan.n_bytes <= 7 * n_bytes
    by_label = {each.label: each for each in plan.passes}
    assert by_label["pilot factor"].flops == n * (5**2 + 4 * 5)
    assert by_label["factor"].flops == n * (5**2 + 4**2 + 8 * 5)  # the dual and the tangent matrix
    assert (plan.block_rows, plan.block_bytes, plan.n_parameters) == (ROWS, ROWS * 32, 4)


def test_a_calibration_reads_one_block_in_one_task():
    counted, (x, y) = data(40)
    with Tasks() as tasks:
        plan = nlis.plan(PROBLEM, x, y, size=24)
    assert [len(keys) for keys in tasks.phases] == [1]
    expected = np.zeros(40 * ROWS, dtype=int)
    expected[:ROWS] = 1
    assert all(np.array_equal(array.rows, expected) for array in counted)
    assert all((each.seconds is not None) == bool(each.reads) for each in plan.passes)
    assert plan.seconds == sum(each.seconds for each in plan.passes if each.reads) > 0
    with dask.config.set(scheduler="threads", num_workers=1):
        one = nlis.plan(PROBLEM, x, y, size=24)
    assert (one.threads, one.processes) == (1, 1)
    refusing = nlis.Problem(nlis.Numerical(lambda theta, x: x @ theta, lambda theta, x: np.full_like(x, np.nan), 3))
    assert nlis.plan(refusing, x, y, size=20).seconds > 0  # its rows at a made-up theta are refused, its products timed


def test_without_labels_scores_and_a_draw_are_planned():
    _, (x, _) = data(40)
    for options, labels, reads in (
        ({"scores": "leverage"}, ["factor", "scores"], 2),
        ({"scores": "norm"}, ["scores"], 1),
        ({"scores": "leverage", "theta": THETA}, ["factor", "scores"], 2),
    ):
        plan = nlis.plan(PROBLEM, x, size=20, **options)
        assert [each.label for each in plan.passes if each.reads] == labels
        assert plan.reads == reads
        for scheme in SCHEMES:
            plan = nlis.plan(PROBLEM, x, size=20, **options, scheme=scheme, calibrate=False)
            A = (
                nlis.reference_matrix(PROBLEM, x)
                if "theta" not in options
                else nlis.dual_matrix(PROBLEM, x, theta=THETA)
            )
            with Tasks() as tasks:
                scores = nlis.norm_scores(A) if "factor" not in labels else nlis.leverage_scores(A, nlis.factorize(A))
                nlis.draw(scores, 20, scheme=scheme, seed=0).take(x)
            assert len(tasks.keys) <= plan.tasks
    with pytest.raises(nlis.InputTypeError, match="y is None, but scores='two-stage' need labels"):
        nlis.plan(PROBLEM, x)


def test_a_plan_is_a_noun_that_reads_well():
    _, (x, y) = data(17)
    plan = nlis.plan(PROBLEM, x, y, size=24, calibrate=False)
    text = repr(plan)
    assert "425 rows x 3 columns, 4 parameters, 24 rows to draw (two-stage, poisson)" in text
    assert "17 blocks of up to 25 rows" in text
    for each in plan.passes:
        assert any(line.startswith(each.label) for line in text.splitlines())
        assert f">{each.label}<" in plan._repr_html_()
    assert json.loads(json.dumps(plan.to_dict()))["peak_worker_memory"] == sum(plan.worker_memory.values())
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (
        nlis.plan(PROBLEM, x, y, calibrate=False).size
        == nlis.plan(PROBLEM, x, y, size="auto", calibrate=False).size
        == 80
    )
    for n in (425, 60):  # half of the rows at most, with labels or without
        sizes = {nlis.plan(PROBLEM, x[:n], *label, calibrate=False, scores="leverage").size for label in ((), (y[:n],))}
        assert sizes == {min(80, n // 2)}


# Arguments: (what is given, error, what the message must say).
REFUSED = {
    "method": ({"method": "qr"}, nlis.InputError, "method='qr' is not known"),
    "calibrate": ({"calibrate": "yes"}, nlis.InputTypeError, "calibrate is str"),
    "a limit that is no number": ({"memory_limit": "much"}, nlis.InputError, "memory_limit='much' is not allowed"),
    "no memory": ({"memory_limit": 0}, nlis.InputError, "memory_limit='0' is not allowed"),
    "scores": ({"scores": "best"}, nlis.InputError, "scores='best' is not known"),
    "size": ({"size": -1}, nlis.InputError, "size=-1"),
    "rounds": ({"rounds": 0}, nlis.InputError, "rounds=0"),
    "theta": ({"theta": [1.0]}, nlis.InputError, r"theta has shape \(1,\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_are_refused_in_one_line_before_anything_is_read(case):
    options, kind, says = REFUSED[case]
    _, (x, y) = data(2)
    with no_compute(), pytest.raises(kind, match=says) as caught:
        nlis.plan(PROBLEM, x, y, **({"size": 16} | options))
    assert len(str(caught.value)) <= 300


def big(n_rows=400_000, d=50):
    """Lazy X and y of which nothing exists."""
    x = dask.array.zeros((n_rows, d), chunks=(100_000, d))
    return x, x[:, 0]


def test_blocks_that_a_worker_cannot_hold_are_refused_with_numbers_and_a_size_that_fits():
    x, y = big()
    with dask.config.set(scheduler="threads", num_workers=4):
        plan = nlis.plan(PROBLEM_50, x, y, size=5000, calibrate=False)
        assert plan.worker_memory["blocks"] == 4 * 100_000 * 51 * 8
        limit = plan.peak_worker_memory - 30_000_000
        with Tasks() as tasks, pytest.raises(nlis.MemoryLimitError, match=r"needs about .* but may use") as caught:
            nlis.plan(PROBLEM_50, x, y, size=5000, memory_limit=limit)
        assert tasks.computes == 0
    message = str(caught.value)
    assert "blocks 155.64 MiB" in message
    assert len(message) <= 300
    assert isinstance(caught.value, MemoryError)
    fits = int(message.split("block_bytes=")[1].split(" ")[0].replace(",", ""))
    assert 0.5 * plan.block_bytes < fits < plan.block_bytes
    smaller = x.rechunk((fits // (51 * 8), -1))
    with dask.config.set(scheduler="threads", num_workers=4):
        assert nlis.plan(PROBLEM_50, smaller, smaller[:, 0], size=5000, memory_limit=limit, calibrate=False).blocks > 4


PROBLEM_50 = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))


NETWORK = nlis.Problem(nlis.ReluNetwork(60))

# Name: (problem, options, data, what the remedy must be).
TOO_LARGE = {
    "factors": (NETWORK, {"size": 1000, "scores": "leverage", "theta": np.ones(3060)}, big(), "fewer parameters"),
    "scores": (PROBLEM_50, {"size": 1000}, big(300_000_000), r"give run\(store="),
    "rows": (PROBLEM_50, {"size": 390_000}, big(), "draw fewer rows"),
}


@pytest.mark.parametrize("part", TOO_LARGE)
def test_a_run_that_cannot_fit_is_refused_before_anything_is_read_or_written(part, tmp_path, monkeypatch):
    problem, options, (x, y), remedy = TOO_LARGE[part]
    monkeypatch.setattr(distributed.system, "MEMORY_LIMIT", 1_200_000_000)
    with dask.config.set(scheduler="threads", num_workers=1), Tasks() as tasks:
        for call in (nlis.plan, nlis.run):
            with pytest.raises(nlis.MemoryLimitError, match=remedy) as caught:
                call(problem, x, y, **options)
            assert "may use 1.12 GiB" in str(caught.value)
    assert tasks.computes == 0
    if part == "scores":  # with a store they go to disk, and nothing keeps the job from starting
        with no_compute(), pytest.raises(AssertionError, match="a compute was started"):
            nlis.run(problem, x, y, **options, store=tmp_path / "run")


def test_the_limit_is_that_of_the_tightest_worker_of_the_cluster():
    x, y = big()
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        for limit, refused in (("300 MB", True), ("2 GB", False), (0, False)):
            with (
                LocalCluster(
                    n_workers=1,
                    threads_per_worker=3,
                    processes=False,
                    memory_limit=limit,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                ) as cluster,
                Client(cluster),
            ):
                if refused:
                    for call in (nlis.plan, nlis.run):
                        with pytest.raises(nlis.MemoryLimitError, match=r"a worker needs about .* may use 286.10 MiB"):
                            call(PROBLEM_50, x, y, size=1000)
                else:
                    plan = nlis.plan(PROBLEM_50, x, y, size=1000, calibrate=False)
                    assert (plan.threads, plan.memory_limit) == (3, 2_000_000_000 if limit else None)


def test_scores_that_this_process_cannot_hold_are_not_computed(monkeypatch, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1000, 2)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr(distributed.system, "MEMORY_LIMIT", 7_000)
    with (
        no_compute(),
        pytest.raises(
            nlis.MemoryLimitError, match=r"norm scores of 1,000 rows take 7.81 kiB, above half of the 6.84 kiB"
        ),
    ):
        nlis.norm_scores(mapped)
    assert nlis.norm_scores(tmp_path / "x.npy").shape == (1000,)


# Name: (how X is stored, pieces on their way for a block of 40 rows, in bytes held besides the block).
STORED = {
    "chunks": ({"chunks": (10, 3)}, 4 * 10 * 24 * 2),
    "chunks, not compressed": ({"chunks": (10, 3), "compressors": None}, 4 * 10 * 24),
    "shards": ({"chunks": (5, 1), "shards": (20, 3)}, 2 * 20 * 24 * 2),
    "many chunks": ({"chunks": (2, 3)}, 10 * 2 * 24 * 2),
    "column chunks": ({"chunks": (20, 1)}, 6 * 20 * 8 * 2),
}


@pytest.mark.parametrize("kind", STORED)
def test_memory_counts_pieces_that_are_decoded_besides_the_block(kind, tmp_path):
    form, beside = STORED[kind]
    stored = zarr.create_array(tmp_path / "x", shape=(400, 3), dtype="f8", **form)
    stored[...] = 1.0
    A = nlis.reference_matrix(PROBLEM, stored, block_bytes=40 * 24)
    found = layout_of(A.source, WIDTHS)
    assert (found.blocks, found.block_bytes) == (10, 40 * 24)
    assert found.reading_bytes == 40 * 24 + beside


def tiny(folder, n):
    """A store of one-row chunks."""
    group = zarr.open_group(folder, mode="w")
    x, y = rows_of(5, n, 3)
    for name, values in (("X", x), ("y", y)):
        array = group.create_array(
            name, shape=values.shape, dtype="f8", chunks=(1, *values.shape[1:]), compressors=None
        )
        array[...] = values
    return folder


@pytest.mark.parametrize("n", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_store_of_one_row_chunks_takes_few_tasks_end_to_end(n, tmp_path):  # A15
    with no_compute():
        x, y = nlis.open_rows(tiny(tmp_path / "x", n), X="X", y="y")
        plan = nlis.plan(PROBLEM, x, y, size=100, calibrate=False)
    assert plan.blocks == 1
    with Tasks() as tasks:
        A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA)
        sample = nlis.draw(nlis.leverage_scores(A, nlis.factorize(A)), 100, seed=0)
        taken, _ = sample.take(x, y)
    assert np.array_equal(taken, rows_of(5, n, 3)[0][sample.indices])
    assert len(tasks.keys) <= 50
    with Tasks() as tasks:
        nlis.run(PROBLEM, x, y, size=100, seed=0)
    assert len(tasks.keys) <= min(50, plan.tasks)
