"""Leverage from rows as they are, with the factor of each at the end: equal to that of formed rows, or left to them."""

import numpy as np
import pytest

import dask_nlis as nlis
from dask_nlis.device import choose
from dask_nlis.matrix.tasks import rows_block
from dask_nlis.scores import leverage as room_of_leverage, unscaled
from dask_nlis.scores.leverage import placed

N, D = 3000, 4
LOSSES = {
    "squared": (nlis.SquaredError(), lambda u, rng: u + rng.normal(size=len(u))),
    "huber": (nlis.PseudoHuber(1.0), lambda u, rng: u + rng.normal(size=len(u))),
    "logistic": (nlis.LogisticLoss(), lambda u, rng: (rng.random(len(u)) < 0.5).astype(float)),
    "poisson": (nlis.PoissonDeviance(), lambda u, rng: rng.poisson(np.exp(np.clip(u, -3, 3))).astype(float)),
}
MODELS = {
    "linear": nlis.Linear(),
    "linear through 0": nlis.Linear(intercept=False),
    "tanh": nlis.SingleIndex(nlis.Tanh()),
    "sigmoid": nlis.SingleIndex(nlis.Logistic()),
    "swish": nlis.SingleIndex(nlis.Swish(1, 2)),
    "relu through 0": nlis.SingleIndex(nlis.Relu(), intercept=False),
    "exp": nlis.SingleIndex(nlis.Exp()),
}


def made(model, loss, *, labelled=True, weighted=False, dtype="f8", scale=1.0, seed=0):
    """A block of rows, the job of its matrix and the whitener of its factor."""
    rng = np.random.default_rng(seed)
    loss, labels = LOSSES[loss]
    units = scale * np.array([1.0, 3.0, 0.5, 8.0])
    x = rng.normal(size=(N, D)) * units
    x = (np.abs(x) if dtype[0] == "u" else x).astype(dtype)
    x[:3] = (x[:3].astype(float) * 4).astype(dtype)  # heavy ones
    theta = np.append([0.3, -0.2, 0.4, 0.1] / units, 0.2)[: MODELS[model].n_parameters(D)]
    y = labels(x @ theta[:D], rng) if labelled else None
    weight = rng.uniform(0.5, 3.0, size=N) if weighted else None
    A = nlis.dual_matrix(nlis.Problem(MODELS[model], loss), x, y, theta=theta, sample_weight=weight, device="cpu")
    return x, y, weight, A.job, nlis.factorize(A)


def ours(x, y, weight, job, factor):
    target = placed((factor.whitener, factor.correction), choose("cpu"))
    room = np.empty((N, job.n_matrix_columns))
    return unscaled.unscaled_leverage(x, y, weight, job, target[0], room)


def rows_formed(x, y, weight, job, factor):
    """The definition: squared norms of the rows of F W."""
    rows = np.asarray(rows_block(x, y, weight, 0, job=job), dtype=np.longdouble)
    return np.sum((rows @ factor.whitener.astype(np.longdouble)) ** 2, axis=1).astype(float)


#: Losses with a link inside go with linear models.
PAIRS = [(m, s) for m in MODELS for s in LOSSES if m.startswith("linear") or s in ("squared", "huber")]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_it_is_the_leverage_of_the_formed_rows(model, loss, weighted):
    block = made(model, loss, weighted=weighted)
    found = ours(*block)
    assert block[4].correction is None
    assert found is not None
    np.testing.assert_allclose(found, rows_formed(*block), rtol=1e-11, atol=1e-15)
    assert found.sum() == pytest.approx(block[4].rank, rel=1e-10)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1", "i8", "u8", ">f8", ">i2"])
@pytest.mark.parametrize("labelled", [False, True])
def test_columns_of_other_types_and_no_labels(dtype, labelled):
    block = made("sigmoid", "squared", dtype=dtype, labelled=labelled, scale=20.0)
    found = ours(*block)
    assert found is not None
    np.testing.assert_allclose(found, rows_formed(*block), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**400])
def test_units_of_the_data_do_not_matter(scale):
    """|x|^2 alone would over- or underflow."""
    one, other = made("linear", "squared", seed=1), made("linear", "squared", seed=1)
    x = other[0] * scale
    theta = np.append(one[3].rule.theta[:-1] / scale, one[3].rule.theta[-1])
    A = nlis.dual_matrix(one[3].rule.problem, x, one[1], theta=theta, device="cpu")
    found = ours(x, one[1], None, A.job, nlis.factorize(A))
    assert found is not None
    np.testing.assert_allclose(found, ours(*one), rtol=1e-12)


def test_the_public_function_forms_no_row_where_it_serves(monkeypatch):
    x, y, _, job, factor = made("linear", "logistic")
    A = nlis.dual_matrix(job.rule.problem, x, y, theta=job.rule.theta, device="cpu")
    expected = rows_formed(x, y, None, job, factor)

    def never(*_):
        raise AssertionError("rows were formed")

    monkeypatch.setattr(room_of_leverage, "matrix_rows", never)
    np.testing.assert_allclose(nlis.leverage_scores(A, factor), expected, rtol=1e-11, atol=1e-15)
    x[7, 2] = np.nan
    with pytest.raises(AssertionError, match="rows were formed"):
        room_of_leverage.leverage_block(
            x, y, None, 0, job=job, whitener=(factor.whitener, factor.correction), tolerance=1e-9
        )


def spoil(name, block):
    x, y, weight, job, factor = block
    x, y = x.copy(), y.copy()
    if name in ("nan", "inf"):
        x[1234, 1] = float(name)
    elif name == "huge":
        x[5] = 1e200
    elif name == "tiny":
        x[5] = 0.0
    elif name == "label":
        y[9] = np.nan
    elif name == "refused label":
        y[9] = -3.0
    elif name == "weight 0":
        weight = np.where(np.arange(N) == 9, 0.0, 1.0)
    elif name == "negative weight":
        weight = np.where(np.arange(N) == 9, -1.0, 1.0)
    elif name == "weight nan":
        weight = np.where(np.arange(N) == 9, np.nan, 1.0)
    elif name == "integer":
        x = x.astype("i8")
        x[77, 0] = 2**60 + 1
    return x, y, weight, job, factor


@pytest.mark.parametrize(
    "name",
    ["nan", "inf", "huge", "tiny", "label", "refused label", "weight 0", "negative weight", "weight nan", "integer"],
)
def test_what_is_not_ordinary_is_left_to_the_rows(name):
    block = made("linear through 0", "poisson")
    assert ours(*block) is not None
    assert ours(*spoil(name, block)) is None


def square(prediction, y):
    return (prediction - y) ** 2


def twice(prediction, y):
    return 2 * (prediction - y)


@pytest.mark.parametrize("loss", [nlis.AbsoluteError(), "custom"])
def test_losses_without_a_slope_somewhere_and_of_the_user_are_left_to_the_rows(loss):
    x, y, _, job, _ = made("tanh", "squared")
    if loss == "custom":
        loss = nlis.CustomLoss(square, twice)
    A = nlis.dual_matrix(nlis.Problem(MODELS["tanh"], loss), x, y, theta=job.rule.theta, device="cpu")
    factor = nlis.factorize(A)
    assert ours(x, y, None, A.job, factor) is None
    np.testing.assert_allclose(
        nlis.leverage_scores(A, factor), rows_formed(x, y, None, A.job, factor), rtol=1e-9, atol=1e-15
    )
