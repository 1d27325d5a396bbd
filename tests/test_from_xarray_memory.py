"""What the client holds while ten million cells of a Dataset are scored, drawn from and written back."""

from pathlib import Path

import pytest
from test_memory import in_a_process

pytestmark = pytest.mark.adapters


@pytest.mark.cluster
@pytest.mark.parametrize(("scheduler", "most"), [("threads", 100e6), ("cluster", 20e6)])
def test_ten_million_cells_do_not_grow_the_client(scheduler, most):
    # With threads the client is the worker as well, and holds 80 MB of scores while it draws; blocks are of 4 MB.
    growth, n = map(int, in_a_process(str(Path(__file__).parent / "gridded.py"), scheduler).split())
    assert n == 10**7
    assert growth < most
