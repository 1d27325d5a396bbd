"""What tasks tell of themselves on a cluster: activities and rows in the metrics of spans, names, spans, events."""

import re
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import FakeGPU, rows_of
from distributed.metrics import context_meter

import dask_nlis as nlis
from dask_nlis import device, meters
from dask_nlis.device import places

N, BLOCK = 1000, 100
VALUES, Y = rows_of(81, N, 3)
THETA = np.array([0.1, -0.2, 0.3, 0.05])
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))

#: Names that tasks have on the dashboard: what the guide's page lists.
GUIDE = Path(__file__).parents[1] / "examples" / "guide" / "monitoring.md"
PREFIXES = set(re.findall(r"^\| `([a-z-]+)` \|", GUIDE.read_text("utf-8").split("## Metrics")[0], re.MULTILINE))


@pytest.fixture
def stored(tmp_path):
    """Ten blocks of rows in Zarr."""
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    group.create_array("X", data=VALUES, chunks=(BLOCK, 3))
    group.create_array("y", data=Y, chunks=(BLOCK,))
    return nlis.open_rows(tmp_path / "rows.zarr", X="X", y="y", block_bytes=BLOCK * 8 * 3)


def spans_of(cluster, label):
    """Spans of the phases of a label, once the workers have told the scheduler all that they have metered."""
    extension = cluster.scheduler.extensions["spans"]
    told = -1.0
    for _ in range(100):  # workers report twice a second
        spans = extension.spans_search_by_name["nlis", label]
        now = sum(sum(span.cumulative_worker_metrics.values()) for span in spans)
        if spans and now == told and _of(spans, "count", "nlis-rows"):
            return spans
        told = now
        time.sleep(0.6)
    raise AssertionError(f"no metrics of {label}")


def _of(spans, unit, activity):
    return sum(
        value
        for span in spans
        for key, value in span.cumulative_worker_metrics.items()
        if key[0] == "execute" and key[2:] == (activity, unit)
    )


def test_tasks_tell_their_activities_rows_and_bytes_to_their_span(cluster, stored):
    A = nlis.dual_matrix(PROBLEM, *stored, theta=THETA)
    factor = nlis.factorize(A, method="gram")
    nlis.draw(nlis.leverage_scores(A, factor), 20, seed=0)
    nlis.total_loss(PROBLEM, *stored, THETA)
    for label, own in (("nlis-factor", "nlis-factor"), ("nlis-score", "nlis-score"), ("nlis-loss", "nlis-check")):
        spans = spans_of(cluster, label)
        assert _of(spans, "count", "nlis-rows") == N
        assert _of(spans, "bytes", "nlis-read") == N * 4 * 8
        assert _of(spans, "seconds", "nlis-read") > 0
        assert _of(spans, "seconds", own) > 0
        # The loss takes predictions, not rows of the matrix.
        assert (_of(spans, "seconds", "nlis-adjoint") > 0) == (label != "nlis-loss")
        assert _of(spans, "seconds", "nlis-transfer") == 0
        prefixes = {key[1] for span in spans for key in span.cumulative_worker_metrics if key[2] == "nlis-rows"}
        assert prefixes == {label}


def test_what_goes_to_a_device_is_metered(monkeypatch):
    """On a stand-in for a GPU that calls CuPy's names: the way there and back, apart from the work."""
    clock = [0.0]
    monkeypatch.setattr(meters, "perf_counter", lambda: clock[0])

    class Stream:
        def synchronize(self):
            clock[0] += 20  # work that the transfer back waits for

    class Cupy:
        cuda = type("cuda", (), {"get_current_stream": staticmethod(Stream)})

        @staticmethod
        def get_default_memory_pool():
            return type("Pool", (), {"free_all_blocks": staticmethod(lambda: None)})

        @staticmethod
        def asarray(array):
            clock[0] += 1
            return np.array(array)

        asnumpy = asarray

    monkeypatch.setattr(places, "probe", lambda: Cupy)
    places._kept.cache_clear()
    told = {}
    try:
        found = device.opened("cuda")
        with meters.listening(lambda what, value, unit: told.update({(what, unit): value})), meters.task("factor"):
            found.fetch(found.ship(np.ones(3)))
            found.put(np.ones(3))
    finally:
        places._kept.cache_clear()
    # The wait for the work belongs to it; that for an array which other threads are to use is part of its way there.
    assert told == {("factor", "seconds"): 20.0, ("transfer", "seconds"): 1.0 + 1.0 + 1.0 + 20.0}


def test_a_task_in_pieces_on_a_device_counts_its_rows_once(monkeypatch):
    fake = FakeGPU(limit=64 * 2**10)
    monkeypatch.setattr(device, "opened", fake.opened)
    told = []
    lazy = da.from_array(VALUES, chunks=(500, 3))
    with meters.listening(lambda *one: told.append(one)), dask.config.set(scheduler="synchronous"):
        nlis.factorize(nlis.dual_matrix(PROBLEM, lazy, Y, theta=THETA), method="gram")
    assert [value for what, value, _ in told if what == "rows"] == [500, 500]


@pytest.mark.parametrize("method", ["gram", "tsqr", "sketch"])
def test_rows_are_counted_once_a_read_by_every_method(stored, method):
    rows, bytes_read = [], []
    with (
        meters.listening(lambda what, value, unit: rows.append(value) if what == "rows" else None),
        meters.listening(lambda what, value, unit: bytes_read.append(value) if unit == "bytes" else None),
    ):
        factor = nlis.factorize(nlis.dual_matrix(PROBLEM, *stored, theta=THETA), method=method)
    assert sum(rows) == factor.reads * N
    assert sum(bytes_read) == factor.reads * N * 4 * 8


def test_activities_add_up_to_the_time_of_the_task_and_nest(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0])
    monkeypatch.setattr(meters, "perf_counter", lambda: next(clock))
    told, on_worker = {}, {}
    with (
        context_meter.add_callback(lambda label, value, unit: on_worker.update({(label, unit): value})),
        meters.listening(lambda what, value, unit: told.update({(what, unit): value})),
        meters.task("draw"),  # from 0
        meters.metered("score"),  # from 1
        meters.metered("adjoint"),  # from 3
        meters.metered("transfer"),  # from 6 to 10, the others to 15, 21, 28
    ):
        pass
    expected = {"draw": 1.0 + 7.0, "score": 2.0 + 6.0, "adjoint": 3.0 + 5.0, "transfer": 4.0}
    assert told == {(activity, "seconds"): value for activity, value in expected.items()}
    assert on_worker == {(f"nlis-{what}", unit): value for (what, unit), value in told.items()}


def test_outside_of_a_task_and_in_one_that_fails_nothing_is_told():
    told = []

    @meters.metered("adjoint")
    def work():
        return 3

    def fails():
        with meters.task("factor"):
            work()
            raise ValueError("on purpose")

    with meters.listening(lambda *one: told.append(one)):
        assert work() == 3
        with pytest.raises(ValueError, match="on purpose"):
            fails()
        assert not told
        with meters.task("factor"):
            work()
    assert {what for what, _, _ in told} == {"factor", "adjoint"}


def test_names_of_tasks_are_those_of_the_guide_and_each_phase_has_a_span(cluster, stored, tmp_path):
    X, y = stored
    A = nlis.dual_matrix(PROBLEM, X, y, theta=THETA)
    factor = nlis.factorize(A)
    nlis.factorize(A, method="tsqr")
    scores = nlis.leverage_scores(A, factor)
    for scheme in ("multinomial", "stratified", "poisson", "systematic"):
        nlis.draw(scores, 30, scheme=scheme, seed=0).take(X, y)
    nlis.draw(nlis.blend([scores, nlis.norm_scores(A)], [0.5, 0.5]), 20, seed=1)
    nlis.top_rows(scores, 5, X=X)
    nlis.suspects(A, factor, 5)
    nlis.certificate(A, factor, nlis.draw(scores, 30, seed=0), scores=scores, deep=True)
    nlis.drift(PROBLEM, X, y, [THETA, 2 * THETA])
    nlis.sandwich(PROBLEM, X, THETA)
    nlis.standardize(X, y)
    job = nlis.run(PROBLEM, X, y, size=90, seed=0, store=tmp_path / "run.zarr")
    nlis.extend(job, X[:300], y[:300], size=40, seed=1)
    nlis.compare(PROBLEM, X, y, scores={"leverage": scores}, sizes=[50], seeds=1)
    scheduler = cluster.scheduler
    assert set(scheduler.task_prefixes) <= PREFIXES, set(scheduler.task_prefixes) - PREFIXES
    ours = [
        span for span in scheduler.extensions["spans"].spans.values() if span.name[0] == "nlis" and len(span.name) == 2
    ]
    labels = {span.name[1] for span in ours}
    assert {
        "nlis-factor",
        "nlis-merge",
        "nlis-score",
        "nlis-draw",
        "nlis-gather",
        "nlis-loss",
        "nlis-certificate",
    } <= labels
    assert labels <= PREFIXES
    # Dask's own tsqr, which merges factors, works under its own names inside our span.
    merges = {group.prefix.name for span in ours if span.name[1] == "nlis-merge" for group in span.groups}
    assert {"qr", "nlis-merge"} <= merges <= {"qr", "stack", "getitem", "nlis-merge"}  # stacks are soon forgotten
    others = {group.prefix.name for span in ours if span.name[1] != "nlis-merge" for group in span.groups}
    assert not {"qr", "stack"} & others
    # Nothing of ours runs outside of a span.
    assert not [span.name for span in scheduler.extensions["spans"].spans.values() if span.name[0] != "nlis"]


def test_phases_tell_the_cluster_when_they_begin_and_end(cluster, client, stored):
    nlis.total_loss(PROBLEM, *stored, THETA)
    began, ended = [event for _, event in client.get_events("nlis")]
    facts = {"phase": "nlis-loss", "tasks": 10, "rows": N, "bytes": N * 4 * 8}
    assert began.items() >= (facts | {"state": "began"}).items()
    assert ended.items() >= (facts | {"state": "ended", "outcome": "done", "error": ""}).items()
    assert ended["seconds"] > 0
    assert began["span"] == ended["span"]
    assert cluster.scheduler.extensions["spans"].spans[began["span"]].name == ("nlis", "nlis-loss")


def test_events_of_a_failure_hold_no_secret_and_an_interrupt_is_told(client):
    def value(theta, x):
        raise ValueError("no answer from https://me:word@host/?sig=abc\nsecond line")

    def gradient(theta, x):
        return np.ones((len(x), 1))

    problem = nlis.Problem(nlis.Numerical(value, gradient, n_params=1))
    lazy = da.from_array(VALUES, chunks=(500, 3))
    with pytest.raises(ValueError, match="no answer"):
        nlis.total_loss(problem, lazy, Y, np.ones(1))
    event = client.get_events("nlis")[-1][1]
    assert (event["state"], event["outcome"]) == ("ended", "failed")
    assert event["error"] == "ValueError: no answer from https://***@host/?sig=***"
    assert len(client.get_events("nlis")) == 2
