"""deploy/slurm: scripts that dask-jobqueue writes as we say, and real jobs of a Slurm of one node."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
import yaml
from counting import same_bits
from one_node_slurm import Slurm, absent

import dask_nlis as nlis
from dask_nlis.cli.main import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOCKED, EXIT_REFUSED

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "slurm"
SETTINGS = yaml.safe_load((FOLDER / "jobqueue.yaml").read_text("utf-8"))
RUN = ("--y=y", "--model=single-index", "--activation=swish:c1=1,c2=2", "--constraint=ball:radius=10", "--size=400")
#: A job with all tasks on one processor each, as small as a cluster can be: scheduler, run, two workers.
SMALL = ("--ntasks=4", "--cpus-per-task=1", "--mem-per-cpu=0")

needs_jobqueue = pytest.mark.skipif(
    importlib.util.find_spec("dask_jobqueue") is None, reason="dask-jobqueue is in extra test-deploy"
)


def _module(name):
    spec = importlib.util.spec_from_file_location(f"slurm_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _directives(name):
    text = (FOLDER / name).read_text("utf-8")
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))


def test_every_exit_code_that_a_retry_may_mend_queues_the_job_anew():
    text = (FOLDER / "run.sbatch").read_text("utf-8")
    (codes,) = re.findall(r"^    ([\d |]+)\)$", text, re.MULTILINE)
    assert {int(code) for code in codes.split("|")} == {EXIT_FAILED, EXIT_LOCKED, EXIT_INTERRUPTED}
    directives = _directives("run.sbatch")
    assert directives["signal"].startswith("USR1@")
    assert {"requeue", "open-mode"} <= set(directives)


def test_a_gpu_node_has_two_tasks_more_than_gpus():
    directives = _directives("run-gpu.sbatch")
    assert int(directives["ntasks"]) == int(directives["gres"].partition(":")[2]) + 2
    assert directives["nodes"] == "1"


@needs_jobqueue
def test_workers_take_a_gpu_each_and_the_memory_of_their_task():
    found = subprocess.run(
        [sys.executable, "-c", f"""
import sys; sys.path.insert(0, {str(FOLDER)!r})
from allocation import gpu_of, memory_of_a_task
print([gpu_of(task, "0,1,GPU-7") for task in (2, 3, 4)])
print(memory_of_a_task({{"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_PER_TASK": "4"}}), memory_of_a_task({{}}))
gpu_of(3, "0")
"""], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.splitlines() == ["['0', '1', 'GPU-7']", f"{int(0.9 * 8 * 2**30)} auto"]
    assert "task 3 has no GPU of its own" in found.stderr


@pytest.fixture
def certificates(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    made = subprocess.run(
        ["bash", ROOT / "deploy" / "tls" / "make-certificates", tmp_path / "tls"],  # noqa: S607
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    roles = {
        role: {"cert": str(tmp_path / "tls" / "nlis.pem"), "key": str(tmp_path / "tls" / "nlis-key.pem")}
        for role in ("scheduler", "worker", "client")
    }
    return {
        "distributed": {
            "comm": {"require-encryption": True, "tls": {"ca-file": str(tmp_path / "tls" / "ca.pem"), **roles}}
        }
    }


def _flat(table, above=""):
    """Settings by their whole names, which leave others beside them as they are."""
    out = {}
    for key, value in table.items():
        out |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return out


@needs_jobqueue
@pytest.mark.parametrize("config", ["slurm", "slurm-gpu"])
def test_job_scripts_are_those_of_dask_jobqueue_and_valid_shell(config, certificates, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # logs are a folder below
    jobs, told = _module("jobs"), SETTINGS["jobqueue"][config]
    with (
        dask.config.set(_flat(certificates)),
        dask.config.set({f"jobqueue.{config}": told}),
        jobs.cluster_of(config, scheduler_options={"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}) as cluster,
    ):
        script = cluster.job_script()
        address = cluster.scheduler_address
    lines = script.splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert {
        f"#SBATCH -J {told['name']}",
        "#SBATCH -n 1",
        f"#SBATCH --cpus-per-task={told['cores']}",
        f"#SBATCH --mem={told['memory'].removesuffix('iB')}",
        f"#SBATCH -t {told['walltime']}",
        *(f"#SBATCH {each}" for each in told["job-extra-directives"]),
    } <= set(lines)
    assert ("#SBATCH --gres=gpu:1" in lines) == (config == "slurm-gpu")
    (command,) = [line for line in lines if "distributed.cli.dask_worker" in line]
    assert address.startswith("tls://127.0.0.1:")
    assert address in command
    assert f"--nthreads {told['cores'] // told['processes']} " in command
    for option in ("--protocol tls://", "--tls-ca-file ", "--tls-cert ", "--tls-key ", "--lifetime 230m"):
        assert option in command
    # Every option is one that workers know.
    known = subprocess.run(
        [sys.executable, "-m", "dask", "worker", "--help"], capture_output=True, text=True, check=False
    )
    assert set(re.findall(r"--[a-z-]+", command)) <= set(re.findall(r"--[a-z-]+", known.stdout))
    (tmp_path / "job.sh").write_text(script)
    assert subprocess.run(["bash", "-n", tmp_path / "job.sh"], check=False).returncode == 0  # noqa: S607
    if shutil.which("shellcheck"):
        checked = subprocess.run(["shellcheck", tmp_path / "job.sh"], capture_output=True, text=True, check=False)  # noqa: S607
        assert checked.returncode == 0, checked.stdout


@needs_jobqueue
def test_a_worker_leaves_before_slurm_ends_its_job():
    for told in SETTINGS["jobqueue"].values():
        hours, minutes, _ = map(int, told["walltime"].split(":"))
        options = dict(zip(told["worker-extra-args"][::2], told["worker-extra-args"][1::2], strict=True))
        longest = sum(int(options[name].removesuffix("m")) for name in ("--lifetime", "--lifetime-stagger"))
        assert longest < 60 * hours + minutes


@needs_jobqueue
def test_jobs_without_certificates_are_refused():
    with (
        dask.config.set({"distributed.comm.tls.ca-file": None, "jobqueue.slurm": SETTINGS["jobqueue"]["slurm"]}),
        pytest.raises(nlis.InputError, match="no certificates"),
    ):
        _module("jobs").cluster_of("slurm")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    why = absent()
    if why:
        pytest.skip(why)
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    where = tmp_path_factory.mktemp("data")
    X, y = nlis.datasets.california_housing(standardized=True)
    import zarr

    group = zarr.open_group(where / "california.zarr", mode="w")
    group.create_array("X", data=X.compute(), chunks=(1_000, 8))
    group.create_array("y", data=y.compute(), chunks=(1_000,))
    return where / "california.zarr"


def _variables(**more):
    return {"NLIS_SLURM": str(FOLDER), "NLIS_PYTHON": sys.executable, "NLIS_INTERFACE": "lo"} | more


def _same_as_here(store, data, block_bytes):
    made = nlis.open_run(store)
    X, y = nlis.open_rows(data, X="X", y="y", block_bytes=block_bytes)
    here = nlis.run(made.problem, X, y, size=400, seed=0)
    assert same_bits(made.scores, here.scores)
    assert (made.sample, made.fit) == (here.sample, here.fit)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_demo_runs_as_a_job(slurm, tmp_path):
    command = f"{sys.executable} -m dask_nlis demo --folder {tmp_path / 'demo'} --seeds 2"
    job = slurm.submit("--output=demo.log", f"--wrap={command}", cwd=tmp_path)
    assert slurm.ended(job) == ("COMPLETED", 0, 0), (tmp_path / "demo.log").read_text()
    assert nlis.open_run(tmp_path / "demo" / "run.zarr").fit.ok


@pytest.mark.slow
@pytest.mark.cluster
@needs_jobqueue
def test_an_allocation_is_a_cluster_whose_exit_code_is_that_of_the_run(slurm, data, tmp_path):
    words = (*SMALL, "--output=run.log", FOLDER / "run.sbatch", data, *RUN, "--seed=0", "--block-bytes=70000")
    job = slurm.submit(*words, "--store=run.zarr", "--json", cwd=tmp_path, **_variables())
    log = tmp_path / "run.log"
    assert slurm.ended(job) == ("COMPLETED", 0, 0), log.read_text()
    result = next(json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"path"'))
    assert result["fit.ok"] is True
    _same_as_here(tmp_path / "run.zarr", data, 70_000)
    assert not list((tmp_path / ".nlis").iterdir())  # keys and addresses go with the job
    # What cannot be mended is not tried again.
    job = slurm.submit(*words, "--store=run.zarr", "--scheme=systematic", cwd=tmp_path, **_variables())
    assert slurm.ended(job) == ("FAILED", EXIT_REFUSED, 0), log.read_text()[-5000:]


@pytest.mark.slow
@pytest.mark.cluster
@needs_jobqueue
def test_a_job_whose_time_is_over_is_queued_anew_and_goes_on(slurm, data, tmp_path):
    # The interrupt of --signal, sent when some blocks are scored: 20,640 rows in blocks of 200.
    small = tmp_path / "small.zarr"
    X, y = nlis.open_rows(data, X="X", y="y")
    import zarr

    group = zarr.open_group(small, mode="w")
    group.create_array("X", data=X.compute(), chunks=(200, 8))
    group.create_array("y", data=y.compute(), chunks=(200,))
    store = tmp_path / "run.zarr"
    job = slurm.submit(
        *SMALL, "--output=run.log", FOLDER / "run.sbatch", small, *RUN, "--seed=0", "--block-bytes=14400", "--store=run.zarr",
        cwd=tmp_path, **_variables(),
    )  # fmt: skip
    slurm.until(lambda: (store / "lock.json").exists(), "the run", 120)
    time.sleep(1)
    slurm.says("scancel", "--signal=USR1", f"{job}.0")
    # Slurm would wait two minutes before it starts the job again.
    slurm.until(
        lambda: slurm.told(job).get("Restarts") == "1" and slurm.told(job)["JobState"] == "PENDING", "the queue", 120
    )
    slurm.says("scontrol", "update", f"JobId={job}", "StartTime=now")
    state, code, restarts = slurm.ended(job)
    log = (tmp_path / "run.log").read_text()
    assert (state, code) == ("COMPLETED", 0), log
    assert restarts == 1, log
    assert "exit code 130; attempt 2 goes on" in log
    _same_as_here(store, small, 14_400)


@pytest.mark.slow
@pytest.mark.cluster
@needs_jobqueue
def test_workers_that_are_jobs_give_the_bits_of_threads(slurm, data, certificates, tmp_path):
    # As jobqueue.yaml says, but for what this machine is: its loopback, one processor a job.
    told = SETTINGS["jobqueue"]["slurm"] | {
        "cores": 1, "processes": 1, "memory": "1GiB", "interface": "lo", "job-directives-skip": ["--mem"], "python": sys.executable,
    }  # fmt: skip
    told["scheduler-options"] = {"dashboard_address": "127.0.0.1:0"}
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "all.yaml").write_text(yaml.safe_dump({"jobqueue": {"slurm": told}, **certificates}))
    environment = {**slurm.environment, "DASK_CONFIG": str(tmp_path / "dask")}
    done = subprocess.run(
        [
            sys.executable, FOLDER / "jobs.py", "--jobs=2", "--", "run", data, *RUN, "--seed=0", "--block-bytes=70000",
            "--store=run.zarr", "--resume", "--json",
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=250,
    )  # fmt: skip
    logs = [path.read_text()[-3000:] for path in (tmp_path / "logs").glob("*")]
    assert done.returncode == 0, (done.stderr, logs)
    assert json.loads(done.stdout)["fit.ok"] is True
    assert len(logs) >= 2  # output and errors of at least one job
    _same_as_here(tmp_path / "run.zarr", data, 70_000)
    slurm.until(lambda: not slurm.says("squeue", "--noheader"), "the queue", 60)
