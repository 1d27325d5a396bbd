"""The task of a block on the device of its worker; where the memory of a GPU runs out, in smaller pieces or on the CPU."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dask_nlis import device as devices, meters, phase
from dask_nlis.device import AtWork, Device, working_on
from dask_nlis.errors import DeviceError, NlisError, PerformanceWarning
from dask_nlis.kernels.aligned import aligned

Task = Callable[..., Any]

#: What the tasks of a room spend the time on that is neither reading nor adjoints nor transfer.
_ACTIVITY = {"matrix": "adjoint", "factor": "factor", "scores": "score", "diagnostics": "check", "sampling": "draw"}

#: How often the pieces of a block are halved when memory runs out.
_HALVINGS = 6


def on_device(task: Task) -> Task:
    """Make `task(x, y, weight, start, *others, job, ...)` run on the device that its job names; `choose` gives it that.

    Memory that runs out is freed and the task begun anew with half as much of the block on the device at a time, six
    times; then on the CPU where the job leaves the choice, with a PerformanceWarning, else DeviceError. Memory is
    given back after each block. What the time of the task goes to is metered, and the rows are counted. Where the memory
    of the host runs out, MemoryLimitError names the rows, as a note does of any other error. Which device it was is told
    to `phase`.
    """

    activity = _ACTIVITY.get(task.__module__.removeprefix("dask_nlis.").partition(".")[0], "check")

    @wraps(task)
    def run(*blocks: Any, job: Any, **arguments: Any) -> Any:
        if devices.here() is not None:  # part of another task
            with meters.metered(activity):
                return task(*blocks, job=job, **arguments)
        x, *beside = blocks  # of x no more is copied at a time than a sub-block; see `leaf.float64`
        blocks, job, arguments = (x, *map(aligned, beside)), aligned(job), aligned(arguments)
        try:
            with meters.task(activity):
                result = placed(*blocks, job=job, **arguments)
                meters.count("rows", len(blocks[0]))
            return result
        except NlisError:
            raise
        except Exception as cause:
            x, start = blocks[0], int(blocks[3])
            if isinstance(cause, MemoryError):
                raise phase.out_of_memory("working on X", start, start + len(x), x.nbytes, cause) from cause
            cause.add_note(f"in a block with rows {start} to {start + len(x) - 1} of X")  # of a user's function, say
            raise

    def placed(*blocks: Any, job: Any, **arguments: Any) -> Any:
        device, at_work = devices.opened(job.device), AtWork()
        for halvings in range(_HALVINGS + 1):
            at_work = AtWork(halvings)
            result = _tried(lambda: task(*blocks, job=job, **arguments), device._replace(at_work=at_work))
            if result is not None:
                phase.ran(task.__name__, device.kind, "")
                return result
            _freed(device)
        why = (
            f"GPU memory ran out {_HALVINGS + 1} times, last with {at_work.rows:,} rows x {job.n_matrix_columns:,} "
            f"columns at a time and {device.memory().free / 2**20:,.0f} MiB free"
        )
        if job.device == "cuda":
            raise DeviceError(f"{why}; free the GPU, use fewer parameters, or give device='auto' to go on on the CPU")
        phase.warn(f"{why}; such blocks run on the CPU: free the GPU, or give device='cpu'", PerformanceWarning)
        with working_on(devices.opened("cpu")._replace(at_work=AtWork())):
            result = task(*blocks, job=job, **arguments)
        phase.ran(task.__name__, "cpu", "GPU memory ran out")
        return result

    return run


def _tried(task: Callable[[], Any], device: Device) -> Any:
    """What the task gives on a device; None where its memory ran out."""
    try:
        with working_on(device):
            return task()
    except Exception as error:
        if not device.ran_out(error):
            raise
    return None


def _freed(device: Device) -> None:
    """Drop all that can be: the frames of the failed task are gone by now."""
    if device.kept is not None:
        device.kept.forget()
    device.release()
