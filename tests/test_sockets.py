"""Clusters that we start listen on loopback alone (R6.4), and a run over TLS works while a plain client is refused (R6.5)."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import dask.array as da
import pytest
from counting import rows_of
from distributed import Client, LocalCluster, Security

import dask_nlis as nlis
from dask_nlis.redact import redacted

ROOT = Path(__file__).parents[1]
LOOPBACK = "127.0.0.1:0"

#: All that may start a cluster: the package, what is shown to people, and the tests.
SOURCES = [
    path
    for folder in ("dask_nlis", "examples", "tests", "deploy")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__)
]


def starts(tree):
    """Calls that start a cluster: LocalCluster, or a Client that is told how many workers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if name == "LocalCluster" or (
                name == "Client" and {"n_workers", "threads_per_worker", "processes"} & set(given)
            ):
                yield node.lineno, given


def doors(given):
    """What a start leaves open to other machines; options joined by ** are looked at where they run."""
    if None in given and "dashboard_address" not in given:
        return []
    inside = isinstance(given.get("processes"), ast.Constant) and given["processes"].value is False
    wanted = {"dashboard_address"} | ({"worker_dashboard_address"} if inside else set())
    open_ones = [name for name in wanted if name not in given or ast.unparse(given[name]) != f"{LOOPBACK!r}"]
    if "host" in given and ast.unparse(given["host"]) not in ("'127.0.0.1'", "'localhost'"):
        open_ones.append("host")
    return sorted(open_ones)


def test_every_cluster_in_this_repository_is_started_on_loopback():
    found = {
        f"{path.relative_to(ROOT)}:{line}": doors(given)
        for path in SOURCES
        for line, given in starts(ast.parse(path.read_text("utf-8")))
    }
    assert len(found) > 12
    assert not {place: left_open for place, left_open in found.items() if left_open}
    for path in (ROOT / "README.md", *(ROOT / "examples").rglob("*.md")):
        for line in path.read_text("utf-8").splitlines():
            if "LocalCluster(" in line or "Client(n_workers" in line:
                assert f'dashboard_address="{LOOPBACK}"' in line, f"{path}: {line}"


@pytest.mark.parametrize(
    ("code", "left_open"),
    [
        ("LocalCluster(n_workers=2)", ["dashboard_address"]),
        ("distributed.LocalCluster(dashboard_address=':0')", ["dashboard_address"]),
        ("Client(n_workers=2)", ["dashboard_address"]),
        ("LocalCluster(processes=False, dashboard_address='127.0.0.1:0')", ["worker_dashboard_address"]),
        ("LocalCluster(host='0.0.0.0', dashboard_address='127.0.0.1:0')", ["host"]),
        ("Client(cluster)", None),
    ],
)
def test_a_start_that_is_open_is_seen(code, left_open):
    assert [doors(given) for _, given in starts(ast.parse(code))] == ([] if left_open is None else [left_open])


@pytest.mark.parametrize(
    "path",
    sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file() and "__pycache__" not in path.parts),
    ids=lambda path: path.relative_to(ROOT / "deploy").as_posix(),
)
def test_what_is_deployed_binds_to_all_addresses_only_with_a_word_and_holds_no_secret(path):
    text = path.read_text("utf-8")
    # Secrets are named or taken from the environment, not told.
    told = re.sub(r"secret(Name|Ref|Generator)?:|AWS_ACCESS_KEY_ID: nlis\n|.*\$\{NLIS_STORAGE_KEY:\?.*", "", text)
    assert redacted(told) == told
    lines = text.splitlines()
    for k, line in enumerate(lines):
        if re.search(r"0\.0\.0\.0|\[::\]|(?<![\w.\])])\*:\d", line) and "#" not in line:
            assert "#" in lines[k - 1], f"{path.name}:{k + 1}: {line}"


SHOW = """
import json, sys
import psutil
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50, **json.loads(sys.argv[1])):
        me = psutil.Process()
        found = [c for p in [me, *me.children(recursive=True)] for c in p.net_connections("inet") if c.status == "LISTEN"]
        print(json.dumps(sorted({c.laddr.ip for c in found}) + [len(found)]))
"""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("options", "addresses"),
    [
        ({"dashboard_address": LOOPBACK}, {"127.0.0.1"}),
        ({"dashboard_address": LOOPBACK, "worker_dashboard_address": LOOPBACK, "processes": False}, {"127.0.0.1"}),
        # Left to itself Dask opens its status page to everyone: what the two above are for.
        ({"dashboard_address": ":0"}, {"127.0.0.1", "0.0.0.0"}),  # noqa: S104 (looked for)
    ],
)
def test_every_socket_of_such_a_cluster_is_on_loopback(options, addresses, tmp_path):
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    shown = subprocess.run(
        [sys.executable, script, json.dumps(options)], capture_output=True, text=True, timeout=120, check=True
    )
    *found, count = json.loads(shown.stdout)
    assert count >= 3
    assert {address for address in found if ":" not in address} == addresses


@pytest.mark.slow
def test_the_demo_opens_no_socket(tmp_path):
    code = (
        "import socket, sys\n"
        "def refuse(event, args):\n"
        "    if event in ('socket.bind', 'socket.connect'):\n"
        "        raise SystemExit(f'{event} {args}')\n"
        "sys.addaudithook(refuse)\n"
        "from dask_nlis.cli import main\n"
        f"main(['demo', '--folder', {os.fspath(tmp_path / 'demo')!r}, '--size', '60', '--seeds', '1'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.cluster
def test_a_run_over_tls_gives_the_same_bits_and_a_client_without_certificate_is_refused():
    pytest.importorskip("cryptography")
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
    values, y = rows_of(65, 400, 3)
    x = da.from_array(values, chunks=(100, 3))
    expected = nlis.run(problem, x, y, size=80, seed=0)
    security = Security.temporary()
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        protocol="tls://",
        security=security,
        dashboard_address=LOOPBACK,
        silence_logs=50,
    ) as cluster:
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        with Client(cluster) as client:
            assert {address.partition("://")[0] for address in client.scheduler_info()["workers"]} == {"tls"}
            found = nlis.run(problem, x, y, size=80, seed=0)
        assert found.sample == expected.sample
        assert found.fit == expected.fit
        plain = cluster.scheduler_address.replace("tls://", "tcp://")
        for address, given in ((plain, None), (cluster.scheduler_address, Security.temporary())):
            with pytest.raises((OSError, TimeoutError)), Client(address, security=given, timeout="1s"):
                pass  # pragma: no cover
