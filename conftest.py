"""Docstrings that need a library of the adapters, or matplotlib, run where it is installed; tests marked `adapters` see that they do."""

from importlib.util import find_spec

_NEEDED = {
    "xarray": ("adapters/from_xarray", "adapters/xarray_rows"),
    "jax": ("adapters/from_jax", "adapters/jax_model"),
    "matplotlib": tuple(
        f"plots/{name}" for name in ("drift", "gallery", "lorenz", "loss_against_size", "residual_leverage", "scores")
    ),
    "torch": ("adapters/from_torch", "adapters/torch_model"),
}

collect_ignore = [
    f"dask_nlis/{name}.py" for library, names in _NEEDED.items() if not find_spec(library) for name in names
]
