"""Laws of models with several parameters a feature: networks, a user's index, any prediction along the ray."""

import threading

import array_api_strict
import dask.array as da
import numpy as np
import pytest
from counting import no_compute
from nets import INDEXED, NETS, RECTIFIED, D, cubed, cubed_gradient, setting, wave, wave_gradient

import dask_nlis as nlis
from dask_nlis import problem as problems
from dask_nlis.rays import along_ray, identity_residual

every_net = pytest.mark.parametrize("model", NETS.values(), ids=NETS)
every_index = pytest.mark.parametrize("model", INDEXED.values(), ids=INDEXED)
every_rectified = pytest.mark.parametrize("model", RECTIFIED.values(), ids=RECTIFIED)
label_modes = pytest.mark.parametrize("labelled", [True, False], ids=["labels", "no labels"])


def rows_of(model, theta, x, y):
    return nlis.dual_matrix(nlis.Problem(model), x, y, theta=theta).to_dask_array().compute()


@every_net
def test_parts_names_and_length_of_theta_agree(model, rng):
    theta = rng.normal(size=model.n_parameters(D))
    names = model.parameter_names(["a", "b", "c", "d"])
    assert len(names) == len(set(names)) == len(theta)
    np.testing.assert_array_equal(model.pack(**model.unpack(theta)), theta)


@every_net
def test_jacobian_is_the_derivative_of_the_prediction(model, rng):
    theta, x, _ = setting(model, rng)
    x = x[3:]  # away from rows of other sizes, for one step of finite differences
    step = 1e-6
    finite = np.stack(
        [(model.predict(theta + e, x) - model.predict(theta - e, x)) / (2 * step) for e in step * np.eye(len(theta))], 1
    )
    np.testing.assert_allclose(model.jacobian(theta, x), finite, rtol=1e-6, atol=1e-7)


@every_index
def test_index_is_homogeneous_of_its_degree_and_euler_holds(model, rng):
    theta, x, _ = setting(model, rng)
    u = model.index(theta, x)
    for t in (0.25, 3.0):
        np.testing.assert_allclose(model.index(t * theta, x), t**model.degree * u, rtol=1e-12, atol=1e-300)
    # Euler: <grad u, theta> = alpha u.
    np.testing.assert_allclose(
        model.index_gradient(theta, x) @ theta, model.degree * u, rtol=1e-11, atol=1e-12 * np.abs(u).max()
    )
    gradient = model.index_gradient(theta, x)
    found, squares = model.index_and_norms(theta, x)
    np.testing.assert_allclose(found, u, rtol=1e-12, atol=1e-12 * np.abs(u).max())
    np.testing.assert_allclose(squares, (gradient**2).sum(axis=1), rtol=1e-12)


@every_net
@label_modes
@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 20.0])
def test_value_is_value_at_zero_plus_theta_times_adjoint(model, labelled, size, rng):
    theta, x, y = setting(model, rng)
    theta, x = size * theta, x[:2] if size == 20.0 and model.form == "ray" else x  # a wave of 600 radians is refused
    y = y[: len(x)] if labelled else None
    rows = rows_of(model, theta, x, y)
    here, zero = model.predict(theta, x), model.predict(np.zeros_like(theta), x)
    shift = 0.0 if y is None else y
    np.testing.assert_allclose(rows[:, -1], zero - shift, atol=1e-15 * (1 + np.abs(shift).max()))
    scale = 1 + np.abs(here - shift) + np.abs(zero - shift)
    tolerance = 1e-10 if model.form == "ray" else 1e-12
    assert (np.abs(here - zero - rows[:, :-1] @ theta) <= tolerance * scale).all()


@pytest.mark.parametrize(
    "model", [m for m in NETS.values() if m.form != "ray"], ids=[k for k, m in NETS.items() if m.form != "ray"]
)
def test_closed_form_is_the_integral_of_the_gradient_along_the_ray(model, rng):
    theta, x, y = setting(model, rng)
    x, y = x[3:], y[3:]
    closed = problems.adjoint(nlis.Problem(model), theta, x, y)
    np.testing.assert_allclose(closed, along_ray(model, nlis.SquaredError(), theta, x, y).rows, rtol=1e-9, atol=1e-10)


@every_net
@label_modes
def test_norms_are_norms_of_rows_and_array_namespaces_agree(model, labelled, rng):
    theta, x, y = setting(model, rng)
    x, y = x[3:], y[3:] if labelled else None
    problem = nlis.Problem(model)
    rows = problems.dual_rows(problem, theta, x, y)
    norms = problems.dual_squared_norms(problem, theta, x, y)
    np.testing.assert_allclose(norms, (rows**2).sum(axis=1), rtol=1e-12)
    strict = [None if part is None else array_api_strict.asarray(part) for part in (theta, x, y)]
    np.testing.assert_allclose(np.asarray(problems.dual_rows(problem, *strict)), rows, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.asarray(problems.dual_squared_norms(problem, *strict)), norms, rtol=1e-12)
    np.testing.assert_array_equal(
        np.asarray(problems.reference_rows(problem, *strict[1:])), problems.reference_rows(problem, x, y)
    )


def _dense(rows):
    scale = np.linalg.norm(rows, axis=0)
    rows = rows / np.where(scale > 0, scale, 1.0)
    u, s, _ = np.linalg.svd(rows, full_matrices=False)
    kept = s > 1e-10 * s[0]
    return (u[:, kept] ** 2).sum(axis=1), int(kept.sum())


#: What makes a network degenerate, applied to (theta by parts, x).
DEGENERATE = {
    "as it is": lambda parts, x: None,
    "a dead unit": lambda parts, x: parts["b"].__setitem__(0, -np.abs(parts["b"][0])) or np.abs(x, out=x),
    "an outer weight of zero": lambda parts, x: parts["a"].__setitem__(0, 0.0),
    "all units always active": lambda parts, x: np.abs(parts["b"], out=parts["b"]) is np.abs(x, out=x),
    "a zero pixel": lambda parts, x: x.__setitem__((slice(None), 1), 0.0),
}


@every_rectified
@pytest.mark.parametrize("spoil", DEGENERATE.values(), ids=DEGENERATE)
def test_rank_and_leverage_of_networks_are_those_of_the_dense_svd(model, spoil, rng):
    theta, x, _ = setting(model, rng, n=300)
    parts = {name: part.copy() for name, part in model.unpack(theta).items()}
    x = x[3:]
    spoil(parts, x)
    theta = model.pack(**parts)
    A = nlis.dual_matrix(nlis.Problem(model), x, rng.normal(size=len(x)), theta=theta)
    factor = nlis.factorize(A)
    expected, rank = _dense(A.to_dask_array().compute())
    assert factor.rank == rank <= model.n_hidden * (D + model.hidden_bias) + 1 < A.shape[1]
    np.testing.assert_allclose(nlis.leverage_scores(A, factor), expected, atol=1e-9)
    assert factor.dependent


def _kinked(theta, x):
    return np.maximum(x @ theta[:D] + theta[D] - 0.3, 0.0)  # the kink along the ray is where quadrature is poor


def _kinked_gradient(theta, x):
    active = (x @ theta[:D] + theta[D] - 0.3 > 0).astype(float)
    return active[:, None] * np.column_stack([x, np.ones(len(x))])


def test_a_kink_along_the_ray_shows_as_a_residual(rng):
    x, theta = rng.normal(size=(40, D)), 2 * rng.normal(size=D + 1)
    model = nlis.Numerical(_kinked, _kinked_gradient, D + 1)
    rows, nodes, residual = along_ray(model, None, theta, x, None)
    np.testing.assert_array_equal(residual, identity_residual(model, None, theta, x, None, rows))
    assert nodes == 256
    assert 1e-6 < residual.max() < 1e-1
    A = nlis.dual_matrix(nlis.Problem(model), x, theta=theta)
    row = int(residual.argmax())
    for verb in (nlis.factorize, nlis.norm_scores):
        with pytest.raises(nlis.IdentityResidualError, match=rf"^row {row}: .*misses by {residual.max():.1e} "):
            verb(A)
    relaxed = nlis.Numerical(_kinked, _kinked_gradient, D + 1, tolerance=0.5)
    factor = nlis.factorize(nlis.dual_matrix(nlis.Problem(relaxed), x, theta=theta))
    assert (factor.rank, factor.nodes, factor.identity_residual) == (D + 1, 256, residual.max())


def test_the_factor_reports_nodes_and_residual_of_the_hardest_block(rng):
    x = rng.normal(size=(60, D))
    x[20:40] *= 0.01  # a block that takes few nodes between two that take more
    model, theta = NETS["user's wave"], 2 * rng.normal(size=D + 1)

    def matrix(rows):
        return nlis.dual_matrix(nlis.Problem(model), rows, theta=theta)

    rays = [along_ray(model, None, theta, x[a : a + 20], None) for a in (0, 20, 40)]
    easy, hard = rays[1].nodes, max(ray.nodes for ray in rays)
    assert 8 <= easy < hard <= 64
    whole = da.from_array(x, chunks=(20, D))
    for method in ("auto", "tsqr", "sketch"):
        factor = nlis.factorize(matrix(whole), method=method)
        assert factor.nodes == hard
        assert factor.identity_residual == max(ray.residual.max() for ray in rays) <= 1e-12
        assert "nodes" in repr(factor)
    parts = [nlis.factorize(matrix(rows)) for rows in (x[20:40], x[40:])]
    both = parts[0].merge(parts[1])
    assert (both.nodes, both.identity_residual) == (
        max(part.nodes for part in parts),
        max(part.identity_residual for part in parts),
    )
    closed = nlis.factorize(nlis.dual_matrix(nlis.Problem(nlis.Linear()), x, theta=theta))
    assert (closed.nodes, closed.identity_residual) == (0, 0.0)
    assert "nodes" not in repr(closed)


def _holding(what):
    def value(theta, x):
        return x @ theta if what is not None else np.zeros(len(x))

    return value


def _gradient(theta, x):
    return x


@pytest.mark.parametrize("verb", ["dual_matrix", "total_loss"])
def test_functions_that_cannot_be_sent_are_refused_when_the_matrix_is_made(verb):
    def made(what):
        return nlis.Problem(nlis.Numerical(_holding(what), _gradient, D))

    x, y = np.ones((5, D)), np.ones(5)
    call = {
        "dual_matrix": lambda problem: nlis.dual_matrix(problem, x, y, theta=np.ones(D)),
        "total_loss": lambda problem: nlis.total_loss(problem, x, y, np.ones(D)),
    }[verb]
    call(made("a value that can be sent"))
    with no_compute(), pytest.raises(nlis.InputTypeError, match=r"^problem holds what cannot be pickled .*value") as e:
        call(made(threading.Lock()))
    assert len(str(e.value)) <= 300


def _quadratic_and_linear(theta, x):
    return (x @ theta) ** 2 + x @ theta


def test_a_model_that_is_not_homogeneous_is_refused_with_its_measured_degree(rng):
    model = nlis.Homogeneous(_quadratic_and_linear, cubed_gradient, 2, D)
    A = nlis.dual_matrix(nlis.Problem(model), rng.normal(size=(20, D)), theta=rng.normal(size=D))
    with pytest.raises(nlis.NotHomogeneousError, match=r"not homogeneous of degree 2 .*measured 1\."):
        nlis.factorize(A)
    right = nlis.Homogeneous(cubed, cubed_gradient, 2, D)  # degree 3 in truth
    with pytest.raises(nlis.NotHomogeneousError, match="measured 3 "):
        nlis.factorize(nlis.dual_matrix(nlis.Problem(right), rng.normal(size=(20, D)), theta=rng.normal(size=D)))


def _half(d):
    return d / 2


def _short(theta, x):
    return (x @ theta)[1:]


REFUSED = {
    "no units": (lambda: nlis.ReluNetwork(0), nlis.InputError, "n_hidden=0"),
    "half a unit": (lambda: nlis.ReluNetwork(2.5), nlis.InputError, "n_hidden=2.5"),
    "a unit that is not homogeneous": (
        lambda: nlis.ReluNetwork(2, unit=nlis.Tanh()),
        nlis.InputTypeError,
        "LeakyRelu, Relu",
    ),
    "phi as a class": (lambda: nlis.ReluNetwork(2, nlis.Tanh), nlis.InputTypeError, "activation"),
    "per_unit as text": (lambda: nlis.ReluNetwork(2, per_unit="yes"), nlis.InputTypeError, "per_unit='yes'"),
    "widths as a number": (lambda: nlis.DeepReluNetwork(3), nlis.InputTypeError, "widths=3"),
    "a layer of none": (lambda: nlis.DeepReluNetwork((3, 0)), nlis.InputError, "widths="),
    "degree zero": (lambda: nlis.Homogeneous(cubed, cubed_gradient, 0, D), nlis.InputError, "degree=0"),
    "value as text": (lambda: nlis.Homogeneous("u", cubed_gradient, 1, D), nlis.InputTypeError, "value='u'"),
    "no count": (lambda: nlis.Numerical(wave, wave_gradient, None), nlis.InputTypeError, "n_params=None"),
    "tolerance": (lambda: nlis.Numerical(wave, wave_gradient, 5, 0), nlis.InputError, "tolerance=0"),
    "parts": (lambda: nlis.ReluNetwork(2).pack(a=[1.0, 2.0]), nlis.InputError, "give a and b"),
    "parts of other shape": (lambda: nlis.ReluNetwork(2).pack(a=[1.0], b=[[1.0]]), nlis.InputError, r"give \(2,\)"),
    "wrong shape": (
        lambda: nlis.factorize(
            nlis.dual_matrix(nlis.Problem(nlis.Numerical(_short, cubed_gradient, D)), np.ones((5, D)), theta=np.ones(D))
        ),
        nlis.InputError,
        r"_short returned shape \(4,\)",
    ),
    "phi of a deep net as a class": (
        lambda: nlis.DeepReluNetwork((2,), nlis.Tanh),
        nlis.InputTypeError,
        "DeepReluNetwork activation=",
    ),
    "phi of an index as a class": (
        lambda: nlis.Homogeneous(cubed, cubed_gradient, 3, D, nlis.Tanh),
        nlis.InputTypeError,
        "Homogeneous activation=",
    ),
    "a negative count": (lambda: nlis.Numerical(wave, wave_gradient, -1), nlis.InputError, "n_params=-1"),
    "a count that is no integer": (
        lambda: nlis.Numerical(wave, wave_gradient, _half).n_parameters(3),
        nlis.InputError,
        "n_params _half returned 1.5 for d=3",
    ),
    "theta with a part too many": (
        lambda: nlis.DeepReluNetwork((2, 2)).unpack(np.arange(13.0)),
        nlis.InputError,
        r"theta has 13 entries; give 2 d \+ 6, d >= 1",
    ),
    "theta too short": (lambda: nlis.DeepReluNetwork((2, 2)).unpack(np.arange(6.0)), nlis.InputError, "6 entries"),
    "theta of no whole units": (lambda: nlis.ReluNetwork(2).unpack(np.arange(5.0)), nlis.InputError, "5 entries"),
    "theta as a table": (lambda: nlis.Linear().unpack(np.ones((2, 2))), nlis.InputError, r"theta has shape \(2, 2\)"),
    "no theta": (lambda: nlis.Linear().unpack([]), nlis.InputError, r"theta has shape \(0,\)"),
    "layers that do not fit": (
        lambda: nlis.DeepReluNetwork((2, 2)).pack(W1=np.ones((2, 3)), W2=np.ones((3, 3)), a=[1, 2]),
        nlis.InputError,
        r"pack got W2 of shape \(3, 3\); give \(2, 2\)",
    ),
    "coef as a table": (lambda: nlis.Linear(False).pack(coef=np.ones((2, 2))), nlis.InputError, r"coef \(2, 2\)"),
    "two intercepts": (lambda: nlis.Linear().pack(coef=[1.0], intercept=[1, 2]), nlis.InputError, "one number"),
    "no part": (lambda: NETS["user's wave"].pack(), nlis.InputError, "pack got nothing; give theta"),
    "another part": (
        lambda: NETS["user's cubic index"].pack(theta=[1.0], coef=[1.0]),
        nlis.InputError,
        "pack got coef, theta; give theta",
    ),
    "theta of other length": (
        lambda: nlis.dual_matrix(nlis.Problem(nlis.ReluNetwork(2)), np.ones((5, D)), theta=np.ones(D)),
        nlis.InputError,
        r"expects \(10,\) for the 4 columns of X: a1, b1\[x0\]",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_model_is_refused_in_one_line(call, error, says):
    with pytest.raises(error, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


NO_NUMBERS = {
    "text": ["1", "2"],
    "dates": np.array(["2020", "2021"], dtype="M8[D]"),
    "durations": np.array([1, 2], dtype="m8[s]"),
    "complex": np.ones(2, dtype=complex),
    "objects": np.array([1.0, "2"], dtype=object),
    "a dictionary": {},
    "a generator": (number for number in (1.0, 2.0)),
    "unequal rows": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("theta", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_theta_that_is_no_numbers_is_refused(theta):
    with no_compute(), pytest.raises(nlis.InputTypeError, match=r"^theta is .*give 2 ") as caught:
        nlis.dual_matrix(nlis.Problem(nlis.Linear()), np.ones((3, 1)), theta=theta)
    assert len(str(caught.value)) <= 300


def test_theta_that_leaves_float64_is_refused_and_numbers_of_all_kinds_are_taken():
    made = [
        nlis.dual_matrix(nlis.Problem(nlis.Linear()), np.ones((3, 1)), theta=theta).theta
        for theta in (
            [1, 2],
            (1.0, 2),
            np.array([1, 2], dtype=object),
            np.array([1, 2], np.int8),
            np.longdouble([1, 2]),
        )
    ]
    assert all(theta.dtype == np.float64 and theta.tolist() == [1.0, 2.0] for theta in made)
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(nlis.InputError, match=r"theta\[0\]=inf is not finite"):
            nlis.dual_matrix(nlis.Problem(nlis.Linear()), np.ones((3, 1)), theta=[np.longdouble("1e400"), 1.0])


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")  # a deep net may stop at a saddle, and says so
@pytest.mark.parametrize("name", ["relu net with biases", "phi on each unit", "deep relu net, four layers"])
def test_networks_are_drawn_refitted_stored_and_reopened(name, tmp_path, rng):
    model = NETS[name]
    theta, x, _ = setting(model, rng, n=500)
    x = x[3:]
    problem = nlis.Problem(model, constraint=nlis.Ball(20.0))
    assert nlis.Problem.from_dict(problem.to_dict()) == problem
    y = model.predict(theta, x) + 0.01 * rng.normal(size=len(x))
    job = nlis.run(problem, x, y, size=250, theta=theta, seed=0, store=tmp_path / "run.zarr")
    assert nlis.open_run(tmp_path / "run.zarr").fit == job.fit
    assert job.total_loss <= 2 * nlis.total_loss(problem, x, y, theta)  # started at theta
