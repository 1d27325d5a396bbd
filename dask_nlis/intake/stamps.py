"""Whether files are still those that were opened: by size and time of metadata, and by the newest time of data.

A task compares what it has read with what opening saw: an array that was written anew or removed in between raises and
is never read half old, half new. It costs a `stat` a chunk. Times tell, unless clocks or tools that set times back
make a later file look older; between machines they are compared in whole seconds, for not every shared folder keeps more.
"""

import os
import platform
from collections.abc import Iterable
from typing import NamedTuple

from dask_nlis.errors import ChangedDataError, MissingDataError


class Stamp(NamedTuple):
    """What the files of an array were like when it was opened."""

    host: str  # by whose clock and file system
    metadata: tuple[
        tuple[str, int, int], ...
    ]  # path, size, modification time in ns; those that did not exist are left out
    newest: int  # modification time in ns of the data changed last

    def check_metadata(self, name: str) -> None:
        """Raise where a metadata file is gone or is another one."""
        for path, size, time in self.metadata:
            try:
                now = os.stat(path)
            except FileNotFoundError as cause:
                raise MissingDataError(
                    f"{name} is not there: it was removed since it was opened, or workers do not see {path!r}; put it back"
                ) from cause
            if now.st_size != size or self._later(now.st_mtime_ns, time) or self._later(time, now.st_mtime_ns):
                raise _changed(name, path)

    def check(self, name: str, path: object, now: os.stat_result) -> None:
        """Raise where a file of data was written after the array was opened."""
        if self._later(now.st_mtime_ns, self.newest):
            raise _changed(name, path)

    def _later(self, one: int, other: int) -> bool:
        unit = 1 if platform.node() == self.host else 10**9
        return one // unit > other // unit


def stamp_of(metadata: Iterable[tuple[str, os.stat_result]], newest: int) -> Stamp:
    """The stamp of an array on this machine."""
    return Stamp(platform.node(), tuple((path, s.st_size, s.st_mtime_ns) for path, s in metadata), newest)


def _changed(name: str, path: object) -> ChangedDataError:
    return ChangedDataError(
        f"{name} was written anew since it was opened ({os.path.basename(str(path))!r} is another one); open it anew and "
        "run again (copies on other machines must keep the times of files)"
    )
