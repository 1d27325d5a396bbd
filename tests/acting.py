"""Rows that do something when they are read: what happens to a job is made to happen in a task of it, and when."""

import os
import signal
import time
from pathlib import Path

import numpy as np

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.Linear())


class ActingRows:
    """n x 3 rows, the same however they are cut; reading a block leaves a mark in a folder, then acts.

    `act` is "none", "slow" (some time for each block), "die" and "fill" (the block with row `at` kills its worker, at
    once or by taking a gigabyte), or "hang".
    """

    def __init__(self, folder, act="none", n=1000, at=600):
        self.folder, self.act, self.at = str(folder), act, at
        self.shape, self.dtype, self.ndim = (n, 3), np.dtype("f8"), 2
        Path(folder).mkdir(exist_ok=True)

    def __getitem__(self, index):
        rows = np.arange(*index[0].indices(self.shape[0]))
        (Path(self.folder) / f"{rows[0]}-{time.monotonic_ns()}").touch()
        if self.act == "slow":
            time.sleep(0.05)
        elif self.act == "hang":
            time.sleep(3600)
        elif self.at in rows and self.act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.at in rows and self.act == "fill":
            held = [np.ones(10**7) for _ in range(13)]
            time.sleep(60)
            del held
        return np.sin(rows[:, None] * np.array([1.0, 2.3, 5.1])) + rows[:, None] % 7

    def __dask_tokenize__(self):
        return self.folder, self.act, self.at, self.shape

    def marks(self):
        """How many blocks were begun."""
        return len(os.listdir(self.folder))

    def wait(self, marks):
        """Return when so many blocks have begun."""
        end = time.monotonic() + 60
        while self.marks() < marks:
            assert time.monotonic() < end, f"{self.marks()} blocks in a minute"
            time.sleep(0.01)


def matrix(rows, block_rows=50):
    """Their matrix, in blocks of so many rows."""
    return nlis.reference_matrix(PROBLEM, rows, block_bytes=24 * block_rows)


def scores_of(A):
    """Factor and leverage of a matrix, as bytes."""
    factor = nlis.factorize(A)
    return factor.r.tobytes() + np.asarray(nlis.leverage_scores(A, factor).compute()).tobytes()
