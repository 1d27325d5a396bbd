"""A Slurm of one node for tests: munged, slurmctld and slurmd with a configuration in a folder, ended by their ids."""

import os
import secrets
import shutil
import socket
import subprocess
import time

from deployed import free_ports

#: Debian's packages slurm-wlm and munge.
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobRequeue=1
ReturnToService=2
SchedulerParameters=defer_batch,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def absent():
    """Why no Slurm can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "Slurm of our own needs root"
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    lacking = [name for name in NEEDED if not shutil.which(name, path=path)]
    return f"not installed: {', '.join(lacking)} (Debian: slurm-wlm, munge)" if lacking else ""


class Slurm:
    """Its daemons, and commands that talk to them."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(128))
        controller, daemon = free_ports(2)
        self.host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=self.host, controller=controller, daemon=daemon, folder=folder)
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM")},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": os.environ["PATH"] + os.pathsep + "/usr/sbin",
        }
        try:
            self._start(
                "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
                f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed",
            )  # fmt: skip
            self.until((folder / "munge.socket").exists, "munged")
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D", "-N", self.host)
            self.until(lambda: self.says("sinfo", "--noheader", "--format=%T") == "idle", "the node")
        except BaseException:
            self.stop()
            raise

    def _start(self, name, *options):
        with (self.folder / f"{name}.out").open("w") as out:
            self.running.append(
                subprocess.Popen(
                    [shutil.which(name, path=self.environment["PATH"]), *options],
                    env=self.environment,
                    stdout=out,
                    stderr=out,
                )
            )

    def until(self, holds, what, seconds=60):
        """Wait until something holds; fail with the logs of the daemons past so many seconds."""
        for _ in range(4 * seconds):
            if holds():
                return
            time.sleep(0.25)
        logs = {path.name: path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log")}
        raise AssertionError(f"{what} was not ready in {seconds} s: {logs}")

    def says(self, *words, **options):
        """What a command of Slurm prints."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=self.environment, **options)
        return done.stdout.strip()

    def submit(self, *words, cwd, **variables):
        """The number of a new job."""
        done = subprocess.run(
            ["sbatch", "--parsable", *map(str, words)],  # noqa: S607
            capture_output=True, text=True, check=False, cwd=cwd, env={**self.environment, **variables},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def told(self, job):
        """What the controller knows of a job, by name."""
        words = self.says("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def ended(self, job, seconds=240):
        """(state, exit code, restarts) of a job, when it is over."""
        self.until(
            lambda: self.told(job).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"),
            f"job {job}",
            seconds,
        )
        found = self.told(job)
        return found["JobState"], int(found["ExitCode"].partition(":")[0]), int(found["Restarts"])

    def stop(self):
        """End the jobs, then the daemons."""
        if len(self.running) == 3:
            self.says("scancel", "--user=root", "--full", "--signal=KILL")
            self.says("scancel", "--user=root")
            for _ in range(60):
                if not self.says("squeue", "--noheader"):
                    break
                time.sleep(0.5)
        for process in reversed(self.running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
