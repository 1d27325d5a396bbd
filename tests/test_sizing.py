"""examples/benchmarks/sizing.py and deploy/SIZING.md: what follows from the shape of the data is what the planner says."""

import subprocess
import sys
from pathlib import Path

import pytest
from dask.utils import format_bytes
from scripts import example

ROOT = Path(__file__).parents[1]


def _tables(text):
    """Rows of tables by the heading above them, each a dictionary by the names of its columns."""
    found, heading, names = {}, None, None
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            names = None
        elif names is None:
            names = cells
        elif not set("".join(cells)) <= set("-: "):
            found.setdefault(heading, []).append(dict(zip(names, cells, strict=True)))
    return found


@pytest.mark.parametrize("k", [0, 1])
def test_the_tables_of_the_guide_are_those_of_the_planner(k):
    sizing = example("benchmarks/sizing")
    case = sizing.CASES[k]
    rows = _tables((ROOT / "deploy" / "SIZING.md").read_text("utf-8"))[case.title]
    assert [row["rows"] for row in rows] == ["10^8", "10^9", "10^10", "10^12"]
    for row, (n_rows, block_bytes) in zip(rows, sizing.ROWS.items(), strict=True):
        plan = case.plan(n_rows, block_bytes, threads=4)
        assert row["blocks of"] == f"{plan.blocks:,} x {format_bytes(plan.block_bytes)}"
        assert row["tasks"] == f"{plan.tasks:,}"
        assert row["client"] == format_bytes(plan.peak_client_memory)
        # Threads that share the hours: no more of them than it takes, no fewer.
        hours, workers = float(row["thread hours"].replace(",", "")), int(row["workers of 4"].replace(",", ""))
        assert workers == 2 or (workers - 1) * 4 * 8 < hours * 1.01 <= workers * 4 * 8 * 1.02


@pytest.mark.cluster
@pytest.mark.slow
def test_a_job_is_planned_and_run_and_reads_as_often_as_planned():
    script = ROOT / "examples" / "benchmarks" / "sizing.py"
    result = subprocess.run([sys.executable, script, "--quick"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ((checked,),) = [rows for heading, rows in _tables(result.stdout).items() if heading.startswith("Planned")]
    assert checked["reads"] == "5 / 5"
    planned, measured = (int(each) for each in checked["tasks"].split(" / "))
    assert planned == 30
    # On a cluster tasks that hand on candidates come on top, and some for theta and whiteners whatever the blocks.
    assert planned < measured <= 2 * planned + 30
