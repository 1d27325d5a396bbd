"""A run in a process that is killed at a chosen write of its store, and how often it read what."""

import itertools
import multiprocessing
import os
import signal
from pathlib import Path

import dask
import numpy as np
import zarr

import dask_nlis as nlis
from dask_nlis.intake.reader import Reader
from dask_nlis.store import Folder

#: Its children are made by a process that has imported the library already, so that each takes no seconds to begin.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["resuming", "dask_nlis"])

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
N_ROWS, ROWS = 1200, 50


def write_data(folder, n=N_ROWS, rows=ROWS):
    """A group of X (n, 3) and y (n,) in chunks of some rows."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(n, 3)) * [1, 2, 0.5]
    group = zarr.create_group(folder)
    for name, array in (("X", values), ("y", np.tanh(values @ [0.5, -0.2, 1.0]) + 0.1 * rng.normal(size=n))):
        group.create_array(name, shape=array.shape, chunks=(rows, *array.shape[1:]), dtype="float64")[...] = array
    return Path(folder)


def job(data, store, **options):
    """The run: blocks of one chunk, so that there are many."""
    options = {"size": 120, "seed": 3, "block_bytes": 24 * ROWS} | options
    X, y = nlis.open_rows(data, X="X", y="y", block_bytes=options["block_bytes"])
    return nlis.run(PROBLEM, X, y, store=store, **options)


def killed_at(write, data, store, before=False, **options):
    """Run in a process that kills itself as it makes a write of the store: after it, or halfway through. Its exit code."""
    child = PROCESSES.Process(target=_to_be_killed, args=(write, str(data), str(store), before, options))
    child.start()
    child.join(120)
    return child.exitcode


def _to_be_killed(write, data, store, before, options):
    numbers = itertools.count(1)  # each once, also for threads that write at the same time
    whole = Folder._beside

    def counted(self, target, content, sync):
        done = next(numbers)
        if done == write and before:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name(f".{target.name}.cut.partial").write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        beside = whole(self, target, content, sync)
        if done == write + 1 and not before:  # the one before it is in its place
            os.kill(os.getpid(), signal.SIGKILL)
        return beside

    Folder._beside = counted
    with dask.config.set(scheduler="threads", num_workers=2):
        job(data, store, **{"resume": True} | options)


class Reads:
    """Rows of stored arrays that are read inside, by the length of their second axis."""

    def __enter__(self):
        self.blocks = []
        self._real = Reader.__getitem__

        def noted(reader, index):
            if reader.ndim == 2:
                self.blocks.append(index[0] if isinstance(index, tuple) else index)
            return self._real(reader, index)

        Reader.__getitem__ = noted
        return self

    def __exit__(self, *_):
        Reader.__getitem__ = self._real


def written_by(data, store, **options):
    """Run to the end in this process, and count the writes that it makes of its store."""
    keys = []
    whole = Folder._beside

    def counted(self, target, content, sync):
        keys.append(os.path.relpath(target, self.root))
        return whole(self, target, content, sync)

    Folder._beside = counted
    try:
        return job(data, store, **options), keys
    finally:
        Folder._beside = whole
