"""A task of a Slurm job step: the scheduler, the process that runs `dask-nlis ARGUMENTS`, or a worker.

srun python allocation.py --scheduler-file FILE [--interface ib0] -- run taxi.zarr --y y --model linear --size 5000 ...

Certificates are those of the Dask configuration, and are required. The exit code is that of dask-nlis.
"""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from dask_jobqueue.slurm import SLURMRunner
from distributed import Security
from distributed.core import rpc

from dask_nlis.cli import main

SCHEDULER, CLIENT = 0, 1


def gpu_of(task: int, visible: str) -> str:
    """The GPU of a worker, of those that its node shows to every task."""
    devices = [name for name in visible.split(",") if name]
    if task - 2 >= len(devices):
        raise SystemExit(f"task {task} has no GPU of its own among {visible!r}; give two tasks more than GPUs")
    return devices[task - 2]


def memory_of_a_task(environment: dict[str, str]) -> int | str:
    """Bytes for a worker: nine tenths of what Slurm gives to its task; "auto" where Slurm limits nothing."""
    if environment.get("SLURM_MEM_PER_CPU"):
        megabytes = int(environment["SLURM_MEM_PER_CPU"]) * int(environment.get("SLURM_CPUS_PER_TASK", "1"))
        return int(0.9 * megabytes * 2**20)
    return "auto"


def start(scheduler_file: Path, interface: str | None) -> SLURMRunner:
    """Become what the number of this task says; only the client comes back from here."""
    task = int(os.environ["SLURM_PROCID"])
    # Slurm sends USR1 to all processes of the step before the time is over. The run is interrupted by it, as by Ctrl-C, and
    # the others must outlive it: children of theirs ignore what they ignored.
    signal.signal(signal.SIGUSR1, signal.default_int_handler if task == CLIENT else signal.SIG_IGN)
    if task == CLIENT:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # dask_jobqueue's would exit with 0
    elif task != SCHEDULER and os.environ.get("NLIS_GPU_EACH"):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_of(task, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    security = Security()
    common = {"protocol": "tls", "interface": interface, "security": security}
    runner = SLURMRunner(
        scheduler_file=str(scheduler_file),
        scheduler_options={**common, "dashboard_address": "127.0.0.1:0"},
        worker_class="distributed.Nanny",
        worker_options={
            **common,
            "nthreads": int(os.environ.get("SLURM_CPUS_PER_TASK", "1")),
            "memory_limit": memory_of_a_task(dict(os.environ)),
            "local_directory": tempfile.gettempdir(),  # TMPDIR, where Slurm gives one
            "dashboard_address": "127.0.0.1:0",
            "death_timeout": 60,  # a run that is refused at once is over before workers have started
        },
    )
    # It asks the scheduler to close through this, and would do so without certificates.
    runner.scheduler_comm = rpc(runner.scheduler_address, connection_args=security.get_connection_args("client"))
    return runner


def run(arguments: list[str]) -> None:
    """Parse what stands before --, and run what stands behind it on the cluster."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler-file", type=Path, required=True, help="Where the scheduler writes its address.")
    parser.add_argument("--interface", help="Network of scheduler and workers, such as ib0.")
    options = parser.parse_args(arguments[:cut])
    with start(options.scheduler_file, options.interface or os.environ.get("NLIS_INTERFACE")):
        main([*arguments[cut + 1 :], "--scheduler", str(options.scheduler_file)])


if __name__ == "__main__":
    run(sys.argv[1:])
