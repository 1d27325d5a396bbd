"""What a monitor asks of a cluster; nothing that is measured is worth a job, so that no answer is none, said in the log."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import distributed

from dask_nlis.on_cluster import asked

_log = logging.getLogger("dask_nlis")

#: Seconds to wait for an answer.
_PATIENCE = 5.0


def activities_of(client: distributed.Client, span: str) -> tuple[dict[tuple[str, str], float] | None, int, int]:
    """Seconds and rows of the tasks of a span by (activity, unit), workers and threads; None where nobody answers.

    Workers are asked, who know of a task when its result is announced; the scheduler hears of it later. Nothing is known
    either where the cluster still holds results of the same tasks: Dask counts such tasks for the span that they were in first.
    """
    try:
        found = asked(client, lambda: client.run(_of_span, span=span, on_error="ignore"), _PATIENCE)
    except Exception:  # nothing that is measured is worth a job: the page says that it is not known
        _log.debug("activities of a phase are not known", exc_info=True)
        return None, 0, 0
    total: dict[tuple[str, str], float] = {}
    for metrics, _ in found.values():
        for activity, unit, value in metrics:
            total[activity, unit] = total.get((activity, unit), 0.0) + value
    return total or None, len(found), sum(threads for _, threads in found.values())


def _of_span(dask_worker: distributed.Worker, span: str) -> tuple[list[tuple[str, str, float]], int]:
    """On a worker: metrics of the tasks of a span, ours without their prefix, and how many threads it has."""
    found = [
        (str(activity).removeprefix("nlis-"), str(unit), value)
        for (kind, of, _, activity, unit), value in _tuples(dask_worker.digests_total)
        if kind == "execute" and of == span
    ]
    return found, dask_worker.state.nthreads


def _tuples(digests: Mapping[Any, float]) -> list[tuple[tuple[Any, ...], float]]:
    """The metrics of tasks, among all that a worker counts."""
    return [(key, value) for key, value in list(digests.items()) if isinstance(key, tuple) and len(key) == 5]


def sampled_memory(client: distributed.Client, every: float) -> Callable[[], list[tuple[float, int]]]:
    """Have the scheduler sample the memory of all workers from now on; call what is given to stop and get (time, bytes)."""
    sampler = client.scheduler
    try:
        key = client.sync(
            sampler.memory_sampler_start,
            client=client.id,
            measure="process",
            interval=every,
            callback_timeout=_PATIENCE,
        )
    except Exception:
        _log.debug("memory of the workers is not sampled", exc_info=True)
        return list

    def stop() -> list[tuple[float, int]]:
        try:
            return list(client.sync(sampler.memory_sampler_stop, key=key, callback_timeout=_PATIENCE))
        except Exception:
            _log.debug("memory of the workers is not known", exc_info=True)
            return []

    return stop
