"""Docstrings that need a library of the adapters run where it is installed; tests marked `adapters` see that they do."""

from importlib.util import find_spec

collect_ignore = (
    [] if find_spec("xarray") else [f"dask_nlis/adapters/{name}.py" for name in ("from_xarray", "xarray_rows")]
)
