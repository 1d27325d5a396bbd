"""Docstrings that need a library of the adapters run where it is installed; tests marked `adapters` see that they do."""

from importlib.util import find_spec

_NEEDED = {
    "xarray": ("from_xarray", "xarray_rows"),
    "jax": ("from_jax", "jax_model"),
    "torch": ("from_torch", "torch_model"),
}

collect_ignore = [
    f"dask_nlis/adapters/{name}.py" for library, names in _NEEDED.items() if not find_spec(library) for name in names
]
