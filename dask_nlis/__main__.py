"""python -m dask_nlis: the same as the command dask-nlis."""

from dask_nlis.cli import main

if __name__ == "__main__":
    main()
