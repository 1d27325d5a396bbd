"""One writer to a store: a lock that names its owner, beats while it lives, and is taken over when it is dead.

On the owner's machine its process tells whether it lives: another that was given the same number began at another time.
From other machines the beats tell: they are compared with the time at which the place itself, a file system or object
storage, says that a new object is made, so that no two clocks are.
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

from dask_nlis.errors import NlisError, StoreLockedError
from dask_nlis.store.place import Place

LOCK = "lock.json"

#: Seconds between beats, and without one after which an owner on another machine is taken for dead.
BEAT, DEAD = 20.0, 300.0

#: A lock larger than this was not written here.
_LARGEST = 2**16

#: Locks that this process was done with but could not delete, as in object storage that had gone.
_let_go: set[str] = set()


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


def read_owner(place: Place) -> Owner | None:
    """Who holds the lock of a store; None where there is none. A lock that cannot be read has an unknown owner."""
    data = place.read(LOCK, _LARGEST)
    return None if data is None else _owner_in(data)


def _owner_in(data: bytes) -> Owner:
    try:
        found = json.loads(data)
        return Owner(*(kind(found[name]) for name, kind in Owner.__annotations__.items()))
    except (KeyError, TypeError, ValueError, RecursionError):
        return Owner("", "an unknown machine", "", 0, 0.0)


def lives(place: Place, found: Owner) -> bool:
    """Whether the owner of a lock is at work."""
    if found.id in _let_go:
        return False
    if found.machine and found.machine == _machine():
        try:
            return abs(psutil.Process(found.pid).create_time() - found.began) < 1.0
        except psutil.NoSuchProcess:
            return False
    return place.silence(LOCK) < DEAD


class Lock:
    """A lock that this process holds, and its beats."""

    def __init__(self, place: Place, text: str, warn: Callable[[str], Any]) -> None:
        self.place, self.owner = place, owner()
        self._over = threading.Event()
        self._data, self._n = json.dumps(self.owner._asdict()).encode(), 0
        while not place.create(LOCK, self._data):
            data = place.read(LOCK, _LARGEST)
            if data is None and not place.exists(LOCK):
                continue
            found = _owner_in(data or b"")
            if data is None or lives(place, found):
                raise StoreLockedError(f"store={text!r} is being written by {found}; wait for it, or give another path")
            if place.swap(LOCK, data, self._data):
                warn(f"store={text!r}: {found}, which wrote it, is gone; its lock is taken over")
                break
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
        try:
            if self.is_mine():
                self.place.delete(LOCK)
        except (NlisError, OSError):  # with what went wrong before; whoever comes finds it let go of, or silent
            _let_go.add(self.owner.id)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(NlisError, OSError):
                self._n += 1
                then = json.dumps({**self.owner._asdict(), "beats": self._n}).encode()
                self._data = self.place.beat(LOCK, self._data, then)
