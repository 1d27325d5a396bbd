"""The rows that matter most and least: a table with their features, as far as the run or the data at hand know them."""

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_nlis.diagnostics import bottom_rows, top_rows
from dask_nlis.errors import NlisWarning
from dask_nlis.sample import take_rows

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Columns of features that a table shows.
COLUMNS = 8


class Row(NamedTuple):
    """A row of the data: its number, score, weight and labels where it was drawn, and features where they are known."""

    number: int
    score: float
    weight: float | None
    labels: tuple[float, ...] | None  # one, or one an output
    features: np.ndarray | None  # (d,), all of them


class Rows(NamedTuple):
    """Rows with the highest and the lowest scores, and the columns of features that the tables show."""

    highest: list[Row]
    lowest: list[Row]  # of all rows, or of the drawn ones where no others' features are known
    columns: list[int]
    labels: list[str]  # headings of the labels that they show
    scored: str  # what the scores are
    n_unknown: int  # rows whose features are not known
    of_all: tuple[bool, bool]  # whether highest and lowest are those of all rows


def rows_of(run: "Run", X: Any, k: int, *, as_images: bool = False) -> Rows:
    """The k rows with the highest scores and the k with the lowest; reads the scores twice, and the rows' blocks of X.

    Rows that are shown as images have no columns. Without X the lowest are those of the drawn rows, whose features the run holds: of all rows hardly any was drawn.
    """
    sample = run.sample
    if run.scores is None:  # of drawn rows it is still known how likely they were
        found, scored, of_all = (
            [_ends(sample.indices, sample.probabilities, k, sign) for sign in (-1, 1)],
            "probability",
            (False, False),
        )
    else:
        scores, scored, of_all = run.scores, "score", (True, X is not None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NlisWarning)  # fewer rows than k are all shown
            tables = [verb(scores, k=k) for verb, wanted in zip((top_rows, bottom_rows), of_all, strict=True) if wanted]
        found = [(table.indices, table.scores) for table in tables]
        if X is None:
            of_drawn = np.asarray(take_rows("scores", scores, sample.indices, sample.n_rows))
            found.append(_ends(sample.indices, of_drawn, k, 1))
    given = None
    if X is not None:
        wanted = np.concatenate([indices for indices, _ in found])
        given = dict(zip(wanted.tolist(), _as_numbers(take_rows("X", X, wanted, sample.n_rows)), strict=True))
    highest, lowest = ([_row(run, i, s, given) for i, s in zip(*each, strict=True)] for each in found)
    unknown = {row.number for row in (*highest, *lowest) if row.features is None}
    return Rows(
        highest, lowest, [] if as_images else _columns(run, highest), _labels(run), scored, len(unknown), of_all
    )


def _ends(indices: np.ndarray, values: np.ndarray, k: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """The k rows of the least value times a sign, ties by row."""
    order = np.argsort(sign * values, kind="stable")[:k]
    return indices[order], values[order]


def _as_numbers(taken: Any) -> np.ndarray:
    return np.asarray(taken, dtype=np.float64).reshape(len(taken), -1)


def _row(run: "Run", index: int, score: float, given: dict[int, np.ndarray] | None) -> Row:
    place = int(np.searchsorted(run.sample.indices, index))
    drawn = place < len(run.sample) and run.sample.indices[place] == index
    features = None if given is None else given[int(index)]
    if not drawn:
        return Row(int(index), float(score), None, None, features)
    known = run.sample_X[place] if features is None else features
    labels = tuple(map(float, np.atleast_1d(run.sample_y[place])))
    return Row(int(index), float(score), float(run.sample.weights[place]), labels, known)


def _labels(run: "Run") -> list[str]:
    """Headings of the labels: one, or one for each of the first outputs."""
    if run.sample_y.ndim == 1:
        return ["label y"]
    return [f"label y[{c}]" for c in range(min(run.sample_y.shape[1], COLUMNS))]


def _columns(run: "Run", rows: list[Row]) -> list[int]:
    """The columns in which rows lie furthest from the mean of all rows, in deviations, in the order of the data."""
    d = run.sample_X.shape[1]
    known = [row.features for row in rows if row.features is not None]
    if d <= COLUMNS or not known:
        return list(range(min(d, COLUMNS)))
    weights = run.sample.weights / run.sample.weights.sum()
    mean = weights @ run.sample_X
    spread = np.sqrt(weights @ (run.sample_X - mean) ** 2)
    apart = np.abs(np.stack(known) - mean) / np.where(spread > 0, spread, np.inf)
    return sorted(np.argsort(-apart.mean(axis=0), kind="stable")[:COLUMNS].tolist())
