"""Decisive cells of `examples/two_stage.py`: the default against the paper's scores at the unknown optimum."""

import numpy as np
import pytest
import scripts


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    return scripts.example("two_stage")


@pytest.mark.slow
@pytest.mark.parametrize(("data", "share"), [("california", 0.02), ("diamonds", 0.005)])
def test_the_default_beats_the_papers_scores_at_the_optimum(data, share, example):
    of = example.prepare(data, "poisson")
    size = round(share * len(of.y))
    ours, oracle, uniform = (
        np.median(example.cell(of, column, size, 200)) for column in ("default", "leverage, oracle", "uniform")
    )
    assert ours < oracle - 0.05
    assert ours < uniform - 1


@pytest.mark.slow
def test_it_does_so_where_the_order_of_rows_carries_nothing_and_by_slices(example):
    of = example.prepare("california", "shuffled")
    ours, oracle = (np.median(example.cell(of, column, 413, 200)) for column in ("default", "leverage, oracle"))
    assert ours < oracle - 0.05
