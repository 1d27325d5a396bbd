"""Networks of dense layers: against the definition, against torch's order of parameters, and along the ray."""

import itertools

import array_api_strict
import numpy as np
import pytest

import dask_nlis as nlis
from dask_nlis import problem as problems
from dask_nlis.kernels import crossings, stack
from dask_nlis.rays import along_ray, layered, norms_along_ray

D = 4
NETS = {
    "linear": nlis.MultilayerPerceptron(()),
    "one layer": nlis.MultilayerPerceptron((5,)),
    "two layers": nlis.MultilayerPerceptron((6, 5)),
    "three layers, leaky": nlis.MultilayerPerceptron((5, 4, 3), unit=nlis.LeakyRelu(0.2)),
    "four layers": nlis.MultilayerPerceptron((4, 4, 4, 3)),
    "five layers": nlis.MultilayerPerceptron((4, 4, 3, 3, 3)),
    "no biases": nlis.MultilayerPerceptron((4, 3), bias=False),
    "tanh": nlis.MultilayerPerceptron((4, 3), unit=nlis.Tanh()),
    "logistic outside": nlis.MultilayerPerceptron((4, 3), nlis.Logistic()),
}
every_net = pytest.mark.parametrize("model", NETS.values(), ids=NETS)
every_rectified = pytest.mark.parametrize(
    "model", [m for m in NETS.values() if m.nodes is not None], ids=[k for k, m in NETS.items() if m.nodes is not None]
)


def setting(model, rng, n=40):
    theta = rng.normal(size=model.n_parameters(D))
    x = rng.normal(size=(n, D))
    x[0] = 0.0
    x[1] *= 1e3
    return theta, x, rng.normal(size=n)


def by_hand(model, theta, x):
    """The prediction as it is written down."""
    parts, h = model.unpack(theta), x
    for k in range(1, len(model.widths) + 2):
        h = h @ parts[f"W{k}"].T + (parts[f"b{k}"] if model.bias else 0.0)
        h = (model.activation if k > len(model.widths) else model.unit).value(h)
    return h[:, 0]


@every_net
def test_prediction_and_gradient_are_the_definition(model, rng):
    theta, x, _ = setting(model, rng)
    x = x[2:]
    np.testing.assert_allclose(model.predict(theta, x), by_hand(model, theta, x), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(model.at_zero(x), model.predict(np.zeros_like(theta), x))
    rows = model.jacobian(theta, x)
    step = 1e-6
    for j in range(len(theta)):
        moved = [by_hand(model, theta + sign * step * (np.arange(len(theta)) == j), x) for sign in (1, -1)]
        np.testing.assert_allclose(rows[:, j], (moved[0] - moved[1]) / (2 * step), rtol=1e-5, atol=1e-6)


@every_rectified
def test_rectified_nets_are_integrated_exactly_between_their_kinks(model, rng):
    theta, x, y = setting(model, rng)
    found = along_ray(model, nlis.SquaredError(), theta, x, y)
    assert found.nodes == len(model.widths) // 2 + 1
    assert found.residual.max() < 2e-14
    # Nodes between kinks that were found by halving, of the sign of what enters each unit, to the last bit.
    edges = _edges_by_search(model, theta, x)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    for i, ends in enumerate(edges):
        total = np.zeros(len(theta))
        for a, b in itertools.pairwise(ends):
            for node, weight in zip(nodes, weights, strict=True):
                t = a + (b - a) * (node + 1) / 2
                total += (b - a) / 2 * weight * model.jacobian(t * theta, x[i : i + 1])[0]
        np.testing.assert_allclose(found.rows[i], total, rtol=1e-9, atol=1e-11 * np.abs(total).max())


def _signs(model, theta, x):
    """What enters each hidden unit, divided by t as theta is t times something: (m, units)."""
    parts, h, all_of_them = model.unpack(theta), x, []
    for k in range(1, len(model.widths) + 1):
        z = h @ parts[f"W{k}"].T + (parts[f"b{k}"] if model.bias else 0.0)
        all_of_them.append(z > 0)
        h = model.unit.value(z)
    return np.concatenate(all_of_them, axis=1) if all_of_them else np.zeros((len(x), 0), dtype=bool)


def _edges_by_search(model, theta, x):
    grid = np.linspace(1e-6, 1, 2001)
    signs = np.stack([_signs(model, t * theta, x) for t in grid])
    edges = []
    for i in range(len(x)):
        ends = {0.0, 1.0}
        for k in np.flatnonzero((signs[1:, i] != signs[:-1, i]).any(axis=1)):
            for unit in np.flatnonzero(signs[k + 1, i] != signs[k, i]):
                low, high = grid[k], grid[k + 1]
                for _ in range(60):
                    middle = (low + high) / 2
                    same = _signs(model, middle * theta, x[i : i + 1])[0, unit] == signs[k, i, unit]
                    low, high = (middle, high) if same else (low, middle)
                ends.add(high)
        edges.append(sorted(ends))
    return edges


@every_net
def test_norms_come_without_rows_and_namespaces_agree(model, rng):
    theta, x, y = setting(model, rng)
    for loss, labels in ((nlis.SquaredError(), y), (nlis.SquaredError(), None), (nlis.PseudoHuber(1.0), y)):
        problem = nlis.Problem(model, loss)
        rows = problems.dual_ray(problem, theta, x[2:], None if labels is None else labels[2:])
        norms = problems.dual_ray_norms(problem, theta, x[2:], None if labels is None else labels[2:])
        np.testing.assert_allclose(norms.norms, (rows.rows**2).sum(axis=1), rtol=1e-11)
        assert norms.nodes == rows.nodes
        assert norms.residual.max() < 1e-11
        strict = [None if part is None else array_api_strict.asarray(part) for part in (theta, x[2:], labels)]
        strict[2] = None if labels is None else strict[2][2:]
        np.testing.assert_allclose(np.asarray(problems.dual_ray_norms(problem, *strict).norms), norms.norms, rtol=1e-11)


def test_memory_bounds_change_no_score(rng, monkeypatch):
    model = NETS["three layers, leaky"]
    theta, x, y = setting(model, rng)
    loss = nlis.SquaredError()
    rows, norms = along_ray(model, loss, theta, x, y).rows, norms_along_ray(model, loss, theta, x, y).norms
    for held in (1, 200, 5000):  # one point of one row at a time; some
        monkeypatch.setattr(layered, "HELD", held)
        monkeypatch.setattr("dask_nlis.models.layered.HELD", held)
        np.testing.assert_allclose(along_ray(model, loss, theta, x, y).rows, rows, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(norms_along_ray(model, loss, theta, x, y).norms, norms, rtol=1e-12)


def test_norm_scores_of_wide_nets_form_no_rows(rng, monkeypatch):
    """2.4 million parameters: a row of the matrix would take 19 MB, and 400 rows 8 GB."""
    model = nlis.MultilayerPerceptron((1500, 1500))
    p = model.n_parameters(20)
    theta, x, y = 0.02 * rng.normal(size=p), rng.normal(size=(400, 20)), rng.normal(size=400)
    kinks = stack.kinks(model.layers(theta, x[:1]), x[:1])
    assert kinks.shape[1] > 100
    formed = []
    monkeypatch.setattr(
        stack,
        "rows",
        lambda layers, found, back, made=stack.rows: formed.append(len(found.ahead[0])) or made(layers, found, back),
    )
    A = nlis.dual_matrix(nlis.Problem(model), x[:3], y[:3], theta=theta)
    scores = nlis.norm_scores(A)
    assert sum(formed) <= 3 * 4  # the look at the scale of columns
    row = along_ray(model, nlis.SquaredError(), theta, x[2:3], y[2:3]).rows
    assert scores[2] == pytest.approx((row**2).sum() + y[2] ** 2, rel=1e-11)


def test_scores_of_the_perceptron_with_one_layer_and_no_biases_are_those_of_the_closed_form(rng):
    layered_net, closed = nlis.MultilayerPerceptron((5,), bias=False), nlis.DeepReluNetwork((5,))
    theta, x, y = rng.normal(size=closed.n_parameters(D)), rng.normal(size=(300, D)), rng.normal(size=300)
    found = [nlis.dual_matrix(nlis.Problem(model), x, y, theta=theta) for model in (layered_net, closed)]
    for a, b in ([nlis.norm_scores(A) for A in found], [nlis.leverage_scores(A, nlis.factorize(A)) for A in found]):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def test_parts_and_names_are_in_the_order_of_torch_parameters():
    model = nlis.MultilayerPerceptron((2,), n_outputs=1)
    assert model.parameter_names(["a", "b"]) == (
        "W1[1,a]", "W1[1,b]", "W1[2,a]", "W1[2,b]", "b1[1]", "b1[2]", "W2[1,1]", "W2[1,2]", "b2[1]",
    )  # fmt: skip
    theta = np.arange(9.0)
    parts = model.unpack(theta)
    assert {name: part.tolist() for name, part in parts.items()} == {
        "W1": [[0, 1], [2, 3]], "b1": [4, 5], "W2": [[6, 7]], "b2": [8],
    }  # fmt: skip
    np.testing.assert_array_equal(model.pack(**parts), theta)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nlis.MultilayerPerceptron((3, 0)), r"widths=\(3, 0\) is not allowed; give positive integers"),
        (lambda: nlis.MultilayerPerceptron(3), "widths=3 is no sequence"),
        (lambda: nlis.MultilayerPerceptron((3,), n_outputs=0), "n_outputs=0 is not allowed"),
        (lambda: nlis.MultilayerPerceptron((3,), bias=1), "bias=1 is int; give True or False"),
        (lambda: nlis.MultilayerPerceptron((3,), unit=nlis.Relu), "is no activation"),
        (lambda: nlis.MultilayerPerceptron((2,)).unpack(np.zeros(4)), r"theta has 4 entries; give 2 d \+ 5, d >= 1"),
        (lambda: nlis.MultilayerPerceptron((2,)).pack(W1=np.eye(2)), "pack got W1; give W1 and b1 and W2 and b2"),
        (
            lambda: nlis.MultilayerPerceptron(()).pack(W1=np.ones((1, 2)), b1=[0.0, 1.0]),
            r"pack got b1 of shape \(2,\); give \(1,\)",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises((nlis.InputError, nlis.InputTypeError), match=message):
        make()


def test_a_refit_shrinks_weights_and_leaves_biases(rng):
    model = nlis.MultilayerPerceptron((3,), unit=nlis.Tanh())
    x, v = rng.normal(size=(400, D)), rng.integers(1, 3, size=400)
    y = np.tanh(x @ [1.0, -1.0, 0.5, 0.0]) + 3.0
    fit = nlis.refit(nlis.Problem(model), x, y, v.astype(float), ridge=1e3, seed=0)
    assert fit.ok, fit.reasons
    parts = model.unpack(fit.theta)
    assert np.abs(parts["W1"]).max() < 0.2
    assert abs(parts["b2"][0] - np.average(y, weights=v)) < 0.5  # the mean is carried by the bias


def test_kinked_nets_have_no_unique_optimum_and_say_so(rng):
    model = nlis.MultilayerPerceptron((2,))
    x = rng.normal(size=(200, 2))
    theta = model.pack(W1=np.eye(2), b1=[0.1, -0.1], W2=[[1.0, -1.0]], b2=[0.0])
    fit = nlis.refit(nlis.Problem(model), x, model.predict(theta, x), np.ones(200), start=theta)
    assert np.isnan(fit.standard_errors).all()
    assert "rescaled" in str(fit.summary())


def test_crossings_are_the_roots_of_odd_order(rng):
    roots = np.sort(rng.uniform(-0.5, 1.5, size=(500, 5)), axis=1)
    coefficients = np.stack([np.polynomial.polynomial.polyfromroots(r) for r in roots]) * rng.normal(size=(500, 1))
    low, high = np.zeros(500), np.ones(500)
    for degree in range(1, 6):
        some = np.stack([np.polynomial.polynomial.polyfromroots(r[:degree]) for r in roots])
        found = crossings.crossings(some, low, high)
        for r, f in zip(roots[:, :degree], found, strict=True):
            inside = r[(r > 0) & (r < 1)]
            np.testing.assert_allclose(f[: len(inside)], inside, atol=1e-6)
            assert (f[len(inside) :] == 1.0).all()
    double = np.array([[0.25, -1.0, 1.0], [0.0, 0.0, 0.0]])  # (t - 1/2)^2, and nothing
    assert (crossings.crossings(double, low[:2], high[:2]) == 1.0).all()
    assert (crossings.value(coefficients, roots[:, 0]) / np.abs(coefficients).max(axis=1) < 1e-12).all()


def test_commands_name_it(tmp_path):
    from dask_nlis.cli.problems import problem_from

    problem = problem_from(None, "multilayer-perceptron:widths=4/3,bias=false", None, None, None)
    assert problem == nlis.Problem(nlis.MultilayerPerceptron((4, 3), bias=False))
    assert nlis.Problem.from_dict(problem.to_dict()) == problem
