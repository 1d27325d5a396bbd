import dask_nlis  # noqa: F401
