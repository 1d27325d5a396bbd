"""A Dataset of two variables and 10^7 cells: rows, leverage, draw, and scores back into a Zarr store.

python tests/gridded.py threads|cluster prints by how many bytes the peak of this process grows over what it held after
the same on a tenth of the cells, and the number of cells.
"""

import sys
import tempfile

import dask
import dask.array as da
from distributed import Client, LocalCluster

import dask_nlis as nlis


def memory(field: str) -> int:
    """Bytes of this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def scored(n_time: int, folder: str) -> int:
    """Score all cells, draw 1,000, and write the scores; blocks of 250,000 cells are made by tasks."""
    import xarray as xr  # not with the file, which is looked at where there is no xarray

    random = da.random.default_rng(0)
    shape, chunks = (n_time, 100, 1000), (5, 50, 1000)
    ds = xr.Dataset({name: (("time", "lat", "lon"), random.standard_normal(shape, chunks=chunks)) for name in "ab"})
    rows = nlis.from_xarray(ds, ["a", "b"])
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), rows.X)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    rows.coordinates(nlis.draw(scores, 1_000, seed=0))
    rows.restore(scores, name="leverage").to_zarr(folder, consolidated=False)
    leverage = xr.open_zarr(folder, consolidated=False).leverage
    assert leverage.sizes == ds.sizes
    assert abs(float(leverage.sum()) - 3) < 1e-6
    return rows.grid.n_rows


def main(scheduler: str) -> None:
    with tempfile.TemporaryDirectory() as folder, dask.config.set(num_workers=2):
        if scheduler == "cluster":
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50)
            Client(cluster)
        scored(10, f"{folder}/warm")
        before = memory("VmRSS")
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # the peak begins anew
        n = scored(100, f"{folder}/whole")
        print(memory("VmHWM") - before, n)


if __name__ == "__main__":
    main(sys.argv[1])
