"""Rows are scored, drawn and taken in one read, for Poisson stages of a known size: no scores are held."""

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dask_nlis import phase, tally, workers
from dask_nlis.blocks import is_regular
from dask_nlis.intake import Rows, create_scores, is_written, with_names, write_block
from dask_nlis.kernels.candidates import expected_scale
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.design import Design, Kept, Known, Setting, Stage, Wanted, Way
from dask_nlis.pipeline.drawn import Drawn, as_drawn, matrix_of
from dask_nlis.pipeline.held import score_held
from dask_nlis.pipeline.shelf import stored_scores
from dask_nlis.planner import FUSED
from dask_nlis.sample import Sample, pool_at, union_rows
from dask_nlis.sampling import (
    Before,
    Sifted,
    Summary,
    draw_sifted,
    room_of_candidates,
    scores_at,
    sift,
    sifted_scores,
    take_sifted,
)
from dask_nlis.scores import lazy_scores

_log = logging.getLogger("dask_nlis")


@dataclass(frozen=True, slots=True)
class Fused:
    """Scored rows of which only those are kept that may be drawn."""

    setting: Setting
    wanted: Wanted
    sifted: Sifted
    kept: Kept

    @property
    def summary(self) -> Summary:
        """Number of rows of positive score, and their sum."""
        return self.sifted.summary

    def ended(self, size: int) -> "tuple[Fused, int]":
        """The same as the last stage, of this size: X is read once more."""
        wanted = self.wanted._replace(size=size, total=self.summary.total, last=True)
        return score_fused(self.setting, wanted), 1

    def drawn(self, n_draws: int, argument: str = "size") -> Stage:
        """Draw so many rows, besides those of earlier stages; reads blocks again where too few rows were kept."""
        sample, sifted = draw_sifted(self.sifted, n_draws, argument)
        again = sifted is not self.sifted
        return Stage(sample, replace(self, sifted=sifted), int(again))

    def spent(self) -> "Fused":
        """How it scored, without the rows it kept: later stages score and keep them again."""
        return replace(self, sifted=self.sifted._replace(boxes=()))

    def united(self, sample: Sample) -> Sample:
        """Join a sample with those of earlier stages as one union design."""
        if not self.wanted.earlier:
            return sample
        samples = [*(each.sample for each in self.wanted.earlier), sample]
        return pool_at(samples, scores_at(self.sifted, union_rows(samples)), "union")

    def taken(self, sample: Sample) -> Drawn:
        """Take the rows of a sample, which are all here."""
        return as_drawn(*take_sifted(self.sifted, sample.indices))


def score_fused(setting: Setting, wanted: Wanted, known: Known | None = None) -> Fused:
    """Score all rows and keep those that a draw of this size may take. Scores are kept where the last ones shall be."""
    matrix, last = wanted.matrix, wanted.last
    keeps = last and setting.keep_scores
    write = is_there = None
    if keeps and setting.store is not None:
        target = create_scores(setting.store.group.store, "scores", matrix.source.chunks)
        write, is_there = partial(write_block, target=target), partial(is_written, target=target)
    sifted = sift(
        matrix,
        wanted.scorer,
        wanted.size,
        setting.design.seed,
        wanted.stage,
        c=wanted.size / wanted.total if wanted.total else _expected(wanted, known),
        exact=wanted.total > 0,
        earlier=[Before(each.sample, each.scored.wanted.scorer) for each in wanted.earlier],
        write=write,
        is_there=is_there,
        holds=keeps and setting.store is None,
        saved=setting.saved.below(wanted.name),
    )
    kept = Kept(None, [])
    if write is not None and setting.store is not None:
        records = [each.stored for each in sifted.records]
        kept = Kept(
            with_names(stored_scores(setting.store.group), matrix.source.names),
            [each for each in records if each is not None],
        )
    elif keeps:
        kept = Kept(with_names(sifted_scores(sifted), matrix.source.names), [])
    return Fused(setting, wanted, sifted, kept)


def _expected(wanted: Wanted, known: Known | None) -> float:
    """What c of a draw of this size should be, as rows that are known tell; 0 where there are none."""
    if known is None:
        return 0.0
    lazy = lazy_scores(matrix_of(wanted.matrix, known.taken), wanted.scorer)
    with tally.apart():
        scores = np.concatenate(phase.blocks_of(lazy, "nlis-score"))
    # A row stands for 1 / pi rows, of which the first stages missed 1 / pi - 1.
    weights = known.sample.weights
    return expected_scale(scores, weights - 1 if wanted.earlier else weights, wanted.size)


def way_of(setting: Setting, matrix: TallMatrix) -> Way:
    """Fused where the scheme, the layout and the memory allow it."""
    design, source = setting.design, matrix.source
    if fuses(design, source, setting.keep_scores and setting.store is not None):
        return score_fused
    room = room_of_candidates(source, design.size)
    if not workers.fits_in_memory(room.n_bytes):
        _log.info(
            "%s candidates of a draw of %s rows would take %s bytes of memory: rows are scored, drawn and taken in turn",
            f"{room.n_rows:,}", f"{design.size:,}", f"{room.n_bytes:,}",
        )  # fmt: skip
    return score_held


def fuses(design: Design, source: Rows, stored: bool) -> bool:
    """Whether stages of this design are scored, drawn and taken in one read; `stored`: whether scores go to a store."""
    if design.scheme not in FUSED or design.target is not None:
        return False
    if stored and not is_regular(source.chunks):
        return False  # blocks of the scores are not those of the store, which one task each is to write
    return workers.fits_in_memory(room_of_candidates(source, design.size).n_bytes)
