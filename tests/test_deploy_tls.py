"""deploy/tls: certificates that a cluster runs with, and that keep out everybody else."""

import os
import shutil
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from distributed import Client, LocalCluster, Security

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "deploy" / "tls" / "make-certificates"

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


def _make(folder, *hosts, **variables):
    return subprocess.run(
        ["bash", SCRIPT, folder, *hosts],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def _read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def _security(authority, certificate):
    return Security(
        require_encryption=True,
        tls_ca_file=str(authority / "ca.pem"),
        **{f"tls_{role}_cert": str(certificate / "nlis.pem") for role in ("scheduler", "worker", "client")},
        **{f"tls_{role}_key": str(certificate / "nlis-key.pem") for role in ("scheduler", "worker", "client")},
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    done = _make(folder, "scheduler.example.org", "10.0.0.5", "fd00::5")
    assert done.returncode == 0, done.stderr
    return folder


def test_keys_are_for_their_owner_alone(made):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "nlis.pem": 0o644, "nlis-key.pem": 0o600}


def test_the_certificate_names_the_hosts_and_the_authority_signs_certificates_alone(made):
    authority, leaf = _read(made / "ca.pem"), _read(made / "nlis.pem")
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "scheduler.example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1", "::1", "10.0.0.5", "fd00::5",
    ]  # fmt: skip
    can_sign = [each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for each in (authority, leaf)]
    assert can_sign == [True, False]
    days = [(each.not_valid_after_utc - datetime.now(UTC)).days for each in (authority, leaf)]
    assert days in ([3649, 364], [3650, 365])


def test_a_second_call_renews_the_certificate_under_the_same_authority(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    assert _make(tmp_path, DAYS="30").returncode == 0
    assert _read(tmp_path / "ca.pem") == _read(made / "ca.pem")
    renewed, before = _read(tmp_path / "nlis.pem"), _read(made / "nlis.pem")
    assert renewed.serial_number != before.serial_number
    assert renewed.not_valid_after_utc < before.not_valid_after_utc
    renewed.verify_directly_issued_by(_read(made / "ca.pem"))


def test_what_cannot_be_made_is_refused_and_leaves_what_is_there(made, tmp_path):
    assert subprocess.run(["bash", SCRIPT], capture_output=True, check=False).returncode == 2  # noqa: S607
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    refused = _make(tmp_path, "a,DNS:other.example.org")
    assert refused.returncode == 2
    assert "is no name and no address" in refused.stderr
    (tmp_path / "ca.pem").unlink()
    refused = _make(tmp_path)
    assert refused.returncode == 1
    assert "not both" in refused.stderr
    assert (tmp_path / "nlis.pem").read_bytes() == (made / "nlis.pem").read_bytes()


@pytest.mark.cluster
def test_a_cluster_runs_with_the_certificates_and_refuses_who_has_none(made, tmp_path):
    assert _make(tmp_path).returncode == 0
    plain = Security(require_encryption=False)
    stranger = _security(tmp_path, tmp_path)  # of another authority
    pretender = _security(made, tmp_path)  # believes ours, is signed by another
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        security=_security(made, made),
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://127.0.0.1:")
        with Client(address, security=_security(made, made)) as client:
            assert client.submit(sum, [1, 2, 3]).result() == 6
            workers = client.scheduler_info(n_workers=-1)["workers"]
            assert [worker.startswith("tls://") for worker in workers] == [True]
        for security, where in (
            (stranger, address),
            (pretender, address),
            (plain, address.replace("tls://", "tcp://")),
        ):
            with pytest.raises((OSError, TimeoutError)):
                Client(where, security=security, timeout="2s", set_as_default=False)
        with pytest.raises(RuntimeError, match="encryption required"):
            Client(
                address.replace("tls://", "tcp://"), security=_security(made, made), timeout="2s", set_as_default=False
            )
