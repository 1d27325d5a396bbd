"""Whether a factor that was stored is one: its arrays belong together, and no number is out of its range."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError


def check_stored(factor: Any) -> None:
    """Raise an InputError naming the first thing that no factor has."""
    p, rank = len(factor.columns), factor.rank
    _must(0 <= rank <= p, f"rank {rank}", f"number from 0 to {p}, that of its columns")
    shapes = {"r": (p, p), "singular_values": (p,), "column_scale": (p,), "whitener": (p, rank)}
    shapes |= {} if factor.correction is None else {"correction": (rank, rank)}
    for name, shape in shapes.items():
        array = getattr(factor, name)
        _must(array.shape == shape, f"{name} of shape {array.shape}", f"array of shape {shape}")
        _must(bool(np.isfinite(array).all()), name, "array of finite numbers")
    _must(not np.tril(factor.r, -1).any(), "r", "upper triangle")
    _must(bool((factor.column_scale > 0).all()), "column_scale", "array of powers of two")
    for name in ("n_rows", "n_dropped", "nodes", "reads", "frobenius", "identity_residual", "condition"):
        _must(getattr(factor, name) >= 0, name, "number from 0 on")
    _must(factor.beta > 0 or factor.method != "sketch-only", "beta", "positive number")
    _must(set(factor.method.split("+")) <= _METHODS, "method", "method")
    _must(bool(factor.parts), "parts", "list of tokens")
    _must(set(factor.dependent) <= set(factor.columns), "dependent", "list of its columns")


_METHODS = {"gram", "patterns", "cholesky-qr2", "tsqr", "sketch", "sketch-only"}


def _must(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        raise InputError(f"Factor is stored with {name[:80]}, which is no {wanted}: it was altered; write it anew")
