"""deploy/docker-compose.yml: valid, closed to the outside, and made of commands that work.

tests/data/compose-spec.json is the JSON schema of the Compose Specification (compose-spec/compose-spec on GitHub,
schema/compose-spec.json, Apache-2.0), as shipped with check-jsonschema 0.39.0 on PyPI (Apache-2.0); unchanged.
"""

import copy
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import yaml
from counting import same_bits

import dask_nlis as nlis

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text("utf-8"))
SCHEMA = json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text("utf-8"))
SERVICES = COMPOSE["services"]


def _problems(compose):
    validator = jsonschema.validators.validator_for(SCHEMA)
    validator.check_schema(SCHEMA)
    return [error.message for error in validator(SCHEMA).iter_errors(compose)]


def _dockerfile(name):
    return [line.strip() for line in SERVICES[name]["build"]["dockerfile_inline"].splitlines() if line.strip()]


def test_the_file_is_valid_against_the_schema_of_the_specification():
    assert _problems(COMPOSE) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda compose: compose["services"]["job"].update(commands="true"),
        lambda compose: compose["services"]["worker"]["deploy"].update(replicas=[2]),
        lambda compose: compose["services"]["worker"]["depends_on"]["scheduler"].update(condition="service_up"),
    ],
    ids=["an unknown key", "a wrong type", "an unknown condition"],
)
def test_the_schema_refuses_a_damaged_file(damage):
    compose = copy.deepcopy(COMPOSE)
    damage(compose)
    assert _problems(compose)


def test_a_scheduler_two_workers_and_a_job_are_there_and_every_name_is_declared():
    assert set(SERVICES) == {"scheduler", "worker", "job"}
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])


def test_services_wait_for_each_other_and_only_the_job_ends():
    for name in ("scheduler", "worker"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
        assert SERVICES[name]["restart"] == "unless-stopped"
    waits = {(a, b): how["condition"] for a in SERVICES for b, how in SERVICES[a].get("depends_on", {}).items()}
    assert waits == {("worker", "scheduler"): "service_healthy", ("job", "worker"): "service_healthy"}
    # A job that failed must not run in circles: its folder is in use then.
    assert SERVICES["job"]["restart"] == "no"


def test_nothing_is_published_but_the_dashboard_on_loopback():
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8787:8787"]
    assert COMPOSE["networks"]["cluster"] == {"internal": True}
    for name in ("worker", "job"):
        assert SERVICES[name]["networks"] == ["cluster"]


def test_containers_run_without_privileges():
    for name, service in SERVICES.items():
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode"} & set(service)
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not any(volume.startswith(("/", ".", "~")) for volume in service["volumes"])
        users = [line.split()[1] for line in _dockerfile(name) if line.startswith("USER ")]
        assert users == ["nlis"]


def test_images_are_pinned_and_built_from_files_that_exist():
    for name, service in SERVICES.items():
        lines = _dockerfile(name)
        for image in (service["image"], lines[0].removeprefix("FROM ")):
            assert re.fullmatch(r"[a-z/-]+:\d+(\.\d+)+[a-z-]*", image)
        # The tag of our own image is the version, without its last number.
        assert service["image"] == f"dask-nlis:{nlis.__version__.rpartition('.')[0]}"
        context = (ROOT / "deploy" / service["build"]["context"]).resolve()
        for line in lines:
            if line.startswith("COPY "):
                assert all((context / source).exists() for source in line.split()[1:-1])


class _Local:
    """The commands of the services as processes of this machine: host, ports and paths replaced, nothing else."""

    def __init__(self, folder):
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            for held in (a, b, c):
                held.bind(("127.0.0.1", 0))
            ports = [held.getsockname()[1] for held in (a, b, c)]
        self.replacements = {
            "tcp://scheduler": "tcp://127.0.0.1",
            "0.0.0.0": "127.0.0.1",  # noqa: S104 (replaced)
            **{old: str(new) for old, new in zip(("8786", "8787", "8790"), ports, strict=True)},
            "/app/california.py": str(ROOT / "examples" / "california.py"),
            "/data": str(folder),
        }
        self.folder = folder
        self.running = []
        # Aborted, a process writes down where each of its threads is.
        self.environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}

    def command(self, words):
        pattern = "|".join(map(re.escape, self.replacements))
        out = [re.sub(pattern, lambda found: self.replacements[found.group()], word) for word in words]
        python = {"dask": [sys.executable, "-m", "dask"], "python": [sys.executable]}
        return python[out[0]] + out[1:]

    def start(self, name):
        # A worker would listen on all interfaces, which a container has to itself and this machine has not.
        words = SERVICES[name]["command"] + (["--host=127.0.0.1"] if name == "worker" else [])
        with (self.folder / f"{name}.log").open("w") as log:
            started = subprocess.Popen(
                self.command(words), stdout=log, stderr=log, cwd=self.folder, env=self.environment
            )
        self.running.append(started)
        check = self.command(SERVICES[name]["healthcheck"]["test"][1:])
        for _ in range(120):
            assert started.poll() is None, (self.folder / f"{name}.log").read_text()
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.5)
        raise AssertionError(f"{name} never became healthy: {(self.folder / f'{name}.log').read_text()}")

    def run(self, name, seconds):
        """Run a service that ends: (exit status, what it printed); past `seconds` fail with the stacks of all."""
        process = subprocess.Popen(
            self.command(SERVICES[name]["command"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        try:
            return process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            for one in (process, *self.running):
                children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
                for pid in (*map(int, children), one.pid):
                    os.kill(pid, signal.SIGABRT)
            printed = process.communicate()[0]
            logs = {path.name: path.read_text() for path in self.folder.glob("*.log")}
            raise AssertionError(f"{name} did not end in {seconds} s:\n{printed}\n{logs}") from None

    def stop(self):
        # A worker that has lost its scheduler takes seconds to give up.
        for process in reversed(self.running):
            process.terminate()
            process.wait(30)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_commands_of_the_services_run_the_job_as_they_stand(tmp_path):
    local = _Local(tmp_path)
    try:
        local.start("scheduler")
        local.start("worker")
        printed, status = local.run("job", seconds=200)
    finally:
        local.stop()
    assert status == 0, printed
    assert "ok=True" in printed
    made = nlis.open_run(tmp_path / "run.zarr")
    # The same data in the same blocks give the same bytes here as on workers of their own.
    X, y = nlis.open_rows(tmp_path / "california.zarr", X="X", y="y", block_bytes=300_000)
    here = nlis.run(made.problem, X, y, size=made.manifest["size"], seed=made.manifest["seed"])
    assert same_bits(made.scores, here.scores)
    assert (made.sample, made.fit, made.reads) == (here.sample, here.fit, here.reads)
