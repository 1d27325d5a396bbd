"""A run on a local cluster, watched: the page of `monitor`, and the Dask dashboard as it looks in the middle of the run.

    python examples/dashboard.py [--rows 1000000] [--folder FOLDER] [--hold]

Pictures of the dashboard need Chromium and the Python package playwright; without them the run is done and told all the
same, and --hold keeps the cluster for a look with a browser of one's own. `examples/pictures/dashboard.png` was made by this.
"""

import argparse
import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import zarr
from distributed import Client, LocalCluster

import dask_nlis as nlis

COLUMNS, BLOCK = 20, 10_000
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))


def write(path: Path, n_rows: int) -> None:
    """Rows with a few that matter much, written block by block."""
    group = zarr.create_group(path)
    x = group.create_array("X", shape=(n_rows, COLUMNS), chunks=(BLOCK, COLUMNS), dtype="float64")
    y = group.create_array("y", shape=(n_rows,), chunks=(BLOCK,), dtype="float64")
    for first in range(0, n_rows, BLOCK):
        rng = np.random.default_rng([0, first])
        rows = rng.standard_t(3, size=(min(BLOCK, n_rows - first), COLUMNS))
        x[first : first + BLOCK] = rows
        y[first : first + BLOCK] = np.tanh(rows @ np.linspace(-0.5, 0.5, COLUMNS)) + 0.1 * rng.normal(size=len(rows))


def job(folder: Path) -> nlis.Run:
    """The run, with a report of its execution."""
    X, y = nlis.open_rows(folder / "rows.zarr", X="X", y="y", block_bytes=8 * BLOCK * COLUMNS)
    with nlis.monitor(report=folder / "run.html") as seen:
        done = nlis.run(PROBLEM, X, y, size=2_000, seed=0, store=folder / "run.zarr")
    for phase in seen.phases:
        if phase.rows_per_second is not None:
            print(
                f"{phase.label:12} {phase.seconds:6.2f} s {phase.rows_per_second:12,.0f} rows/s on {phase.workers} workers"
            )
    return done


def pictures(address: str, start: Callable[[], "Future[nlis.Run]"], chromium: str) -> list[bytes]:
    """What the status page looks like, once a second while the job runs that is started once the page is there."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.locator("canvas").first.wait_for()
        running = start()
        while not running.done():
            wait([running], timeout=1)
            found.append(page.screenshot())
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--folder", type=Path, help="where data, run, report and picture stay; by default they are deleted"
    )
    parser.add_argument("--hold", action="store_true", help="keep the cluster until Enter is pressed")
    given = parser.parse_args()
    chromium = shutil.which("chromium") if importlib.util.find_spec("playwright") else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "rows.zarr", given.rows)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster),
            ThreadPoolExecutor(1) as beside,
        ):
            address = f"http://127.0.0.1:{cluster.scheduler.http_server.port}/status"
            print(f"dashboard: {address}")
            started: list[Future[nlis.Run]] = []

            def start() -> Future[nlis.Run]:
                started.append(beside.submit(job, folder))
                return started[0]

            taken = [] if chromium is None else pictures(address, start, chromium)
            print((started[0] if started else start()).result().fit.summary())
            if given.hold:
                input("Enter ends the cluster. ")
        if taken:
            (folder / "dashboard.png").write_bytes(max(taken, key=len))  # the one with most on it
        else:
            print("no picture of the dashboard: it needs Chromium and the Python package playwright")
        print(
            f"report: {folder / 'run.html'}, {(folder / 'run.html').stat().st_size:,} bytes{'' if given.folder else ', deleted now: --folder keeps it'}"
        )


if __name__ == "__main__":
    main()
