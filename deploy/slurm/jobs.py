"""`dask-nlis ARGUMENTS` on workers that are Slurm jobs, started and ended by dask-jobqueue from where this runs.

python jobs.py --jobs 8 [--config slurm-gpu] -- run taxi.zarr --y y --model linear --size 5000 --store run.zarr --resume

What a job is, jobqueue.yaml says. Certificates are those of the Dask configuration, and are required. The exit code is that of
dask-nlis.
"""

import argparse
import sys

from dask_jobqueue import SLURMCluster
from distributed import Security

from dask_nlis.cli import main
from dask_nlis.errors import InputError


class _Paths(Security):
    """Certificates as the worker's command line takes them, which has no option for versions of TLS."""

    def get_tls_config_for_role(self, role: str) -> dict[str, str]:
        """Return the paths alone."""
        found = super().get_tls_config_for_role(role)
        return {key: value for key, value in found.items() if key in ("ca_file", "cert", "key")}


def cluster_of(config: str, **options: object) -> SLURMCluster:
    """A cluster without workers yet, with a section of jobqueue.yaml and the certificates of the Dask configuration."""
    security = _Paths()
    if not all(security.get_tls_config_for_role("worker").get(key) for key in ("ca_file", "cert", "key")):
        raise InputError("no certificates in the Dask configuration; make some as deploy/tls/README.md says")
    return SLURMCluster(config_name=config, security=security, protocol="tls://", **options)


def run(arguments: list[str]) -> None:
    """Parse what stands before --, and run what stands behind it on the jobs."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, required=True, help="Jobs at most; as few as there is work for.")
    parser.add_argument("--config", default="slurm", help="Section of jobqueue.yaml.")
    options = parser.parse_args(arguments[:cut])
    with cluster_of(options.config) as cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=options.jobs)
        main([*arguments[cut + 1 :], "--scheduler", cluster.scheduler_address])


if __name__ == "__main__":
    run(sys.argv[1:])
