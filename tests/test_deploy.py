"""deploy/docker-compose.yml and the images: valid, closed to the outside, and made of commands that work.

tests/data/compose-spec.json is the JSON schema of the Compose Specification (compose-spec/compose-spec on GitHub,
schema/compose-spec.json, Apache-2.0), as shipped with check-jsonschema 0.39.0 on PyPI (Apache-2.0); unchanged.
"""

import copy
import json
import re
import tomllib
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml
from counting import same_bits
from deployed import Services, free_ports
from packaging.requirements import Requirement

import dask_nlis as nlis
from dask_nlis.cli.main import EXIT_REFUSED

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text("utf-8"))
SCHEMA = json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text("utf-8"))
SERVICES = COMPOSE["services"]


def _problems(compose):
    validator = jsonschema.validators.validator_for(SCHEMA)
    validator.check_schema(SCHEMA)
    return [error.message for error in validator(SCHEMA).iter_errors(compose)]


DOCKER = ROOT / "deploy" / "docker"
OURS = ("scheduler", "worker", "data", "job")


def _dockerfile(name):
    lines = (DOCKER / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


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


def test_the_services_are_there_and_every_name_is_declared():
    assert set(SERVICES) == {*OURS, "storage", "bucket"}
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])


def test_services_wait_for_each_other_and_only_jobs_end():
    for name in ("scheduler", "worker", "storage"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
        assert SERVICES[name]["restart"] == "unless-stopped"
    waits = {(a, b): how["condition"] for a in SERVICES for b, how in SERVICES[a].get("depends_on", {}).items()}
    assert waits == {
        ("worker", "scheduler"): "service_healthy",
        ("bucket", "storage"): "service_healthy",
        ("data", "bucket"): "service_completed_successfully",
        ("job", "data"): "service_completed_successfully",
        ("job", "worker"): "service_healthy",
    }
    # A job that was refused must not run in circles.
    assert {SERVICES[name]["restart"] for name in ("bucket", "data", "job")} == {"no"}


def test_nothing_is_published_but_the_dashboard_on_loopback():
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8787:8787"]
    assert COMPOSE["networks"]["cluster"] == {"internal": True}
    for name in set(SERVICES) - {"scheduler"}:
        assert SERVICES[name]["networks"] == ["cluster"]


def test_containers_run_without_privileges():
    for service in SERVICES.values():
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode"} & set(service)
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not any(volume.startswith(("/", ".", "~")) for volume in service.get("volumes", []))
    for name in ("Dockerfile", "Dockerfile.gpu"):
        users = [line.split()[1] for line in _dockerfile(name) if line.startswith("USER ")]
        assert users[-1] == "1000"
        # What stops a container must be what a run gives its lock back upon.
        assert "STOPSIGNAL SIGINT" in _dockerfile("Dockerfile")
        assert any("useradd" in line and "--uid 1000" in line for line in _dockerfile("Dockerfile"))


def test_keys_of_the_storage_are_given_at_the_start_and_to_those_who_read_it_alone():
    given = {name for name, service in SERVICES.items() if "NLIS_STORAGE_KEY" in json.dumps(service)}
    assert given == {"worker", "data", "job", "storage", "bucket"}
    text = (ROOT / "deploy" / "docker-compose.yml").read_text("utf-8")
    assert text.count("${NLIS_STORAGE_KEY:?") == text.count("${NLIS_STORAGE_KEY") == 3


def test_images_are_pinned_and_built_from_files_that_exist():
    # The tag of our own image is the version, without its last number.
    ours = f"dask-nlis:{nlis.__version__.rpartition('.')[0]}"
    for name in OURS:
        assert SERVICES[name]["image"] == ours
        context = (ROOT / "deploy" / SERVICES[name]["build"]["context"]).resolve()
        assert context == ROOT
        assert context / SERVICES[name]["build"]["dockerfile"] == DOCKER / "Dockerfile"
    for name in ("storage", "bucket"):
        assert re.fullmatch(r"minio/minio:RELEASE\.\d{4}-\d\d-\d\dT[\d-]+Z", SERVICES[name]["image"])
    bases = [
        line.split()[1]
        for name in ("Dockerfile", "Dockerfile.gpu")
        for line in _dockerfile(name)
        if line[:5] == "FROM "
    ]
    assert bases == ["python:3.11.13-slim-bookworm"] * 2 + [ours]
    for name in ("Dockerfile", "Dockerfile.gpu"):
        ignored = (DOCKER / f"{name}.dockerignore").read_text("utf-8").splitlines()
        kept = [line[1:] for line in ignored if line.startswith("!")]
        for line in _dockerfile(name):
            if line.startswith("COPY ") and "--from" not in line:
                for source in line.split()[1:-1]:
                    assert (ROOT / source).exists()
                    assert any(Path(source).match(pattern) for pattern in kept), source
        # Versions and digests are in the files of requirements, or in the line.
        for line in _dockerfile(name):
            if "pip install" in line and "wheels" not in line:
                assert "--require-hashes" in line or re.search(r"install --no-cache-dir [\w-]+==[\d.]+$", line)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-gpu.txt"])
def test_requirements_name_one_version_and_digest_each(name):
    lines = [line for line in (DOCKER / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_the_image_holds_what_the_library_and_its_extras_need():
    lines = (DOCKER / "requirements.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split()[0].split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in ("cloud", "dashboard", "hdf5", "tls") for one in extras[name]),
    ]
    for each in map(Requirement, [*wanted, "prometheus-client"]):
        assert pinned[each.name] in each.specifier, each
    # Dask and distributed are released together.
    assert pinned["dask"] == pinned["distributed"]
    gpu = (DOCKER / "requirements-gpu.txt").read_text("utf-8")
    (cupy,) = map(Requirement, extras["gpu12"])
    assert re.search(rf"^{cupy.name}==([\d.]+)", gpu, re.MULTILINE)[1] in cupy.specifier


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(not (find_spec("moto") and find_spec("obstore")), reason="moto and obstore are in extra test-cloud")
def test_the_commands_of_the_services_run_the_job_as_they_stand(tmp_path, monkeypatch):
    from bucket_server import Server, settings

    server = Server()  # in the place of the storage and of what makes its bucket
    connection = HTTPConnection(server.endpoint.partition("://")[2], timeout=10)
    connection.request("PUT", "/nlis")
    assert connection.getresponse().status == 200
    comm, page, health = map(str, free_ports(3))
    environment = {
        key: value.replace("http://storage:9000", server.endpoint)
        for key, value in (SERVICES["job"]["environment"] | {"AWS_SECRET_ACCESS_KEY": "made up for this start"}).items()
    }
    assert SERVICES["worker"]["environment"] == SERVICES["data"]["environment"] == SERVICES["job"]["environment"]
    services = Services(
        tmp_path,
        {
            "tcp://scheduler": "tcp://127.0.0.1",
            "0.0.0.0": "127.0.0.1",  # noqa: S104 (replaced)
            "8786": comm,
            "8787": page,
            "8790": health,
            "/app/sample_data.py": str(DOCKER / "sample_data.py"),
        },
        environment,
    )
    try:
        for name in ("scheduler", "worker"):
            # A worker would listen on all interfaces, which a container has to itself and this machine has not.
            words = SERVICES[name]["command"] + (["--host=127.0.0.1"] if name == "worker" else [])
            services.start(name, words, SERVICES[name]["healthcheck"]["test"][1:])
        for told in ("20,640 rows of 8 features", "X and y are there"):
            status, out, err = services.run("data", SERVICES["data"]["command"])
            assert status == 0, err
            assert told in out
        status, out, err = services.run("job", SERVICES["job"]["command"])
        assert status == 0, err
        assert json.loads(out)["fit.ok"] is True
        # The same command returns the finished run; another size is refused.
        assert (
            json.loads(services.run("job", SERVICES["job"]["command"])[1])["parameters"]
            == json.loads(out)["parameters"]
        )
        other = [word.replace("--size=413", "--size=414") for word in SERVICES["job"]["command"]]
        assert services.run("job", other)[0] == EXIT_REFUSED
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        with settings(server.endpoint):
            made = nlis.open_run("s3://nlis/run.zarr")
            # The same data in the same blocks give the same bytes here as on workers of their own.
            X, y = nlis.open_rows("s3://nlis/california.zarr", X="X", y="y", block_bytes=300_000)
            here = nlis.run(made.problem, X, y, size=413, seed=0)
            assert same_bits(made.scores, here.scores)
            assert (made.sample, made.fit, made.reads) == (here.sample, here.fit, here.reads)
    finally:
        services.stop()
        server.stop()
