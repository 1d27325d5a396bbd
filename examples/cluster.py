"""A job on a cluster of this machine, one of whose workers is killed in the middle: the same result in every bit.

\b
python examples/cluster.py                                   a gigabyte of rows; a minute
python examples/cluster.py --gigabytes 0.1 --hold            keeps the cluster until Enter is pressed, for a look

`nlis.cluster.local` starts two workers, each a process of one thread, and prints where the dashboard is (its pages need
bokeh, the extra `dashboard`). The job is done three times: by threads of this process, on the cluster, and on the cluster
again, where a worker is killed by SIGKILL while it scores; its nanny starts another. Nothing in the calls says where they
run. Sample, scores, fit and certificate are compared bit by bit; the picture shows every task of the third job by the worker
that did it, and when the one died.

Needs matplotlib: pip install 'dask-nlis[plot]'.
"""

import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import dask
import distributed
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from drawing import free_path, picture_options, save
from out_of_core import BLOCK, COLUMNS, PROBLEM, TRUTH, write

import dask_nlis as nlis

WORKERS = 2
#: What the 52 numbers of a row cost on disk.
ROW = 8 * (COLUMNS + 1)


class Task(NamedTuple):
    """What ran where and when, in seconds of the clock."""

    label: str
    worker: str
    began: float
    ended: float


class Watcher(distributed.SchedulerPlugin):
    """Keeps all tasks that end on a cluster of this process, and kills a worker after so many of them."""

    def __init__(self, cluster: distributed.LocalCluster, kill_after: int | None) -> None:
        self.cluster, self.kill_after = cluster, kill_after
        self.tasks: list[Task] = []
        self.killed: tuple[str, float] | None = None

    def transition(self, key: Any, start: str, finish: str, *args: Any, **known: Any) -> None:
        """A task went from one state to another."""
        if (start, finish) != ("processing", "memory"):
            return
        for part in known.get("startstops") or ():
            if part["action"] == "compute":
                self.tasks.append(Task(distributed.utils.key_split(key), known["worker"], part["start"], part["stop"]))
        if self.killed is None and self.kill_after is not None and len(self.tasks) >= self.kill_after:
            nanny = next(each for each in self.cluster.workers.values() if each.process is not None)
            self.killed = nanny.worker_address, time.time()
            os.kill(nanny.process.pid, signal.SIGKILL)


class Done(NamedTuple):
    """A finished job and its seconds."""

    run: nlis.Run
    seconds: float


def job(where: Path, size: int, store: Path) -> Done:
    """`run` on stored rows, by whatever Dask computes on."""
    X, y = nlis.open_rows(where, X="X", y="y", block_bytes=8 * BLOCK * COLUMNS)
    start = time.perf_counter()
    done = nlis.run(PROBLEM, X, y, size=size, seed=0, store=store)
    return Done(done, time.perf_counter() - start)


def on_cluster(
    cluster: distributed.LocalCluster, where: Path, size: int, store: Path, kill_after: int | None
) -> tuple[Done, Watcher]:
    """The same on a cluster, watched; what Dask logs of a worker that dies is not shown."""
    watcher = Watcher(cluster, kill_after)
    cluster.scheduler.add_plugin(watcher, name=store.name)
    logging.disable(logging.CRITICAL if kill_after else logging.NOTSET)
    try:
        return job(where, size, store), watcher
    finally:
        logging.disable(logging.NOTSET)
        cluster.scheduler.remove_plugin(store.name)


def killing(watcher: Watcher, seconds: float) -> str:
    """What happened to the worker, and how the job went on."""
    if watcher.killed is None:
        raise click.ClickException("the job was over before a worker was killed; give more --gigabytes")
    _, when = watcher.killed
    late = [task for task in watcher.tasks if task.began > when]
    others = len({task.worker for task in watcher.tasks}) - WORKERS
    return (
        f"{WORKERS} workers, one killed in {late[0].label}: {seconds:.1f} s; {len(watcher.tasks)} tasks, {len(late)} of them began "
        f"after that, and {'a worker in its place took part' if others else 'the job was over before another worker took its place'}"
    )


def differences(a: nlis.Run, b: nlis.Run) -> list[str]:
    """What is not the same in every bit."""
    same = {
        "sample": a.sample == b.sample,
        "scores": np.array_equal(np.asarray(a.scores), np.asarray(b.scores)),
        "factor": a.factor == b.factor,
        "fit": a.fit == b.fit,
        "certificate": a.certificate == b.certificate,
    }
    return [name for name, equal in same.items() if not equal]


def picture(watcher: Watcher, path: Path) -> None:
    """A lane a worker, a bar a task, a line where one was killed."""
    assert watcher.killed is not None
    tasks = sorted((task for task in watcher.tasks if task.label.startswith("nlis-")), key=lambda task: task.began)
    origin = tasks[0].began
    lanes = list(dict.fromkeys(task.worker for task in tasks))
    figure, panel = plt.subplots(figsize=(11, 1.6 + 0.8 * len(lanes)), layout="constrained")
    spent = {
        label: sum(task.ended - task.began for task in tasks if task.label == label)
        for label in dict.fromkeys(task.label for task in tasks)
    }
    # Those that are too short to be seen are left out: sums of factors, draws.
    for number, label in enumerate(label for label, seconds in spent.items() if seconds > 0.01 * sum(spent.values())):
        mine = [task for task in tasks if task.label == label]
        for lane, worker in enumerate(lanes):
            spans = [(task.began - origin, task.ended - task.began) for task in mine if task.worker == worker]
            named = label if worker == mine[0].worker else None
            panel.broken_barh(
                spans, (lane - 0.35, 0.7), color=f"C{number}", edgecolor="white", linewidth=0.3, label=named
            )
    address, when = watcher.killed
    if address in lanes:
        place = lanes.index(address)
        panel.plot([when - origin] * 2, [place - 0.5, place + 0.5], color="black", linewidth=2)
        panel.annotate(" killed", (when - origin, place), va="center")
    panel.set_yticks(range(len(lanes)), [f"worker {k + 1}" for k in range(len(lanes))])
    panel.invert_yaxis()
    panel.set(xlabel="seconds", title="a worker dies and the job goes on: tasks by the worker that did them")
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)
    panel.grid(axis="x", alpha=0.3)
    save(figure, path)


@click.command(help=__doc__)
@click.option("--gigabytes", default=1.0, show_default=True, type=click.FloatRange(0.1), help="Rows on disk.")
@click.option("--size", default=2_000, show_default=True, type=click.IntRange(500), help="Rows to draw.")
@click.option("--port", default=8787, show_default=True, help="Of the dashboard; 0 for any that is free.")
@click.option("--hold", is_flag=True, help="Keep the cluster until Enter is pressed.")
@picture_options
def main(gigabytes: float, size: int, port: int, hold: bool, folder: Path, overwrite: bool) -> None:
    path = free_path(folder, "cluster.png", overwrite)
    mpl.use("Agg")
    n_rows = round(gigabytes * 1e9 / ROW)
    with tempfile.TemporaryDirectory(prefix="nlis-cluster-") as kept:
        where = Path(kept) / "rows.zarr"
        write(where, n_rows)
        print(f"rows: {n_rows:,} x {COLUMNS}, {gigabytes:g} GB in {-(-n_rows // BLOCK)} blocks")
        with dask.config.set(scheduler="threads", num_workers=WORKERS):
            alone = job(where, size, Path(kept) / "alone.zarr")
        print(f"{WORKERS} threads of this process: {alone.seconds:.1f} s")
        with (
            nlis.cluster.local(WORKERS, threads_per_worker=1, dashboard_port=port) as cluster,
            distributed.Client(cluster),
        ):
            print(f"dashboard: {cluster.dashboard_link}")
            whole, seen = on_cluster(cluster, where, size, Path(kept) / "whole.zarr", None)
            print(f"{WORKERS} workers: {whole.seconds:.1f} s, {len(seen.tasks)} tasks")
            after = round(0.6 * len(seen.tasks))
            shot, watcher = on_cluster(cluster, where, size, Path(kept) / "shot.zarr", after)
            print(killing(watcher, shot.seconds))
            if hold:
                input("Enter ends the cluster. ")
        with dask.config.set(scheduler="threads", num_workers=WORKERS):
            theta = np.array([TRUTH, shot.run.fit.theta])
            losses = nlis.total_loss(PROBLEM, *nlis.open_rows(where, X="X", y="y"), theta)
            wrong = {name: differences(alone.run, each.run) for name, each in (("cluster", whole), ("killed", shot))}
    picture(watcher, path)
    for name, found in wrong.items():
        print(f"{name} against threads: {', '.join(found) + ' DIFFER' if found else 'the same in every bit'}")
    print(
        f"loss over all rows: {abs(losses[1] / losses[0] - 1):.1%} above that of the parameters behind the labels, by a fit to "
        f"{len(shot.run.sample):,} of {n_rows:,} rows\n"
        "The paper's experiments ran in one process, and it claims nothing of clusters. Here two workers are "
        f"{alone.seconds / whole.seconds:.2f} times as fast as two threads: on the cores of one machine a cluster gains no time. It is "
        "for more machines, and for jobs that outlive a worker."
    )
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
