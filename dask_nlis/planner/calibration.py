"""A short calibration: one block is read, and the kernels are timed on some of its rows, where a task would run."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from dask_nlis import phase, workers
from dask_nlis.device import Device, choose
from dask_nlis.errors import InputError
from dask_nlis.kernels.linalg import leverage
from dask_nlis.kernels.products import lower_gram, triangular
from dask_nlis.matrix import Job, Leaf, TallMatrix, boxed, leaves, map_boxes
from dask_nlis.matrix.tasks import matrix_rows
from dask_nlis.planner.layout import Layout
from dask_nlis.planner.noun import Pass
from dask_nlis.planner.steps import Step

#: Sub-blocks timed for each matrix; the first warms up and is left out where there are others.
_SUB_BLOCKS = 5


class Rates(NamedTuple):
    """Seconds of one thread: to read the block, and by matrix for a row's part in a factor, a score, a norm."""

    block: float
    factor: dict[str, float]
    score: dict[str, float]
    norm: dict[str, float]


def calibrated(matrices: Mapping[str, TallMatrix]) -> Rates:
    """Read the first block once, in a compute of one task, and time the kernels of these matrices on its rows."""
    first = next(iter(matrices.values()))
    jobs = {name: matrix.job for name, matrix in matrices.items()}
    lazy = map_boxes(first, timed_block, "nlis-plan", jobs=jobs)
    began = time.perf_counter()
    (block,) = phase.blocks_of(lazy.blocks[0], "nlis-plan")
    took = time.perf_counter() - began
    inside, rates = block[0, 0]
    return Rates(max(took - inside, 0.0), *rates)


def timed_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    jobs: Mapping[str, Job],
) -> np.ndarray:
    """Seconds inside the task, and seconds a row of the factor, the scores and the norms of each matrix."""
    began = time.perf_counter()
    device = choose(job.device)
    rates: tuple[dict[str, float], dict[str, float], dict[str, float]] = ({}, {}, {})
    with np.errstate(all="ignore"):
        for name, each in jobs.items():
            parts = list(islice(leaves(x, y, weight, int(start), each, device, reducing=True), _SUB_BLOCKS))
            timings = [_timed(leaf, each, device) for leaf in parts]
            timings = timings[1:] or timings
            n_rows = sum(leaf.x.shape[0] for leaf in parts[-len(timings) :])
            for found, part in zip(rates, zip(*timings, strict=True), strict=True):
                found[name] = sum(part) / n_rows
    return boxed((time.perf_counter() - began, rates))


def _timed(leaf: Leaf, job: Job, device: Device) -> tuple[float, float, float]:
    """Seconds for the rows of a sub-block: formed and their Gram matrix, formed and their leverage, their norms."""
    p = job.n_matrix_columns
    clock = [time.perf_counter()]
    try:
        rows, _ = matrix_rows(leaf, job)
    except InputError:  # a theta was made up that the model refuses: the products are timed all the same
        rows = device.put(np.ones((leaf.x.shape[0], p)))
    clock.append(time.perf_counter())
    device.fetch(lower_gram(rows))
    clock.append(time.perf_counter())
    device.fetch(leverage(rows, triangular(device.put(np.eye(p)))))
    clock.append(time.perf_counter())
    with suppress(InputError):
        device.fetch(leaf.weighted(job.rule.squared_norms(leaf.x, leaf.y), 2))
    clock.append(time.perf_counter())
    forming, product, white, norms = np.diff(clock)
    return float(forming + product), float(forming + white), float(norms)


def timed(
    passes: Sequence[Pass], steps: Sequence[Step], rates: Rates, layout: Layout, workforce: workers.Workforce
) -> tuple[Pass, ...]:
    """Put times to the passes that read all rows: as many blocks at a time as there are threads."""
    return tuple(
        replace(each, seconds=each.reads * _seconds(step, rates, layout, workforce)) if each.reads else each
        for each, step in zip(passes, steps, strict=True)
    )


def _seconds(step: Step, rates: Rates, layout: Layout, workforce: workers.Workforce) -> float:
    if step.kind == "loss" or step.matrices == ("norm",):
        row = rates.norm["dual"]
    else:
        row = sum((rates.factor if step.kind == "factor" else rates.score)[name] for name in step.matrices)
    at_a_time = -(-layout.blocks // min(workforce.threads, layout.blocks))
    reading = -(-layout.blocks // min(workforce.processes, layout.blocks)) if layout.alone else at_a_time
    return reading * rates.block + at_a_time * layout.block_rows * row
