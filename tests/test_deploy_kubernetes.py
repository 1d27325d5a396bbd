"""deploy/kubernetes: valid for the operator and for Kubernetes, closed, and made of commands and settings that work.

tests/data/kubernetes/*.yaml.gz are the operator's custom resource definitions, as tests/data/README.md says.
"""

import ast
import copy
import gzip
import importlib
import json
import shutil
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import dask.config
import jsonschema
import pytest
import yaml
from counting import same_bits
from deployed import Services, free_ports, listening
from distributed.security import Security

import dask_nlis as nlis
from dask_nlis.cli.main import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOCKED, EXIT_REFUSED
from dask_nlis.cli.run import EXIT_UNMET
from dask_nlis.store import lock

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "kubernetes"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RESOURCES = [
    found
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for found in yaml.load_all(path.read_text("utf-8"), LOADER)
]
NAMED = {(found["kind"], found["metadata"]["name"]): found for found in RESOURCES}
CLUSTER, GPU = NAMED["DaskCluster", "nlis"]["spec"], NAMED["DaskWorkerGroup", "nlis-gpu"]["spec"]
JOB = NAMED["Job", "nlis-run"]["spec"]
SETTINGS = NAMED["ConfigMap", "nlis-settings"]["data"]
PODS = {
    "scheduler": CLUSTER["scheduler"]["spec"],
    "worker": CLUSTER["worker"]["spec"],
    "gpu worker": GPU["worker"]["spec"],
    "runner": JOB["template"]["spec"],
}
CONTAINERS = {name: pod["containers"][0] for name, pod in PODS.items()}


@cache
def _schema(kind):
    """The schema of a resource of the operator; fields that it does not know are refused, as kubectl does."""
    text = gzip.decompress((ROOT / "tests" / "data" / "kubernetes" / f"{kind.lower()}.yaml.gz").read_bytes())
    definition = yaml.load(text, LOADER)  # noqa: S506 (a safe loader)
    (version,) = definition["spec"]["versions"]
    schema = _closed(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"const": kind}, "metadata": {"type": "object"}}
    jsonschema.Draft4Validator.check_schema(schema)
    return schema


def _closed(schema):
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _closed(value) for key, value in schema.items()}
    if isinstance(out.get("properties"), dict) and not out.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    return out


def _problems(resource):
    validator = jsonschema.Draft4Validator(_schema(resource["kind"]))
    return [f"{'.'.join(map(str, error.path))}: {error.message[:200]}" for error in validator.iter_errors(resource)]


@pytest.mark.parametrize(
    "key", [key for key in NAMED if key[0].startswith("Dask")], ids=lambda key: f"{key[0]} {key[1]}"
)
def test_resources_of_the_operator_are_valid_against_its_definitions(key):
    assert NAMED[key]["apiVersion"] == "kubernetes.dask.org/v1"
    assert _problems(NAMED[key]) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda spec: spec["worker"].update(replica=3),
        lambda spec: spec["worker"].update(replicas="3"),
        lambda spec: spec["scheduler"].pop("service"),
        lambda spec: spec["worker"]["spec"]["containers"][0].update(arguments=[]),
        lambda spec: spec["worker"]["spec"]["containers"][0].pop("name"),
        lambda spec: spec["scheduler"]["service"]["ports"][0].update(port="8786"),
    ],
    ids=["unknown key", "wrong type", "no service", "unknown key of a container", "no name", "port in words"],
)
def test_the_definitions_refuse_damaged_resources(damage):
    cluster = copy.deepcopy(NAMED["DaskCluster", "nlis"])
    damage(cluster["spec"])
    assert _problems(cluster)


def test_the_pod_of_the_job_is_valid_too():
    cluster = copy.deepcopy(NAMED["DaskCluster", "nlis"])
    cluster["spec"]["worker"]["spec"] = PODS["runner"]
    assert _problems(cluster) == []


def test_a_dask_job_knows_no_pod_failure_policy():
    # The reason why the runner is a Job of Kubernetes: the operator's own runs a bare pod, once.
    job = {"metadata": {}, "spec": PODS["runner"], "podFailurePolicy": JOB["podFailurePolicy"]}
    resource = {"kind": "DaskJob", "spec": {"cluster": {"spec": CLUSTER}, "job": job}}
    (found,) = _problems(resource)
    assert "podFailurePolicy" in found
    del job["podFailurePolicy"]
    assert _problems(resource) == []


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda found: f"{found['kind']} {found['metadata']['name']}")
def test_resources_of_kubernetes_are_those_of_its_client(resource):
    if resource["kind"].startswith("Dask"):
        resource = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": PODS["gpu worker"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = pytest.importorskip("kubernetes.client", reason="the Kubernetes client is in extra test-deploy")
    api = client.ApiClient()

    # Unknown fields are dropped on the way in, absent ones that are needed raise: what comes out is what went in.
    made = api._ApiClient__deserialize(resource, f"V1{resource['kind']}")
    assert api.sanitize_for_serialization(made) == resource


def test_every_exit_code_has_a_rule_and_only_hopeless_ones_end_the_job():
    rules = JOB["podFailurePolicy"]["rules"]
    actions = {code: rule["action"] for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])}
    assert actions == {
        EXIT_FAILED: "Count",
        EXIT_REFUSED: "FailJob",
        EXIT_UNMET: "FailJob",
        EXIT_LOCKED: "Count",
        EXIT_INTERRUPTED: "Ignore",
    }
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    names = {rule["onExitCodes"]["containerName"] for rule in rules[1:]}
    assert names == {container["name"] for container in PODS["runner"]["containers"]}
    assert PODS["runner"]["restartPolicy"] == "Never"  # a failure policy is allowed with no other
    # Attempts outlast the time after which the lock of a lost machine is taken over, twice.
    waits = [min(10 * 2**k, 360) for k in range(JOB["backoffLimit"])]
    assert sum(waits) > 2 * lock.DEAD


def test_the_runner_is_not_taken_for_one_of_the_operator():
    labels = JOB["template"]["metadata"]["labels"]
    assert "dask.org/component" not in labels
    assert "dask.org/cluster-name" not in labels


@pytest.mark.parametrize("name", PODS)
def test_pods_have_no_privileges_and_bounded_memory(name):
    pod, container = PODS[name], CONTAINERS[name]
    assert len(pod["containers"]) == 1
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 1000)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # else variables DASK_..., for a cluster of such a name, were settings
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert all("hostPath" not in volume for volume in pod["volumes"])


def test_images_carry_a_version():
    images = {name: container["image"] for name, container in CONTAINERS.items()}
    ours = nlis.__version__.rpartition(".")[0]
    gpu = images.pop("gpu worker")
    assert set(images.values()) == {f"registry.example.org/dask-nlis:{ours}"}
    assert gpu == f"registry.example.org/dask-nlis-gpu:{ours}"
    assert CONTAINERS["gpu worker"]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_workers_find_the_scheduler_of_their_cluster_and_take_the_name_that_the_operator_retires():
    address = "tls://nlis-scheduler.nlis.svc.cluster.local:8786"
    for name in ("worker", "gpu worker"):
        assert CONTAINERS[name]["args"][2] == address
        assert "--name=$(DASK_WORKER_NAME)" in CONTAINERS[name]["args"]
        limit = next(word for word in CONTAINERS[name]["args"] if word.startswith("--memory-limit="))
        assert _bytes(limit.partition("=")[2]) < _bytes(CONTAINERS[name]["resources"]["limits"]["memory"])
    assert f"--scheduler={address}" in CONTAINERS["runner"]["args"]
    assert GPU["cluster"] == NAMED["DaskAutoscaler", "nlis"]["spec"]["cluster"] == "nlis"
    service = CLUSTER["scheduler"]["service"]
    assert service["type"] == "ClusterIP"
    assert {port["name"]: port["port"] for port in service["ports"]} == {"tcp-comm": 8786, "http-dashboard": 8787}


def _bytes(text):
    return dask.utils.parse_bytes(text if text.endswith("B") else text + "B")


def test_settings_are_those_that_dask_reads():
    merged = dask.config.merge(dask.config.config, dask.config.collect(paths=[], env=SETTINGS))
    with dask.config.set(merged):
        assert dask.config.get("distributed.comm.require-encryption") is True
        security = Security()
        assert security.tls_ca_file == "/etc/nlis-tls/ca.pem"
        assert security.get_tls_config_for_role("worker")["cert"] == "/etc/nlis-tls/nlis.pem"
        assert dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp")) >= 11
        assert dask.utils.parse_timedelta(dask.config.get("distributed.scheduler.worker-ttl")) == 10
        assert dask.config.get("distributed.worker.preload") == ["dask_nlis"]
        routes = dask.config.get("distributed.scheduler.http.routes")
    assert {name for route in routes for name, *_ in importlib.import_module(route).routes} >= {
        "/api/v1/adaptive_target",
        "/api/v1/check_idle",
        "/api/v1/retire_workers",
    }
    assert ast.literal_eval(SETTINGS["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"]) == routes


def test_policies_close_the_namespace_and_open_named_ports():
    policies = {name: found["spec"] for (kind, name), found in NAMED.items() if kind == "NetworkPolicy"}
    closed = policies["nlis-closed"]
    assert closed["podSelector"] == {}
    assert set(closed["policyTypes"]) == {"Ingress", "Egress"}
    assert "ingress" not in closed
    opened = {
        (name, rule["port"])
        for name, spec in policies.items()
        for each in spec.get("ingress", [])
        for rule in each.get("ports", [{"port": "any"}])
    }
    assert opened == {
        ("nlis-cluster", "any"),
        ("nlis-scheduler", 8786),
        ("nlis-scheduler", 8787),
        ("nlis-metrics", 8790),
    }
    assert all("from" in each for spec in policies.values() for each in spec.get("ingress", []))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kustomize_builds_the_whole_with_secrets_from_files_and_another_registry(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    folder = tmp_path / "kubernetes"
    (folder / "certificates").mkdir()
    for name in ("ca", "nlis", "nlis-key"):
        (folder / "certificates" / f"{name}.pem").write_text(name)
    (folder / "storage.env").write_text("AWS_REGION=eu-central-1\n")
    text = (folder / "kustomization.yaml").read_text("utf-8")
    text = text.replace("# - workergroup-gpu.yaml", "- workergroup-gpu.yaml").replace(
        'newTag: "0.1"', 'newTag: "0.1.7"'
    )
    (folder / "kustomization.yaml").write_text(text)
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)  # noqa: S607
    assert done.returncode == 0, done.stderr
    built = {(found["kind"], found["metadata"]["name"]): found for found in yaml.load_all(done.stdout, LOADER)}
    assert set(built) == {key for key in NAMED if key[0] != "DaskAutoscaler"} | {
        ("Secret", "nlis-tls"),
        ("Secret", "nlis-storage"),
    }
    assert set(built["Secret", "nlis-tls"]["data"]) == {"ca.pem", "nlis.pem", "nlis-key.pem"}
    assert done.stdout.count("/dask-nlis:0.1.7") == 3
    assert done.stdout.count("/dask-nlis-gpu:0.1.7") == 1
    ignored = (FOLDER / ".gitignore").read_text("utf-8").split()
    assert {"certificates/", "storage.env"} <= set(ignored)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_the_commands_of_the_pods_run_the_job_over_tls_and_end_with_the_codes_of_the_policy(tmp_path):
    made = subprocess.run(
        ["bash", ROOT / "deploy" / "tls" / "make-certificates", tmp_path / "tls"],  # noqa: S607
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    demo = [sys.executable, "-m", "dask_nlis", "demo", "--folder", tmp_path / "demo", "--seeds", "1"]
    assert subprocess.run(demo, capture_output=True, check=False).returncode == 0
    port, page, health = free_ports(3)
    services = Services(
        tmp_path,
        {
            "nlis-scheduler.nlis.svc.cluster.local:8786": f"127.0.0.1:{port}",
            "--port=8786": f"--port={port}",
            "0.0.0.0:8787": f"127.0.0.1:{page}",
            "0.0.0.0:8790": f"127.0.0.1:{health}",
            "$(DASK_WORKER_NAME)": "worker-1",
            "--memory-limit=7GiB": "--memory-limit=2GiB",
            "--nthreads=4": "--nthreads=2",
            "--local-directory=/tmp": f"--local-directory={tmp_path}",
            "s3://example-bucket/taxi.zarr": str(tmp_path / "demo" / "california.zarr"),
            "s3://example-bucket/runs/taxi.zarr": str(tmp_path / "run.zarr"),
            "--size=5000": "--size=400",
        },
        {name: value.replace("/etc/nlis-tls", str(tmp_path / "tls")) for name, value in SETTINGS.items()}
        | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s"},
    )
    words = CONTAINERS["runner"]["args"]
    try:
        services.start("scheduler", [*CONTAINERS["scheduler"]["args"], "--host=127.0.0.1"], listening(page))
        services.start("worker", [*CONTAINERS["worker"]["args"], "--host=127.0.0.1"], listening(health))
        target = [
            "python",
            "-c",
            f"import urllib.request as r; r.urlopen('http://127.0.0.1:{page}/api/v1/adaptive_target')",
        ]
        assert services.run("operator", target)[0] == 0
        status, out, err = services.run("runner", words)
        assert status == 0, err
        again, same, _ = services.run("runner", words)
        unmet, _, _ = services.run("runner", [*words[:-2], "--require=epsilon<=0.0001", "--json"])
        refused, _, _ = services.run("runner", [*words, "--model=quadratic"])
    finally:
        services.stop()
    assert json.loads(out)["parameters"] == json.loads(same)["parameters"]
    assert (again, unmet, refused) == (0, EXIT_UNMET, EXIT_REFUSED)
    made = nlis.open_run(tmp_path / "run.zarr")
    X, y = nlis.open_rows(tmp_path / "demo" / "california.zarr", X="X", y="y")
    here = nlis.run(made.problem, X, y, size=400, seed=0)
    assert same_bits(made.scores, here.scores)
    assert (made.sample, made.fit) == (here.sample, here.fit)
