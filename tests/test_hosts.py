"""Several machines, made of network namespaces: TLS between them, a link that is cut in the middle, the same bytes.

The certificates are those of deploy/tls/make-certificates, the settings those of deploy/dask-config/nlis.yaml. Needs root, and
`ip` of iproute2; all that is made is removed again, processes by their number and namespaces by their name.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from acting import ActingRows, matrix, scores_of

HERE = Path(__file__).parent
DEPLOY = HERE.parent / "deploy"

IP, BASH = (shutil.which(name) or name for name in ("ip", "bash"))

#: Last parts of the addresses.
HOSTS = {"scheduler": 1, "one": 2, "two": 3, "client": 4}


def _why_not():
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "openssl") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    name = f"nlis{os.getpid()}try"
    made = subprocess.run([IP, "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()[:80]}"
    subprocess.run([IP, "netns", "del", name], check=True)
    return ""


def certificates(folder, *names):
    subprocess.run([BASH, DEPLOY / "tls" / "make-certificates", folder, *names], check=True, capture_output=True)
    return folder


class Hosts:
    """A namespace for each host, joined by a bridge in one of its own, so that nothing is made outside of them."""

    def __init__(self, stack):
        # Names of devices have at most 15 letters.
        self.name, self.net = f"nlis{os.getpid() % 100_000}", f"10.{os.getpid() % 200 + 20}.7"
        self.hub = f"{self.name}hub"
        stack.callback(self.remove)
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for host, number in HOSTS.items():
            space = self.name + host
            ip("netns", "add", space)
            ip("link", "add", f"to{number}", "netns", self.hub, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", self.hub, "link", "set", f"to{number}", "master", "bridge", "up")
            ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def address(self, host):
        return f"{self.net}.{HOSTS[host]}"

    def on(self, host):
        """Words before those of Python on a host."""
        return [IP, "netns", "exec", self.name + host, sys.executable]

    def cut(self, host):
        ip("-n", self.hub, "link", "set", f"to{HOSTS[host]}", "down")

    def remove(self):
        for host in (*HOSTS, "hub"):
            subprocess.run([IP, "netns", "del", self.name + host], capture_output=True)

    def start(self, stack, host, *command, environment):
        """A process on a host, ended with its children, which are its group."""
        process = subprocess.Popen(
            [*self.on(host), *map(str, command)],
            env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        stack.callback(_end, process)
        return process


def ip(*words):
    subprocess.run([IP, *words], check=True, capture_output=True)


def _end(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.stdout.close()


def _environment(tls, encrypted=True):
    settings = {
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
        "DASK_CONFIG": str(DEPLOY / "dask-config"),
        "DASK_DISTRIBUTED__LOGGING": json.dumps({"distributed": "critical"}),
    }
    if encrypted:
        settings |= {
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(tls / "ca.pem"),
        }
        for who in ("SCHEDULER", "WORKER", "CLIENT"):
            settings[f"DASK_DISTRIBUTED__COMM__TLS__{who}__CERT"] = str(tls / "nlis.pem")
            settings[f"DASK_DISTRIBUTED__COMM__TLS__{who}__KEY"] = str(tls / "nlis-key.pem")
    return {key: value for key, value in os.environ.items() if not key.startswith("DASK_")} | settings


JOB = """
import hashlib, json, sys, threading, time
from acting import ActingRows, matrix, scores_of
from dask_nlis.workers import connected

address, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
lost = []

def watch(client):
    while not lost:
        if len(client.scheduler_info(n_workers=-1)["workers"]) < 2:
            lost.append(time.monotonic())  # one clock for all processes of a machine
        time.sleep(0.25)

with connected(address) as client:
    client.wait_for_workers(2, timeout=60)
    print("ready", flush=True)
    threading.Thread(target=watch, args=(client,), daemon=True).start()
    found = scores_of(matrix(ActingRows(folder, "slow", n=rows)))
    there = len(client.scheduler_info(n_workers=-1)["workers"])
    print(json.dumps({"hash": hashlib.sha256(found).hexdigest(), "workers": there, "lost": lost}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_job_over_encrypted_hosts_survives_a_link_that_is_cut_with_the_same_bytes(tmp_path):
    if why := _why_not():
        pytest.skip(why)
    n_rows = 30_000  # 600 blocks of a twentieth of a second, twice: half a minute on two workers
    expected = hashlib.sha256(scores_of(matrix(ActingRows(tmp_path / "here", n=n_rows)))).hexdigest()
    with ExitStack() as stack:
        hosts = Hosts(stack)
        tls = certificates(tmp_path / "tls", *(hosts.address(host) for host in HOSTS))
        environment = _environment(tls)
        scheduler = f"tls://{hosts.address('scheduler')}:8786"
        common = ("--protocol", "tls", "--no-dashboard", "--host")
        hosts.start(
            stack, "scheduler", "-m", "dask", "scheduler", *common, hosts.address("scheduler"), environment=environment
        )
        for host in ("one", "two"):
            words = (
                *common,
                hosts.address(host),
                "--nthreads",
                1,
                "--nworkers",
                1,
                "--local-directory",
                tmp_path / host,
            )
            hosts.start(stack, host, "-m", "dask", "worker", scheduler, *words, environment=environment)

        # Refused without certificates, by TLS and without it, in one line of ours.
        for address in (scheduler, scheduler.replace("tls", "tcp")):
            words = ["run", "x.zarr", "--model", "linear", "--size", "10", "--store", tmp_path / "run.zarr"]
            bare = subprocess.run(
                [*hosts.on("client"), "-m", "dask_nlis", *words, "--scheduler", address],
                env=_environment(tls, encrypted=False), capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert bare.returncode == 1
            (line,) = bare.stderr.splitlines()
            said = (
                f"--scheduler {address!r} encrypts, but"
                if address == scheduler
                else f"no scheduler answers at {address!r}"
            )
            assert line.startswith(f"dask-nlis: ClusterError: {said}")

        rows = ActingRows(tmp_path / "marks", "slow", n=n_rows)
        job = hosts.start(stack, "client", "-c", JOB, scheduler, tmp_path / "marks", n_rows, environment=environment)
        assert job.stdout.readline() == "ready\n"
        rows.wait(60)
        hosts.cut("two")
        cut = time.monotonic()
        out, _ = job.communicate(timeout=180)
        assert job.returncode == 0
        found = json.loads(out)
        assert (found["hash"], found["workers"]) == (expected, 1)
        # What the settings are for: with Dask's own it is 55 s before the worker is given up.
        assert 0 < found["lost"][0] - cut < 30
        assert rows.marks() > 2 * n_rows // 50  # what it was at was begun again
