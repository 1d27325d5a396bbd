"""The scores of all rows are held, gone over in passes to draw from them, and drawn rows read from X again."""

from dataclasses import dataclass, replace

import dask.array as da
from dask.base import tokenize

from dask_nlis.checkpoints import kinds_of, recalled
from dask_nlis.pipeline.design import Kept, Known, Setting, Stage, Wanted
from dask_nlis.pipeline.drawn import Drawn, take_drawn
from dask_nlis.pipeline.shelf import hold_stored, keep
from dask_nlis.sample import Sample, pool
from dask_nlis.sampling import Stage as HeldStage, Summary, draw_beside, draw_held, hold, summarised
from dask_nlis.scores import lazy_scores


@dataclass(frozen=True, slots=True)
class Held:
    """Scored rows whose scores are held: drawn again for other sizes, by any scheme."""

    setting: Setting
    wanted: Wanted
    scores: da.Array
    summary: Summary
    kept: Kept

    def ended(self, size: int) -> "tuple[Held, int]":
        """The same as the last stage: the scores are kept, which takes no read of X."""
        wanted = self.wanted._replace(size=size, last=True)
        return replace(self, wanted=wanted, kept=_kept(self.scores, wanted, self.setting)), 0

    def drawn(self, n_draws: int, argument: str = "size") -> Stage:
        """Draw so many rows, besides those of earlier stages; goes over the held scores only."""
        design, earlier, stage = self.setting.design, self.wanted.earlier, self.wanted.stage
        if earlier and design.scheme == "poisson":
            before = [HeldStage(each.sample, _held_of(each)) for each in earlier]
            sample = draw_beside(self.scores, before, n_draws, design.seed, stage, self.summary)
        else:
            sample = draw_held(
                self.scores,
                n_draws,
                design.scheme,
                design.seed,
                stage,
                argument=argument,
                summary=self.summary,
            )
        return Stage(sample, self, 0)

    def spent(self) -> "Held":
        """All of it: later stages are drawn and joined by its scores."""
        return self

    def united(self, sample: Sample) -> Sample:
        """Join a sample with those of earlier stages: a union of Poisson stages, others by the balance heuristic."""
        earlier = self.wanted.earlier
        if not earlier:
            return sample
        combine = "union" if sample.scheme == "poisson" else "balance"
        scores = [*map(_held_of, earlier), self.scores]
        return pool([*(each.sample for each in earlier), sample], scores, combine=combine)

    def taken(self, sample: Sample) -> Drawn:
        """Take the rows of a sample; reads the blocks that hold them."""
        setting = self.setting

        def take() -> Drawn:
            return take_drawn(sample, setting.X, setting.y, setting.options["sample_weight"])

        found: Drawn = recalled(setting.saved, f"rows-{tokenize(sample.indices)}", take, kinds_of(Drawn))
        return found


def score_held(setting: Setting, wanted: Wanted, known: Known | None = None) -> Held:
    """Score all rows and hold the scores: 8 bytes a row in memory, or on disk where they do not fit."""
    matrix = wanted.matrix
    lazy = lazy_scores(matrix, wanted.scorer)
    if wanted.last and setting.keep_scores:
        kept = keep(lazy, wanted, setting)
        assert kept.scores is not None
        scores = kept.scores
    elif setting.store is not None:
        scores, kept = hold_stored(lazy, wanted, setting), Kept(None, [])
    else:
        scores, folder = hold(lazy)
        if folder is not None:
            setting.scratch.callback(folder.cleanup)
        kept = Kept(None, [])
    return Held(setting, wanted, scores, summarised(scores), kept)


def _kept(scores: da.Array, wanted: Wanted, setting: Setting) -> Kept:
    """What stays of scores that are held."""
    return keep(scores, wanted, setting) if setting.keep_scores else Kept(None, [])


def _held_of(stage: Stage) -> da.Array:
    assert isinstance(stage.scored, Held)
    return stage.scored.scores
