"""What a run says of itself: data, design, versions, and what came of it."""

import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis.intake import written_since
from dask_nlis.matrix import TallMatrix
from dask_nlis.nouns import to_dict
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.stages import Staged
from dask_nlis.sample import Sample
from dask_nlis.store import FORMAT


def begun(
    matrix: TallMatrix,
    design: Design,
    scores: str,
    theta: np.ndarray | None,
    keep_scores: bool,
    data_version: str | None = None,
) -> dict[str, Any]:
    """The manifest of a run at its start."""
    source = matrix.source
    return {
        "format": FORMAT,
        "state": "running",
        "fingerprint": fingerprint(matrix, design, scores, theta, keep_scores, data_version),
        "data": {
            "n_rows": source.n_rows,
            "n_columns": source.n_columns,
            "dtype": str(source.x.dtype),
            "feature_names": list(source.names),
            "token": source.token,
            "block_rows": max(source.chunks),
            "n_blocks": len(source.chunks),
        },
        "problem": repr(matrix.problem),
        "theta": _listed(theta),
        "size": design.size,
        "epsilon": design.target,
        "seed": design.seed,
        "scheme": design.scheme,
        "scores": scores,
        "keep_scores": keep_scores,
        "rounds": design.rounds,
        "missing": matrix.missing,
        "device": matrix.device,
        "versions": {name: version(name) for name in ("dask-nlis", "dask", "distributed", "numpy", "scipy", "zarr")}
        | {"python": platform.python_version()},
        "started": _now(),
    }


def fingerprint(
    matrix: TallMatrix,
    design: Design,
    scores: str,
    theta: np.ndarray | None,
    keep_scores: bool,
    data_version: str | None,
) -> dict[str, Any]:
    """All that the results of a run follow from: a run that is taken up again must be the same in each field.

    What the arrays hold is known by the names of the lazy arrays, which change with the content of files and of arrays
    in memory; `data_version` stands for that where it is given.
    """
    source = matrix.source
    content = {name: array.name for name, array in _arrays(matrix).items()}
    return {
        "data": {
            "n_rows": source.n_rows,
            "n_columns": source.n_columns,
            "dtype": str(source.x.dtype),
            "feature_names": _short(list(source.names)),
            "block_rows": _short(list(source.chunks)),
            "content": content if data_version is None else {"data_version": data_version},
        },
        "problem": _short(to_dict(matrix.problem)),
        "theta": _short(_listed(theta)),
        "size": design.size,
        "epsilon": design.target,
        "seed": design.seed,
        "scheme": design.scheme,
        "scores": scores,
        "shares": None if design.shares is None else list(design.shares),
        "rounds": design.rounds,
        "pilot_size": design.first,
        "keep_scores": keep_scores,
        "missing": matrix.missing,
        "device": matrix.device,
        "versions": {name: version(name) for name in ("dask-nlis", "numpy", "scipy")},
    }


def _arrays(matrix: TallMatrix) -> dict[str, da.Array]:
    source = matrix.source
    given = {"X": source.x, "y": source.y, "sample_weight": source.weight}
    return {name: array for name, array in given.items() if array is not None}


def changed(matrix: TallMatrix, name: str, since: Any) -> str:
    """What of an array changed since a time of a manifest, in words; empty where that is not known."""
    array = _arrays(matrix).get(name)
    try:
        moment = datetime.fromisoformat(since)
    except (TypeError, ValueError):
        return ""
    return "" if array is None else written_since(array, moment)


#: Longer lists are compared by a hash.
_LONG = 64


def _short(value: Any) -> Any:
    """A value as JSON, long lists and arrays as their hash."""
    if isinstance(value, Mapping):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _short(value.tolist())
    if isinstance(value, list) and len(value) > _LONG:
        return f"{len(value):,} values {hashlib.blake2b(json.dumps(_plain(value)).encode(), digest_size=8).hexdigest()}"
    return [_short(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list) else value


def completed(
    manifest: dict[str, Any],
    staged: Staged,
    design: Design,
    sample: Sample,
    loss: float,
    n_dropped: int,
    devices: dict[str, Any] | None,
) -> dict[str, Any]:
    """The manifest of a finished run: its sizes, reads, loss and where its blocks ran besides."""
    earlier = [each.sample.n_draws for each in staged.earlier]
    # The pilot's rows are those of the first stage, or drawn besides.
    pilot_size = None if staged.pilot is None else earlier[0] if earlier else design.first
    return manifest | {
        "state": "complete",
        "reads": staged.reads | {"total loss": 1},
        "devices": devices,
        "n_dropped": n_dropped,
        "total_loss": loss,
        "size": sample.n_draws,
        "stages": [*earlier, sample.n_draws - sum(earlier)],
        "pilot_size": pilot_size,
        "why_one_stage": staged.why,
        "theta": _listed(staged.matrix.theta),
        "shares": None if staged.shares is None else list(staged.shares),
        "finished": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


#: A theta of more numbers is told by its hash: a manifest is text, and read whole.
_LARGEST_THETA = 100_000


def _listed(theta: np.ndarray | None) -> list[float] | str | None:
    if theta is None or len(theta) <= _LARGEST_THETA:
        return None if theta is None else [float(v) for v in theta]
    return f"{len(theta):,} values {hashlib.blake2b(theta.tobytes(), digest_size=16).hexdigest()}"
