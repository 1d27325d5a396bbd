"""Where tasks compute: the probe says why not, "cuda" insists, and no task mixes the host's arrays with the device's."""

import builtins
import sys
from types import ModuleType, SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from counting import FakeGPU, no_compute, rows_of, same_bits

import dask_nlis as nlis
from dask_nlis import device
from dask_nlis.scores import Share, lazy_scores, mixture_scorer

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(61, 400, 3)
THETA = np.array([0.3, -0.2, 0.1, 0.05])


@pytest.fixture
def fresh_probe():
    """Forget what the probe found, before and after."""
    device.probe.cache_clear()
    yield
    device.probe.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch, fresh_probe):
    """A machine without CuPy, whatever this one is."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "cupy":
            raise ImportError("No module named 'cupy'")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)


def results(x, y, name=None):
    """Everything that computes in tasks."""
    A = nlis.dual_matrix(SWISH, x, y, theta=THETA, sample_weight=np.linspace(0, 2, len(x)), device=name)
    found = nlis.factorize(A)
    T = nlis.tangent_matrix(SWISH, x, y, theta=THETA, sample_weight=np.linspace(0, 2, len(x)), device=name)
    tangent = nlis.factorize(T)
    flat = nlis.factorize(nlis.dual_matrix(SWISH, x * np.array([1.0, 0.0, 1.0]), y, theta=THETA, device=name))
    return {
        "factor": found.r,
        "tangent factor": tangent.r,
        "influence": np.asarray(nlis.influence_scores(T, tangent)),
        "mixture": lazy_scores(A, mixture_scorer(A, T, (found, tangent), Share(0.1, 0.2, 0.3))).compute(),
        "leverage": np.asarray(nlis.leverage_scores(A, found)),
        "norm": np.asarray(nlis.norm_scores(A)),
        "scaled norm": np.asarray(nlis.norm_scores(A, log2_scale=3)),
        "rows": A.to_dask_array().compute(),
        "losses": np.asarray(nlis.loss_scores(A)),
        "deletion": nlis.suspects(A, found, 20, by="deletion").scores,
        "cross": np.asarray(nlis.cross_leverage_scores(A, flat)),
        "outside": np.asarray(flat.outside(A)),
        "drift": nlis.drift(SWISH, x, y, [THETA, 2 * THETA], device=name).beta,
        "loss": nlis.total_loss(SWISH, x, y, np.tile(THETA, (2, 1)), device=name),
    }


def test_without_cupy_the_probe_says_so_and_auto_runs_on_the_cpu(no_gpu):
    assert device.probe() == "CuPy is not installed"
    assert device.choose("auto").kind == device.choose("cpu").kind == "cpu"
    for name, value in results(X, Y, "auto").items():
        assert same_bits(value, results(X, Y, "cpu")[name])


def cupy(**behaviour):
    """A module of the name of CuPy on a machine where something is missing."""
    module = ModuleType("cupy")
    module.cuda = SimpleNamespace(is_available=behaviour.get("available", lambda: True))
    module.zeros = behaviour.get("zeros", np.zeros)
    return module


def breaks(*_):
    raise RuntimeError("cudaErrorInsufficientDriver: driver version is insufficient")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"available": lambda: False}, "CuPy finds no GPU"),
        ({"available": breaks}, r"CuPy cannot allocate on the GPU \(RuntimeError\)"),
        ({"zeros": breaks}, r"CuPy cannot allocate on the GPU \(RuntimeError\)"),  # imports, and fails at the first use
    ],
)
def test_the_probe_believes_only_an_allocation(behaviour, reason, monkeypatch, fresh_probe):
    monkeypatch.setitem(sys.modules, "cupy", cupy(**behaviour))
    assert isinstance(device.probe(), str)
    assert device.choose("auto").kind == "cpu"
    with pytest.raises(nlis.DeviceError, match=reason):
        device.choose("cuda")


def test_cuda_without_a_gpu_stops_the_pass_saying_how_to_install(no_gpu):
    lazy = da.from_array(X, (100, 3))
    with no_compute():
        A = nlis.reference_matrix(SWISH, lazy, Y, device="cuda")  # the client need not have the GPU
        norms = nlis.norm_scores(A)
    for call in (
        lambda: nlis.factorize(A),
        norms.compute,
        A.to_dask_array().compute,
        lambda: nlis.total_loss(SWISH, lazy, Y, THETA, device="cuda"),
        lambda: nlis.run(SWISH, lazy, Y, size=50, seed=0, device="cuda"),
    ):
        with pytest.raises(
            nlis.DeviceError, match=r"CuPy is not installed.*dask-nlis\[gpu12\].*device='auto'"
        ) as caught:
            call()
        assert isinstance(caught.value, RuntimeError)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 300


def test_the_configuration_names_the_device(no_gpu):
    with dask.config.set({"dask-nlis.device": "cuda"}):
        A = nlis.reference_matrix(SWISH, X, Y)
        assert nlis.reference_matrix(SWISH, X, Y, device="cpu").device == "cpu"
    with pytest.raises(nlis.DeviceError):
        nlis.factorize(A)
    with dask.config.set({"dask-nlis.device": "tpu"}), pytest.raises(nlis.InputError, match="device='tpu'"):
        nlis.reference_matrix(SWISH, X, Y)


@pytest.fixture
def fake_gpu(monkeypatch):
    """A device whose arrays NumPy functions refuse; tasks that ask for "cpu" stay on the CPU."""
    gpu = FakeGPU()
    monkeypatch.setattr(device, "opened", gpu.opened)
    return gpu


@pytest.mark.parametrize("chunks", [None, 70])
def test_a_gpu_gives_the_factor_and_scores_of_numpy_to_1e_10(chunks, fake_gpu):
    x = X if chunks is None else da.from_array(X, (chunks, 3))
    expected = results(x, Y, "cpu")
    assert fake_gpu.transfers() == (0, 0, 0)
    for name, value in results(x, Y, "cuda").items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)
    assert all(fake_gpu.transfers())


def test_blocks_leave_every_task_as_numpy(fake_gpu):
    lazy = da.from_array(X, (70, 3))
    A = nlis.dual_matrix(SWISH, lazy, Y, theta=THETA, device="cuda")
    found = nlis.factorize(A)
    assert all(type(part) is np.ndarray for part in (found.r, found.whitener, found.singular_values))
    for array in (nlis.leverage_scores(A, found), nlis.norm_scores(A), A.to_dask_array()):
        parts = dask.compute(*array.to_delayed().ravel(), scheduler="synchronous")
        assert all(type(part) is np.ndarray and part.dtype == np.float64 for part in parts)


def test_bad_cells_and_dropped_rows_are_found_on_the_device_as_on_the_cpu(fake_gpu):
    x = X.copy()
    x[17, 2] = np.nan
    with pytest.raises(nlis.NonFiniteError, match=r"column 2 .*row 17 "):
        nlis.factorize(nlis.reference_matrix(SWISH, x, Y, device="cuda"))
    A = nlis.reference_matrix(SWISH, x, Y, device="cuda", missing="drop")
    kept = nlis.leverage_scores(A, nlis.factorize(A))
    assert kept[17] == 0
    assert kept.sum() == pytest.approx(nlis.factorize(A).rank, abs=1e-9)


def test_more_bytes_are_worked_on_at_a_time_on_a_gpu_and_enough_rows_for_any_width():
    for kind in ("cpu", "cuda"):
        assert device.sub_block_rows(kind, 10_000, reducing=True) >= 20_000
        assert device.sub_block_rows(kind, 100_000) * 100_000 * 8 < 2**28  # bytes, where nothing is reduced
        assert device.sub_block_rows(kind, 0) >= 1
    assert device.sub_block_rows("cuda", 10) > device.sub_block_rows("cpu", 10)
