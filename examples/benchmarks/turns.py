"""What the benchmarks here share: works in turn and their median CPU time, the machine in one line, a Markdown table."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from threadpoolctl import threadpool_info


def in_turn(works: Mapping[str, Callable[[], Any]], repeats: int, *, warm: bool = True) -> dict[str, float]:
    """Median CPU seconds of the process for each work: all in turn, `repeats` times, after one that warms up.

    CPU time does not count waiting for a core; in turn, a slow moment of the machine meets every work alike.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for k in range(repeats + warm):
        for name, work in works.items():
            began = process_time()
            work()
            if k >= warm:
                found[name].append(process_time() - began)
    return {name: median(seconds) for name, seconds in found.items()}


def machine(*packages: str) -> str:
    """Processor, cores, BLAS and versions, in one line."""
    processor = platform.processor() or platform.machine()
    known = Path("/proc/cpuinfo")
    if known.exists():
        names = [line.partition(":")[2].strip() for line in known.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    blas = {f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}" for pool in threadpool_info()}
    versions = (f"{name} {version(name)}" for name in ("numpy", "scipy", "dask", *packages))
    return (
        f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions)}; "
        + ", ".join(sorted(name.strip() for name in blas))
    )


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, its columns as wide as their widest entry."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [columns, ["-" * (width - 1) + ":" for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(entry.rjust(width) for entry, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
