"""A pool of one process a GPU: each sees one; without a GPU an error at once that says how to get it (case A23)."""

import os
import sys
from types import ModuleType, SimpleNamespace

import distributed
import numpy as np
import pytest
from counting import rows_of

import dask_nlis as nlis
from dask_nlis import device
from dask_nlis.device import places

X, Y = rows_of(3, 400, 3)
room = sys.modules["dask_nlis.cluster.gpu_pool"]


@pytest.fixture
def gpus(monkeypatch):
    """Make this process believe in some GPUs."""

    def of(count, visible=None):
        found = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: count)))
        monkeypatch.setattr(device, "probe", lambda: found)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return of


@pytest.fixture
def no_gpu(monkeypatch):
    for room_of_probe in (device, places):
        monkeypatch.setattr(room_of_probe, "probe", lambda: "CuPy finds no GPU")


def seen():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.cluster
@pytest.mark.slow
def test_each_process_sees_one_gpu_and_has_one_thread(gpus):
    gpus(3, "2,0,GPU-7f")
    with (
        nlis.cluster.gpu_pool(2, memory_limit="1 GiB", dashboard_port=0) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        assert sorted(client.run(seen).values()) == ["0", "2"]
        workers = client.scheduler_info(n_workers=-1)["workers"]
        assert {(each["nthreads"], each["memory_limit"]) for each in workers.values()} == {(1, 2**30)}
        # A worker that dies comes back to the same GPU.
        (first,) = (address for address, found in client.run(seen).items() if found == "2")
        client.restart_workers([first])
        assert sorted(client.run(seen).values()) == ["0", "2"]
        # No GPU has two workers, and one that is free is taken again.
        with pytest.raises(nlis.InputError, match="this pool has 2 GPUs, and a worker on each"):
            cluster.scale(3)
        cluster.scale(1)
        cluster.scale(2)
        client.wait_for_workers(2)
        assert {spec["options"]["cuda_device"] for spec in cluster.worker_spec.values()} == {"0", "2"}


@pytest.mark.parametrize(
    ("count", "visible", "found"),
    [(2, None, ("0", "1")), (2, "", ("0", "1")), (2, "3, 5", ("3", "5")), (1, "GPU-a,GPU-b", ("GPU-a",))],
)
def test_the_gpus_are_those_that_the_process_sees(count, visible, found, gpus):
    gpus(count, visible)
    assert room.visible_devices() == found


def test_no_gpu_is_an_error_at_once_that_says_how_to_get_one(no_gpu, monkeypatch):
    monkeypatch.setattr(distributed, "LocalCluster", None)  # nothing is started
    with pytest.raises(nlis.DeviceError) as caught:
        nlis.cluster.gpu_pool()
    assert str(caught.value) == (
        "gpu_pool: CuPy finds no GPU in this process; install dask-nlis[gpu12] or [gpu13] on a machine with an NVIDIA GPU, or "
        "start cluster.local()"
    )


def test_more_workers_than_gpus_are_refused(gpus):
    gpus(2)
    with pytest.raises(nlis.InputError, match="n_workers=3 is more than the 2 GPUs there are"):
        nlis.cluster.gpu_pool(3)


def test_dask_cuda_is_taken_where_it_is_installed(gpus, monkeypatch):
    gpus(2)
    asked = {}
    module = ModuleType("dask_cuda")
    module.LocalCUDACluster = lambda **options: asked.update(options) or "the cluster"
    monkeypatch.setitem(sys.modules, "dask_cuda", module)
    monkeypatch.setattr(room, "find_spec", lambda name: module)
    assert nlis.cluster.gpu_pool(1, dashboard_port=0) == "the cluster"
    assert asked == {
        "CUDA_VISIBLE_DEVICES": ["0"],
        "host": "127.0.0.1",
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": "auto",
        "security": None,
    }


# -- case A23: a GPU that is asked for and absent ------------------------------------------------------------------------


def test_a_cluster_without_a_gpu_refuses_cuda_in_the_first_task_and_never_waits(cluster, no_gpu):
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), X, Y, device="cuda")
    with pytest.raises(nlis.DeviceError, match=r"device='cuda', but .* on this worker; install dask-nlis\[gpu12\]"):
        nlis.factorize(A)
    assert not cluster.scheduler.unrunnable


def test_auto_takes_the_cpu_there_and_says_so_once(cluster, no_gpu, caplog):
    places._say_once.cache_clear()
    caplog.set_level("INFO", logger="dask_nlis")
    with_auto, with_cpu = (
        nlis.reference_matrix(nlis.Problem(nlis.Linear()), X, Y, device=kind) for kind in ("auto", "cpu")
    )
    assert np.array_equal(nlis.factorize(with_auto).r, nlis.factorize(with_cpu).r)
    assert [record.getMessage() for record in caplog.records if "auto" in record.getMessage()] == [
        "device='auto' takes the CPU: CuPy finds no GPU"
    ]
