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

#: Schemes whose draw and rows come out of the same read as the scores.
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


def two_stage(scheme: str, stages: int, first: float, curved: bool) -> list[Step]:
    """Steps of two-stage scores: `first` is the share of the rows in the first of them; one stage has all.

    `curved`: whether the loss has curvature, so that there is influence.
    """
    if stages == 1:
        return [*_scored("", scheme, ("reference",), ("reference",), 0), *_end()]
    steps = list(_scored("pilot ", scheme, ("reference",), ("reference",), 0, first))
    both = ("dual", "tangent") if curved else ("dual",)
    for stage in range(1, stages):
        name = "" if stages == 2 else f"round {stage + 1} "
        steps += _scored(name, scheme, both, both, stage, first + (1 - first) * stage / (stages - 1))
    return [*steps, *_end()]


def scored_once(scores: str, scheme: str, pilot: float) -> list[Step]:
    """Steps of scores made once, after a pilot of its own rows, `pilot` of those to be drawn; 0 where theta is given."""
    steps = list(_scored("pilot ", scheme, ("reference",), ("reference",), 0, pilot)) if pilot else []
    steps += _scored("", scheme, *ONCE[scores], 0)
    return [*steps, *_end(certificate=scores != "norm")]


def scores_alone(factorized: tuple[str, ...], scored: tuple[str, ...], scheme: str) -> list[Step]:
    """Steps without labels, where no fit is made."""
    return list(_scored("", scheme, factorized, scored, 0))


def _scored(
    name: str, scheme: str, factorized: tuple[str, ...], scored: tuple[str, ...], earlier: int, share: float = 1.0
) -> Iterator[Step]:
    if factorized:
        yield Step(f"{name}factor", "factor", factorized, earlier)
    if earlier and scheme in FUSED:  # chances in the first stage are found again rather than kept
        yield Step(f"{name}estimate", "estimate")
        scored = (*scored, "reference")
    yield Step(f"{name}scores", "scores", scored, earlier, share)
    if scheme not in FUSED:
        yield Step(f"{name}draw", "draw", (), earlier, share)
        yield Step(f"{name}rows", "rows", (), earlier, share)


def _end(certificate: bool = True) -> list[Step]:
    loss = Step("total loss", "loss", ("loss",))
    return [loss, Step("certificate", "certificate")] if certificate else [loss]
