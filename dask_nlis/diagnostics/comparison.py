"""What compare finds: a line for each refit, and the table of medians."""

from io import StringIO
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_nlis.diagnostics.frames import pandas
from dask_nlis.nouns import noun


@noun
class Comparison:
    """Refits on samples drawn by several scores, with their losses over all rows; a line a refit.

    Attributes
    ----------
    names : tuple of str
        The scores compared.
    name : ndarray of shape (m,), int64
        Position in `names` of each refit's scores.
    size : ndarray of shape (m,), int64
        Rows asked for.
    seed : ndarray of shape (m,), int64
        Seed of the draw.
    n_distinct : ndarray of shape (m,), int64
        Rows drawn, each counted once.
    ok : ndarray of shape (m,), bool
        Whether the fit passed its checks.
    loss : ndarray of shape (m,)
        Loss over all rows; NaN where no row was drawn.
    excess : ndarray of shape (m,) or None
        (loss - reference loss) / reference loss, where a reference theta was given; below 0 where a refit is better.
    reference_loss : float or None
        Loss over all rows of the reference theta.
    thetas : ndarray of shape (m, p)
        What was fitted; NaN where no row was drawn.
    scheme : str
        How rows were drawn.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X, y = np.arange(8.0).reshape(8, 1), np.array([0.0, 2.0, 4.0, 7.0, 8.0, 10.0, 12.0, 14.0])
    >>> problem = nlis.Problem(nlis.Linear())
    >>> found = nlis.compare(problem, X, y, {"uniform": np.ones(8)}, sizes=6, seeds=2)
    >>> found
    Comparison(names=('uniform',), sizes=[6], seeds=2, scheme='multinomial', failed=0)
    >>> low, median, high = found.quartiles()["uniform", 6]
    >>> low <= median <= high, found.summary().partition(",")[0]
    (True, 'median [quartiles] of the loss over all rows')
    >>> found.to_frame().shape
    (2, 6)
    """

    names: tuple[str, ...]
    name: np.ndarray
    size: np.ndarray
    seed: np.ndarray
    n_distinct: np.ndarray
    ok: np.ndarray
    loss: np.ndarray
    excess: np.ndarray | None
    reference_loss: float | None
    thetas: np.ndarray
    scheme: str

    def __post_init__(self) -> None:
        for field in ("name", "size", "seed", "n_distinct", "ok", "loss", "excess", "thetas"):
            value = getattr(self, field)
            if value is not None:
                value.setflags(write=False)

    def __len__(self) -> int:
        return len(self.loss)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, a row a refit: name, size, seed, n_distinct, ok, loss, and excess where known.

        Returns
        -------
        pandas.DataFrame
            (m, 6), or (m, 7) with the excess.

        Raises
        ------
        MissingExtraError
            If pandas is not installed: it comes with the extra `dataframe`.
        """
        columns = {"name": np.array(self.names, dtype=object)[self.name]}
        columns |= {field: getattr(self, field) for field in ("size", "seed", "n_distinct", "ok", "loss")}
        return pandas().DataFrame(columns | ({} if self.excess is None else {"excess": self.excess}))

    def quartiles(self) -> dict[tuple[str, int], tuple[float, float, float]]:
        """Lower quartile, median and upper quartile over the seeds, by name and size, of the excess or else the loss.

        Returns
        -------
        dict
            (name, size) -> (low, median, high); NaN where no refit has a value.
        """
        values = self.loss if self.excess is None else self.excess
        found = {}
        for k, name in enumerate(self.names):
            for size in np.unique(self.size).tolist():
                cell = values[(self.name == k) & (self.size == size)]
                cell = cell[~np.isnan(cell)]
                low, middle, high = np.quantile(cell, (0.25, 0.5, 0.75)).tolist() if len(cell) else (np.nan,) * 3
                found[name, size] = (low, middle, high)
        return found

    def summary(self) -> str:
        """Return medians and quartiles over the seeds as a table in text: a line a name, a column a size.

        Returns
        -------
        str
            To print; how many refits did not pass their checks stands below, if any.
        """
        what = (
            "loss over all rows" if self.excess is None else f"excess over the reference loss {self.reference_loss:.6g}"
        )
        found, sizes = self.quartiles(), np.unique(self.size).tolist()
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("scores", no_wrap=True)
        for size in sizes:
            table.add_column(f"{size:,}", justify="right", no_wrap=True)
        for name in self.names:
            cells = ("{1:.4g} [{0:.4g}, {2:.4g}]".format(*found[name, size]) for size in sizes)
            table.add_row(*(Text(cell) for cell in (name.encode("unicode_escape").decode(), *cells)))
        out = StringIO()
        width = 40 + 40 * len(sizes) + 4 * max(map(len, self.names))
        Console(file=out, width=width, color_system=None, legacy_windows=False).print(table)
        n_seeds = len(np.unique(self.seed))
        heading = f"median [quartiles] of the {what}, {n_seeds} seeds, {self.scheme} draws"
        failed = int((~self.ok).sum())
        note = [f"{failed} of {len(self)} refits did not pass their checks"] if failed else []
        return "\n".join([heading, *(line.rstrip() for line in out.getvalue().splitlines() if line.strip()), *note])

    def _summary(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "sizes": np.unique(self.size).tolist(),
            "seeds": len(np.unique(self.seed)),
            "scheme": self.scheme,
            "failed": int((~self.ok).sum()),
        }
