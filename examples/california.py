"""California housing from stored rows to a constrained fit, on this machine or on a Dask cluster.

\b
python examples/california.py                                    a temporary folder, no cluster
python examples/california.py try --size 200                     keep data and run in the new folder "try"
python examples/california.py /data --scheduler tcp://host:8786  every worker sees /data under this path
"""

import tempfile
from contextlib import nullcontext
from pathlib import Path

import click
import distributed
import numpy as np
import zarr

import dask_nlis as nlis
from dask_nlis.datasets.california import FEATURES

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))


@click.command(help=__doc__)
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@click.option("--size", default=413, show_default=True, help="Rows to draw.")
@click.option("--scheduler", help="Address of a Dask scheduler; without one, the threads of this process.")
def main(folder: str | None, size: int, scheduler: str | None) -> None:
    place = nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="nlis-california-")
    with place as kept, distributed.Client(scheduler) if scheduler else nullcontext():
        where = Path(kept).resolve()
        table, labels = nlis.datasets.california_housing(standardized=True)
        group = zarr.open_group(where / "california.zarr", mode="w-")
        stored = group.create_array("X", data=table.compute(), chunks=table.chunksize)
        stored.update_attributes({"feature_names": FEATURES})
        group.create_array("y", data=labels.compute(), chunks=labels.chunksize)

        X, y = nlis.open_rows(where / "california.zarr", X="X", y="y", block_bytes=300_000)
        job = nlis.run(PROBLEM, X, y, size=size, seed=0, store=where / "run.zarr")
        print(job)
        print(job.certificate)
        for name, value in job.fit.params.items():
            print(f"{name:>10} {value:+.3f}")

        best = nlis.refit(PROBLEM, table.compute(), labels.compute(), np.ones(len(labels))).loss
        print(f"log excess loss against the fit on all rows: {np.log(job.total_loss / best - 1):.2f}")

        leverage = nlis.leverage_scores(nlis.dual_matrix(PROBLEM, X, y, theta=job.pilot.theta), job.factor)
        top = nlis.top_rows(leverage, k=10, X=X)
        for row, score, features in zip(top.indices, top.scores, top.X, strict=True):
            print(f"row {row:>5}, leverage {score:.3f}:", dict(zip(top.names, features.round(1).tolist(), strict=True)))


if __name__ == "__main__":
    main()
