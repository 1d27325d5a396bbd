"""Jobs that cannot be what was asked for say so, and rows that do not count change nothing."""

import os
import tempfile

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, no_compute, rows_of

import dask_nlis as nlis
from dask_nlis import workers

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
X, Y = rows_of(33, 1000, 3)
SCHEMES = ("poisson", "multinomial", "stratified", "systematic")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def job(x=X, y=Y, problem=PROBLEM, **options):
    return nlis.run(problem, x, y, **{"size": 100, "seed": 1} | options)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_round_brings_rows_or_the_job_does_not_begin(scheme):
    options = {"size": 20, "pilot_size": 18, "scheme": scheme}
    with no_compute(), pytest.raises(nlis.InputError, match=r"rounds=4 leaves a round without rows: .* rounds <= 3"):
        job(rounds=4, **options)
    found = job(rounds=3, **options)
    assert found.manifest["stages"] == [18, 1, 1]
    assert found.sample.n_draws == 20
    assert len(found.sample) < 40


REFUSED = {
    "scores": ({"scores": np.ones(1000)}, "is not known; give one of 'two-stage'"),
    "scheme": ({"scheme": np.ones(3)}, "is not known; give one of 'multinomial'"),
    "rounds": ({"scores": "leverage", "rounds": 3}, "rounds=3 is of two-stage scores, but scores='leverage'"),
    "rounds at theta": ({"theta": np.zeros(4), "rounds": 3}, "rounds=3 is of two-stage scores"),
    "pilot at theta": ({"theta": np.zeros(4), "pilot_size": 10}, "pilot_size=10 is given besides theta"),
    "pilot": ({"pilot_size": 100}, "pilot_size=100 leaves nothing of size=100"),
    "curvature": (
        {"scores": "influence", "problem": nlis.Problem(nlis.Linear(), nlis.AbsoluteError(on_singular="zero"))},
        "AbsoluteError has no curvature",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_allowed_is_refused_before_anything_is_read(case):
    options, message = REFUSED[case]
    with no_compute(), pytest.raises(nlis.InputError, match=message) as caught:
        job(**options)
    assert len(str(caught.value)) <= 300


def some_count(n_counting):
    return (np.arange(1000) >= 1000 - n_counting).astype(float)


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
@pytest.mark.parametrize("how", ["weights", "drop"])
def test_size_auto_ends_at_half_of_the_rows_that_count(scheme, how):
    weight = some_count(300)
    options = {"sample_weight": weight} if how == "weights" else {"missing": "drop"}
    x = X if how == "weights" else np.where(weight[:, None] > 0, X, np.nan)
    with pytest.warns(nlis.NlisWarning, match="ends at 150 rows, half of all, with epsilon"):
        found = job(x, size="auto", epsilon=1e-6, scheme=scheme, **options)
    assert found.sample.n_draws == 150


def test_more_rows_than_count_are_refused_after_the_first_scores():
    counted = CountingArray(X)
    with pytest.raises(
        nlis.InputError, match="size=400 exceeds the 300 positive scores, and poisson draws each row once"
    ):
        job(counted.dask(100), size=400, sample_weight=some_count(300))
    assert counted.reads() == 2
    assert len(job(size=300, sample_weight=some_count(300)).sample) == 300
    with pytest.raises(nlis.InputError, match="pilot_size=20 exceeds the 18 positive scores"):
        job(size=10, scores="leverage", sample_weight=some_count(18))


def test_rows_of_no_weight_take_nothing_of_the_uniform_share():
    found = job(size=60, shares=(0.0, 0.0, 1.0), sample_weight=some_count(100))
    np.testing.assert_array_equal(found.scores, np.where(some_count(100) > 0, 0.01, 0.0))
    mixed = job(size=60, shares=(0.5, 0.0, 0.5), sample_weight=some_count(100))
    assert mixed.scores.sum() == pytest.approx(1, rel=1e-12)


def test_a_job_on_rows_that_count_is_that_on_all_with_the_others_dropped_or_of_no_weight():
    weight = some_count(700)
    dropped = job(np.where(weight[:, None] > 0, X, np.nan), missing="drop")
    weighted = job(sample_weight=weight)
    assert dropped.n_dropped == 300
    np.testing.assert_allclose(dropped.scores, weighted.scores, rtol=1e-9)
    assert dropped.sample.indices.tolist() == weighted.sample.indices.tolist()
    np.testing.assert_allclose(dropped.sample.weights, weighted.sample.weights, rtol=1e-9)
    np.testing.assert_allclose(dropped.fit.theta, weighted.fit.theta, rtol=1e-6)
    assert dropped.total_loss == pytest.approx(weighted.total_loss, rel=1e-6)


class Failing(CountingArray):
    """Fails at the read after so many."""

    allowed = 1

    def __getitem__(self, index):
        if self.rows[0] >= self.allowed:
            raise OSError("the disk is gone")
        return super().__getitem__(index)


@pytest.mark.parametrize("reads", [1, 3, 5, 6])
def test_a_job_that_fails_leaves_no_scratch_and_no_finished_run(reads, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "fits_in_memory", lambda n_bytes: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    failing = Failing(X)
    failing.allowed = reads
    with pytest.raises(OSError, match="the disk is gone"):
        job(failing.dask(100), rounds=3, store=tmp_path / "run")
    assert [name for name in os.listdir(tmp_path) if name.startswith("nlis-scores-")] == []
    if (tmp_path / "run").exists():
        with pytest.raises(nlis.IncompleteRunError):
            nlis.open_run(tmp_path / "run")


@pytest.mark.adapters
@pytest.mark.parametrize("container", ["pandas", "xarray"])
def test_runs_with_scores_in_a_container_compare(container):
    library = pytest.importorskip(container)
    x = library.DataFrame(X) if container == "pandas" else library.DataArray(X, dims=("row", "column"))
    one, two, other = job(x), job(x), job(x, seed=2)
    two.manifest.update({name: one.manifest[name] for name in ("started", "finished")})
    other.manifest.update(one.manifest)
    assert one == two
    assert hash(one) == hash(two)
    assert one != other
    assert one.scores.equals(two.scores)


def test_a_change_of_the_data_between_factor_and_scores_of_the_second_stage_is_seen():
    class Changing(CountingArray):
        def __getitem__(self, index):
            later = self.rows[0] >= 3
            found = super().__getitem__(index)
            return found * 1e3 if later else found

    with pytest.raises(nlis.NonFiniteError, match=r"leverage .* of row \d+ exceeds 1: X or y changed"):
        job(Changing(X).dask(1000), shares=(0.5, 0.4, 0.1))


@pytest.mark.parametrize("unit", [1e-150, 1e-311, 5e-322])
def test_labels_of_any_size_make_a_job(unit):
    found = job(y=np.round(Y * unit / 5e-324) * 5e-324, problem=nlis.Problem(nlis.Linear()))
    assert found.fit.ok
    assert da.isfinite(found.scores).all()
    assert found.why_one_stage == ""
