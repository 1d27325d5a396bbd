"""Shared by all tests: the tables on the path, the built-in and stored data sets, float64 throughout."""

import sys
from pathlib import Path

import dask
import hypothesis
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

hypothesis.settings.register_profile("default", max_examples=50, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=300, deadline=None)
hypothesis.settings.load_profile("default")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260801)


@pytest.fixture(autouse=True)
def unencrypted():
    """Whether clusters must encrypt is for each test to say: what a closed one leaves behind is not for the next."""
    with dask.config.set({"distributed.comm.require-encryption": None}):
        yield
