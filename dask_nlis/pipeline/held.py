"""The scores of all rows are held, gone over in passes to draw from them, and drawn rows read from X again."""

from dataclasses import dataclass, replace

import dask.array as da

from dask_nlis.kernels.exact_sums import exact_total
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.design import Kept, Known, Setting, Stage
from dask_nlis.pipeline.drawn import Drawn, take_drawn
from dask_nlis.pipeline.shelf import keep, open_store
from dask_nlis.sample import Sample, pool
from dask_nlis.sampling import Stage as Before, Summary, draw_beside, draw_held, hold, summarised
from dask_nlis.scores import Scorer, lazy_scores


@dataclass(frozen=True, slots=True)
class Held:
    """Scored rows whose scores are held: drawn again for other sizes, by any scheme."""

    setting: Setting
    matrix: TallMatrix
    scorer: Scorer
    earlier: tuple[Stage, ...]
    stage: int
    scores: da.Array
    summary: Summary
    kept: Kept

    @property
    def n_positive(self) -> int:
        """Rows of positive score."""
        return self.summary.n_positive

    @property
    def total(self) -> float:
        """Sum of the scores."""
        return float(exact_total(self.summary.sums))

    def ended(self, size: int) -> "tuple[Held, int]":
        """The same as the last stage: the scores are kept, which takes no read of X."""
        return replace(self, kept=_kept(self.scores, self.matrix, self.setting)), 0

    def drawn(self, n_draws: int, argument: str = "size") -> Stage:
        """Draw so many rows, besides those of earlier stages; goes over the held scores only."""
        design = self.setting.design
        if self.earlier and design.scheme == "poisson":
            before = [Before(each.sample, _held_of(each)) for each in self.earlier]
            sample = draw_beside(self.scores, before, n_draws, design.seed, self.stage, self.summary)
        else:
            sample = draw_held(
                self.scores,
                n_draws,
                design.scheme,
                design.seed,
                self.stage,
                argument=argument,
                summary=self.summary,
            )
        return Stage(sample, self, 0)

    def spent(self) -> "Held":
        """All of it: later stages are drawn and joined by its scores."""
        return self

    def united(self, sample: Sample) -> Sample:
        """Join a sample with those of earlier stages: a union of Poisson stages, others by the balance heuristic."""
        if not self.earlier:
            return sample
        combine = "union" if sample.scheme == "poisson" else "balance"
        scores = [*map(_held_of, self.earlier), self.scores]
        return pool([*(each.sample for each in self.earlier), sample], scores, combine=combine)

    def taken(self, sample: Sample) -> Drawn:
        """Take the rows of a sample; reads the blocks that hold them."""
        return take_drawn(sample, self.setting.X, self.setting.y, self.setting.options["sample_weight"])


def score_held(
    setting: Setting,
    matrix: TallMatrix,
    scorer: Scorer,
    size: int,
    stage: int,
    *,
    total: float = 0.0,
    known: Known | None = None,
    earlier: tuple[Stage, ...] = (),
    last: bool = False,
) -> Held:
    """Score all rows and hold the scores: 8 bytes a row in memory, or on disk where they do not fit."""
    lazy = lazy_scores(matrix, scorer)
    if last and setting.keep_scores:
        kept = keep(lazy, matrix, setting)
        assert kept.scores is not None
        scores = kept.scores
    else:
        scores, folder = hold(lazy)
        if folder is not None:
            setting.scratch.callback(folder.cleanup)
        kept = _kept(scores, matrix, setting) if last else Kept(None, [], None)
    return Held(setting, matrix, scorer, earlier, stage, scores, summarised(scores), kept)


def _kept(scores: da.Array, matrix: TallMatrix, setting: Setting) -> Kept:
    """What stays of scores that are held."""
    return keep(scores, matrix, setting) if setting.keep_scores else Kept(None, [], open_store(setting))


def _held_of(stage: Stage) -> da.Array:
    assert isinstance(stage.scored, Held)
    return stage.scored.scores
