"""Before the run: passes, tasks, bytes, memory and time of a job, and the refusal of what cannot fit."""

from dask_nlis.planner.calibration import calibrated, timed
from dask_nlis.planner.layout import Layout, layout_of
from dask_nlis.planner.memory import check_fits, client_memory, worker_memory
from dask_nlis.planner.noun import Pass, Plan
from dask_nlis.planner.passes import METHODS, passes_of
from dask_nlis.planner.steps import FUSED, READS, Step, scored_once, scores_alone, two_stage

__all__ = [
    "FUSED",
    "METHODS",
    "READS",
    "Layout",
    "Pass",
    "Plan",
    "Step",
    "calibrated",
    "check_fits",
    "client_memory",
    "layout_of",
    "passes_of",
    "scored_once",
    "scores_alone",
    "timed",
    "two_stage",
    "worker_memory",
]
