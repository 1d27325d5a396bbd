"""What a job is to do, and what each of its stages comes to, whichever way rows are scored and drawn."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import dask.array as da

from dask_nlis.checkpoints import NOWHERE, Checkpoints
from dask_nlis.intake import ScoreRecord
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.drawn import Drawn
from dask_nlis.sample import Sample
from dask_nlis.sampling import Summary
from dask_nlis.scores import Scorer
from dask_nlis.store import RunStore


class Design(NamedTuple):
    """What was asked for, checked."""

    size: int
    scheme: str
    seed: int
    shares: tuple[float, ...] | None
    rounds: int
    first: int | None  # rows of the first stage, where given
    target: float | None = None  # epsilon to reach where the size may grow


class Kept(NamedTuple):
    """What stays of the scores of a job: the scores, where they are asked for, and records of what was written."""

    scores: da.Array | None
    records: list[ScoreRecord]


class Setting(NamedTuple):
    """What all stages of a job share."""

    design: Design
    X: Any
    y: Any
    options: Mapping[str, Any]  # of the matrices: sample_weight, missing, device, block_bytes
    scratch: ExitStack  # cleans up what a stage leaves on disk
    store: RunStore | None = None
    keep_scores: bool = False

    @property
    def saved(self) -> Checkpoints:
        """Where results are kept on the way."""
        return NOWHERE if self.store is None else self.store.saved


class Known(NamedTuple):
    """Rows that were drawn before, which tell something of all."""

    sample: Sample
    taken: Drawn


class Wanted(NamedTuple):
    """A stage that is to be scored."""

    matrix: TallMatrix
    scorer: Scorer
    size: int  # rows, expected, besides those of earlier stages
    stage: int  # of the seed
    total: float = 0.0  # sum of the scores where it is known
    earlier: tuple["Stage", ...] = ()
    last: bool = False

    @property
    def name(self) -> str:
        """Under which its scores are kept on the way: a stage may be scored again, as the last one."""
        return f"scores-{self.stage}{'-last' if self.last else ''}"


class Scored(Protocol):
    """Rows scored for a stage: to be drawn, joined with earlier stages, and taken."""

    @property
    def wanted(self) -> Wanted:
        """What was scored, and how."""
        ...

    @property
    def summary(self) -> Summary:
        """Number of rows of positive score, and their sum."""
        ...

    @property
    def kept(self) -> Kept:
        """What stays of the scores after the last stage."""
        ...

    def ended(self, size: int) -> "tuple[Scored, int]":
        """The same as the last stage, of this size, and the reads of X that takes."""
        ...

    def drawn(self, n_draws: int, argument: str = "size") -> "Stage":
        """Draw so many rows, besides those of earlier stages."""
        ...

    def spent(self) -> "Scored":
        """What later stages need of it, once its rows are taken."""
        ...

    def united(self, sample: Sample) -> Sample:
        """Join a sample with those of earlier stages."""
        ...

    def taken(self, sample: Sample) -> Drawn:
        """Take the rows of a sample of this stage and earlier ones."""
        ...


class Stage(NamedTuple):
    """A stage that was drawn."""

    sample: Sample
    scored: Scored
    reads: int  # of X, at most, that the draw took


class Way(Protocol):
    """A way to score the rows for a stage: all scores held, or candidates kept."""

    def __call__(self, setting: Setting, wanted: Wanted, known: Known | None = None) -> Scored:
        """Read X once. Rows that are known may help where the sum of the scores is not."""
        ...


def counted(reads: dict[str, int], phase: str, more: int) -> dict[str, int]:
    """Add reads of X to those of a phase."""
    return reads | {phase: reads.get(phase, 0) + more} if more else reads
