"""Scores -> Sample: the draw, its four schemes, groups of rows, and Poisson stages in one read."""

from dask_nlis.sampling.arguments import SCHEMES, check_draw, checked_seed
from dask_nlis.sampling.beside import Stage, draw_beside
from dask_nlis.sampling.fused import (
    Before,
    Sifted,
    draw_sifted,
    room_of_candidates,
    scores_at,
    sift,
    sifted_scores,
    take_sifted,
)
from dask_nlis.sampling.summary import Summary, check_enough, hold, summarised
from dask_nlis.sampling.verb import draw, draw_held, draw_stage

__all__ = [
    "SCHEMES",
    "Before",
    "Sifted",
    "Stage",
    "Summary",
    "check_draw",
    "check_enough",
    "checked_seed",
    "draw",
    "draw_beside",
    "draw_held",
    "draw_sifted",
    "draw_stage",
    "hold",
    "room_of_candidates",
    "scores_at",
    "sift",
    "sifted_scores",
    "summarised",
    "take_sifted",
]
