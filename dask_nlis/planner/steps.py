"""The table of what a job does: which passes, over which matrices, in which order.

Passes that read all of X are `READS`; the others go through scores that are held, or read the blocks of drawn rows.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["factor", "estimate", "scores", "draw", "rows", "loss", "certificate"]

#: Kinds that read all rows once.
READS = ("factor", "scores", "loss")

#: Passes over held scores that a draw takes, at most; the look at their sum comes on top.
DRAW_PASSES = {"poisson": 4, "multinomial": 3, "stratified": 7, "systematic": 7}

#: Schemes whose draw and rows come out of the same read as the scores, where nothing else stands against it.
FUSED = frozenset({"poisson"})

#: What is factorised and what is scored, for scores made once at a theta.
ONCE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "leverage": (("dual",), ("dual",)),
    "norm": ((), ("norm",)),
    "influence": (("dual", "tangent"), ("tangent",)),
}


class Step(NamedTuple):
    """One pass: what it is called, what it does, of which matrices, after how many earlier stages."""

    label: str
    kind: Kind
    matrices: tuple[str, ...] = ()
    earlier: int = 0
    share: float = 1.0  # of the rows to be drawn in all
    more: int = 0  # small tasks besides those of the blocks, at most


def two_stage(fused: bool, stages: int, first: float, curved: bool, by_pattern: bool = False) -> list[Step]:
    """Steps of two-stage scores: `first` is the share of the rows in the first of them; one stage has all.

    `fused`: whether draw and rows come out of the same read as the scores; `curved`: whether the loss has curvature, so
    that there is influence; `by_pattern`: whether the mixtures of leverage and influence may be by activation pattern.
    """
    if stages == 1:
        return [*_scored("", fused, ("reference",), ("reference",), 0), *_end()]
    steps = list(_scored("pilot ", fused, ("reference",), ("reference",), 0, first))
    both = ("dual", "tangent") if curved else ("dual",)
    for stage in range(1, stages):
        name = "" if stages == 2 else f"round {stage + 1} "
        # Small matrices for the mixture of this stage, and for those of earlier ones where chances are found again.
        more = (stage if fused else 1) * by_pattern
        steps += _scored(name, fused, both, both, stage, first + (1 - first) * stage / (stages - 1), more=more)
    return [*steps, *_end()]


def scored_once(scores: str, fused: bool, pilot: float, by_pattern: bool) -> list[Step]:
    """Steps of scores made once, after a pilot of its own rows, `pilot` of those to be drawn; 0 where theta is given.

    `by_pattern`: whether leverage and influence may be by activation pattern.
    """
    steps = list(_scored("pilot ", fused, ("reference",), ("reference",), 0, pilot)) if pilot else []
    # What c will be is told by the pilot's rows, but for leverage, whose sum is known, and norms.
    estimated, more = fused and bool(pilot) and scores == "influence", int(by_pattern and scores != "norm")
    steps += _scored("", fused, *ONCE[scores], 0, estimated=estimated, more=more)
    return [*steps, *_end(certificate=scores != "norm")]


def scores_alone(factorized: tuple[str, ...], scored: tuple[str, ...], by_pattern: bool) -> list[Step]:
    """Steps without labels, where no fit is made: scores that are held, and drawn from by `draw`."""
    return list(_scored("", False, factorized, scored, 0, more=int(by_pattern and scored == ("dual",))))


def _scored(
    name: str,
    fused: bool,
    factorized: tuple[str, ...],
    scored: tuple[str, ...],
    earlier: int,
    share: float = 1.0,
    *,
    estimated: bool = False,
    more: int = 0,
) -> Iterator[Step]:
    if factorized:
        yield Step(f"{name}factor", "factor", factorized, earlier)
    if estimated or (earlier and fused):
        yield Step(f"{name}estimate", "estimate", more=more)
    if earlier and fused:  # chances in the first stage are found again rather than kept
        scored = (*scored, "reference")
    yield Step(f"{name}scores", "scores", scored, earlier, share, more)
    if not fused:
        yield Step(f"{name}draw", "draw", (), earlier, share)
        yield Step(f"{name}rows", "rows", (), earlier, share)


def _end(certificate: bool = True) -> list[Step]:
    loss = Step("total loss", "loss", ("loss",))
    return [loss, Step("certificate", "certificate")] if certificate else [loss]
