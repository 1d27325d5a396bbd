"""What a run says of itself: data, design, versions, and what came of it."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.stages import Staged
from dask_nlis.sample import Sample
from dask_nlis.store import FORMAT


def begun(
    matrix: TallMatrix, design: Design, scores: str, theta: np.ndarray | None, keep_scores: bool
) -> dict[str, Any]:
    """The manifest of a run at its start."""
    source = matrix.source
    return {
        "format": FORMAT,
        "state": "running",
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
    return datetime.now(UTC).isoformat(timespec="seconds")


def _listed(theta: np.ndarray | None) -> list[float] | None:
    return None if theta is None else [float(v) for v in theta]
