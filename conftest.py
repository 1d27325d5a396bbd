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

#: Examples of methods whose files hold others besides.
_DRAWN = {"dask_nlis.pipeline.run_noun.Run.report", "dask_nlis.report.noun.Report"}

collect_ignore = [
    f"dask_nlis/{name}.py" for library, names in _NEEDED.items() if not find_spec(library) for name in names
]


def pytest_collection_modifyitems(config, items):
    """Leave out examples that draw where nothing can."""
    if not find_spec("matplotlib"):
        config.hook.pytest_deselected(items=[item for item in items if item.name in _DRAWN])
        items[:] = [item for item in items if item.name not in _DRAWN]
