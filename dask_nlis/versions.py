"""Whether workers have the versions of this process: what it sends them is only understood by the same library."""

import platform
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import distributed

from dask_nlis.errors import ClusterError

#: How many numbers of a version must be the same: all of ours, and of what the bits of results and of files depend on, two.
_NUMBERS = {"dask-nlis": 9, "python": 2, "numpy": 2, "scipy": 2, "zarr": 2}

Ask = Callable[[Callable[[], Any]], Any]

_checked: weakref.WeakKeyDictionary[distributed.Client, set[str]] = weakref.WeakKeyDictionary()


@cache
def versions_here() -> dict[str, str]:
    """Versions of this process, by name."""
    return {name: platform.python_version() if name == "python" else version(name) for name in _NUMBERS}


def check_versions(client: distributed.Client, ask: Ask) -> None:
    """Raise ClusterError naming a worker of other versions; workers that were looked at before are not asked again.

    `ask` waits for what a call of the client gives.
    """
    there = set(client.scheduler_info(n_workers=-1)["workers"])
    new = there - _checked.get(client, set())
    if not new:
        return
    answers = ask(lambda: client.run(versions_here, workers=list(new), on_error="return"))
    check_answers(answers)
    _checked[client] = there


def check_answers(answers: Mapping[str, Any]) -> None:
    """Raise for the first worker that is not like this process: its answer by its address, or the error it gave."""
    mine = versions_here()
    for address, theirs in sorted(answers.items()):
        if isinstance(theirs, OSError):  # it died meanwhile: others work on
            continue
        if isinstance(theirs, BaseException):
            what = f"{type(theirs).__name__}: {str(theirs)[:80]}"
            raise ClusterError(
                f"worker {address} cannot import dask-nlis ({what}); install dask-nlis=={mine['dask-nlis']} on it"
            )
        for name, here in mine.items():
            there = str(theirs.get(name))
            if _short(there, name) != _short(here, name):
                raise ClusterError(
                    f"worker {address} has {name} {there}, but this process {here}; install the same on both, as by one image"
                )


def _short(text: str, name: str) -> list[str]:
    return text.split(".")[: _NUMBERS[name]]
