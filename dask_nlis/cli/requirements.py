"""--require: what a finished run must be, as terms of a fixed grammar; nothing is evaluated.

A term is NAME, not NAME, or NAME OP NUMBER; terms are joined by commas. Names are those of the table below.
"""

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import dask_nlis as nlis
from dask_nlis.errors import InputError

_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip

#: What may be asked of a run: numbers, and what is true or false. None where the run has no certificate or factor.
_ASKED: dict[str, Callable[[nlis.Run], float | bool | None]] = {
    "fit.ok": lambda job: job.fit.ok,
    "fit.loss": lambda job: job.fit.loss,
    "total_loss": lambda job: job.total_loss,
    "epsilon": lambda job: None if job.certificate is None else job.certificate.epsilon,
    "is_embedding": lambda job: None if job.certificate is None else job.certificate.is_embedding,
    "effective_size": lambda job: job.sample.effective_size,
    "drawn": lambda job: len(job.sample),
    "rank": lambda job: None if job.factor is None else job.factor.rank,
    "condition": lambda job: None if job.factor is None else job.factor.condition,
    "n_dropped": lambda job: job.n_dropped,
    "two_stages": lambda job: not job.why_one_stage,
}

_TERM = re.compile(
    r"\s*(?P<negated>not\s+)?(?P<name>[a-z_.]+)\s*((?P<op><=|>=|==|!=|<|>)\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?))?\s*"
)


class Requirement(NamedTuple):
    """One term."""

    text: str
    name: str
    holds: Callable[[Any], bool]


def parsed(text: str | None) -> list[Requirement]:
    """The terms of --require; raises for what is not known."""
    return [] if text is None else [_term(part) for part in text.split(",")]


def _term(text: str) -> Requirement:
    found = _TERM.fullmatch(text)
    if found is None or found["name"] not in _ASKED or (found["negated"] and found["op"]):
        raise InputError(
            f"--require {text.strip()[:40]!r} is not known; give NAME, not NAME, or NAME<=NUMBER, with a NAME of "
            f"{', '.join(_ASKED)}"
        )
    if found["op"]:
        compare, number = _OPS[found["op"]], float(found["number"])
        return Requirement(text.strip(), found["name"], lambda value: compare(value, number))
    wanted = not found["negated"]
    return Requirement(text.strip(), found["name"], lambda value: bool(value) is wanted)


def unmet(job: nlis.Run, requirements: list[Requirement]) -> list[str]:
    """The terms that do not hold, each with what there is; one that asks for what the run has none of does not."""
    values = {each.name: _ASKED[each.name](job) for each in requirements}
    return [
        f"{each.text} (it is {_shown(values[each.name])})"
        for each in requirements
        if values[each.name] is None or not each.holds(values[each.name])
    ]


def _shown(value: float | bool | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def found_in(job: nlis.Run) -> dict[str, float | bool | None]:
    """All that may be asked, for the JSON form of a run."""
    return {name: ask(job) for name, ask in _ASKED.items()}
