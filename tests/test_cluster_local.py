"""Clusters that we start: on loopback, with our settings, encrypted where asked; and workers made like the client."""

import json
import os
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import psutil
import pytest
import yaml
import zarr
from counting import rows_of, same_bits
from distributed import Client, Security, default_client

import dask_nlis as nlis
from dask_nlis import versions, zarr_settings
from dask_nlis.cluster import SETTINGS, arguments

ROOT = Path(__file__).parents[1]
X, Y = rows_of(3, 400, 3)
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))


def scored():
    A = nlis.reference_matrix(PROBLEM, dask.array.from_array(X, chunks=(50, 3)), Y)
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


def environment():
    return dict(os.environ)


def timeouts():
    """As a worker that joined later sees them too."""
    return dask.config.get("distributed.comm.timeouts.tcp"), dask.config.get("distributed.comm.timeouts.connect")


def imported():
    return "dask_nlis.on_cluster" in __import__("sys").modules


def listening():
    """Addresses that this process and its children listen on."""
    me = psutil.Process()
    found = [c for p in [me, *me.children(recursive=True)] for c in p.net_connections("inet") if c.status == "LISTEN"]
    return {c.laddr.ip for c in found}


def test_the_settings_are_those_of_the_file_to_deploy():
    loaded = yaml.safe_load((ROOT / "deploy" / "dask-config" / "nlis.yaml").read_text("utf-8"))
    with dask.config.set(SETTINGS):
        ours = {key: dask.config.get(key) for key in SETTINGS}
    with dask.config.set(loaded):
        assert {key: dask.config.get(key) for key in SETTINGS} == ours
    assert set(zarr_settings._merged({}, loaded)) == {"distributed"}
    assert len(list(_leaves(loaded))) == len(SETTINGS)


def _leaves(tree):
    for value in tree.values():
        yield from _leaves(value) if isinstance(value, dict) else [value]


@pytest.mark.cluster
def test_a_local_cluster_is_on_loopback_tuned_and_gives_the_bits_of_threads():
    expected = scored()
    before = dict(dask.config.config["distributed"]["comm"]["timeouts"])
    with (
        nlis.cluster.local(2, threads_per_worker=1, memory_limit="1 GiB", dashboard_port=0) as cluster,
        Client(cluster) as client,
    ):
        assert set(client.run(imported).values()) == {
            True
        }  # before the first task, which it would keep from its heartbeats
        assert same_bits(scored(), expected)
        assert listening() == {"127.0.0.1"}
        assert cluster.scheduler.worker_ttl == 10
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [(w["nthreads"], w["memory_limit"]) for w in workers] == [(1, 2**30)] * 2
        cluster.scale(3)
        client.wait_for_workers(3)
        assert set(client.run(timeouts).values()) == {("12 s", "10 s")}
        for found in client.run(environment).values():
            assert {found[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"1"}
            assert "MALLOC_MMAP_THRESHOLD_" not in found  # it would stay in this process, and with all it starts
    assert dask.config.config["distributed"]["comm"]["timeouts"] == before


@pytest.mark.cluster
def test_temporary_certificates_encrypt_and_keep_others_out():
    pytest.importorskip("cryptography")
    expected = scored()
    with nlis.cluster.local(1, security=True, dashboard_port=0) as cluster:
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        with Client(cluster):
            assert same_bits(scored(), expected)
        host, port = cluster.scheduler_address.removeprefix("tls://").split(":")
        with pytest.raises(OSError, match=r"alert|closed|reset|EOF"):
            greet_without_certificate(host, int(port))
        with pytest.raises(nlis.ClusterError, match="no scheduler answers at 'tcp://127"), _connected(f"{host}:{port}"):
            pass


def greet_without_certificate(host, port):
    """Send a word over TLS without a certificate of one's own, and wait for an answer."""
    bare = ssl.create_default_context()
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), 5) as plain, bare.wrap_socket(plain) as encrypted:
        encrypted.sendall(b"hello")
        if not encrypted.recv(1):
            raise ConnectionResetError("closed")


def _connected(address, scheme="tcp"):
    from dask_nlis.workers import connected

    return connected(f"{scheme}://{address}")


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"n_workers": 0}, nlis.InputError, "n_workers=0 is not allowed"),
        ({"n_workers": 2.0}, nlis.InputTypeError, "n_workers='2.0' is float"),
        ({"n_workers": True}, nlis.InputTypeError, "n_workers='True' is bool"),
        ({"threads_per_worker": -1}, nlis.InputError, "threads_per_worker=-1"),
        ({"memory_limit": "four"}, nlis.InputError, "memory_limit='four' is no number of bytes"),
        ({"memory_limit": "4 kB"}, nlis.InputError, "memory_limit='4 kB' is 4,000 bytes, less than a worker itself"),
        ({"memory_limit": [4]}, nlis.InputTypeError, "memory_limit is list"),
        ({"security": "yes"}, nlis.InputTypeError, "security is str; give True"),
        ({"dashboard_port": 70_000}, nlis.InputError, "dashboard_port=70000 is no port"),
        ({"dashboard_port": "8787"}, nlis.InputTypeError, "dashboard_port='8787' is str"),
    ],
)
@pytest.mark.parametrize("start", [nlis.cluster.local, nlis.cluster.gpu_pool])
def test_arguments_are_checked_before_anything_is_started(start, given, kind, message, monkeypatch):
    monkeypatch.setattr("distributed.LocalCluster", None)
    if start is nlis.cluster.gpu_pool and "threads_per_worker" in given:
        given, message = {"n_workers": -1}, "n_workers=-1"
    with pytest.raises(kind, match=message):
        start(**given)


def test_certificates_need_cryptography(monkeypatch):
    monkeypatch.setattr(arguments, "find_spec", lambda name: None)
    with pytest.raises(nlis.InputError, match=r"security=True needs cryptography.*pip install 'dask-nlis\[tls\]'"):
        nlis.cluster.local(security=True)
    given = Security()
    assert arguments.check_security(given) is given
    assert arguments.check_security(False) is None


def test_a_dashboard_takes_a_free_port_where_its_own_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert arguments.dashboard_at(taken) == "127.0.0.1:0"
    assert arguments.dashboard_at(taken) == f"127.0.0.1:{taken}"


# -- versions ---------------------------------------------------------------------------------------------------------


def test_workers_are_asked_for_their_versions_once(client, monkeypatch):
    asked = []
    real = Client.run
    monkeypatch.setattr(
        Client, "run", lambda self, call, *a, **k: asked.append(call.__name__) or real(self, call, *a, **k)
    )
    for _ in range(2):
        scored()
    assert asked.count("versions_here") == 1
    client.cluster.scale(3)
    client.wait_for_workers(3)
    scored()
    assert asked.count("versions_here") == 2


@pytest.mark.parametrize(
    ("name", "theirs", "same"),
    [
        ("dask-nlis", "0.0.7", False),
        ("python", "3.9.1", False),
        ("numpy", "1.26.4", False),
        ("zarr", "2.18.0", False),
        ("scipy", None, True),
    ],
)
def test_a_worker_of_another_version_is_named_with_both(name, theirs, same):
    mine = versions.versions_here()
    theirs = f"{'.'.join(mine[name].split('.')[:2])}.999" if theirs is None else theirs
    answers = {"tcp://10.0.0.1:1": mine, "tcp://10.0.0.2:1": {**mine, name: theirs}}
    if same:
        versions.check_answers(answers)
        return
    with pytest.raises(nlis.ClusterError) as caught:
        versions.check_answers(answers)
    assert str(caught.value).startswith(f"worker tcp://10.0.0.2:1 has {name} {theirs}, but this process {mine[name]}; ")


def test_a_worker_without_the_library_is_named():
    with pytest.raises(
        nlis.ClusterError, match=r"worker tcp://a:1 cannot import dask-nlis \(ModuleNotFoundError: No mod"
    ):
        versions.check_answers({"tcp://a:1": ModuleNotFoundError("No module named 'dask_nlis'")})
    versions.check_answers({"tcp://a:1": OSError("it died")})


def test_other_versions_end_a_compute_before_it_begins(client, monkeypatch):
    real = versions.versions_here()
    monkeypatch.setattr(versions, "versions_here", lambda: {**real, "numpy": "1.2.3"})
    answers = {"tcp://a:1": {**real, "numpy": "2.4.6"}}
    monkeypatch.setattr(client, "run", lambda *a, **k: _answered(answers))
    with pytest.raises(nlis.ClusterError, match=r"worker tcp://a:1 has numpy 2\.4\.6, but this process 1\.2\.3"):
        scored()


async def _answered(answers):
    return answers


# -- settings of Zarr --------------------------------------------------------------------------------------------------


def concurrency():
    return zarr.config.get("async.concurrency"), zarr.config.get("threading.max_workers")


@pytest.mark.cluster
def test_settings_of_zarr_are_in_force_on_workers_that_join_later_too_and_go_with_the_client():
    with nlis.cluster.local(1, threads_per_worker=1, dashboard_port=0) as cluster, Client(cluster) as client:
        default = concurrency()
        scored()
        assert set(client.run(concurrency).values()) == {default}
        with zarr.config.set({"async.concurrency": 3, "threading.max_workers": 2}):
            scored()
            cluster.scale(2)
            client.wait_for_workers(2)
            assert set(client.run(concurrency).values()) == {(3, 2)}
        scored()
        assert set(client.run(concurrency).values()) == {default}


def test_workers_are_told_only_what_has_changed(client, monkeypatch):
    told = []
    real = Client.register_plugin
    monkeypatch.setattr(
        Client, "register_plugin", lambda self, plugin, *a: told.append(plugin) or real(self, plugin, *a)
    )
    scored()
    assert [type(each).__name__ for each in told] == ["Prepared"] * len(told)
    before = len(told)
    with zarr.config.set({"async.concurrency": 5}):
        for _ in range(2):
            scored()
    changed = [each.changed for each in told if isinstance(each, zarr_settings.ZarrSettings)]
    assert changed == [{"async": {"concurrency": 5}}]
    assert len(told) > before


def test_a_setting_for_gpus_of_the_client_alone_does_not_travel():
    with zarr.config.set({"buffer": "zarr.buffer.gpu.Buffer", "async.timeout": 9}):
        assert zarr_settings.changed_settings() == {"async": {"timeout": 9}}
    assert zarr_settings.changed_settings() == {}


def test_a_worker_in_the_process_of_the_client_is_left_as_it_is():
    with zarr.config.set({"async.concurrency": 7}):
        plugin = zarr_settings.ZarrSettings({"async": {"concurrency": 3}})
        plugin.setup(SimpleNamespace())
        assert zarr.config.get("async.concurrency") == 7


def test_a_scheduler_file_is_the_one_a_scheduler_wrote(client, tmp_path):
    from dask_nlis.workers import connected

    for text, error, said in (
        ('{"id": 3}', nlis.InputError, "names no address; give the file that the scheduler wrote"),
        ("[1]", nlis.InputError, "holds no table"),
        ("address: x", nlis.InputError, "is no JSON"),
    ):
        (tmp_path / "file.json").write_text(text)
        with pytest.raises(error, match=said):
            connected(str(tmp_path / "file.json")).__enter__()
    with pytest.raises(nlis.MissingDataError, match="is no file; give the file that the scheduler wrote"):
        connected(str(tmp_path / "none.json")).__enter__()
    (tmp_path / "file.json").write_text(json.dumps({"address": client.scheduler.address}))
    with connected(str(tmp_path / "file.json")) as found:
        assert found.scheduler.address == client.scheduler.address
        assert dask.base.get_scheduler().__self__ is found


# -- a client that never reached its scheduler -------------------------------------------------------------------------


def test_a_client_that_cannot_encrypt_is_left_in_force_neither_by_us_nor_without_a_word():
    """Dask leaves such a client in force: a compute of ours says so, where it is the user's."""
    with pytest.raises(
        nlis.ClusterError, match=r"encrypts, but this process has no certificate; set distributed\.comm\.tls\.ca"
    ):
        _connected("127.0.0.1:9", scheme="tls").__enter__()
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(nlis.ClusterError, match=r"does not encrypt, but .* is set; give an address of tls://"),
    ):
        _connected("127.0.0.1:9").__enter__()
    assert dask.base.get_scheduler() is None
    with pytest.raises(TypeError, match="ssl_context") as caught:
        Client("tls://127.0.0.1:9", timeout="1s")
    assert dask.base.get_scheduler() is not None
    try:
        with pytest.raises(nlis.ClusterError, match="never reached its scheduler; close it, or make one that connects"):
            scored()
    finally:
        default_client().close(timeout=1)
        del caught
    assert dask.base.get_scheduler() is None
