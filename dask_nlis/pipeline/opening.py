"""Open a finished run for reading."""

import os
from collections.abc import Callable
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
    InputError, InputTypeError
        If something in the store is damaged or of another version; or if an argument is of another type.

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
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as cause:
        detail = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise InputError(f"path={os.fspath(path)!r} is damaged ({detail}); run again under a new path") from cause


def _read(group: Group, manifest: dict[str, Any], path: str) -> Run:
    _check_manifest(manifest)
    sample_x, sample_y = (np.asarray(stored_array(group, f"data/{name}")[...]) for name in ("X", "y"))
    weight = np.asarray(stored_array(group, "data/sample_weight")[...]) if "data/sample_weight" in group else None
    fit = Fit.from_dict(read_noun(group, "fit"))
    sample = Sample.from_dict(read_noun(group, "sample"))
    scores = stored_scores(group) if manifest.get("keep_scores", True) else None
    _check_lengths(manifest, sample, fit, (sample_x, sample_y, weight), scores)
    known: dict[str, Any] = {
        name: read_noun(group, name) if name in group else None for name in ("factor", "pilot", "certificate")
    }
    return Run(
        problem=fit.problem,
        factor=None if known["factor"] is None else Factor.from_dict(known["factor"]),
        scores=None if scores is None else with_names(scores, fit.feature_names),
        sample=sample,
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


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


#: What a finished run's manifest must hold, of what the noun Run shows.
_HOLDS: dict[str, Callable[[Any], bool]] = {
    "reads": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "devices": lambda value: value is None or isinstance(value, dict),
    "n_dropped": _is_count,
    "total_loss": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "stages": lambda value: isinstance(value, list) and all(map(_is_count, value)),
    "why_one_stage": lambda value: isinstance(value, str),
    "data": lambda value: isinstance(value, dict) and _is_count(value.get("n_rows")),
    "missing": lambda value: value in ("raise", "drop"),
    "seed": _is_count,
    "theta": lambda value: (
        value is None
        or isinstance(value, str)
        or (isinstance(value, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value))
    ),
}


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Raise where the manifest lacks what a finished run says, or holds something else there."""
    wrong = next((name for name, holds in _HOLDS.items() if name not in manifest or not holds(manifest[name])), None)
    if wrong is not None:
        raise ValueError(f"the manifest's {wrong!r} is not what a run writes")


def _check_lengths(
    manifest: dict[str, Any],
    sample: Sample,
    fit: Fit,
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray | None],
    scores: Any,
) -> None:
    """Raise where parts of a store are of different rows or columns: one of them was altered."""
    x, y, weight = drawn
    n_rows, columns = manifest["data"]["n_rows"], fit.problem.label_columns
    shapes = {
        "data/X": (x.shape, (len(sample), len(fit.feature_names))),
        "data/y": (y.shape, (len(sample), *((columns,) if columns > 1 else ()))),
        "data/sample_weight": ((len(sample),) if weight is None else weight.shape, (len(sample),)),
        "sample": ((sample.n_rows,), (n_rows,)),
        "scores": ((n_rows,) if scores is None else scores.shape, (n_rows,)),
    }
    for name, (found, wanted) in shapes.items():
        if found != wanted:
            raise ValueError(f"{name} is of shape {found}, where {wanted} belongs")
