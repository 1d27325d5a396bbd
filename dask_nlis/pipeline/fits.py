"""What a job would do and need, from its checked arguments alone."""

from typing import Any, NamedTuple

from dask_nlis import workers
from dask_nlis.losses import AbsoluteError
from dask_nlis.matrix import TallMatrix
from dask_nlis.models import ReluNetwork
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.fused import fuses
from dask_nlis.pipeline.stages import first_rows
from dask_nlis.planner import (
    Layout,
    Step,
    check_fits,
    client_memory,
    layout_of,
    scored_once,
    two_stage,
    worker_memory,
)
from dask_nlis.problem import Problem
from dask_nlis.sampling import room_of_candidates


class Needs(NamedTuple):
    """Steps of a job on data of this layout, and what they need of the workforce there is."""

    steps: list[Step]
    layout: Layout
    workforce: workers.Workforce
    worker: dict[str, int]
    client: dict[str, int]


def needs_of(steps: list[Step], reference: TallMatrix, size: int, in_memory: bool = True) -> Needs:
    """Put numbers of bytes to steps; `in_memory`: whether scores are kept there rather than in a store."""
    layout = layout_of(reference.source, _widths(reference))
    workforce = workers.workforce()
    drawn = sum(step.kind == "draw" for step in steps)
    each = 8 * layout.n_rows
    # Scores of earlier stages go to a scratch file where they are too large, those of the last to a store or nowhere.
    held = max(0, drawn - 1) * each * workers.fits_in_memory(each) + in_memory * each
    # A draw in the same read keeps the rows that may be drawn.
    held += 0 if drawn else room_of_candidates(reference.source, size).n_bytes
    worker = worker_memory(steps, layout, workforce, held)
    return Needs(steps, layout, workforce, worker, client_memory(steps, layout, size))


def steps_of(reference: TallMatrix, design: Design, scores: str, theta: Any, stored: bool = False) -> list[Step]:
    """Return the steps of `run` for checked arguments; `stored`: whether scores go to a store."""
    problem, source = reference.problem, reference.source
    assert problem is not None
    fused = fuses(design, source, stored)
    if scores != "two-stage":
        pilot = 0.0 if theta is not None else (design.first or 0) / design.size
        return scored_once(scores, fused, pilot, has_patterns(problem))
    first = first_rows(problem, design, source.n_columns) if design.rounds > 1 else None
    if first is None:
        return two_stage(fused, 1, 1.0, curved=True)
    curved = not isinstance(problem.loss, AbsoluteError)
    return two_stage(fused, design.rounds, first / design.size, curved, has_patterns(problem))


def has_patterns(problem: Problem) -> bool:
    """Whether leverage and influence of the problem's rows may be by activation pattern."""
    return isinstance(problem.model, ReluNetwork)


def check_run_fits(
    reference: TallMatrix, design: Design, scores: str, theta: Any, *, in_memory: bool, stored: bool
) -> None:
    """Raise MemoryLimitError where a worker or this process could not hold what the job needs; reads nothing."""
    steps = steps_of(reference, design, scores, theta, stored)
    found = needs_of(steps, reference, design.size, in_memory)
    check_fits(found.worker, found.client, found.layout, found.workforce, found.workforce.memory, workers.memory_here())


def _widths(reference: TallMatrix) -> dict[str, int]:
    assert reference.problem is not None
    p = reference.problem.model.n_parameters(reference.source.n_columns)
    return {"reference": reference.shape[1], "dual": p + 1, "tangent": p}
