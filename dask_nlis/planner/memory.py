"""Memory of a worker and of the client, and the refusal of what does not fit; all from metadata."""

from collections.abc import Sequence

from dask.utils import format_bytes

from dask_nlis.blocks import STACK, group_blocks
from dask_nlis.device import sub_block_rows
from dask_nlis.errors import MemoryLimitError
from dask_nlis.planner.layout import Layout
from dask_nlis.planner.steps import Step
from dask_nlis.workers import Workforce

#: A process with this library, Dask and Zarr loaded and used once.
PROCESS_BYTES = 200 * 2**20

#: Of a task in the graph and of a record of a block, on the client.
_TASK_BYTES, _RECORD_BYTES = 5_000, 400

#: Products, slopes and squares of a sub-block that exist at a time besides its rows.
_TEMPORARIES = 4


def worker_memory(steps: Sequence[Step], layout: Layout, workforce: Workforce, held: int) -> dict[str, int]:
    """Bytes of the fullest process that works, part by part, each of the pass that takes most; `held` of all scores."""
    threads = min(workforce.threads_of_one, layout.blocks)
    widths = [[layout.widths[name] for name in step.matrices if name in layout.widths] for step in steps]
    squares = max((8 * sum(w * w for w in each) for each in widths), default=0)
    widest = max((max(each) for each in widths if each), default=layout.widths["dual"])
    leaf = sub_block_rows("cpu", widest, reducing=True)
    numbers = 2 * layout.n_columns + _TEMPORARIES * widest
    factored = any(step.kind == "factor" for step in steps)
    # A running task holds a sum and what is added to it; finished ones wait for the 16 of their stack, and the
    # sums of stacks for the end of their group.
    group = min(layout.blocks, group_blocks(widest))
    waiting = min(layout.blocks, STACK + threads) + -(-group // STACK // workforce.processes)
    return {
        "process": PROCESS_BYTES,
        "blocks": threads * layout.reading_bytes,
        "sub-blocks": threads * 8 * min(leaf, layout.block_rows) * numbers,
        "factors": (3 * threads + waiting) * squares if factored else 0,
        "whitener": 2 * squares if factored else 0,
        "scores held": held // workforce.processes,
    }


def client_memory(steps: Sequence[Step], layout: Layout, size: int) -> dict[str, int]:
    """Bytes of the process that plans, draws and fits, part by part."""
    p = max(layout.widths.values())
    factors = max((8 * sum(layout.widths.get(name, 0) ** 2 for name in step.matrices) for step in steps), default=0)
    return {
        "process": PROCESS_BYTES,
        "factors": 6 * factors if any(step.kind == "factor" for step in steps) else 0,
        "graph and records": layout.blocks * (_TASK_BYTES + _RECORD_BYTES * len(steps)),
        "drawn rows and fit": 8 * size * (2 * (layout.n_columns + 2) + _TEMPORARIES * p),
    }


def check_fits(
    worker: dict[str, int], client: dict[str, int], layout: Layout, workforce: Workforce, limit: int | None, here: int
) -> None:
    """Raise MemoryLimitError, with the numbers and a remedy, where a worker or this process would need more than it has."""
    # On a cluster scores that are held spill to disk.
    parts = {name: size for name, size in worker.items() if not (workforce.on_cluster and name == "scores held")}
    who = "a worker" if workforce.elsewhere else "this process"
    if not workforce.elsewhere:
        parts |= {name: parts.get(name, 0) + size for name, size in client.items() if name != "process"}
    if limit is not None and sum(parts.values()) > limit:
        raise MemoryLimitError(_message(who, parts, layout, workforce, limit))
    if workforce.elsewhere and sum(client.values()) > here:
        raise MemoryLimitError(_message("this process", client, layout, workforce, here))


def _message(who: str, parts: dict[str, int], layout: Layout, workforce: Workforce, limit: int) -> str:
    total = sum(parts.values())
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    shown = ", ".join(f"{name} {format_bytes(parts[name])}" for name in largest)
    return (
        f"{who} needs about {format_bytes(total)} ({shown}) but may use {format_bytes(limit)}; "
        f"{_remedy(parts, layout, workforce, limit)}"
    )


def _remedy(parts: dict[str, int], layout: Layout, workforce: Workforce, limit: int) -> str:
    worst = max((name for name in parts if name != "process"), key=lambda name: parts[name])
    if worst == "blocks":
        rest = limit - sum(parts.values()) + parts["blocks"]
        fits = int(0.9 * layout.block_bytes * rest / parts["blocks"])  # smaller blocks are more blocks
        if fits > layout.block_bytes // layout.block_rows:
            threads = workforce.threads_of_one
            fewer = f", fewer than {threads} threads a worker" if threads > 1 else ""
            return f"give block_bytes={fits:,} or less{fewer}, or store smaller chunks"
    return {
        "factors": "use fewer parameters, scores='norm', or fewer threads a worker",
        "whitener": "use fewer parameters, or scores='norm'",
        "scores held": "give run(store=...), whose scores go to disk block by block, or a cluster",
        "drawn rows and fit": "draw fewer rows",
        "graph and records": "give a larger block_bytes",
    }.get(worst, "run where there is more memory")
