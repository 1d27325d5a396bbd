"""The noun Run: everything a job produced."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_nlis.diagnostics import Certificate, Comparison
from dask_nlis.factor import Factor
from dask_nlis.nouns import noun
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit
from dask_nlis.report import Report, report_on
from dask_nlis.sample import Sample


@noun
class Run:
    """A finished job: scores, sample, fit and how they came about.

    Attributes
    ----------
    problem : Problem
        What was fitted.
    factor : Factor or None
        Factor of the dual matrix at the pilot fit, or of the reference matrix where there is one stage by its leverage;
        None for norm scores.
    scores : array of shape (n,) or None
        One score a row, those of the last stage: lazy from the store, or held in memory without one. None for
        keep_scores=False.
    sample : Sample
        The drawn rows and their weights.
    sample_X : ndarray of shape (m, d)
        The drawn rows.
    sample_y : ndarray of shape (m,) or (m, n_outputs)
        Their labels.
    sample_weight : ndarray of shape (m,) or None
        Row weights of the data at the drawn rows, where `run` was given some: `refit(sample_weight=)` of these rows.
    fit : Fit
        The weighted, constrained fit.
    pilot : Fit or None
        The fit to the first stage, or to rows drawn besides, at which the rows were scored; None when theta was given.
    certificate : Certificate or None
        What the sample is worth, measured on it; None for norm scores, which have no factor.
    total_loss : float
        Loss of the fit over all rows.
    manifest : dict
        Data, sizes, seed, versions, chunks, reads of X by phase, blocks by device.
    path : str or None
        Where the store is.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> job = nlis.run(nlis.Problem(nlis.Linear()), X, y, size=300, seed=0)
    >>> job.sample.n_rows, job.sample_X.shape == (len(job.sample), 8), job.fit.names[0]
    (20640, True, 'MedInc')
    >>> sum(job.reads.values()), sum(job.devices.values()), job.n_dropped, job.why_one_stage, job.stale
    (5, 30, 0, '', '')
    """

    problem: Problem
    factor: Factor | None
    scores: Any
    sample: Sample
    sample_X: np.ndarray
    sample_y: np.ndarray
    sample_weight: np.ndarray | None
    fit: Fit
    pilot: Fit | None
    certificate: Certificate | None
    total_loss: float
    manifest: Mapping[str, Any]
    path: str | None

    @property
    def reads(self) -> dict[str, int]:
        """Reads of X by phase; the blocks of drawn rows come on top where the scheme is not poisson.

        "gather" counts reads of blocks, all at most, that had kept too few rows for the draw.
        """
        return dict(self.manifest["reads"])

    @property
    def devices(self) -> dict[str, Any] | None:
        """Blocks by the device they ran on, once for each read, and "fell back": those that left the GPU, by reason.

        None where it is not known: on Dask's scheduler of processes, and locally beside another job in the process.
        """
        found: dict[str, Any] | None = self.manifest.get("devices")
        return found

    @property
    def why_one_stage(self) -> str:
        """Why the rows were drawn in one stage where two were asked for; empty otherwise."""
        return str(self.manifest["why_one_stage"])

    @property
    def stale(self) -> str:
        """Why the rows ought to be scored again, after `extend`; empty where they need not."""
        return str(self.manifest.get("stale", ""))

    @property
    def n_dropped(self) -> int:
        """Rows left out by missing="drop"."""
        return int(self.manifest["n_dropped"])

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        X: Any = None,
        image_shape: Sequence[int] | None = None,
        others: "Comparison | Sequence[Run] | None" = None,
        k: int = 20,
        overwrite: bool = False,
    ) -> Report:
        """Make the page of the run, one HTML file that loads nothing: (path) -> Report. Computes; reads scores, not data.

        Verdict and certificate in words, scores, weights, the rows with the highest and lowest scores, residual against
        leverage, the fit with its intervals, and how it was made; below 2 MB whatever the run. The scores are read a few
        times in bounded memory, and with X its blocks that hold rows of the tables.

        Parameters
        ----------
        path : str or path-like, optional
            File to be written, such as "report.html", whole or not at all; by default none is.
        X : array_like of shape (n, d), optional
            The features the run was made of, shaped as they were then, for rows of the tables that were not drawn.
        image_shape : sequence of int, optional
            Height and width of rows that are images, with 1, 3 or 4 channels first or last: shown as pictures. By default
            the `input_shape` of the model, where it has one of such.
        others : Comparison or sequence of Run, optional
            What `compare` returned, or runs of other sizes on the same data: the loss against the size.
        k : int, default 20
            Rows of each table, 100 at most.
        overwrite : bool, default False
            Whether a file of this name may be replaced.

        Returns
        -------
        Report
            The page and its path; shown in a notebook.

        Raises
        ------
        StoreExistsError
            If the path exists and may not be replaced.
        InputError, InputTypeError
            If an argument is not allowed, or X is of another shape.
        MissingExtraError
            If matplotlib is not installed: it comes with the extra `plot`.
        MissingDataError, NotWritableError
            If the folder of the path does not exist, or nothing can be written there; before anything is computed.

        Examples
        --------
        >>> import tempfile, dask_nlis as nlis
        >>> X, y = nlis.datasets.california_housing(standardized=True)
        >>> job = nlis.run(nlis.Problem(nlis.Linear()), X, y, size=300, seed=0)
        >>> page = job.report(tempfile.mkdtemp() + "/report.html", X=X)
        >>> len(page.html) < 2e6
        True
        """
        return report_on(self, path, X=X, image_shape=image_shape, others=others, k=k, overwrite=overwrite)

    def _summary(self) -> dict[str, Any]:
        dropped = {"n_dropped": self.n_dropped} if self.n_dropped else {}
        return {
            "n_rows": self.sample.n_rows,
            **dropped,
            "drawn": len(self.sample),
            "rank": None if self.factor is None else self.factor.rank,
            "ok": self.fit.ok,
            "total_loss": self.total_loss,
            **({} if self.certificate is None else {"epsilon": self.certificate.epsilon}),
            **({"why_one_stage": self.why_one_stage} if self.why_one_stage else {}),
            **({"stale": self.stale} if self.stale else {}),
            "reads": sum(self.reads.values()),
            **({"devices": self.devices} if self.devices and set(self.devices) != {"cpu"} else {}),
            "path": self.path,
        }
