"""Open a finished run for reading."""

import os
from typing import Any

import numpy as np

from dask_nlis.diagnostics import Certificate
from dask_nlis.errors import InputError, NlisError
from dask_nlis.factor import Factor
from dask_nlis.intake import with_names
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.pipeline.shelf import stored_scores
from dask_nlis.refit import Fit
from dask_nlis.sample import Sample
from dask_nlis.store import Group, open_complete, read_noun, stored_array


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the store of a finished run, read-only: path -> Run with lazy scores. Reads no data set.

    Parameters
    ----------
    path : str or path
        What `run(store=...)` wrote, a folder or a URL in object storage.

    Returns
    -------
    Run

    Raises
    ------
    MissingDataError
        If there is no run at the path.
    IncompleteRunError
        If the run was never finished.
    InputError
        If something in the store is damaged or of another version.

    Examples
    --------
    >>> import tempfile, dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> folder = tempfile.mkdtemp() + "/run.zarr"
    >>> job = nlis.run(nlis.Problem(nlis.Linear()), X, y, size=300, seed=0, store=folder)
    >>> nlis.open_run(folder).fit == job.fit
    True
    """
    group, manifest = open_complete(path)
    try:
        return _read(group, manifest, os.fspath(path))
    except NlisError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        detail = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise InputError(f"path={os.fspath(path)!r} is damaged ({detail}); run again under a new path") from cause


def _read(group: Group, manifest: dict[str, Any], path: str) -> Run:
    sample_x, sample_y = (np.asarray(stored_array(group, f"data/{name}")[...]) for name in ("X", "y"))
    weight = np.asarray(stored_array(group, "data/sample_weight")[...]) if "data/sample_weight" in group else None
    fit = Fit.from_dict(read_noun(group, "fit"))
    known: dict[str, Any] = {
        name: read_noun(group, name) if name in group else None for name in ("factor", "pilot", "certificate")
    }
    return Run(
        problem=fit.problem,
        factor=None if known["factor"] is None else Factor.from_dict(known["factor"]),
        # Kept by runs that say nothing of it.
        scores=with_names(stored_scores(group), fit.feature_names) if manifest.get("keep_scores", True) else None,
        sample=Sample.from_dict(read_noun(group, "sample")),
        sample_X=sample_x,
        sample_y=sample_y,
        sample_weight=weight,
        fit=fit,
        pilot=None if known["pilot"] is None else Fit.from_dict(known["pilot"]),
        certificate=None if known["certificate"] is None else Certificate.from_dict(known["certificate"]),
        total_loss=float(manifest["total_loss"]),
        manifest=manifest,
        path=path,
    )
