"""The monitor: what it sees on every scheduler, the page it writes, failures inside, paths that cannot be written."""

import os
import re
import stat
import sys
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from counting import no_compute, rows_of
from markup import ATTRIBUTES, TAGS, assert_inert

import dask_nlis as nlis
from dask_nlis import phase, watch
from dask_nlis.monitor.page import activities, by_label, page_of
from dask_nlis.monitor.pictures import thinned
from dask_nlis.monitor.records import Execution, Phase, Told
from dask_nlis.pages import policy

#: What the page holds besides tables: headings, tiles and inline SVG; no script, no link, no image, no frame.
PAGE_TAGS = TAGS | {
    "<!DOCTYPE html", "html", "head", "meta", "title", "style", "body", "h1", "h2", "footer", "svg", "line", "text", "rect",
    "polygon", "polyline",
}  # fmt: skip
PAGE_ATTRIBUTES = ATTRIBUTES | {
    "lang", "charset", "name", "content", "viewbox", "role", "aria-label", "x", "y", "x1", "x2", "y1", "y2", "width", "height",
    "rx", "fill", "stroke", "stroke-width", "text-anchor", "points", "opacity", "http-equiv", "aria-hidden", "preserveaspectratio",
}  # fmt: skip

EVIL = "<script>alert(1)</script>"
N = 400
VALUES, Y = rows_of(80, N, 3)
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
OURS = {"adjoint", "factor", "score", "check", "draw"}


@pytest.fixture
def stored(tmp_path):
    """Rows in Zarr, four blocks of 100."""
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    group.create_array("X", data=VALUES, chunks=(100, 3))
    group.create_array("y", data=Y, chunks=(100,))
    return nlis.open_rows(tmp_path / "rows.zarr", X="X", y="y", block_bytes=100 * 8 * 3)


def check_page(path):
    page = Path(path).read_text("utf-8")
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert f'content="{policy(style)}"'.replace("'", "&#39;") in page
    assert not re.search(r"https?:|src=|href=|@import|url\(", page)
    return assert_inert(page, tags=PAGE_TAGS, attributes=PAGE_ATTRIBUTES)


def job(x, y):
    return nlis.run(PROBLEM, x, y, size=80, seed=0)


def seen_on(rows, folder):
    with dask.config.set(scheduler="threads"):
        expected = job(*rows)
    with nlis.monitor(folder / "run.html", progress=False) as seen:
        found = job(*rows)
    assert found.sample == expected.sample
    assert found.fit == expected.fit
    return seen.execution


def check_execution(execution, scheduler):
    assert execution.outcome == "done"
    assert {one.outcome for one in execution.phases} == {"done"}
    assert {one.scheduler for one in execution.phases} == {scheduler}
    reads = [one for one in execution.phases if one.n_rows]
    assert {one.label for one in reads} == {"nlis-factor", "nlis-score", "nlis-loss"}
    for one in execution.phases:
        assert one.tasks_done == one.n_tasks > 0
    for one in reads:
        assert one.n_rows == N
        assert one.n_bytes == N * 8 * 4
        assert one.rows_per_second == N / one.seconds
    assert execution.memory_peak > 2**20
    moments = [moment for moment, _ in execution.memory]
    assert moments == sorted(moments)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_monitor_sees_phases_rows_and_activities(scheduler, stored, tmp_path):
    with dask.config.set(scheduler=scheduler):
        execution = seen_on(stored, tmp_path)
    check_execution(execution, scheduler)
    for one in execution.phases:
        if one.n_rows:
            assert one.rows_done == N
            assert one.seconds_by["read"] > 0
            assert OURS & set(one.seconds_by)
    assert execution.devices == {"cpu": sum(4 for one in execution.phases if one.n_rows)}
    text = check_page(tmp_path / "run.html")
    for label in ("nlis-factor", "nlis-score", "nlis-loss", "done", "adjoint", scheduler):
        assert label in text


def test_the_scheduler_of_processes_tells_tasks_but_no_activities(stored, tmp_path):
    expected = nlis.total_loss(PROBLEM, *stored, np.ones(4))
    with (
        dask.config.set(scheduler="processes", num_workers=1),
        nlis.monitor(tmp_path / "run.html", progress=False) as seen,
    ):
        assert nlis.total_loss(PROBLEM, *stored, np.ones(4)) == expected
    execution = seen.execution
    (one,) = execution.phases
    assert (one.label, one.scheduler, one.outcome) == ("nlis-loss", "processes", "done")
    assert (one.tasks_done, one.n_tasks, one.n_rows, one.workers) == (4, 4, N, 1)
    assert one.seconds_by is one.rows_done is None
    assert execution.devices is None
    text = check_page(tmp_path / "run.html")
    assert "Not known of 1 of 1 phases." in text
    assert "Not known for all of them." in text


def test_a_monitor_sees_the_same_on_a_cluster(stored, tmp_path, client):
    execution = seen_on(stored, tmp_path)
    check_execution(execution, "distributed")
    assert {(one.workers, one.threads) for one in execution.phases} == {(2, 2)}
    for one in execution.phases:
        if one.n_rows:
            assert one.rows_done == N
            assert one.seconds_by["read"] > 0
            assert OURS & set(one.seconds_by)
    assert execution.devices == {"cpu": sum(4 for one in execution.phases if one.n_rows)}
    assert "distributed" in check_page(tmp_path / "run.html")


def test_tasks_whose_results_are_still_there_are_not_taken_for_work(client):
    lazy = da.from_array(VALUES, chunks=(100, 3))
    matrix = nlis.dual_matrix(PROBLEM, lazy, Y, theta=np.ones(4))
    scores = nlis.norm_scores(matrix)
    with nlis.monitor(progress=False) as first:
        held = phase.held(scores, "nlis-score", n_rows=N)
    with nlis.monitor(progress=False) as second:
        phase.blocks_of(scores, "nlis-score", n_rows=N)
    assert len(held.dask) == 4
    assert [monitor.phases[0].rows_done for monitor in (first, second)] == [N, None]


def test_a_job_that_fails_leaves_its_page_and_its_error(tmp_path):
    bad = VALUES.copy()
    bad[7, 1] = np.nan
    matrix = nlis.reference_matrix(PROBLEM, bad, Y)
    with (
        pytest.raises(nlis.NonFiniteError, match="row 7") as caught,
        nlis.monitor(tmp_path / "run.html", progress=False) as seen,
    ):
        nlis.norm_scores(matrix)
    assert not getattr(caught.value, "__notes__", [])
    execution = seen.execution
    assert execution.outcome == "failed"
    assert execution.error == f"NonFiniteError: {caught.value}"
    (one,) = execution.phases
    assert (one.outcome, one.error) == ("failed", execution.error)
    assert one.rows_per_second is None
    assert "row 7" in check_page(tmp_path / "run.html")


def test_a_job_that_is_interrupted_leaves_its_page(tmp_path):
    with pytest.raises(KeyboardInterrupt), nlis.monitor(tmp_path / "run.html", progress=False) as seen:
        raise KeyboardInterrupt
    assert seen.execution.outcome == "interrupted"
    text = check_page(tmp_path / "run.html")
    assert "interrupted" in text
    assert "Nothing was computed." in text


@pytest.mark.parametrize(
    ("report", "error", "words"),
    [
        (3, nlis.InputTypeError, "report is int"),
        (b"run.html", nlis.InputTypeError, "report is bytes"),
        ("", nlis.InputError, "no path"),
        ("https://me:word@host/run.html", nlis.InputError, "no path of a file here"),
        (".", nlis.InputError, "is a folder"),
        ("nowhere/run.html", nlis.MissingDataError, "its folder does not exist"),
        ("x" * 300 + ".html", nlis.NotWritableError, "cannot be written"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_at_once(report, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words) as caught, no_compute():
        nlis.monitor(report)
    assert len(str(caught.value)) <= 300
    assert "word" not in str(caught.value).replace("words", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    sys.platform != "linux" or not os.path.isdir("/proc/self"), reason="needs /proc, where nobody writes"
)
def test_a_folder_in_which_nothing_can_be_made_is_refused():
    with pytest.raises(nlis.NotWritableError, match="cannot be written"):
        nlis.monitor("/proc/run.html")


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() == 0, reason="root writes what is read-only")
def test_a_report_that_is_read_only_is_refused(tmp_path):
    path = tmp_path / "run.html"
    path.write_text("mine")
    path.chmod(stat.S_IRUSR)
    with pytest.raises(nlis.NotWritableError, match="not writable"):
        nlis.monitor(path)
    assert path.read_text() == "mine"


def test_a_report_that_can_no_longer_be_written_is_told_and_hides_no_error(tmp_path):
    folder = tmp_path / "there"

    def job(error):
        folder.rmdir()
        if error is not None:
            raise error

    for error, raised in ((None, nlis.NotWritableError), (ValueError("of the job"), ValueError)):
        folder.mkdir()
        with pytest.raises(raised) as caught, nlis.monitor(folder / "run.html", progress=False):
            job(error)
        said = str(caught.value) if error is None else caught.value.__notes__[0]
        assert "could not be written" in said


def test_a_monitor_serves_once_and_progress_is_true_or_false():
    with nlis.monitor(progress=False) as seen:
        pass
    with pytest.raises(nlis.InputError, match="used before"), seen:
        pass
    with pytest.raises(nlis.InputTypeError, match="progress='yes' is str"):
        nlis.monitor(progress="yes")


def test_what_was_in_force_before_is_so_after():
    shown = warnings.showwarning
    before = dask.config.get("dask-nlis.progress")
    with nlis.monitor():
        assert dask.config.get("dask-nlis.progress") is True
        assert watch._WATCHERS
    assert warnings.showwarning is shown
    assert dask.config.get("dask-nlis.progress") == before
    assert not watch._WATCHERS


def test_monitors_within_monitors_see_what_is_inside_them(stored):
    with nlis.monitor(progress=False) as outer:
        nlis.total_loss(PROBLEM, *stored, np.ones(4))
        with nlis.monitor(progress=False) as inner:
            nlis.total_loss(PROBLEM, *stored, np.ones(4))
    assert (len(outer.phases), len(inner.phases)) == (2, 1)


def test_warnings_are_kept_without_secrets_and_still_shown(tmp_path):
    with warnings.catch_warnings(record=True) as shown, nlis.monitor(tmp_path / "run.html", progress=False) as seen:
        warnings.simplefilter("always")
        for _ in range(150):
            warnings.warn(f"{EVIL} of s3://me:word@host/", nlis.NlisWarning, stacklevel=1)
    assert len(shown) == 150
    kept = seen.execution.warnings
    assert len(kept) == 100
    assert kept[0].category == "NlisWarning"
    assert "word" not in kept[0].message
    text = check_page(tmp_path / "run.html")
    assert EVIL in text
    assert "word" not in text


def test_all_text_of_a_page_is_escaped(tmp_path):
    one = Phase(EVIL, EVIL, 0.0, 1.0, 3, 2, 10, 80, "failed", EVIL, rows_done=2, seconds_by={EVIL: 1.0, "read": 3.0})
    execution = Execution(
        EVIL, 2.0, "failed", EVIL, (one,), (Told(EVIL, EVIL, 0.5),), ((0.0, 2**20), (1.0, 3 * 2**20)),
        {EVIL: 3, "fell back": {EVIL: 1}},
    )  # fmt: skip
    (tmp_path / "run.html").write_text(page_of(execution), "utf-8")
    assert check_page(tmp_path / "run.html").count("alert(1)") >= 12


def test_rates_and_shares_of_a_page():
    phases = tuple(
        Phase(
            "nlis-score", "threads", 0.0, seconds, 4, 4, rows, 8 * rows, "done", seconds_by={"read": 1.0, "score": 3.0}
        )
        for seconds, rows in ((2.0, 1000), (1.0, 0), (2.0, 3000))
    )
    execution = Execution("now", 5.0, "done", "", phases, (), (), {})
    (row,) = by_label(phases)
    assert (row.times, row.seconds, row.n_tasks, row.n_rows) == (3, 5.0, 12, 4000)
    assert (row.rows_per_second, row.bytes_per_second) == (1000.0, 8000.0)
    assert [(one.name, one.seconds, one.share) for one in activities(execution)] == [
        ("score", 9.0, 0.75),
        ("read", 3.0, 0.25),
    ]
    assert execution.memory_peak is None


def test_a_long_line_of_memory_keeps_its_peak():
    samples = [(float(k), k % 977) for k in range(5000)]
    kept = thinned(samples, 480)
    assert len(kept) <= 480
    assert max(size for _, size in kept) == 976
    assert kept == sorted(kept)


def test_where_there_is_no_terminal_reads_leave_a_line_with_rates(stored, capsys):
    with nlis.monitor():
        nlis.total_loss(PROBLEM, *stored, np.ones(4))
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"nlis-loss 4/4 tasks, \S+ rows/s, \S+ MB/s", line)


def test_long_phases_tell_the_time_left(monkeypatch, capsys):
    clock = iter([100.0, 104.0, 112.0, 113.0, 124.0])
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(clock))
    advance = watch._lines(watch.Compute("nlis-score", 4, 4000, 0, "threads", None, None))
    for _ in range(4):
        advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "nlis-score 2/4 tasks, 167 rows/s, 0:00:12 left",
        "nlis-score 4/4 tasks, 167 rows/s",
    ]


def test_a_terminal_shows_a_bar(monkeypatch, stored, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with nlis.monitor():
        nlis.total_loss(PROBLEM, *stored, np.ones(4))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"nlis-loss\s+\S+ 4/4 tasks, \S+ rows/s, \S+ MB/s \d:\d\d:\d\d", text)
