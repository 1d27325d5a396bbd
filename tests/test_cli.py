"""The shell: what dask-nlis prints, keeps and refuses, and the exit code of every outcome."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import dask_nlis as nlis
from dask_nlis.cli.main import group, main
from dask_nlis.datasets.california import FEATURES

DEMO = ["demo", "--size", "100", "--seeds", "3"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Output of the demo, and the folder where it kept its data and run."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    return CliRunner().invoke(group, [*DEMO, "--folder", str(folder)], catch_exceptions=False), folder


def _row(text, name):
    """Cells of the table row that starts with a name."""
    line = next(line for line in text.splitlines() if re.match(rf"\s*{re.escape(name)}\s+│", line))
    return [cell.strip() for cell in line.split("│")][1:]


def test_the_demo_says_what_was_done(demo):
    result, folder = demo
    run = nlis.open_run(folder / "run.zarr")
    assert result.exit_code == 0
    assert _row(result.output, "rows scored") == ["20,640"]
    assert _row(result.output, "reads of X") == ["pilot 2, factor 1, scores 1, total loss 1"]
    assert _row(result.output, "rank of the dual matrix") == ["10 of 10"]
    assert _row(result.output, "rows drawn") == [f"{len(run.sample)} distinct, 100 asked for, in 2 stages"]
    assert _row(result.output, "certificate")[0].startswith("quadratic forms of all 10 directions are kept")
    assert _row(result.output, "effective size (Kish)") == [f"{run.sample.effective_size:.0f}"]
    assert _row(result.output, "fit passes its checks") == ["yes"]


def test_the_demo_compares_four_designs_and_uniform_loses(demo):
    result, _ = demo
    names = ("two stages, as above", "nonlinear leverage", "linear leverage of X", "uniform")
    rows = [_row(result.output, name) for name in names]
    for median, quartiles, excess in rows:
        low, high = map(float, quartiles.split(".."))
        assert low < float(median) < high  # three samples, no two alike
        assert float(excess.rstrip("%")) / 100 == pytest.approx(np.exp(float(median)), rel=0.02)
    assert max(float(row[0]) for row in rows[:3]) < float(rows[3][0]) - 2


def test_the_demo_shows_the_fit_by_name(demo):
    result, folder = demo
    for name, value in nlis.open_run(folder / "run.zarr").fit.params.items():
        assert _row(result.output, name)[0] == f"{value:+.3f}"


def test_the_demo_shows_the_ten_highest_rows_and_why(demo):
    result, folder = demo
    run = nlis.open_run(folder / "run.zarr")
    data = nlis.open_rows(folder / "california.zarr", X="X", y="y", block_bytes=300_000)
    A = nlis.dual_matrix(run.problem, *data, theta=run.pilot.theta)
    scores = nlis.leverage_scores(A, nlis.factorize(A)).compute()
    shown = re.findall(r"^ *(\d+) +│ +(0\.\d{3}) +│ (.+)$", result.output, re.MULTILINE)
    expected = np.argsort(-scores, kind="stable")[:10]
    assert [int(row) for row, _, _ in shown] == expected.tolist()
    assert [float(score) for _, score, _ in shown] == pytest.approx(scores[expected], abs=5e-4)
    # The block group with 1,243 persons a household, 119 standard deviations above the mean.
    assert next(why for row, _, why in shown if row == "19006").startswith("AveOccup +119.4 sd")
    X, _ = nlis.datasets.california_housing(standardized=True)
    table = X.compute()
    for row, _, why in shown:
        name, deviation, _ = why.split(",")[0].split()
        if name != "residual":
            assert float(deviation) == pytest.approx(table[int(row), FEATURES.index(name)], abs=0.05)


def test_the_demo_keeps_data_and_run_in_its_folder(demo):
    result, folder = demo
    assert sorted(os.listdir(folder)) == ["california.zarr", "run.zarr"]
    assert str(folder / "run.zarr") in result.output.replace("\n", "")
    X, y = nlis.open_rows(folder / "california.zarr", X="X", y="y")
    run = nlis.open_run(folder / "run.zarr")
    assert nlis.total_loss(run.problem, X, y, run.fit.theta) == pytest.approx(run.total_loss, rel=1e-12)
    assert run.fit.feature_names == FEATURES


def test_the_installed_command_prints_the_same_and_leaves_nothing_behind(demo, tmp_path):
    result, _ = demo
    script = Path(sys.executable).parent / "dask-nlis"
    quiet = subprocess.run(
        [script, *DEMO], capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.strip() == result.output.partition("\nKept:")[0].strip()
    assert os.listdir(tmp_path) == []


def test_the_module_is_the_command_too():
    done = subprocess.run([sys.executable, "-m", "dask_nlis", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dask-nlis, version {nlis.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"], ["demo", "-h"]])
def test_help_shows_examples(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert re.search(r"Examples:\n\s+dask-nlis demo", text)


def test_help_names_the_exit_codes_and_without_a_command_it_is_shown(capsys):
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).split())
    for words in ("0 done", "1 failed, a retry may help", "2 usage or data refused", "130 interrupted", "demo"):
        assert words in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--size", "49"],  # fewer rows than a comparison makes sense for
        ["demo", "--size", "many"],
        ["demo", "--seed", "-1"],
        ["demo", "--seeds", "0"],
        ["demo", "--folder", __file__],  # a file
        ["demo", "--rows", "100"],  # no such option
        ["demo", "surplus"],
        ["dmeo"],
    ],
    ids=lambda arguments: " ".join(arguments[-2:]).replace(__file__, "FILE"),
)
def test_bad_usage_exits_with_2_and_a_line_that_names_it(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("dask-nlis: ")
    assert line.endswith(" --help")
    assert next(word for word in reversed(arguments) if word.startswith("-") or len(arguments) < 3) in line


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit) as left:
        main(["demo", "--folder", str(tmp_path)])
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("dask-nlis: ")
    assert shown.err.count("\n") == 1
    assert str(tmp_path) in shown.err
    assert os.listdir(tmp_path) == ["notes.txt"]


OUTCOMES = {
    "done": (None, 0),
    "a value refused": (nlis.InputError("size=0 is not allowed"), 2),
    "a type refused": (nlis.InputTypeError("size is str"), 2),
    "data refused": (nlis.NonFiniteError("X, column 3, is not finite"), 2),
    "nothing there": (nlis.MissingDataError("path='a' does not exist"), 2),
    "a store in use": (nlis.StoreExistsError("store='a' exists"), 2),
    "not allowed": (PermissionError(13, "Permission denied"), 2),
    "misused": (click.UsageError("no such thing"), 2),
    "the cluster is gone": (nlis.ClusterError("all workers have been gone"), 1),
    "a full disk": (OSError(28, "No space left on device"), 1),
    "anything else": (RuntimeError("lost connection\nwith a second line"), 1),
    "out of memory": (MemoryError(), 1),
    "interrupted": (KeyboardInterrupt(), 130),
    "aborted": (click.Abort(), 130),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_has_its_exit_code_and_one_line(outcome, monkeypatch, capsys):
    error, code = OUTCOMES[outcome]

    def act():
        if error is not None:
            raise error

    monkeypatch.setitem(group.commands, "demo", click.Command("demo", callback=act))
    with pytest.raises(SystemExit) as left:
        main(["demo"])
    assert left.value.code == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    if error is None:
        assert shown.err == ""
    else:
        lines = [line for line in shown.err.splitlines() if line]
        assert len(lines) == 1
        assert lines[0].startswith("dask-nlis: ")
        assert str(error).partition("\n")[0] in lines[0]
