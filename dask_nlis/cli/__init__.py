"""The shell: dask-nlis demo and plan. Exit codes: 0 done, 1 failed, 2 usage or data refused, 130 interrupted."""

from dask_nlis.cli.main import main

__all__ = ["main"]
