"""A block on a GPU that is none: what crosses and how often, in pieces where memory is short, on the CPU where it ends."""

import threading
import warnings
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from array_api_compat import array_namespace
from counting import FakeGPU, same_bits
from distributed import Client, LocalCluster
from passes import BLOCKS, CHUNKS, PASSES, THETA, WEIGHT, X, Y, dual

import dask_nlis as nlis
from dask_nlis import device, tally
from dask_nlis.device import Kept, Memory, fit, memory, places
from dask_nlis.factor.ladder import factorize_together


@pytest.fixture(autouse=True)
def one_thread():
    """Blocks in their order, and no time for threads."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def small_sub_blocks(monkeypatch):
    """Sub-blocks of 26 rows and more, so that a block has several."""
    monkeypatch.setattr(memory, "_SUB_BLOCK_BYTES", {"cpu": 2**20, "cuda": 2**10})
    monkeypatch.setattr(memory, "_FEWEST_ROWS", 4)


@pytest.fixture
def gpu(monkeypatch, small_sub_blocks):
    return install(monkeypatch, FakeGPU())


def install(monkeypatch, gpu):
    monkeypatch.setattr(device, "opened", gpu.opened)
    return gpu


@pytest.mark.parametrize("name", PASSES)
def test_data_cross_once_a_block_and_pass_and_one_result_comes_back(name, gpu):
    function, shared, back = PASSES[name]
    expected = function("cpu")
    assert gpu.transfers() == (0, 0, 0)
    found = function("cuda")
    assert gpu.transfers() == (3 * BLOCKS, shared, back * BLOCKS)  # X, y and weights
    assert gpu.releases == BLOCKS
    assert same_bits(function("cuda"), found)
    assert gpu.transfers()[1] == 0  # theta and whiteners are there already
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("outputs", ["joint", "separate"])
def test_several_outputs_are_those_of_the_cpu(outputs, gpu):
    model = nlis.MultilayerPerceptron((4,), n_outputs=2)
    problem = nlis.Problem(model, outputs=outputs)
    theta = np.random.default_rng(5).normal(size=model.n_parameters(3))
    x, y, chunks = X[:40], np.column_stack([Y, Y**2])[:40], (15, 25)
    y[30, 1] = np.nan
    options = {"theta": theta, "sample_weight": WEIGHT[:40], "missing": "drop"}
    here, there = (
        nlis.dual_matrix(problem, da.from_array(x, (chunks, 3)), y, device=where, **options)
        for where in ("cpu", "cuda")
    )
    expected, found = (nlis.leverage_scores(A, nlis.factorize(A)).compute() for A in (here, there))
    assert gpu.transfers()[0] == 3 * len(chunks) * (nlis.factorize(here).reads + 1)
    np.testing.assert_allclose(found, expected, atol=1e-11)
    np.testing.assert_allclose(nlis.norm_scores(there), nlis.norm_scores(here), rtol=1e-11)
    assert found[30] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool", "int64", "float16", ">f8"])
def test_columns_cross_in_the_bytes_they_are_stored_in(dtype, gpu):
    x = (3 * X).astype(dtype)
    seen = []
    ship = gpu._ship
    gpu._ship = lambda block: (seen.append(block.dtype.name), ship(block))[1]
    found = nlis.norm_scores(dual(x=x)).compute()
    crossing = {"int64": "float64", "float16": "float32", ">f8": "float64"}
    assert set(seen[::3]) == {crossing.get(dtype, dtype)}
    assert seen[1::3] == seen[2::3] == ["float64"] * BLOCKS
    np.testing.assert_allclose(found, nlis.norm_scores(dual("cpu", x=x)).compute(), rtol=1e-13)


def test_an_integer_beyond_2_53_is_reported_from_a_device_too(gpu):
    x = np.arange(1500).reshape(500, 3)
    x[300, 1] = 2**53 + 1
    with pytest.raises(nlis.NonFiniteError, match=r"too large an integer.*row 300 "):
        nlis.factorize(dual(x=x))


#: What is added up, what is gathered, and both in one.
SOME = ("gram", "tree", "leverage", "mixture", "deep")


def some(where):
    return {name: PASSES[name][0](where) for name in SOME}


def test_free_memory_decides_on_the_pieces_and_on_no_bit(gpu):
    expected = some("cuda")
    ships = [gpu.transfers()[0]]
    for free in (47_000, 0):
        gpu.free = free
        for name, found in some("cuda").items():
            assert same_bits(found, expected[name]), name
        ships.append(gpu.transfers()[0])
    assert ships[0] == len(SOME) * 3 * BLOCKS < ships[1] < ships[2]


def test_pieces_are_as_large_as_a_share_of_the_free_memory():
    rows = fit(10**6, 800, 100, 4096, Memory(10**12, 10**12), halvings=0)
    assert rows == (4096, 10**6)
    some = fit(10**6, 800, 100, 4096, Memory(2 * 10**9, 10**12), halvings=0)
    work = memory._WORK * 8 * 4096 * 100
    assert some.rows == 4096
    assert some.piece % 4096 == 0
    assert some.piece * 800 + work <= 2 * 10**9 * memory._SHARE < (some.piece + 4096) * 800 + work
    # A sub-block that would fill the device is a smaller one, whatever is free.
    small = fit(10**6, 800, 100, 4096, Memory(10**6, 40 * 10**6), halvings=0)
    assert small == (2048, 2048)
    # The first try is at least one whole sub-block; each failure halves what was tried.
    assert fit(10**6, 800, 100, 4096, Memory(0, 10**12), halvings=0) == (4096, 4096)
    assert [fit(10**6, 800, 100, 4096, Memory(0, 10**12), halvings=k).rows for k in range(1, 7)] == [
        2048,
        1024,
        512,
        256,
        256,
        256,
    ]
    assert fit(10**6, 800, 100, 4096, Memory(10**12, 10**12), halvings=1).piece < 10**6 // 2
    assert fit(0, 800, 100, 4096, Memory(10**9, 10**9), halvings=0) == (1, 1)


def test_memory_that_runs_out_halves_the_pieces_until_they_fit(monkeypatch, small_sub_blocks):
    expected = some("cpu")
    gpu = install(monkeypatch, FakeGPU(limit=26 * 3 * 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = some("cuda")
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)
    # Once more for each try that failed, and the memory is given back before the next one.
    assert gpu.releases > 2 * len(SOME) * BLOCKS
    assert gpu.transfers()[0] > 4 * 3 * len(SOME) * BLOCKS


def test_what_fits_in_no_piece_runs_on_the_cpu_to_its_bits_and_says_so(monkeypatch, small_sub_blocks):
    expected = some("cpu")
    gpu = install(monkeypatch, FakeGPU(limit=0))
    with pytest.warns(
        nlis.PerformanceWarning, match=r"GPU memory ran out 7 times, last with 4 rows x [45] col.*on the CPU"
    ):
        found = some("auto")
    for name, value in found.items():
        assert same_bits(value, expected[name]), name
    assert gpu.fetches == 0
    assert len(gpu.kept) == 0


def test_who_insists_on_the_gpu_hears_in_a_line_that_its_memory_ran_out(monkeypatch, small_sub_blocks):
    install(monkeypatch, FakeGPU(limit=0, free=3 * 2**20))
    with pytest.raises(
        nlis.DeviceError, match=r"ran out 7 times, last with \d+ rows x 5 columns.* and 3 MiB free; "
    ) as caught:
        nlis.factorize(dual("cuda"))
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_other_errors_are_not_taken_for_short_memory(gpu):
    def broken(block):
        raise MemoryError("of the host")

    gpu._ship = broken
    with pytest.raises(MemoryError, match="of the host"):
        nlis.norm_scores(dual("auto")).compute()
    assert device.here() is None
    assert gpu.releases == 1


def test_a_pool_of_unequal_workers_gives_the_results_of_the_cpu(monkeypatch, small_sub_blocks):
    """Every other block has no GPU: Dask's own order on one thread, so that each run is the same."""
    expected, gpu, turn = some("cpu"), FakeGPU(), iter(range(10**6))
    monkeypatch.setattr(device, "opened", lambda name: gpu.opened("cpu" if next(turn) % 2 else name))
    found = some("auto")
    ships, _, fetches = gpu.transfers()
    assert (ships, fetches) == (len(SOME) * 3 * BLOCKS / 2, len(SOME) * BLOCKS / 2)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


# -- rows that do not count --------------------------------------------------------------------------------------


def test_rows_left_out_and_rows_of_no_weight_are_those_of_the_cpu(gpu):
    """Bad cells, labels and weights, in sub-blocks with and without them, in one that has nothing else."""
    x, y, weight = X.copy(), Y.copy(), WEIGHT.copy()
    x[[3, 260], [0, 2]] = np.nan
    y[[5, 255]] = np.nan
    weight[[1, 150, 151]] = 0.0
    x[350:400] = np.inf  # two whole sub-blocks
    found = {}
    for where in ("cpu", "cuda"):
        A = dual(where, x=x, y=y, weight=weight, missing="drop")
        factors = [nlis.factorize(A, method=method) for method in ("gram", "tsqr")]
        assert [(factor.n_dropped, factor.rank) for factor in factors] == [(54, 5)] * 2
        scores = (
            nlis.leverage_scores(A, factors[0]).compute(),
            nlis.norm_scores(A).compute(),
            nlis.loss_scores(A).compute(),
        )
        assert all((part[[1, 3, 5, 150, 151, 255, 260]] == 0).all() and (part[350:400] == 0).all() for part in scores)
        found[where] = [factor.r for factor in factors] + list(scores)
    for a, b in zip(*found.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def finite(values):
    xp = array_namespace(values)
    assert bool(xp.all(xp.isfinite(values)))
    return values


def careful_index(theta, x):
    return finite(x) @ theta


def careful_gradient(theta, x):
    return finite(x)


def careful_loss(prediction, y):
    return (finite(prediction) - finite(y)) ** 2


def careful_slope(prediction, y):
    return 2 * (finite(prediction) - finite(y))


CAREFUL = nlis.Problem(
    nlis.Homogeneous(careful_index, careful_gradient, degree=1, n_params=3),
    nlis.CustomLoss(careful_loss, careful_slope),
)


def test_functions_of_the_user_meet_no_row_that_does_not_count(gpu):
    """Also where two passes over a block cut it in different places, and the labels of whole sub-blocks are missing."""
    x, y = X.copy(), Y.copy()
    y[120:185], x[200:230], y[300] = np.nan, np.inf, np.nan
    factors = {}
    for where in ("cpu", "cuda"):
        options = {"theta": THETA[:3], "missing": "drop", "device": where}
        lazy = da.from_array(x, (CHUNKS, 3))
        pair = [made(CAREFUL, lazy, y, **options) for made in (nlis.dual_matrix, nlis.tangent_matrix)]
        factors[where] = factorize_together(pair)[0]
        nlis.leverage_scores(pair[0], factors[where][0]).compute()
    for a, b in zip(*factors.values(), strict=True):
        assert a.n_dropped == b.n_dropped == 96
        np.testing.assert_allclose(a.r, b.r, rtol=1e-10)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y, w: x.__setitem__((233, 2), np.nan), r"X, column 2 \('x2'\).* at row 233 \(1 row in"),
        (lambda x, y, w: y.__setitem__([255, 340], np.inf), r"y is not finite.* at row 255 \(2 rows in"),
        (lambda x, y, w: w.__setitem__(410, -1.0), r"sample_weight is negative.* at row 410 "),
    ],
)
@pytest.mark.parametrize("call", [nlis.factorize, lambda A: nlis.norm_scores(A).compute()])
def test_bad_cells_are_named_as_on_the_cpu(call, spoil, message, gpu):
    x, y, weight = X.copy(), Y.copy(), WEIGHT.copy()
    spoil(x, y, weight)
    said = []
    for where in ("cpu", "cuda"):
        with pytest.raises(nlis.NonFiniteError, match=message) as caught:
            call(dual(where, x=x, y=y, weight=weight))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_columns_of_any_scale_and_zero_columns_have_the_gram_matrix_of_the_cpu(gpu):
    x = X * [1e200, 1e-310, 1.0]
    x[:260] = X[:260] * [1.0, 0.0, 0.0]  # ordinary ones, and columns that are empty there alone
    expected = nlis.factorize(da.from_array(x, (CHUNKS, 3)), method="gram")
    with dask.config.set({"dask-nlis.device": "cuda"}):
        found = nlis.factorize(da.from_array(x, (CHUNKS, 3)), method="gram")
    np.testing.assert_allclose(found.r, expected.r, rtol=1e-12)
    assert found.rank == 3


# -- what blocks share -------------------------------------------------------------------------------------------


def test_threads_put_what_they_share_once(monkeypatch, small_sub_blocks):
    gpu = install(monkeypatch, FakeGPU())
    lazy = nlis.leverage_scores(dual("cuda"), nlis.factorize(dual("cpu")))
    with dask.config.set(scheduler="threads", num_workers=4):
        lazy.compute()
    assert gpu.transfers() == (3 * BLOCKS, 2, BLOCKS)


def puts():
    """Kept arrays that tell how often one was put."""
    seen = []
    return Kept(lambda array: seen.append(array.shape) or array.copy()), seen


def test_arrays_are_known_by_their_content():
    kept, seen = puts()
    array = np.arange(3.0)
    first = kept.get(array)
    assert kept.get(array.copy()) is first
    assert kept.get(np.arange(3)) is first
    array[0] = 7.0  # a caller's own array may change
    assert kept.get(array)[0] == 7.0
    assert first[0] == 0.0
    frozen = np.arange(4.0)
    frozen.setflags(write=False)
    assert kept.get(frozen) is kept.get(frozen)
    assert len(seen) == len(kept) == 3


def test_few_arrays_stay_and_none_that_no_block_asks_for(monkeypatch):
    kept, seen = puts()
    theta = np.zeros(2)
    for k in range(200):
        kept.get(theta)
        kept.get(np.full(3, float(k)))
    assert len(kept) == memory._MOST
    assert seen.count((2,)) == 1  # what is used does not go
    for _ in range(memory._IDLE):
        kept.get(theta)
        kept.block_done()
    assert len(kept) > 1
    kept.block_done()
    assert len(kept) == 1
    kept.forget()
    assert len(kept) == 0
    monkeypatch.setattr(memory, "_MOST_BYTES", 1000)
    for k in range(5):
        kept.get(np.full(100, float(k)))
    assert len(kept) == 1


# -- where blocks ran --------------------------------------------------------------------------------------------

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(5.0))


def job(where="auto", **options):
    return nlis.run(PROBLEM, da.from_array(X, (CHUNKS, 3)), Y, size=100, seed=0, device=where, **options)


@pytest.fixture
def mixed(monkeypatch):
    """A GPU that has no room for any part of the second and the fourth block."""
    places = {value: row for row, value in enumerate(X[:, 0].tolist())}

    def refuses(block):
        row = places[float(block[0, 0])] if block.ndim == 2 else 0
        return 100 <= row < 250 or row >= 350

    return install(monkeypatch, FakeGPU(refuses=refuses))


def check_half(made):
    """Half of the blocks of each read fell back, and the run says so."""
    n = sum(made.reads.values()) * BLOCKS
    assert made.devices == {"cpu": n // 2, "cuda": n // 2, "fell back": {"GPU memory ran out": n // 2}}
    assert made.manifest["devices"] == made.devices
    assert "devices={'cpu'" in repr(made)


@pytest.mark.filterwarnings("ignore:GPU memory ran out")
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_run_tells_where_its_blocks_ran(scheduler, mixed, tmp_path):
    with dask.config.set(scheduler=scheduler):
        check_half(job(store=tmp_path / "run.zarr"))
        plain = job("cpu")
    check_half(nlis.open_run(tmp_path / "run.zarr"))
    assert plain.devices == {"cpu": sum(plain.reads.values()) * BLOCKS}
    assert "devices" not in repr(plain)


@pytest.mark.filterwarnings("ignore:GPU memory ran out")
def test_a_run_on_a_cluster_tells_where_its_blocks_ran_while_others_run(mixed):
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster),
        dask.config.set(scheduler="distributed"),
    ):
        beside, stop = [], threading.Event()

        def others():
            with tally.counted() as theirs:
                while not stop.is_set():
                    nlis.factorize(dual("cpu"), method="gram")
                    beside.append(1)
            assert theirs.devices() == {"cpu": len(beside) * BLOCKS}
            beside.append(0)

        thread = threading.Thread(target=others)
        thread.start()
        try:
            check_half(job())
        finally:
            stop.set()
            thread.join()
        assert beside[-1] == 0
        assert len(beside) > 1


def test_where_blocks_ran_is_not_known_from_processes_nor_of_two_jobs_at_a_time(gpu):
    with dask.config.set(scheduler=lambda graph, keys, **options: dask.get(graph, keys)):
        made = job("cpu")
    assert made.devices is None
    assert "devices" not in repr(made)
    inside, go = threading.Event(), threading.Event()

    def other():
        with tally.counted():
            inside.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    try:
        assert job("cpu").devices is None
    finally:
        go.set()
        thread.join()
    assert job("cpu").devices is not None


def test_a_task_that_ran_twice_counts_as_it_ran_last():
    with tally.counted() as found:
        tally.add_events(
            [("k1", "gram_block", "cuda", ""), ("k2", "gram_block", "cuda", ""), ("k1", "gram_block", "cpu", "")]
        )
    tally.add_events([("k3", "gram_block", "cuda", "")])  # nobody counts any more
    assert found.devices() == {"cpu": 1, "cuda": 1}


# -- CuPy's own names --------------------------------------------------------------------------------------------


class CupyError(Exception):
    """Told apart by the module that it says it is of."""


def test_what_cupy_says_of_its_memory(monkeypatch):
    """A module of that name with the parts used: free memory is the card's and the pool's, up to the pool's limit."""
    calls = []
    pool = SimpleNamespace(
        free_bytes=lambda: 100,
        used_bytes=lambda: 30,
        get_limit=lambda: 0,
        free_all_blocks=lambda: calls.append("freed"),
    )
    stream = SimpleNamespace(synchronize=lambda: calls.append("synchronized"))
    fake = SimpleNamespace(
        get_default_memory_pool=lambda: pool,
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(mem_info=(1000, 5000)), get_current_stream=lambda: stream),
        asarray=np.array,
        asnumpy=np.array,
    )
    monkeypatch.setattr(places, "probe", lambda: fake)
    places._kept.cache_clear()
    found = device.opened("auto")
    assert found.kind == device.opened("cuda").kind == "cuda"
    assert found.memory() == (1100, 5000)
    pool.get_limit = lambda: 80
    assert found.memory() == (50, 80)
    assert found.kept is device.opened("cuda").kept  # one for the process
    assert found.put(np.arange(3)).dtype == np.float64
    assert found.ship(np.arange(3, dtype=np.uint8)).dtype == np.uint8
    found.release()
    assert calls == ["synchronized", "freed"]
    for module, name, text, short in (
        ("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 8 bytes", True),
        ("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorMemoryAllocation: out of memory", True),
        ("cupy_backends.cuda.libs.cublas", "CUBLASError", "CUBLAS_STATUS_ALLOC_FAILED", True),
        ("cupy_backends.cuda.libs.cublas", "CUBLASError", "CUBLAS_STATUS_EXECUTION_FAILED", False),
        ("builtins", "OutOfMemoryError", "cudaErrorMemoryAllocation", False),
    ):
        assert found.ran_out(type(name, (CupyError,), {"__module__": module})(text)) is short
    places._kept.cache_clear()
