"""Whatever is done to a file or a dictionary, reading it gives an object as it should be or an error of ours.

Never another exception, an object with fields of other types, a hang, or gigabytes of memory. A few hundred mutations run
always, thousands under the marker slow.
"""

import json
import os
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import rows_of
from mutations import attempts, mutated_bytes, mutated_dict, mutated_folder, mutated_json

import dask_nlis as nlis
from dask_nlis.cli.problems import problem_from

X, Y = rows_of(68, 90, 3)
PROBLEMS = [
    nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0)),
    nlis.Problem(
        nlis.ReluNetwork(2, per_unit=True, hidden_bias=True), nlis.Huber(1.0), constraint=nlis.AmplitudeBand(0.1, 5.0)
    ),
    nlis.Problem(nlis.DeepReluNetwork((3, 2)), nlis.PseudoHuber(0.5), constraint=nlis.Box([-1.0, -2.0], np.inf)),
    nlis.Problem(nlis.Linear(), nlis.LogisticLoss((-1, 1)), constraint=nlis.HalfSpaces([[1.0, 0.0]], [1.0])),
    nlis.Problem(
        nlis.Linear(intercept=False),
        nlis.AbsoluteError(on_singular="zero"),
        constraint=nlis.Intersection(nlis.Ball(2.0, [0.0, 1.0]), nlis.Box(0.0, np.inf)),
    ),
]
LINEAR = nlis.Problem(nlis.Linear())
SAMPLES = [
    nlis.draw(np.linspace(1, 2, 90), 25, seed=0, mix=0.1),
    nlis.draw(np.linspace(1, 2, 90), 25, seed=1, by=np.arange(90) % 3, min_per_group=2),
    nlis.draw(np.linspace(1, 2, 90), 25, seed=2, scheme="systematic"),
]
MATRIX = nlis.reference_matrix(LINEAR, X, Y)
FACTOR = nlis.factorize(MATRIX)
FIT = nlis.refit(LINEAR, X, Y, np.ones(90))
CERTIFICATE = nlis.certificate(MATRIX, FACTOR, SAMPLES[0])


# --- what an object must be ------------------------------------------------------------------------------------------


def is_array(array, dtype, *shape):
    return isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == shape


def check_sample(sample):
    assert type(sample) is nlis.Sample
    m, k = len(sample), len(sample.draws)
    assert is_array(sample.indices, np.int64, m)
    assert is_array(sample.counts, np.int64, m)
    for name in ("probabilities", "weights", "variance_weights"):
        assert is_array(getattr(sample, name), np.float64, m)
    assert is_array(sample.draws, np.int64, k)
    assert is_array(sample.stage, np.int64, k)
    assert type(sample.n_rows) is int
    assert type(sample.n_draws) is int
    assert type(sample.scheme) is str
    assert sample.seed is None or type(sample.seed) is int
    assert all(type(name) is str for name in (*sample.feature_names, *sample.stage_schemes))
    assert (sample.indices >= 0).all()
    assert (sample.indices < sample.n_rows).all()
    assert int(sample.counts.sum()) == k
    assert np.isfinite(sample.effective_size)
    assert nlis.Sample.from_dict(sample.to_dict()) == sample
    assert repr(sample)
    if sample.n_rows < 10**6:
        assert len(sample.take(np.zeros(sample.n_rows))) == m
    if type(sample.scale).__name__ == "Scale" and sample.scale.scheme != "given":
        expected = sample.expected_count(np.array([0.0, 1.0, 2.0]))
        assert is_array(expected, np.float64, 3)
        assert (expected >= 0).all()


def check_factor(factor):
    assert type(factor) is nlis.Factor
    p, rank = len(factor.columns), factor.rank
    assert is_array(factor.r, np.float64, p, p)
    assert is_array(factor.whitener, np.float64, p, rank)
    assert is_array(factor.singular_values, np.float64, p)
    assert type(rank) is int
    assert all(type(name) is str for name in (*factor.columns, *factor.parts, *factor.dependent))
    assert repr(factor)
    assert factor._repr_html_()
    assert factor.score_tolerance > 0
    assert nlis.Factor.from_dict(factor.to_dict()) == factor


def check_problem(problem):
    assert type(problem) is nlis.Problem
    assert repr(problem)
    assert type(problem.model.n_parameters(3)) is int
    assert nlis.Problem.from_dict(problem.to_dict()) == problem
    assert hash(problem) == hash(nlis.Problem.from_dict(problem.to_dict()))


def check_fit(fit):
    assert type(fit) is nlis.Fit
    p = len(fit.theta)
    assert is_array(fit.theta, np.float64, p)
    assert is_array(fit.covariance, np.float64, p, p)
    assert type(fit.ok) is bool
    assert all(type(text) is str for text in (*fit.reasons, *fit.active, *fit.feature_names, fit.design, fit.withheld))
    check_problem(fit.problem)
    assert repr(fit)
    with np.errstate(all="ignore"):  # a covariance with another number in it
        assert str(fit.summary())
    assert nlis.Fit.from_dict(fit.to_dict()) == fit


def check_certificate(certificate):
    assert type(certificate) is nlis.Certificate
    assert str(certificate)
    assert repr(certificate)


def check_rows(pair):
    x, y = pair
    for array in (x, *([] if y is None else [y])):
        assert isinstance(array, da.Array)
        assert type(array.compute(scheduler="sync")) is np.ndarray


def use_run(folder):
    """Open a finished run and look at all of it: for every store whose runs are opened by `open_run`."""
    run = nlis.open_run(folder)
    assert type(run) is nlis.Run
    check_sample(run.sample)
    check_fit(run.fit)
    check_problem(run.problem)
    for noun, check in ((run.factor, check_factor), (run.pilot, check_fit), (run.certificate, check_certificate)):
        if noun is not None:
            check(noun)
    assert len(run.sample_X) == len(run.sample_y) == len(run.sample)
    assert run.sample_X.dtype.kind == "f"
    assert type(run.total_loss) is float
    assert isinstance(run.manifest, dict)
    if run.scores is not None:
        assert run.scores.shape == (run.sample.n_rows,)
        assert run.scores.dtype == np.float64
        assert type(run.scores.compute(scheduler="sync")) is np.ndarray
    assert repr(run)
    assert run._repr_html_()


# --- dictionaries ----------------------------------------------------------------------------------------------------


def plain(value):
    """A dictionary as JSON gives it."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


DICTS = {
    **{
        f"sample {k}": (s.to_dict(), lambda found: check_sample(nlis.Sample.from_dict(found)))
        for k, s in enumerate(SAMPLES)
    },
    "factor": (FACTOR.to_dict(), lambda found: check_factor(nlis.Factor.from_dict(found))),
    "factor as JSON": (plain(FACTOR.to_dict()), lambda found: check_factor(nlis.Factor.from_dict(found))),
    "fit": (FIT.to_dict(), lambda found: check_fit(nlis.Fit.from_dict(found))),
    "certificate": (CERTIFICATE.to_dict(), lambda found: check_certificate(nlis.Certificate.from_dict(found))),
    **{
        f"problem {k}": (p.to_dict(), lambda found: check_problem(nlis.Problem.from_dict(found)))
        for k, p in enumerate(PROBLEMS)
    },
}


def fuzz_dict(name, count, seed):
    found, use = DICTS[name]
    use(found)
    return attempts(count, seed, lambda rng: mutated_dict(found, rng), use)


# --- files -----------------------------------------------------------------------------------------------------------


def write_toml(path):
    path.write_text(
        'loss = {noun = "Huber", delta = 1.5}\n[model]\nnoun = "SingleIndex"\nintercept = true\n'
        '[model.activation]\nnoun = "Swish"\nc1 = 1\nc2 = 2\n[constraint]\nnoun = "Ball"\nradius = 10.0\n'
    )


def write_zarr(path, version, **options):
    group = zarr.open_group(path, mode="w", zarr_format=version)
    x = group.create_array("X", shape=X.shape, dtype="f8", **options)
    x[:] = X
    x.attrs["feature_names"] = ["a", "b", "c"]
    group.create_array("y", data=Y, chunks=(30,))


def write_run(path):
    nlis.run(PROBLEMS[0], da.from_array(X, chunks=(30, 3)), Y, size=40, seed=0, store=path)


def open_pair(path):
    check_rows(nlis.open_rows(path, X="X", y="y"))


def open_npy(path):
    A = nlis.reference_matrix(LINEAR, path)
    assert type(A.to_dask_array().compute(scheduler="sync")) is np.ndarray


#: Name of the file or folder: (how it is written, how it is read and checked).
FILES = {
    "sample.csv": (SAMPLES[1].save, lambda path: check_sample(nlis.Sample.load(path))),
    "sample.zarr": (SAMPLES[0].save, lambda path: check_sample(nlis.Sample.load(path))),
    "sample.parquet": (SAMPLES[2].save, lambda path: check_sample(nlis.Sample.load(path))),
    "problem.json": (
        lambda path: path.write_text(json.dumps(plain(PROBLEMS[1].to_dict()))),
        lambda path: check_problem(problem_from(path, None, None, None, None)),
    ),
    "problem.toml": (write_toml, lambda path: check_problem(problem_from(path, None, None, None, None))),
    "rows.npy": (lambda path: np.save(path, X), open_npy),
    "fortran.npy": (lambda path: np.save(path, np.asfortranarray(X)), open_npy),
    "version2.zarr": (lambda path: write_zarr(path, 2, chunks=(30, 3)), open_pair),
    "version3.zarr": (lambda path: write_zarr(path, 3, chunks=(30, 2)), open_pair),
    "plain.zarr": (lambda path: write_zarr(path, 3, chunks=(30, 3), compressors=None), open_pair),
    "sharded.zarr": (lambda path: write_zarr(path, 3, chunks=(10, 3), shards=(30, 3)), open_pair),
    "run.zarr": (write_run, use_run),
}


def fuzz_file(name, count, seed, folder):
    write, use = FILES[name]
    source, target = folder / "source" / name, folder / "target" / name
    source.parent.mkdir()
    target.parent.mkdir()
    write(source)
    use(source)

    def mutate(rng):
        if not source.is_file():
            return mutated_folder(source, target, rng)
        if source.suffix == ".json" and rng.random() < 0.5:
            what, found = mutated_json(json.loads(source.read_text()), rng)
            target.write_text(json.dumps(found))
            return what, target
        what, raw = mutated_bytes(source.read_bytes(), rng)
        target.write_bytes(raw)
        return what, target

    return attempts(count, seed, mutate, use)


# --- the tests -------------------------------------------------------------------------------------------------------


def assert_sound(outcome, least_refused):
    assert not outcome.failures, f"{len(outcome.failures)} failures\n" + "\n".join(outcome.failures)
    assert outcome.refused >= least_refused


@pytest.mark.parametrize("name", DICTS)
def test_mutated_dictionaries(name):
    assert_sound(fuzz_dict(name, 60, 0), 20)


@pytest.mark.parametrize("value", [np.array(["Fit", "Fit"]), np.zeros(2), [], {}, None, 1.5])
@pytest.mark.parametrize("name", DICTS)
def test_a_noun_of_no_name_is_refused(name, value):
    found, use = DICTS[name]
    with pytest.raises(nlis.NlisError):
        use(dict(found) | {"noun": value})


@pytest.mark.parametrize("name", [name for name in FILES if name != "run.zarr"])
def test_mutated_files(name, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    assert_sound(fuzz_file(name, 30, 0, tmp_path), 5)


def test_mutated_runs(tmp_path):
    assert_sound(fuzz_file("run.zarr", 20, 0, tmp_path), 5)


#: 10,000 in all.
MANY = {**dict.fromkeys(DICTS, 300), **dict.fromkeys(FILES, 500), "run.zarr": 1300}


def test_there_are_ten_thousand():
    assert sum(MANY.values()) >= 10_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MANY)
def test_many_mutations(name, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    outcome = fuzz_dict(name, MANY[name], 1) if name in DICTS else fuzz_file(name, MANY[name], 1, tmp_path)
    assert_sound(outcome, MANY[name] // 10)


def test_what_is_no_error_of_ours_is_found():
    """The instrument itself: an exception of Python, a hang, and a message of two lines are failures."""

    def use(what):
        if what == "spin":
            while True:
                pass
        raise {"key": KeyError("x"), "ours": nlis.InputError("x"), "memory": MemoryError()}[what]

    for what, refused, failed in (("key", 0, 1), ("ours", 1, 0), ("memory", 0, 1), ("spin", 0, 1)):
        outcome = attempts(1, 0, lambda _, what=what: (what, what), use, seconds=0.3)
        assert (outcome.refused, len(outcome.failures)) == (refused, failed)


if __name__ == "__main__":  # python tests/test_fuzz.py NAME COUNT SEED: any other seed
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        wanted, number, start = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        found = fuzz_dict(wanted, number, start) if wanted in DICTS else fuzz_file(wanted, number, start, Path(scratch))
        print(os.linesep.join((*found.failures, f"{found.refused} refused, {found.accepted} accepted")))
