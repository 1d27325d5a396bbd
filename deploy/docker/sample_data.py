"""California housing as Zarr in a bucket or a folder, for trying a deployment out: python sample_data.py URL|FOLDER."""

import sys

import dask
import obstore.store
import zarr
from zarr.storage import LocalStore, ObjectStore

import dask_nlis as nlis
from dask_nlis.datasets.california import FEATURES


def main(where: str) -> None:
    """Write X and y, unless they are there: a run that goes on must find the data that it began with."""
    options = dask.config.get("dask-nlis.storage", {})
    if "://" in where:
        told = {key: options[key] for key in ("endpoint", "region") if key in options}
        client = {"allow_http": bool(options.get("allow_http", options.get("allow-http", False)))}
        store = ObjectStore(obstore.store.from_url(where, config=told, client_options=client))
    else:
        store = LocalStore(where)
    group = zarr.open_group(store, mode="a")
    if {"X", "y"} <= set(group.array_keys()):
        print(f"{where}: X and y are there")
        return
    X, y = nlis.datasets.california_housing(standardized=True)
    rows = {"chunks": (2_064, X.shape[1]), "overwrite": True}
    group.create_array("X", data=X.compute(), attributes={"feature_names": FEATURES}, **rows)
    # Last: where y is, X is whole.
    group.create_array("y", data=y.compute(), chunks=(2_064,), overwrite=True)
    print(f"{where}: {X.shape[0]:,} rows of {X.shape[1]} features")


if __name__ == "__main__":
    main(*sys.argv[1:])
