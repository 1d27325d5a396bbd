"""What every task needs: once in a graph, and once on a worker, however many blocks there are."""

from dataclasses import replace
from typing import Any

import numpy as np
from dask import delayed
from dask._task_spec import DataNode, Task
from dask.base import tokenize
from dask.delayed import Delayed

from dask_nlis import workers
from dask_nlis.intake import leave_array, left_array
from dask_nlis.matrix.rules import Dual, Reference, Tangent
from dask_nlis.matrix.tasks import Job
from dask_nlis.problem import Problem

#: Bytes of an array from which a graph holds its place in a file in its stead: to the scheduler each byte goes with every
#: wave of tasks, and Dask warns of graphs above 10 MB.
LARGE = 8 * 2**20


def shared(value: Any, label: str = "nlis-shared") -> Delayed:
    """Give a value a key of its own, under a label; large arrays in it are left in files that workers see, or travel with it.

    Those of jobs, of rules of a matrix, and of tuples and lists of arrays are found.
    """
    key = f"{label}-{tokenize(value)}"
    node = _node(value)
    if node is value:
        return delayed(value, name=key, traverse=False)
    return Delayed(key, {key: Task(key, _itself, node)})


def sent_once(value: Any) -> Any:
    """An argument of tasks, where jobs, rules, problems and arrays, also in lists, tuples and dicts, are shared."""
    if isinstance(value, Job | Reference | Dual | Tangent | Problem | np.ndarray):
        return shared(value)
    if type(value) in (list, tuple):
        return type(value)(map(sent_once, value))
    return {key: sent_once(each) for key, each in value.items()} if type(value) is dict else value


def _node(value: Any) -> Any:
    """The value itself where nothing in it is large, else a task that makes it again."""
    if isinstance(value, np.ndarray):
        return _left(value) if value.nbytes > LARGE else value
    if isinstance(value, Job):
        bare = value.rule
        rule = _node(bare)
        if rule is bare or not isinstance(bare, Dual | Tangent):
            return value
        return Task(None, _with_rule, replace(value, rule=_bare(bare)), rule)
    if isinstance(value, Dual | Tangent):
        theta = _node(value.theta)
        return value if theta is value.theta else Task(None, _with_theta, _bare(value), theta)
    if type(value) in (list, tuple):
        parts = [_node(part) for part in value]
        same = all(part is given for part, given in zip(parts, value, strict=True))
        return value if same else Task(None, _together, type(value), *map(_quoted, parts))
    return value


def _left(values: np.ndarray) -> Any:
    """Where an array was left; itself where workers do not see the files of this machine, or it could not be written."""
    if not workers.see_files():
        return values
    try:
        return Task(None, left_array, leave_array(values, tokenize(values)))
    except OSError:
        return values


def _quoted(part: Any) -> Any:
    return part if isinstance(part, Task) else DataNode(None, part)


def _bare(rule: Dual | Tangent) -> Any:
    return replace(rule, theta=np.empty(0))


def _with_theta(rule: Dual | Tangent, theta: np.ndarray) -> Dual | Tangent:
    return replace(rule, theta=theta)


def _with_rule(job: Job, rule: Dual | Tangent) -> Job:
    return replace(job, rule=rule)


def _together(kind: type, *parts: Any) -> Any:
    return kind(parts)


def _itself(value: Any) -> Any:
    return value
