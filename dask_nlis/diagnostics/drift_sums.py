"""What a block adds to a comparison of scores at many thetas; sums of it do not grow with the rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import choose
from dask_nlis.kernels.linalg import leverage, merge_r, r_factor, squared_row_norms
from dask_nlis.matrix import Dual, Finding, Job, Leaf, boxed, leaves, summed_over
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import matrix_rows
from dask_nlis.scores.losses import fitted, losses_of

Array = Any

#: Parts of an octave that ranks tell apart.
_STEPS = 8

#: Bin of a score of 0, below that of any other.
_NOTHING = -(2**20)

#: Scores (rows times thetas) that are held before they are added up.
_HELD = 2**18


class Factors(NamedTuple):
    """R factors of some rows at each theta, (k, p, p), and what was wrong with them."""

    r: np.ndarray
    finding: Finding

    def plus(self, other: "Factors") -> "Factors":
        """R factors of both sets of rows."""
        pairs = zip(self.r, other.r, strict=True)
        return Factors(np.stack([merge_r(list(pair)) for pair in pairs]), self.finding.plus(other.finding))


class Table(NamedTuple):
    """How many rows have each pair of bins: `bins` (c, 2) distinct, ascending, and their counts (c,)."""

    bins: np.ndarray
    counts: np.ndarray

    def plus(self, other: "Table") -> "Table":
        """Counts of both sets of rows."""
        return tabled(np.concatenate([self.bins, other.bins]), np.concatenate([self.counts, other.counts]))


class Comparison(NamedTuple):
    """Scores of some rows at k thetas, compared for m pairs."""

    losses: np.ndarray  # (k,)
    totals: np.ndarray  # (k,)
    affinity: np.ndarray  # (m,), sum of sqrt(h h')
    ratio: np.ndarray  # (m,), smallest h / h'
    tables: tuple[Table, ...]  # m
    rows: np.ndarray  # (k, top) rows with the highest scores, -1 where there are fewer
    heights: np.ndarray  # (k, top) their scores
    n_rows: int
    finding: Finding

    def plus(self, other: "Comparison") -> "Comparison":
        """Comparison over both sets of rows."""
        rows, heights = highest(
            np.concatenate([self.rows, other.rows], axis=1),
            np.concatenate([self.heights, other.heights], axis=1),
            self.rows.shape[1],
        )
        with np.errstate(over="ignore"):  # looked at in the end
            losses, totals, affinity = (
                getattr(self, name) + getattr(other, name) for name in ("losses", "totals", "affinity")
            )
        return Comparison(
            losses,
            totals,
            affinity,
            np.minimum(self.ratio, other.ratio),
            tuple(a.plus(b) for a, b in zip(self.tables, other.tables, strict=True)),
            rows,
            heights,
            self.n_rows + other.n_rows,
            self.finding.plus(other.finding),
        )


def tabled(bins: np.ndarray, counts: np.ndarray) -> Table:
    """Add up the counts of equal pairs of bins."""
    distinct, place = np.unique(bins, axis=0, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, place.reshape(-1), counts)
    return Table(distinct, total)


def binned(scores: np.ndarray) -> np.ndarray:
    """Bin of each score: its octave in eighths, exactly; one of its own for 0."""
    mantissa, exponent = np.frexp(scores)
    step = np.floor((2 * mantissa - 1) * _STEPS).astype(np.int64)
    return np.where(scores > 0, _STEPS * exponent.astype(np.int64) + step, _NOTHING)


def highest(rows: np.ndarray, scores: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The `top` highest scores of each line (k, m) and their rows, ties by smallest row; padded with row -1."""
    k = len(rows)
    out = np.full((k, top), -1, dtype=np.int64), np.full((k, top), -np.inf)
    for line in range(k):
        order = np.lexsort((rows[line], -scores[line]))[:top]
        for part, values in zip(out, (rows, scores), strict=True):
            part[line, : len(order)] = values[line][order]
    return out


@on_device
def factors_block(
    x: np.ndarray, y: np.ndarray | None, weight: np.ndarray | None, start: int, *, job: Job, rules: Sequence[Dual]
) -> np.ndarray:
    """R factors of one block at each theta, as Factors in a 1 x 1 object array."""
    device = choose(job.device)
    jobs = [at(job, rule) for rule in rules]
    found = Finding()
    parts: list[list[Array]] = [[] for _ in jobs]
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device, reducing=True):
            findings = []
            for each, its in zip(parts, jobs, strict=True):
                rows, finding = matrix_rows(leaf, its)
                r = r_factor(rows)
                spoiled = overflow(r, 0).n_bad > 0
                findings.append(
                    finding.plus(overflow(rows, int(start) + leaf.place.start, its.rule.each)) if spoiled else finding
                )
                each[:] = [merge_r([*each, r])]
            found = found.plus(worst(findings))
        p = job.n_matrix_columns
        r = np.zeros((len(parts), p, p))
        if len(x):
            r = device.fetch(array_namespace(parts[0][0]).stack([each[0] for each in parts]))
    return boxed(Factors(r, found))


def at(job: Job, rule: Dual) -> Job:
    """The same job at another theta."""
    return Job(rule, job.names, job.n_matrix_columns, job.missing, job.device)


def worst(findings: Sequence[Finding]) -> Finding:
    """Of findings in the same rows at several thetas the one that counts: rows are bad or dropped once."""
    return max(findings, key=lambda finding: finding.n_bad)


@on_device
def comparison_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    rules: Sequence[Dual],
    whiteners: Sequence[tuple[np.ndarray, np.ndarray | None]] | None,
    by: str,
    pairs: np.ndarray,
    top: int,
) -> np.ndarray:
    """Comparison of the scores in one block, in a 1 x 1 object array."""
    device = choose(job.device)
    jobs = [at(job, rule) for rule in rules]
    targets: list[Any] = [None] * len(jobs)
    if whiteners is not None:
        targets = [[None if part is None else device.put(part) for part in pair] for pair in whiteners]
    models = [fitted(its, device) for its in jobs]
    total = _compared(np.empty((len(jobs), 0)), np.empty(0, dtype=np.int64), np.zeros(len(jobs)), pairs, top)
    held: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    found, losses = Finding(), np.zeros(len(jobs))

    def fold() -> None:
        nonlocal total, losses
        total = total.plus(_compared(np.concatenate(held, axis=1), np.concatenate(numbers), losses, pairs, top))
        losses = np.zeros(len(jobs))
        held.clear()
        numbers.clear()

    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            if not leaf.counts:
                found = found.plus(leaf.finding)
                continue
            found_there = [losses_of(leaf, problem, theta) for problem, theta in models]
            findings = [leaf.finding] * len(jobs)
            if by != "loss":
                pairs_there = [_scored(leaf, *each) for each in zip(jobs, targets, strict=True)]
                findings = [finding for _, finding in pairs_there]
                found_there += [values for values, _ in pairs_there]
            found_there += [] if leaf.root_weight is None else [leaf.root_weight]
            fetched = device.fetch(array_namespace(leaf.x).stack(found_there))
            costs, scores = fetched[: len(jobs)], fetched[0 if by == "loss" else len(jobs) :][: len(jobs)]
            scores = scores.copy()
            for k in range(len(jobs)):
                losses[k] += costs[k].sum()
                wrong = costs[k] if not np.isfinite(costs[k]).all() else scores[k]
                findings[k] = findings[k].plus(overflow(wrong, int(start) + leaf.place.start))
                scores[k] = np.where(np.isfinite(scores[k]), scores[k], 0.0)  # reported
            found = found.plus(worst([leaf.finding, *findings]))
            # Rows of no weight, dropped ones among them, are no rows to compare.
            some = slice(None) if leaf.root_weight is None else fetched[-1] > 0
            held.append(scores[:, some])
            numbers.append((leaf.row + np.arange(leaf.x.shape[0]))[some])
            if sum(part.size for part in held) >= _HELD:
                fold()
        if held:
            fold()
    return boxed(total._replace(finding=found))


def _scored(leaf: Leaf, job: Job, target: Any) -> tuple[Array, Finding]:
    rows, finding = matrix_rows(leaf, job)
    found = squared_row_norms(rows) if target is None else leverage(rows, *target)
    return summed_over(found, leaf.x.shape[0]), finding


def _compared(scores: np.ndarray, numbers: np.ndarray, losses: np.ndarray, pairs: np.ndarray, top: int) -> Comparison:
    """Comparison of scores (k, m) of the rows `numbers` (m,)."""
    bins = binned(scores)
    roots = np.sqrt(scores)
    affinity, ratio, tables = np.zeros(len(pairs)), np.full(len(pairs), np.inf), []
    for m, (i, j) in enumerate(pairs):
        affinity[m] = roots[i] @ roots[j]
        there = scores[j] > 0
        ratio[m] = (scores[i, there] / scores[j, there]).min(initial=np.inf)
        tables.append(tabled(np.stack([bins[i], bins[j]], axis=1), np.ones(len(numbers), dtype=np.int64)))
    rows, heights = highest(np.tile(numbers, (len(scores), 1)), scores, top)
    return Comparison(
        losses, scores.sum(axis=1), affinity, ratio, tuple(tables), rows, heights, len(numbers), Finding()
    )
