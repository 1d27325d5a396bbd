"""What drift finds: how scores at one checkpoint serve another, a line a pair."""

from typing import Any

import numpy as np

from dask_nlis.diagnostics.frames import pandas
from dask_nlis.nouns import noun


@noun
class Drift:
    """Scores at one theta beside those at a later one, for pairs of checkpoints.

    Attributes
    ----------
    losses : ndarray of shape (k,)
        Loss over all rows at each checkpoint.
    pairs : ndarray of shape (m, 2), int64
        Checkpoints compared, from earlier to later: neighbours, and each with the last.
    rank_correlation : ndarray of shape (m,)
        Spearman's, of scores rounded to eighths of an octave (6 to 12 % apart), ties at their mean rank; NaN where all
        scores of a checkpoint are equal.
    top_overlap : ndarray of shape (m,)
        Share of the `top` highest rows that both have.
    affinity : ndarray of shape (m,)
        Bhattacharyya's, sum_i sqrt(tau_i tau'_i), tau the scores over their sum: 1 for equal sampling
        probabilities, 0 where no row has a score in both.
    beta : ndarray of shape (m,)
        Misestimation factor: the smallest tau_i / tau'_i over rows that have a score at the later checkpoint. A sample
        by the earlier scores is as good, for the later theta, as one of beta times its size by the later scores, or
        better. 0 where a row that has a score later has none earlier.
    by : str
        Which scores: "leverage", "norm" or "loss".
    top : int
        Rows compared at the top.
    n_rows : int
        Rows that count.
    reads : int
        Reads of X it took.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    >>> X, y = np.eye(3), np.ones(3)
    >>> found = nlis.drift(problem, X, y, [[0.0] * 4, [0.0] * 4], top=2)
    >>> found
    Drift(checkpoints=2, by='leverage', losses='3 -> 3', beta_to_last=1, affinity_to_last=1, reads=2)
    >>> found.to_frame().shape
    (1, 8)
    """

    losses: np.ndarray
    pairs: np.ndarray
    rank_correlation: np.ndarray
    top_overlap: np.ndarray
    affinity: np.ndarray
    beta: np.ndarray
    by: str
    top: int
    n_rows: int
    reads: int

    def __post_init__(self) -> None:
        for name in ("losses", "pairs", "rank_correlation", "top_overlap", "affinity", "beta"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.pairs)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, a row a pair: the two checkpoints, their losses, and the four comparisons.

        Returns
        -------
        pandas.DataFrame
            (m, 8).

        Raises
        ------
        MissingExtraError
            If pandas is not installed: it comes with the extra `dataframe`.
        """
        first, second = self.pairs.T
        return pandas().DataFrame(
            {
                "from": first,
                "to": second,
                "loss_from": self.losses[first],
                "loss_to": self.losses[second],
                "rank_correlation": self.rank_correlation,
                "top_overlap": self.top_overlap,
                "affinity": self.affinity,
                "beta": self.beta,
            }
        )

    def _summary(self) -> dict[str, Any]:
        last = self.pairs[:, 1] == len(self.losses) - 1
        return {
            "checkpoints": len(self.losses),
            "by": self.by,
            "losses": f"{self.losses[0]:.4g} -> {self.losses[-1]:.4g}",
            "beta_to_last": float(self.beta[last].min()),
            "affinity_to_last": float(self.affinity[last].min()),
            "reads": self.reads,
        }
