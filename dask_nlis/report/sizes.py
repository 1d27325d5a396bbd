"""Losses over all rows at several sizes: those that size="auto" tried, or of several runs on the same data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_nlis.diagnostics import Comparison
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.pages import printable
from dask_nlis.redact import redacted

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Characters of a name in a picture of this size.
_NAME = 34


class Drawn(NamedTuple):
    """How many rows were drawn of how many."""

    n_draws: int
    n_rows: int


class Size(NamedTuple):
    """A size: rows asked for, those there are, the epsilon they reach, and the loss of the fit to them over all rows."""

    sample: Drawn
    n_distinct: int
    epsilon: float | None
    total_loss: float


def sizes_of(run: "Run", others: Any) -> Comparison | list[Size] | None:
    """What is known of other sizes, ascending; None where there is one size alone."""
    if isinstance(others, Comparison):  # whose names a picture cuts, where they might no longer be known for secrets
        names = (printable(redacted(name)) for name in others.names)
        return replace(others, names=tuple(name if len(name) <= _NAME else f"{name[:_NAME]}…" for name in names))
    if others is None:
        n_rows = run.sample.n_rows
        found = [
            Size(Drawn(each["size"], n_rows), each["rows"], each["epsilon"], each["loss"])
            for each in run.manifest.get("way", ())
            if each["loss"] is not None
        ]
    else:
        found = sorted((_size(each) for each in [run, *_checked(run, others)]), key=lambda size: size.sample.n_draws)
    return found if len({size.sample.n_draws for size in found}) > 1 else None


def unfitted(run: "Run", others: Any) -> list[int]:
    """Sizes on the way of `size="auto"` whose rows no fit could be made of: they are in no picture."""
    return [each["size"] for each in run.manifest.get("way", ()) if each["loss"] is None] if others is None else []


def _checked(run: "Run", others: Any) -> "list[Run]":
    runs = list(others) if isinstance(others, Sequence) and not isinstance(others, str | bytes) else [others]
    wrong = [each for each in runs if type(each) is not type(run)]
    if wrong:
        raise InputTypeError(
            f"others holds a {type(wrong[0]).__name__}; give runs of other sizes, as from open_run(), or what compare() returned"
        )
    differ = next((each for each in runs if each.sample.n_rows != run.sample.n_rows), None)
    if differ is not None:
        raise InputError(
            f"others holds a run of {differ.sample.n_rows:,} rows, but this one is of {run.sample.n_rows:,}: losses over all "
            "rows cannot be compared; give runs of the same data"
        )
    return runs


def _size(run: "Run") -> Size:
    epsilon = None if run.certificate is None else run.certificate.epsilon
    return Size(Drawn(run.sample.n_draws, run.sample.n_rows), len(run.sample), epsilon, run.total_loss)
