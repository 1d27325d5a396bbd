"""dask-nlis run and inspect: the numbers of nlis.run, exit codes, one line for what is refused, and Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from resuming import N_ROWS, PROBLEM, ROWS, Reads, job, write_data

import dask_nlis as nlis
from dask_nlis.cli.main import group, main
from dask_nlis.cli.requirements import parsed, unmet
from dask_nlis.store import Folder, lock

MODEL = ["--model", "single-index", "--activation", "tanh", "--constraint", "ball:radius=5"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data of all runs."""
    return write_data(tmp_path_factory.mktemp("cli") / "data.zarr")


@pytest.fixture(scope="module")
def clean(data, tmp_path_factory):
    """The run of the function."""
    return job(data, tmp_path_factory.mktemp("clean") / "run.zarr")


def arguments(data, store, *more):
    """Those of the same run."""
    design = ["--y", "y", *MODEL, "--size", "120", "--seed", "3", "--block-bytes", str(24 * ROWS)]
    return ["run", str(data), *design, "--store", str(store), *more]


def run(*words):
    """Output of a command, which must succeed."""
    result = CliRunner().invoke(group, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def code_of(words, capsys):
    """Exit code of the command line, and what it said on standard error."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return ended.value.code, capsys.readouterr().err


def test_the_command_runs_what_the_function_runs(data, clean, tmp_path):
    text = run(*arguments(data, tmp_path / "run.zarr"))
    found = nlis.open_run(tmp_path / "run.zarr")
    assert found.fit == clean.fit
    assert np.array_equal(found.scores.compute(), clean.scores.compute())
    for word in ("rows scored", f"{N_ROWS:,}", "pilot 2, factor 1, scores 1, total loss 1", "intercept", "yes"):
        assert word in text
    with Reads() as reads:
        again = json.loads(run(*arguments(data, tmp_path / "run.zarr", "--resume", "--json")))
    assert not reads.blocks
    assert again["fit.ok"] is True
    assert again["epsilon"] == clean.certificate.epsilon
    assert [each["estimate"] for each in again["parameters"]] == clean.fit.theta.tolist()
    assert again["run"]["seed"] == 3
    assert again["unmet"] == []


def test_requirements_that_do_not_hold_are_exit_code_3(data, clean, tmp_path, capsys):
    store = tmp_path / "run.zarr"
    epsilon = clean.certificate.epsilon
    words = arguments(data, store, "--resume", "--json", "--require")
    assert code_of([*words, f"fit.ok, epsilon<={epsilon + 1e-9:.17g}, rank==5, two_stages"], capsys)[0] == 0
    code, said = code_of([*words, f"not fit.ok, epsilon<{epsilon / 2}"], capsys)
    assert code == 3
    assert "not met: not fit.ok (it is true)" in said
    assert f"(it is {epsilon:.6g})" in said


@pytest.mark.parametrize(
    ("term", "holds"),
    [("drawn>=100", True), ("drawn>100", False), ("n_dropped!=0", False), ("condition < 1e2", True),
     ("total_loss>=-1", True), ("not two_stages", False), ("effective_size<=1.2E+2", True)],
)  # fmt: skip
def test_terms_mean_what_they_say(term, holds, clean):
    assert len(clean.sample) == 100
    assert (not unmet(clean, parsed(term))) is holds


@pytest.mark.parametrize(
    "term",
    [
        "",
        "fit",
        "fit.__class__",
        "epsilon<=",
        "epsilon<=x",
        "not epsilon<1",
        "epsilon<=0.3 or 1",
        "1<2",
        "os.system('ls')<1",
    ],
)
def test_terms_of_no_grammar_are_refused_before_anything_is_read(term, data, tmp_path, capsys):
    with Reads() as reads:
        code, said = code_of(arguments(data, tmp_path / "run.zarr", "--require", f"fit.ok,{term}"), capsys)
    assert code == 2
    assert not reads.blocks
    assert "--require" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run.zarr").exists()


def test_a_run_without_a_certificate_meets_no_requirement_of_one(data, tmp_path):
    made = job(data, tmp_path / "run.zarr", scores="norm")
    assert unmet(made, parsed("epsilon<=9, rank>0")) == ["epsilon<=9 (it is none)", "rank>0 (it is none)"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--size", "0"], "size"),
        (["--size", "many"], "no number of rows"),
        (["--x", "Z"], "it holds: X (1200, 3), y (1200,)"),
        (["--scheduler", "nowhere.json"], "is no file"),
        (["--epsilon", "0.3"], "is for --size 'auto'"),
        (["--store", "missing/run.zarr"], "does not exist; make it first"),
        (["--constraint", "ball:radius=-1"], "radius"),
        (["--pilot-size", "120"], "--pilot-size 120"),
        (["--missing", "skip"], "missing"),
        (["--rounds", "0"], "rounds"),
    ],
)
def test_a_mistake_in_an_argument_is_one_line_and_exit_code_2(more, message, data, tmp_path, capsys):
    code, said = code_of([*arguments(data, tmp_path / "run.zarr"), *more], capsys)
    assert code == 2
    assert message in said
    assert not (tmp_path / "run.zarr").exists()


def test_a_store_that_is_written_is_75_and_another_job_is_2(data, tmp_path, capsys):
    store = tmp_path / "run.zarr"
    store.mkdir()
    held = lock.Lock(Folder(str(store)), str(store), print)
    code, said = code_of(arguments(data, store, "--resume"), capsys)
    assert code == 75
    assert f"process {os.getpid()}" in said
    assert json.loads(run("inspect", store, "--json"))["state"] == "running"
    held.release()
    run(*arguments(data, store, "--resume"))
    code, said = code_of([*arguments(data, store, "--resume"), "--size", "130"], capsys)
    assert code == 2
    assert "--size 120, but now it is 130" in said


def test_warnings_are_one_line_each(data, tmp_path, capsys):
    store = tmp_path / "run.zarr"
    store.mkdir()
    dead = lock.owner()._replace(pid=2**22 + 7)
    (store / "lock.json").write_text(json.dumps(dead._asdict()))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, said = code_of(arguments(data, store, "--resume", "--json"), capsys)
    assert code == 0
    assert said.startswith(f"dask-nlis: warning: --store {str(store)!r}: process {dead.pid} on")
    assert len(said.splitlines()) == 1


def test_chunks_that_are_missing_are_refused_or_allowed(data, tmp_path, capsys):
    copy = shutil.copytree(data, tmp_path / "data.zarr")
    (copy / "X" / "c" / "3" / "0").unlink()
    code, said = code_of(arguments(copy, tmp_path / "run.zarr"), capsys)
    assert code == 2
    assert "1 of 24 chunks is missing, the first holds rows 150 to 199" in said
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, said = code_of(arguments(copy, tmp_path / "run.zarr", "--allow-missing"), capsys)
    assert code == 0
    assert "1 of 24 chunks is missing" in said


def test_inspect_tells_how_a_run_stands(data, clean, tmp_path, capsys):
    text = run("inspect", clean.path)
    assert "complete" in text
    assert f"{len(clean.sample):,} distinct" in text
    found = json.loads(run("inspect", clean.path, "--json"))
    assert found["run"]["epsilon"] == clean.certificate.epsilon
    code, said = code_of(["inspect", data], capsys)
    assert code == 2
    assert "holds no run" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on_by_the_same_command(number, data, clean, tmp_path):
    store = tmp_path / "run.zarr"
    words = arguments(data, store, "--resume")
    # Each block takes a while, so that the signal comes in the middle.
    slow = "import time, dask_nlis.sampling.sieve as s; f = s.block_summary; s.block_summary = lambda *a: (time.sleep(0.05), f(*a))[1]; "
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # also begun in the background
    code = f"import sys; {hears}{slow}from dask_nlis.cli import main; main(sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    for _ in range(2000):
        time.sleep(0.05)
        if len(list(store.glob("work/scores-0/*-*"))) > 3:
            break
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    if number == signal.SIGINT:
        assert said.strip().endswith("dask-nlis: interrupted; the same command with --resume goes on")
        assert not (store / "lock.json").exists()
    text = run("inspect", store)
    assert "cut off" in text
    assert "blocks scored in scores-0" in text
    kept = len(list(store.glob("work/scores-0/*-*")))
    with Reads() as reads:
        if number == signal.SIGKILL:
            with pytest.warns(nlis.NlisWarning, match="taken over"):
                found = job(data, store, resume=True)
        else:
            found = job(data, store, resume=True)
    assert len(reads.blocks) == 4 * N_ROWS // ROWS - kept
    assert found.fit == clean.fit


@pytest.mark.cluster
def test_a_scheduler_by_address_or_file(data, clean, tmp_path, capsys):
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        run(*arguments(data, tmp_path / "a.zarr", "--scheduler", cluster.scheduler_address))
        known = {"address": cluster.scheduler_address, "workers": {}}  # as `dask scheduler --scheduler-file` writes it
        (tmp_path / "scheduler.json").write_text(json.dumps(known))
        run(*arguments(data, tmp_path / "b.zarr", "--scheduler", tmp_path / "scheduler.json"))
    for name in "ab":
        assert nlis.open_run(tmp_path / f"{name}.zarr").fit == clean.fit
    assert clean.problem == PROBLEM
