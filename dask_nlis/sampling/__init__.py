"""Scores -> Sample: the draw, its four schemes, and groups of rows."""

from dask_nlis.sampling.arguments import SCHEMES, check_draw
from dask_nlis.sampling.verb import draw, draw_stage

__all__ = ["SCHEMES", "check_draw", "draw", "draw_stage"]
