"""Shared by all tests: the tables on the path, the built-in and stored data sets, float64 throughout."""

import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from distributed import Client, LocalCluster, default_client

sys.path.insert(0, str(Path(__file__).parent))

hypothesis.settings.register_profile("default", max_examples=50, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=300, deadline=None)
hypothesis.settings.load_profile("default")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260801)


@pytest.fixture
def cluster():
    """A cluster of two workers in this process, closed to the outside, with a client in force."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster),
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    """The client of `cluster`."""
    return default_client()
