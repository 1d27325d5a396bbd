"""What a run came to in sentences: the verdict, and what each part of it means."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: How good a finding is: as hoped, to be known before the numbers are used, or a reason not to use them.
GOOD, CARE, BAD = "good", "care", "bad"

#: A realised epsilon up to which a sample serves; above, some direction may be off by half.
_CLOSE = 0.5


class Finding(NamedTuple):
    """One sentence or two of the verdict, under a word or two."""

    state: str
    about: str
    says: str


class Verdict(NamedTuple):
    """The whole in a line, and the findings it follows from."""

    state: str
    title: str
    findings: list[Finding]


def verdict_of(run: "Run") -> Verdict:
    """What a run came to."""
    findings = [_of_fit(run), _of_sample(run), _of_loss(run), _of_intervals(run), *_besides(run)]
    state = next((each for each in (BAD, CARE) if each in {finding.state for finding in findings}), GOOD)
    title = {
        GOOD: "The fit passes its checks, and the sample holds what the model needs.",
        CARE: "The fit can be used, with what is said below in mind.",
        BAD: "Do not use these parameters before what is said below is settled.",
    }[state]
    return Verdict(state, title, findings)


def _of_fit(run: "Run") -> Finding:
    if not run.fit.ok:
        # A minimum in a kink has no vanishing slope: such a fit may well be good, and the reasons say so.
        state = CARE if len(run.fit.reasons) == 1 and "kink" in run.fit.reasons[0] else BAD
        return Finding(state, "Fit", f"It does not pass our own checks: {cut('; '.join(run.fit.reasons))}.")
    where = "inside its constraint set, " if run.problem.constraint is not None else ""
    return Finding(
        GOOD, "Fit", f"It passes our own checks: finite, {where}and no small step would lower the loss further."
    )


def _of_sample(run: "Run") -> Finding:
    found = run.certificate
    if found is None:
        return Finding(
            CARE, "Sample", "No certificate: norm scores have no factor that the drawn rows could be held against."
        )
    if found.n_sample < found.rank and not found.is_embedding:  # a row may be several of the matrix
        says = (
            f"{found.n_sample:,} rows cannot span the {found.rank:,} directions of the model in these data: draw more."
        )
        return Finding(BAD, "Sample", says)
    if not found.is_embedding:
        says = (
            f"Epsilon is {found.epsilon:.3g}, at least 1: some of the {found.rank:,} directions of the model in these data "
            "is lost or counted twice. Draw more."
        )
        return Finding(CARE, "Sample", says)
    asked = (
        ""
        if found.theorem_size is None
        else f" A theorem would ask for {found.theorem_size:,.0f} draws to promise as much beforehand."
    )
    says = (
        f"Measured on the drawn rows: in each of the {found.rank:,} directions that the model has in these data, sums of squares over all "
        f"{found.n_rows:,} rows are kept to within {percent(found.epsilon)} (epsilon) by {found.n_sample:,}.{asked}"
    )
    return Finding(GOOD if found.epsilon <= _CLOSE else CARE, "Sample", says)


def _of_loss(run: "Run") -> Finding:
    says = f"{number(run.total_loss)} over all {counted_rows(run):,} rows, each of them read."
    found = run.certificate
    state = GOOD if np.isfinite(run.total_loss) else BAD
    if found is not None and found.loss is not None and found.loss_low is not None and found.loss_high is not None:
        says += f" The drawn rows alone say {number(found.loss)} (95 %: {number(found.loss_low)} to {number(found.loss_high)})"
        if state == GOOD and not found.loss_low <= run.total_loss <= found.loss_high:
            state = CARE
            says += (
                ", which misses it: the fit follows its own rows more closely than the others. More rows would help."
            )
        else:
            says += ", at the fit to these very rows a little too low."
    return Finding(state, "Loss", says)


def _of_intervals(run: "Run") -> Finding:
    if run.fit.withheld:
        return Finding(CARE, "Intervals", f"None are given: {cut(run.fit.withheld)}.")
    return Finding(
        GOOD,
        "Intervals",
        "95 % intervals tell how far each parameter may be from the fit to all rows, by the design of the sample.",
    )


def _besides(run: "Run") -> list[Finding]:
    """What is worth saying only where it is so."""
    out = []
    if run.why_one_stage:
        out.append(Finding(CARE, "Stages", f"All rows were drawn in one stage: {run.why_one_stage}."))
    if run.stale:
        out.append(Finding(CARE, "Age", f"{run.stale[:1].upper()}{run.stale[1:]}."))
    if run.n_dropped:
        says = (
            f"{run.n_dropped:,} rows with a missing or infinite cell were left out: they score 0 and count for nothing."
        )
        out.append(Finding(CARE, "Left out", says))
    return out


def counted_rows(run: "Run") -> int:
    """Rows that count: all but those left out."""
    return run.sample.n_rows - run.n_dropped


def scores_in_words(run: "Run") -> tuple[str, list[str]]:
    """What the scores of a run say of a row: a sentence, and the parts of a mixture."""
    kind, shares = run.manifest.get("scores"), run.manifest.get("shares")
    leverage = "leverage: how much of the row no other row can replace, under the model; 1 means that it alone carries a direction"
    influence = "influence: how far the fit would move without the row"
    if kind == "two-stage" and shares is not None and not run.why_one_stage:
        names = zip(shares, (leverage, influence, "the same for all rows"), strict=True)
        parts = [f"{percent(share)} {name}" for share, name in names if share]
        return "The score of a row, at a first, rough fit, is a mixture:", parts
    if kind == "norm":
        return "The score of a row is the squared length of its row of the model's matrix, a quick stand-in for", [
            leverage
        ]
    return "The score of a row is its", [influence if kind == "influence" else leverage]


def percent(share: float) -> str:
    """A share in per cent.

    Examples
    --------
    >>> percent(0.0496), percent(0.45), percent(0.00031)
    ('5 %', '45 %', '0.031 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.02 else f"{100 * share:.2g} %"


def cut(text: str, most: int = 400) -> str:
    """A text that may name many columns, at a length to read.

    Examples
    --------
    >>> cut("a ball"), cut("x" * 12, 8)
    ('a ball', 'xxxxxxxx ... (12 characters)')
    """
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


def number(value: float) -> str:
    """Five digits, with thousands apart.

    Examples
    --------
    >>> number(7789.512), number(0.000123456), number(12345678.0), number(float("nan"))
    ('7,789.5', '0.00012346', '1.2346e+07', '-')
    """
    if np.isnan(value):
        return "-"
    return f"{value:,.5g}" if abs(value) < 1e5 or not np.isfinite(value) else f"{value:.5g}"
