"""X of three or more dimensions, for models that state the shape of a row: images to a net with convolutions."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray

import dask_nlis as nlis
from dask_nlis.models import LayerOf, LayerStack

N, SHAPE = 300, (1, 5, 5)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def images(rng, n_outputs=1):
    """A net of one convolution and one dense layer, images and labels."""
    layers = (
        LayerOf("convolution", rng.normal(size=(1, 1, 4, 4)), rng.normal(size=1), "k", "b", True, True, nlis.Relu()),
        LayerOf("reshape"),
        LayerOf("dense", rng.normal(size=(n_outputs, 4)), rng.normal(size=n_outputs), "w", "c", True, True),
    )
    model = LayerStack(layers, SHAPE)
    X = rng.normal(size=(N, *SHAPE))
    y = (
        model.predict(model.theta, X.reshape(N, -1))
        + 0.1 * rng.normal(size=(N, n_outputs))[:, 0 if n_outputs == 1 else slice(None)]
    )
    return model, X, y


def flat(X):
    return X.reshape(len(X), -1)


def test_scores_of_images_are_those_of_their_pixels_in_one_task_a_block(rng):
    model, X, y = images(rng)
    problem, stored = nlis.Problem(model), CountingArray(X)
    A = nlis.dual_matrix(problem, stored.dask(100), y, theta=model.theta)
    factor = nlis.factorize(A, method="tsqr")
    scores = nlis.leverage_scores(A, factor)
    assert stored.reads() == factor.reads
    found = scores.compute()
    assert stored.reads() == 1
    B = nlis.dual_matrix(problem, CountingArray(flat(X)).dask(100), y, theta=model.theta)
    plain = nlis.leverage_scores(B, nlis.factorize(B, method="tsqr"))
    assert len(dict(scores.__dask_graph__())) == len(dict(plain.__dask_graph__()))
    np.testing.assert_array_equal(found, plain.compute())
    for name, give in {
        "numpy": X,
        "cut within rows": da.from_array(X, (100, 1, 2, 5)),
    }.items():
        if name == "cut within rows":
            with pytest.warns(nlis.PerformanceWarning, match="blocks that hold parts of rows"):
                C = nlis.dual_matrix(problem, give, y, theta=model.theta)
        else:
            C = nlis.dual_matrix(problem, give, y, theta=model.theta)
        np.testing.assert_allclose(nlis.norm_scores(C), nlis.norm_scores(B), rtol=1e-13)


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")
def test_every_verb_takes_images_as_they_are_stored(rng, tmp_path):
    model, X, y = images(rng)
    problem = nlis.Problem(model, constraint=nlis.Ball(100.0))
    path = tmp_path / "images.zarr"
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(100, *SHAPE))
    group.create_array("y", data=y, chunks=(100,))
    lazy, labels = nlis.open_rows(path, X="X", y="y")
    assert lazy.shape == X.shape
    job = nlis.run(
        problem, lazy, labels, size=150, seed=0, theta=model.theta, scores="leverage", store=tmp_path / "run.zarr"
    )
    again = nlis.run(problem, flat(X), y, size=150, seed=0, theta=model.theta, scores="leverage")
    np.testing.assert_array_equal(job.sample.indices, again.sample.indices)
    assert nlis.open_run(tmp_path / "run.zarr") == job
    X_s, y_s = job.sample.take(lazy, labels)
    assert X_s.shape == (len(job.sample), *SHAPE)
    fits = [nlis.refit(problem, x, y_s, job.sample, start=model.theta, n_starts=1) for x in (X_s, flat(X_s))]
    assert fits[0] == fits[1]
    np.testing.assert_array_equal(fits[0].predict(X[:3]), fits[0].predict(flat(X[:3])))
    thetas = np.stack([model.theta, 0.9 * model.theta])
    np.testing.assert_array_equal(
        nlis.total_loss(problem, lazy, labels, thetas), nlis.total_loss(problem, flat(X), y, thetas)
    )
    assert nlis.drift(problem, lazy, labels, thetas).losses.shape == (2,)
    found = nlis.compare(
        problem, lazy, labels, {"all": np.ones(N)}, sizes=[100], seeds=1, start=model.theta, n_starts=1
    )
    assert np.isfinite(found.loss).all()
    more = nlis.extend(job, X[:50] + 0.01, y[:50], size=20, seed=3)
    assert more.sample.n_rows == N + 50
    assert nlis.plan(problem, lazy, labels, size=150).passes
    rows = nlis.reference_matrix(problem, lazy, labels).to_dask_array().compute()
    np.testing.assert_array_equal(rows[:, :25], flat(X))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: nlis.dual_matrix(nlis.Problem(model), np.ones((4, 5, 5)), np.ones(4), theta=model.theta), r"X has 3 dimensions \(shape \(4, 5, 5\)\); give two, or rows of the input_shape of the model, \(n, 1, 5, 5\)"),
        (lambda model: nlis.dual_matrix(nlis.Problem(model), np.ones((4, 24)), np.ones(4), theta=model.theta), "X has 24 columns, but the module takes 25 numbers a row"),
        (lambda model: nlis.dual_matrix(nlis.Problem(nlis.Linear()), np.ones((4, 1, 5, 5)), np.ones(4), theta=np.ones(26)), r"give two, as in X.reshape\(len\(X\), -1\)"),
        (lambda model: nlis.refit(nlis.Problem(model), np.ones((4, 5, 5)), np.ones(4), np.ones(4)), r"X has shape \(4, 5, 5\); give \(s, d\)"),
    ],
)  # fmt: skip
def test_rows_of_another_shape_are_told_in_one_line(make, message, rng):
    model, _, _ = images(rng)
    with pytest.raises(nlis.InputError, match=message) as caught:
        make(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ((), "holds something else than layers"),
        ((LayerOf("dense", np.ones((1, 3)), moves=True),), "takes no signals of shape"),
        (
            (LayerOf("reshape"), LayerOf("dense", np.ones((2, 25)), np.ones(3), moves=True)),
            "give a bias for each of them",
        ),
        ((LayerOf("convolution", np.ones((1, 1, 9, 9)), moves=True),), r"makes signals of shape \(1, -3, -3\)"),
        ((LayerOf("reshape"),), "no parameter in theta"),
    ],
)
def test_layers_that_do_not_follow_one_another_are_refused(stack, message):
    with pytest.raises(nlis.InputError, match=message):
        LayerStack(stack, SHAPE)


def test_layers_of_no_kind_are_refused():
    with pytest.raises(nlis.InputError, match="kind='round' is not known"):
        LayerOf("round")
    with pytest.raises(nlis.InputError, match="kernel of another number of dimensions than 2"):
        LayerOf("dense", np.ones(3))


def test_stacks_go_to_a_dictionary_and_back(rng):
    model, _, _ = images(rng, n_outputs=3)
    problem = nlis.Problem(model, nlis.SoftmaxLoss(4))
    assert nlis.Problem.from_dict(problem.to_dict()) == problem
