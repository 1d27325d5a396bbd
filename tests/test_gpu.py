"""On an NVIDIA GPU with CuPy: every pass gives what the CPU gives, in less memory than a block takes too."""

import importlib.util

import dask.array as da
import numpy as np
import pytest
from counting import rows_of
from passes import BLOCKS, PASSES, THETA, X, Y
from tables import LABELS, LOSSES, MODELS, PAIRS, allowed

import dask_nlis as nlis
from dask_nlis import device

WHY = "CuPy is not installed" if importlib.util.find_spec("cupy") is None else device.probe()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(WHY, str), reason=f"no GPU: {WHY}")]

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


def test_auto_takes_the_gpu():
    assert device.choose("auto").kind == "cuda"
    assert device.choose("cpu").kind == "cpu"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_gives_what_the_cpu_gives(name):
    function = PASSES[name][0]
    np.testing.assert_allclose(function("cuda"), function("cpu"), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["gram", "tree", "leverage", "mixture"])
def test_data_cross_once_and_what_blocks_share_once_a_process(name, monkeypatch):
    function, _, back = PASSES[name]
    function("cuda")  # theta and whitener are there from here on
    real, counts = device.opened, {"ship": 0, "fetch": 0, "kept": []}

    def counted(where):
        there = real(where)
        if there.kind == "cpu":
            return there
        counts["kept"].append(len(there.kept))

        def ship(block):
            counts["ship"] += 1
            return there.ship(block)

        def fetch(array):
            counts["fetch"] += 1
            return there.fetch(array)

        return there._replace(ship=ship, fetch=fetch)

    monkeypatch.setattr(device, "opened", counted)
    function("cuda")
    assert (counts["ship"], counts["fetch"]) == (3 * BLOCKS, back * BLOCKS)
    assert len(set(counts["kept"])) == 1


@pytest.mark.parametrize("method", ["auto", "gram", "tsqr", "sketch", "sketch-only"])
def test_leverage_by_every_method(method):
    scores = {}
    for where in ("cpu", "cuda"):
        A = nlis.dual_matrix(SWISH, da.from_array(X, (130, 3)), Y, theta=THETA, device=where)
        scores[where] = nlis.leverage_scores(A, nlis.factorize(A, method=method)).compute()
    np.testing.assert_allclose(scores["cuda"], scores["cpu"], atol=1e-10)


@pytest.mark.filterwarnings("ignore::dask_nlis.NlisWarning")
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_every_model_and_loss(model, loss, labels, rng):
    """Rows alone, and not the labels' sizes that a table of rows on the CPU has for edges."""
    problem = nlis.Problem(MODELS[model], LOSSES[loss])
    x, theta = rng.normal(size=(300, 3)), rng.normal(size=problem.model.n_parameters(3))
    y = allowed(problem.loss, LABELS[labels](x[:, 0], rng))
    y = y if y is None else np.clip(y, -1e3, 1e3)
    found = {}
    for where in ("cpu", "cuda"):
        A = nlis.dual_matrix(problem, x, y, theta=theta, device=where)
        norms, factor = nlis.norm_scores(A), nlis.factorize(A)
        found[where] = norms / norms.sum(), nlis.leverage_scores(A, factor)
    tolerance = max(1e-10, 2 * factor.score_tolerance)
    for a, b in zip(*found.values(), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64", "float16", "float32"])
def test_every_kind_of_number_crosses_over(dtype):
    x = np.random.default_rng(0).integers(0, 2, (400, 3)).astype(dtype)
    found = [nlis.norm_scores(nlis.reference_matrix(SWISH, x, Y[:400], device=where)) for where in ("cpu", "cuda")]
    np.testing.assert_allclose(*found, rtol=1e-13)


@pytest.fixture
def pool():
    """CuPy's pool, whose limit is taken off in the end."""
    import cupy

    found = cupy.get_default_memory_pool()
    device.opened("cuda").kept.forget()
    found.free_all_blocks()
    yield found
    found.set_limit(size=0)


@pytest.mark.parametrize("method", ["gram", "tsqr", "sketch"])
def test_a_block_of_four_times_the_memory_is_done_and_gives_the_scores_of_the_cpu(method, pool):
    x, y = rows_of(62, 400_000, 20)  # 64 MB in one block
    theta = np.linspace(-0.2, 0.2, 21)
    scores = {}
    for where in ("cpu", "cuda"):
        if where == "cuda":
            pool.set_limit(size=16 * 2**20)
        A = nlis.dual_matrix(SWISH, da.from_array(x, x.shape), y, theta=theta, device=where)
        scores[where] = nlis.leverage_scores(A, nlis.factorize(A, method=method)).compute()
    np.testing.assert_allclose(scores["cuda"], scores["cpu"], atol=1e-10)


def test_memory_is_given_back_after_each_block(pool):
    A = nlis.dual_matrix(SWISH, da.from_array(X, (100, 3)), Y, theta=THETA, device="cuda")
    nlis.leverage_scores(A, nlis.factorize(A)).compute()
    assert pool.free_bytes() == 0
    assert pool.used_bytes() < 2**16  # theta and whitener


def test_memory_that_runs_out_for_good_ends_on_the_cpu_or_in_a_line(pool):
    pool.set_limit(size=1024)
    x = da.from_array(X, (100, 3))
    with pytest.warns(nlis.PerformanceWarning, match="GPU memory ran out"):
        found = nlis.norm_scores(nlis.dual_matrix(SWISH, x, Y, theta=THETA, device="auto")).compute()
    expected = nlis.norm_scores(nlis.dual_matrix(SWISH, x, Y, theta=THETA, device="cpu")).compute()
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(nlis.DeviceError, match="GPU memory ran out"):
        nlis.norm_scores(nlis.dual_matrix(SWISH, x, Y, theta=THETA, device="cuda")).compute()


def test_the_same_bits_whatever_is_free(pool):
    x, y = rows_of(64, 300_000, 20)
    theta = np.linspace(-0.2, 0.2, 21)
    A = nlis.dual_matrix(SWISH, da.from_array(x, x.shape), y, theta=theta, device="cuda")
    pool.set_limit(size=2 * 2**30)
    first = nlis.factorize(A, method="gram").r
    import cupy

    held = cupy.zeros((2 * 2**30 - 900 * 2**20) // 8)  # so that a block goes over in pieces
    second = nlis.factorize(A, method="gram").r
    del held
    np.testing.assert_array_equal(first, second)


def test_a_run_on_the_gpu_is_that_on_the_cpu():
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(5.0))
    x = da.from_array(X, (100, 3))
    made = {where: nlis.run(problem, x, Y, size=100, seed=0, device=where) for where in ("cpu", "cuda")}
    assert set(made["cuda"].devices) == {"cuda"}
    np.testing.assert_allclose(made["cuda"].fit.theta, made["cpu"].fit.theta, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.asarray(made["cuda"].scores), np.asarray(made["cpu"].scores), rtol=1e-6)
