"""The commands of deployed services as processes of this machine: hosts, ports and paths replaced, nothing else."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def free_ports(n):
    """Ports of loopback that nobody listens on."""
    held = [socket.socket() for _ in range(n)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


class Services:
    """Services that run until `stop`, and jobs that end; `replacements` make their words fit this machine."""

    def __init__(self, folder, replacements, environment=None):
        self.folder, self.replacements = folder, replacements
        self.running = []
        # Aborted, a process writes down where each of its threads is.
        self.environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})}

    def command(self, words):
        pattern = "|".join(map(re.escape, self.replacements))
        out = [re.sub(pattern, lambda found: self.replacements[found.group()], word) for word in words]
        python = {"python": [sys.executable]} | {
            name: [sys.executable, "-m", name.replace("-", "_")] for name in ("dask", "dask-nlis")
        }
        return python[out[0]] + out[1:]

    def start(self, name, words, check):
        """Start a service and wait until the words of its health check succeed."""
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            started = subprocess.Popen(
                self.command(words), stdout=file, stderr=file, cwd=self.folder, env=self.environment
            )
        self.running.append(started)
        for _ in range(120):
            assert started.poll() is None, log.read_text()
            done = subprocess.run(self.command(check), capture_output=True, check=False, env=self.environment)
            if done.returncode == 0:
                return started
            time.sleep(0.5)
        raise AssertionError(f"{name} never became healthy: {log.read_text()}")

    def run(self, name, words, seconds=200):
        """Run a service that ends: (exit status, output, errors); past `seconds` fail with the stacks of all."""
        process = subprocess.Popen(
            self.command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        try:
            out, err = process.communicate(timeout=seconds)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            for one in (process, *self.running):
                children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
                for pid in (*map(int, children), one.pid):
                    os.kill(pid, signal.SIGABRT)
            printed = process.communicate()
            logs = {path.name: path.read_text() for path in self.folder.glob("*.log")}
            raise AssertionError(f"{name} did not end in {seconds} s:\n{printed}\n{logs}") from None

    def stop(self):
        # A worker that has lost its scheduler takes seconds to give up.
        for process in reversed(self.running):
            process.terminate()
            process.wait(30)


def listening(port):
    """Words of a health check: the page of a Dask server on this port of loopback answers."""
    return ["python", "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/health', timeout=3)"]
