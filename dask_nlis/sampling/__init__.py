"""Scores -> Sample: the draw, its four schemes, and groups of rows."""

from dask_nlis.sampling.arguments import SCHEMES, check_draw
from dask_nlis.sampling.beside import Stage, draw_beside
from dask_nlis.sampling.summary import check_enough, hold
from dask_nlis.sampling.verb import draw, draw_held, draw_stage

__all__ = ["SCHEMES", "Stage", "check_draw", "check_enough", "draw", "draw_beside", "draw_held", "draw_stage", "hold"]
