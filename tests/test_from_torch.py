"""Torch modules taken over: against torch's own gradients of rows, and the closed forms of this library."""

import copy
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest

import dask_nlis as nlis

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning")]
D, N = 6, 60


def dense(*widths, unit=torch.nn.ReLU, bias=True, outputs=1):
    torch.manual_seed(1)
    parts = []
    for before, behind in zip((D, *widths), (*widths, outputs), strict=True):
        parts += [torch.nn.Linear(before, behind, bias=bias), unit()]
    return torch.nn.Sequential(*parts[:-1])


def images(padding=1):
    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, stride=2, padding=padding),
        torch.nn.ReLU(),
        torch.nn.Conv2d(3, 4, 2, dilation=2),
        torch.nn.LeakyReLU(0.1),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * (1 + padding) ** 2 if padding else 4, 1),
    )


class Written(torch.nn.Module):
    """Layers in code, not in a Sequential."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(D, 5), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(torch.flatten(x, 1)))).squeeze(-1)


class Residual(torch.nn.Module):
    """A branch: not layers one after the other."""

    def __init__(self, unit=torch.tanh, outputs=1):
        super().__init__()
        self.inner, self.outer, self.unit = torch.nn.Linear(D, D), torch.nn.Linear(D, outputs), unit

    def forward(self, x):
        return self.outer(x + self.unit(self.inner(x)))


class Upside(torch.nn.Module):
    """Parameters in another order than layers."""

    def __init__(self):
        super().__init__()
        self.last, self.first = torch.nn.Linear(4, 1), torch.nn.Linear(D, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def setting(module, shape, rng):
    x = rng.normal(size=(N, int(np.prod(shape))))
    return x, rng.normal(size=N)


def gradients(module, names, shape, scale, x):
    """torch's own: gradients of each row at `scale` times the named parameters, (n, p), and the predictions (n,)."""
    own = copy.deepcopy(module).double()
    parameters = {name: values.detach() for name, values in own.named_parameters()}

    def one(wanted, row):
        return torch.func.functional_call(own, {**parameters, **wanted}, (row.reshape(1, *shape),)).reshape(())

    wanted = {name: scale * parameters[name] for name in names}
    made = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(wanted, torch.tensor(x))
    rows = np.concatenate([made[name].reshape(len(x), -1).numpy() for name in names], axis=1)
    values = torch.func.vmap(one, in_dims=(None, 0))(wanted, torch.tensor(x))
    return rows, values.numpy()


MODULES = {
    "one layer": (dense(5), (D,), nlis.LayerStack),
    "three layers": (dense(6, 5, 4), (D,), nlis.LayerStack),
    "no biases": (dense(6, 5, bias=False), (D,), nlis.LayerStack),
    "tanh": (dense(5, 4, unit=torch.nn.Tanh), (D,), nlis.LayerStack),
    "silu": (dense(5, unit=torch.nn.SiLU), (D,), nlis.LayerStack),
    "gelu": (dense(5, unit=torch.nn.GELU), (D,), nlis.LayerStack),
    "elu": (dense(5, unit=torch.nn.ELU), (D,), nlis.LayerStack),
    "softplus": (dense(5, unit=torch.nn.Softplus), (D,), nlis.LayerStack),
    "sigmoid": (dense(5, unit=torch.nn.Sigmoid), (D,), nlis.LayerStack),
    "images": (images(), (2, 7, 7), nlis.LayerStack),
    "images, no padding": (images(0), (2, 7, 7), nlis.LayerStack),
    "written": (Written(), (D,), nlis.LayerStack),
    "a branch": (Residual(), (D,), nlis.TorchModel),
    "another order": (Upside(), (D,), nlis.TorchModel),
    "another slope": (dense(4, unit=lambda: torch.nn.ELU(0.5)), (D,), nlis.TorchModel),
    "a unit of torch's": (dense(4, unit=torch.nn.Mish), (D,), nlis.TorchModel),
}
every_module = pytest.mark.parametrize(("module", "shape", "kind"), MODULES.values(), ids=MODULES)


@every_module
def test_predictions_and_gradients_are_those_of_torch(module, shape, kind, rng):
    x, _ = setting(module, shape, rng)
    model = nlis.from_torch(module, input_shape=shape)
    assert type(model) is kind
    names = [name for name, _ in module.named_parameters()]
    rows, values = gradients(module, names, shape, 1.0, x)
    np.testing.assert_allclose(model.predict(model.theta, x), values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.jacobian(model.theta, x), rows, rtol=1e-12, atol=1e-13)
    flat = np.concatenate([values.detach().double().numpy().ravel() for values in module.parameters()])
    np.testing.assert_array_equal(model.theta, flat)
    np.testing.assert_array_equal(model.pack(**model.unpack(flat)), flat)
    assert len(model.parameter_names([])) == model.n_parameters(x.shape[1]) == len(flat)


@every_module
def test_dual_rows_are_the_mean_gradient_and_hold_the_identity(module, shape, kind, rng):
    x, y = setting(module, shape, rng)
    model = nlis.from_torch(module, input_shape=shape)
    names = [name for name, _ in module.named_parameters()]
    A = nlis.dual_matrix(nlis.Problem(model), x, y, theta=model.theta)
    F = A.to_dask_array().compute()
    kinked = isinstance(model, nlis.LayerStack) and model.nodes
    if kinked:  # midpoints, each wrong by about the jump over their number
        nodes, weights, tolerance = (np.arange(400) + 0.5) / 400, np.full(400, 1 / 400), 2e-2
    else:
        nodes, weights = np.polynomial.legendre.leggauss(64)
        nodes, weights, tolerance = (nodes + 1) / 2, weights / 2, 1e-9
    mean = sum(w * gradients(module, names, shape, t, x[:8])[0] for t, w in zip(nodes, weights, strict=True))
    np.testing.assert_allclose(F[:8, :-1], mean, atol=tolerance * np.abs(mean).max())
    zero = model.at_zero(x) - y
    np.testing.assert_allclose(F[:, -1], zero, rtol=1e-13)
    np.testing.assert_allclose(F[:, :-1] @ model.theta, model.predict(model.theta, x) - y - zero, atol=1e-10)
    np.testing.assert_allclose(nlis.norm_scores(A), (F**2).sum(axis=1), rtol=1e-10)
    assert nlis.factorize(A).identity_residual < 1e-11


def test_single_index_and_rectified_nets_have_the_scores_of_the_closed_form(rng):
    x, y = rng.normal(size=(200, D)), rng.normal(size=200)
    for module, model, pack in (
        (dense(), nlis.Linear(), lambda t: t),
        (torch.nn.Sequential(torch.nn.Linear(D, 1), torch.nn.Tanh()), nlis.SingleIndex(nlis.Tanh()), lambda t: t),
        (
            torch.nn.Sequential(torch.nn.Linear(D, 1), torch.nn.Softplus()),
            nlis.SingleIndex(nlis.Softplus()),
            lambda t: t,
        ),
        (dense(5, bias=False), nlis.DeepReluNetwork((5,)), lambda t: t),
        (dense(5, 4, bias=False), nlis.DeepReluNetwork((5, 4)), lambda t: t),
    ):
        taken = nlis.from_torch(module)
        assert isinstance(taken, nlis.LayerStack)
        found, closed = (nlis.dual_matrix(nlis.Problem(m), x, y, theta=pack(taken.theta)) for m in (taken, model))
        np.testing.assert_allclose(
            found.to_dask_array().compute(), closed.to_dask_array().compute(), rtol=1e-10, atol=1e-12
        )
        for score in (nlis.norm_scores, lambda A: nlis.leverage_scores(A, nlis.factorize(A))):
            np.testing.assert_allclose(score(found), score(closed), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wrt", ["2", ["2.weight"], ["0.bias", "2"], "0", ["0.bias"]])
def test_some_parameters_alone_are_theta_and_the_others_stay(wrt, rng):
    module = dense(7, 5)
    x, y = setting(module, (D,), rng)
    model = nlis.from_torch(module, wrt=wrt)
    asked = [wrt] if isinstance(wrt, str) else wrt
    names = [n for n, _ in module.named_parameters() if any(n == a or n.startswith(f"{a}.") for a in asked)]
    rows, _ = gradients(module, names, (D,), 1.0, x)
    np.testing.assert_allclose(model.jacobian(model.theta, x), rows, rtol=1e-12, atol=1e-13)
    A = nlis.dual_matrix(nlis.Problem(model), x, y, theta=model.theta)
    factor = nlis.factorize(A)
    assert factor.identity_residual < 1e-12
    assert A.shape == (N, rows.shape[1] + 1)
    F = A.to_dask_array().compute()
    np.testing.assert_allclose(nlis.norm_scores(A), (F**2).sum(axis=1), rtol=1e-11)


def test_leverage_of_the_last_layer_is_that_of_its_inputs(rng):
    module = dense(7, 5)
    x, _ = setting(module, (D,), rng)
    model = nlis.from_torch(module, wrt="4")
    A = nlis.dual_matrix(nlis.Problem(model), x, theta=model.theta)
    with torch.no_grad():
        hidden = module[:4].double()(torch.tensor(x)).numpy()
    module.float()
    inputs = np.column_stack([hidden, np.ones(N)])
    u = np.linalg.svd(inputs, full_matrices=False)
    kept = 1e-10 * u.S[0] < u.S
    np.testing.assert_allclose(nlis.leverage_scores(A, nlis.factorize(A)), (u.U[:, kept] ** 2).sum(axis=1), atol=1e-11)


def test_batch_normalisation_is_what_it_learnt_and_training_mode_is_refused(rng):
    module = torch.nn.Sequential(torch.nn.Linear(D, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    module(torch.randn(50, D))
    with pytest.raises(nlis.InputError, match=r"BatchNorm1d '1' is in training mode.*call module.eval\(\) first"):
        nlis.from_torch(module)
    model = nlis.from_torch(module.eval())
    x, _ = setting(module, (D,), rng)
    assert isinstance(model, nlis.TorchModel)
    with torch.no_grad():
        np.testing.assert_allclose(
            model.predict(model.theta, x), copy.deepcopy(module).double()(torch.tensor(x))[:, 0], rtol=1e-12
        )


def test_the_module_that_came_is_left_as_it_was_and_later_changes_are_not_seen(rng):
    module = dense(4).train()
    before = copy.deepcopy(module.state_dict())
    model = nlis.from_torch(module)
    x, _ = setting(module, (D,), rng)
    first = model.predict(model.theta, x)
    assert module.training
    assert all(p.requires_grad and p.dtype == torch.float32 for p in module.parameters())
    assert all(torch.equal(before[name], values) for name, values in module.state_dict().items())
    with torch.no_grad():
        module[0].weight.zero_()
    np.testing.assert_array_equal(model.predict(model.theta, x), first)


@pytest.mark.parametrize("module", [dense(5), Residual()], ids=["layers", "torch"])
def test_equal_modules_are_equal_and_have_one_token_and_threads_do_not_meet(module, rng):
    a, b = nlis.from_torch(module), nlis.from_torch(copy.deepcopy(module))
    assert a == b
    assert dask.base.tokenize(a) == dask.base.tokenize(b)
    other = copy.deepcopy(module)
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    assert nlis.from_torch(other) != a
    x, y = rng.normal(size=(4000, D)), rng.normal(size=4000)
    A = nlis.dual_matrix(
        nlis.Problem(a), dask.array.from_array(x, chunks=(200, D)), dask.array.from_array(y, chunks=200), theta=a.theta
    )
    with dask.config.set(scheduler="threads", num_workers=4):
        many = nlis.norm_scores(A).compute()
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(nlis.norm_scores(A).compute(), many)


@pytest.mark.cluster
@pytest.mark.parametrize("module", [dense(5), Residual()], ids=["layers", "torch"])
def test_modules_go_to_the_workers_of_a_cluster(module, client, rng):
    model = nlis.from_torch(module)
    x, y = rng.normal(size=(400, D)), rng.normal(size=400)
    here = nlis.norm_scores(nlis.dual_matrix(nlis.Problem(model), x, y, theta=model.theta))
    lazy = dask.array.from_array(x, chunks=(100, D))
    A = nlis.dual_matrix(nlis.Problem(model), lazy, dask.array.from_array(y, chunks=100), theta=model.theta)
    np.testing.assert_allclose(nlis.norm_scores(A).compute(), here, rtol=1e-12)


def test_a_fit_from_the_module_goes_on_and_a_run_of_layers_is_stored(rng, tmp_path):
    module = dense(3, unit=torch.nn.Tanh)
    model = nlis.from_torch(module)
    x = rng.normal(size=(500, D))
    y = np.tanh(x[:, 0]) + 0.01 * rng.normal(size=500)
    problem = nlis.Problem(model, constraint=nlis.Ball(50.0))
    made = nlis.run(problem, x, y, size=200, seed=0, theta=model.theta, scores="leverage")
    assert made.fit.loss < nlis.total_loss(problem, x, y, model.theta)
    stored = nlis.run(
        problem, x, y, size=200, seed=0, theta=model.theta, scores="leverage", store=tmp_path / "run.zarr"
    )
    again = nlis.open_run(tmp_path / "run.zarr")
    assert again.problem == problem
    assert again.fit == stored.fit
    torch_model = nlis.from_torch(Residual())
    with pytest.raises(nlis.InputTypeError, match=r"TorchModel, which no file may name.*store=None"):
        nlis.run(
            nlis.Problem(torch_model), x, y, size=200, seed=0, theta=torch_model.theta, store=tmp_path / "other.zarr"
        )


def test_too_many_parameters_for_a_factor_are_refused_with_figures(rng):
    module = torch.nn.Sequential(torch.nn.Linear(D, 4000), torch.nn.ReLU(), torch.nn.Linear(4000, 1))
    model = nlis.from_torch(module)
    x, y = setting(module, (D,), rng)
    A = nlis.dual_matrix(nlis.Problem(model), x, y, theta=model.theta)
    with pytest.raises(
        nlis.InputError, match=r"p=32,002 columns need a factor of 8,193,024,032 bytes.*norm_scores.*wrt="
    ):
        nlis.factorize(A)
    assert nlis.norm_scores(A).shape == (N,)


@pytest.mark.parametrize("module", [dense(5, outputs=3), Residual(outputs=3)], ids=["layers", "torch"])
def test_several_outputs_are_pulled_back_together(module, rng):
    model = nlis.from_torch(module)
    assert model.n_outputs == 3
    x, y = rng.normal(size=(60, D)), rng.integers(0, 3, 60)
    with torch.no_grad():
        expected = module.double()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(model.predict(model.theta, x), expected, rtol=1e-12)
    slopes = rng.normal(size=(60, 3))
    rows = model.pullback(model.theta, x, slopes)
    parameters = list(module.parameters())
    for i in (0, 59):
        found = torch.autograd.grad((module(torch.tensor(x[i : i + 1]))[0] * torch.tensor(slopes[i])).sum(), parameters)
        np.testing.assert_allclose(rows[i], np.concatenate([g.numpy().ravel() for g in found]), rtol=1e-10, atol=1e-12)
    for problem, labels in (
        (nlis.Problem(model, nlis.SoftmaxLoss(3)), y),
        (nlis.Problem(model, nlis.PseudoHuber(1.0), outputs="separate"), rng.normal(size=(60, 3))),
    ):
        A = nlis.dual_matrix(problem, x, labels, theta=model.theta)
        factor = nlis.factorize(A)
        assert factor.identity_residual < 1e-6
        assert nlis.leverage_scores(A, factor).sum() == pytest.approx(factor.rank, abs=1e-6)
        np.testing.assert_allclose(
            nlis.norm_scores(A),
            (A.to_dask_array().compute().reshape(60, -1, factor.r.shape[0]) ** 2).sum(axis=(1, 2)),
            rtol=1e-10,
        )


class Many(torch.nn.Module):
    def forward(self, x):
        return x


MISTAKES = {
    "no module": (lambda: nlis.from_torch(3), nlis.InputTypeError, "module is int; give an instance"),
    "a class": (lambda: nlis.from_torch(Residual), nlis.InputTypeError, "module is the class Residual"),
    "images": (lambda: nlis.from_torch(torch.nn.Conv2d(1, 2, 3), input_shape=(1, 4, 4)), nlis.InputError, r"returns \(8, 2, 2, 2\) for a batch of 8"),
    "no parameters": (lambda: nlis.from_torch(Many()), nlis.InputError, "Many has no parameters"),
    "an unknown name": (lambda: nlis.from_torch(dense(3), wrt="head"), nlis.InputError, r"'head', which the module has not \(it has 0.w"),
    "names of no kind": (lambda: nlis.from_torch(dense(3), wrt=[1]), nlis.InputTypeError, r"wrt=\[1\] is not allowed"),
    "no names": (lambda: nlis.from_torch(dense(3), wrt=[]), nlis.InputError, "wrt names nothing"),
    "no shape": (lambda: nlis.from_torch(images()), nlis.InputError, "input_shape is None, and the first layer .Conv2d."),
    "a wrong shape": (lambda: nlis.from_torch(dense(3), input_shape=5), nlis.InputError, r"no batch of shape \(8, 5\)"),
    "no shape at all": (lambda: nlis.from_torch(dense(3), input_shape=0), nlis.InputError, "input_shape=0 is not allowed"),
    "a tolerance": (lambda: nlis.from_torch(dense(3), tolerance=2), nlis.InputError, "tolerance=2 is not allowed"),
    "columns": (
        lambda: nlis.dual_matrix(nlis.Problem(nlis.from_torch(dense(3))), np.ones((5, 4)), np.ones(5), theta=np.ones(25)),
        nlis.InputError,
        "X has 4 columns, but the module takes 6 numbers a row",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_kinks_of_a_branch_are_refused_unless_they_are_tolerated(rng):
    module = Residual(torch.relu)
    inner = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.ReLU(), Residual(torch.relu))
    x, y = setting(module, (D,), rng)
    strict, loose = nlis.from_torch(inner), nlis.from_torch(inner, tolerance=0.01)
    with pytest.raises(nlis.IdentityResidualError, match="larger tolerance= of Numerical, from_torch"):
        nlis.factorize(nlis.dual_matrix(nlis.Problem(strict), x, y, theta=strict.theta))
    factor = nlis.factorize(nlis.dual_matrix(nlis.Problem(loose), x, y, theta=loose.theta))
    assert 1e-6 < factor.identity_residual <= 0.01


@pytest.mark.parametrize("name", ["from_torch", "torch_model"])
def test_examples_of_the_docstrings(name):
    importlib.import_module("dask_nlis.adapters")
    found = doctest.testmod(sys.modules[f"dask_nlis.adapters.{name}"])
    assert found.attempted
    assert not found.failed


def test_norms_without_gradients_of_rows_are_those_of_gradients():
    script = Path(__file__).parents[1] / "examples/benchmarks/torch_norms.py"
    ran = subprocess.run([sys.executable, script, "--quick"], capture_output=True, text=True, check=True)
    agree = re.search(r"scores agree to (\S+); memory is [\d.]+ of that of gradients", ran.stdout)
    assert agree
    assert float(agree[1]) < 1e-8
