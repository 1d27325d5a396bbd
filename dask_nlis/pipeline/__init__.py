"""The five words with a store: plan, pilot, run, open_run and what they return."""

from dask_nlis.pipeline.extend import extend
from dask_nlis.pipeline.opening import open_run
from dask_nlis.pipeline.pilot import pilot
from dask_nlis.pipeline.plan import plan
from dask_nlis.pipeline.run import run
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.pipeline.stages import serves
from dask_nlis.pipeline.standing import Standing, standing

__all__ = ["Run", "Standing", "extend", "open_run", "pilot", "plan", "run", "serves", "standing"]
