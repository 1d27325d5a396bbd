"""Source rows for a model that is used on a target: where cross leverage helps, and where it does not (minutes).

Uses the functions of examples/transfer.py: mean log excess loss on the target over 12 splits; the thresholds leave three
standard errors.
"""

from functools import cache

import numpy as np
import pytest
import scripts

pytestmark = pytest.mark.adapters

SPLITS = 12


@pytest.fixture
def example():
    """The example as a module; it needs pandas and matplotlib."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    return scripts.example("transfer")


@cache
def found(name):
    return scripts.example("transfer").experiment(name, SPLITS, (100,))


def test_splits_share_no_row_and_the_clear_diamonds_lie_apart(example):
    for name in example.SPLITS:
        X, y, target, shared = example.load(name)
        numbered = np.column_stack([X, np.arange(len(y))])
        of = example.split(numbered, y, target, shared, np.random.default_rng(0))
        parts = [of.source[0][:, -1], of.pool[0][:, -1], of.judged[0][:, -1]]
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts)) == len(y)
        assert np.isin(of.known[:, -1], parts[1]).all()
        assert len(of.known) == example.KNOWN
        np.testing.assert_array_equal(target[parts[0].astype(int)], of.given)
        assert of.given.any() == shared
        assert target[np.concatenate(parts[1:]).astype(int)].all()
    X, y, target, shared = example.load("clear diamonds")
    of = example.split(X, y, target, shared, np.random.default_rng(0))
    scores, counts = example.scored(of)
    # A row with an indicator that no known row has lies outside: all other clarities, and the rarest cuts of the target.
    assert counts["alike", 0] == counts["found", 0] > 0.9 * of.given.sum()
    assert 0.95 * of.given.sum() < counts["inside", 0] <= of.given.sum()
    assert not scores["cross, alike"][~of.given].any()
    assert (scores["cross"][~of.given] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("rival", "margin"), [("uniform", -0.75), ("source", -0.4), ("cross", -1.25)])
def test_rows_alike_by_cross_leverage_beat_the_whole_source_where_others_lie_outside(example, rival, margin):
    mean, error = example.difference(found("clear diamonds"), "cross, alike", rival, 100)
    assert mean + 3 * error < margin


@pytest.mark.slow
def test_a_hundred_target_labels_beat_all_labels_of_a_source_without_the_target(example):
    north = found("northern districts")
    apart = np.log(north.excess["target", 100] / north.all_source)
    assert apart.mean() + 3 * apart.std(ddof=1) / np.sqrt(SPLITS) < -1
    mean, error = example.difference(north, "cross, alike", "source", 100)
    assert mean + 3 * error > 0  # no gain
