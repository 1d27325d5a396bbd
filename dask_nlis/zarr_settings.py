"""Settings of Zarr that were made in this process, in force on workers too: they are a process's own otherwise."""

import copy
import weakref
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import distributed
import zarr
from distributed.diagnostics.plugin import WorkerPlugin

from dask_nlis.prepared import process_here

Tree = dict[str, Any]

#: What is about this process alone: with these set for a GPU, reads give no blocks of the host.
_OWN = ("buffer", "ndbuffer")

_told: weakref.WeakKeyDictionary[distributed.Client, Tree] = weakref.WeakKeyDictionary()


class ZarrSettings(WorkerPlugin):
    """Sets Zarr on a worker as it is set where the plugin was made; on workers that join later too."""

    name = "nlis-zarr-settings"

    def __init__(self, changed: Tree) -> None:
        self.changed, self.made_in = changed, process_here()

    def setup(self, worker: distributed.Worker) -> None:
        """Called by distributed where a worker begins, or has begun already."""
        if process_here() != self.made_in:  # a worker in the client's own process is set already
            zarr.config.update(_merged(_before(), self.changed))


_BEFORE: list[Tree] = []


def _before() -> Tree:
    """Settings of this process as it began: what was set by a plugin and no longer is goes back to them."""
    if not _BEFORE:
        _BEFORE.append(copy.deepcopy(zarr.config.to_dict()))
    return _BEFORE[0]


def changed_settings() -> Tree:
    """Settings of Zarr in this process that are not its defaults."""
    found = _apart(zarr.config.to_dict(), reduce(_merged, zarr.config.defaults, {}))
    return {key: value for key, value in found.items() if key not in _OWN}


def send_settings(client: distributed.Client, ask: Callable[[Callable[[], Any]], Any]) -> None:
    """Set Zarr on all workers as here, unless they were told before; `ask` waits for what a call of the client gives."""
    changed = changed_settings()
    if changed != _told.get(client, {}):
        ask(lambda: client.register_plugin(ZarrSettings(changed)))
        _told[client] = changed


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> Tree:
    """What of a tree is not so in another."""
    out: Tree = {}
    for key, value in one.items():
        if isinstance(value, Mapping) and isinstance(other.get(key), Mapping):
            inside = _apart(value, other[key])
            out |= {key: inside} if inside else {}
        elif key not in other or other[key] != value:
            out[key] = copy.deepcopy(value)
    return out


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Tree:
    out = dict(one)
    for key, value in other.items():
        mine = out.get(key)
        out[key] = _merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return out
