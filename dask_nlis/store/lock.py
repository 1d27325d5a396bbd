"""One writer to a store: a lock that names its owner, beats while it lives, and is taken over when it is dead.

On the owner's machine its process tells whether it lives: another that was given the same number began at another time.
From other machines the beats tell: they are compared with the time at which the file system says a new file is made, so
that no two clocks are.
"""

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import psutil

from dask_nlis.errors import StoreLockedError
from dask_nlis.store.places import PARTIAL, Folder

LOCK = "lock.json"

#: Seconds between beats, and without one after which an owner on another machine is taken for dead.
BEAT, DEAD = 20.0, 300.0

#: A lock larger than this was not written here.
_LARGEST = 2**16


class Owner(NamedTuple):
    """Who holds a lock."""

    id: str
    host: str
    machine: str  # this start of this machine, and its numbering of processes
    pid: int
    began: float  # of the process

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def owner() -> Owner:
    """This process, as the owner of a new lock."""
    return Owner(uuid.uuid4().hex, socket.gethostname(), _machine(), os.getpid(), psutil.Process().create_time())


def _machine() -> str:
    """What tells machines and containers apart; empty where nothing does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{uuid.getnode():x} {psutil.boot_time():.0f}"


def read_owner(place: Folder) -> Owner | None:
    """Who holds the lock of a store; None where there is none. A lock that cannot be read has an unknown owner."""
    data = place.read(LOCK, _LARGEST)
    if data is None:
        return None
    try:
        found = json.loads(data)
        return Owner(*(kind(found[name]) for name, kind in Owner.__annotations__.items()))
    except (KeyError, TypeError, ValueError, RecursionError):
        return Owner("", "an unknown machine", "", 0, 0.0)


def lives(place: Folder, found: Owner) -> bool:
    """Whether the owner of a lock is at work."""
    if found.machine and found.machine == _machine():
        try:
            return abs(psutil.Process(found.pid).create_time() - found.began) < 1.0
        except psutil.NoSuchProcess:
            return False
    return _silence(place) < DEAD


def _silence(place: Folder) -> float:
    """Seconds since the last beat, both times told by the file system."""
    probe = place.path(f".now.{uuid.uuid4().hex}{PARTIAL}")
    try:
        probe.touch()
        return probe.stat().st_mtime - place.path(LOCK).stat().st_mtime
    except FileNotFoundError:  # let go of in between
        return float("inf")
    finally:
        with suppress(FileNotFoundError):
            probe.unlink()


class Lock:
    """A lock that this process holds, and its beats."""

    def __init__(self, place: Folder, text: str, warn: Callable[[str], Any]) -> None:
        self.place, self.owner = place, owner()
        self._over = threading.Event()
        data = json.dumps(self.owner._asdict()).encode()
        while not place.create(LOCK, data):
            found = read_owner(place)
            if found is None:
                continue
            if lives(place, found):
                raise StoreLockedError(f"store={text!r} is being written by {found}; wait for it, or give another path")
            if self._moved_away(found):
                warn(f"store={text!r}: {found}, which wrote it, is gone; its lock is taken over")
        self._beats = threading.Thread(target=self._beat, name="nlis-lock", daemon=True)
        self._beats.start()

    def is_mine(self) -> bool:
        """Whether nobody took the lock over, as from a process that was asleep for long."""
        return read_owner(self.place) == self.owner

    def check(self) -> None:
        """Raise where somebody took the lock over."""
        if not self.is_mine():
            raise StoreLockedError(
                f"store={self.place.root!r} was taken over by {read_owner(self.place) or 'somebody'}; look what became of it there"
            )

    def release(self) -> None:
        """Let go of it."""
        self._over.set()
        self._beats.join()
        if self.is_mine():
            self.place.delete(LOCK)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):
                os.utime(self.place.path(LOCK))

    def _moved_away(self, dead: Owner) -> bool:
        """Take the lock of a dead owner out of the way; False where somebody else did so first."""
        aside = self.place.path(f".{LOCK}.{uuid.uuid4().hex}{PARTIAL}")
        try:
            os.rename(self.place.path(LOCK), aside)
        except FileNotFoundError:
            return False
        try:
            moved = json.loads(aside.read_bytes()).get("id", "")
        except (ValueError, AttributeError):
            moved = ""
        if moved != dead.id:  # somebody took it over in between: what was moved is theirs
            with suppress(FileExistsError):
                os.link(aside, self.place.path(LOCK))
        os.unlink(aside)
        return bool(moved == dead.id)
