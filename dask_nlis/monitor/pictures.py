"""Places and sizes of what the pictures of a page show; the template draws them as inline SVG."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from dask_nlis.monitor.records import Execution
from dask_nlis.pages import bytes_text, seconds_text

#: Width of a picture, of the labels at its left, and heights of a line of the timeline and of the axis below.
WIDTH, LEFT, HEIGHT, AXIS = 960, 150, 26, 24

#: Points of a line: more cannot be told apart, and make pages of long jobs large.
_POINTS = 480


class Tick(NamedTuple):
    """A mark of an axis."""

    place: float
    text: str


class Bar(NamedTuple):
    """A phase on the timeline; `title` is what a pointer on it shows."""

    x: float
    y: float
    width: float
    outcome: str
    reads: bool
    title: str


class Timeline(NamedTuple):
    """Phases over time, a line for each label."""

    height: int
    labels: list[Tick]
    ticks: list[Tick]
    bars: list[Bar]


class Line(NamedTuple):
    """A quantity over time."""

    height: int
    points: str
    area: str
    ticks: list[Tick]
    levels: list[Tick]


def timeline(execution: Execution) -> Timeline:
    """A bar for each phase, where it began and as long as it took."""
    scale = (WIDTH - LEFT - 10) / max(execution.seconds, 1e-9)
    lines = {label: k for k, label in enumerate(dict.fromkeys(phase.label for phase in execution.phases))}
    bars = [
        Bar(
            LEFT + phase.began * scale,
            lines[phase.label] * HEIGHT + 4,
            max(1.5, phase.seconds * scale),
            phase.outcome,
            phase.n_rows > 0,
            f"{phase.label}: {seconds_text(phase.seconds)}, {phase.tasks_done}/{phase.n_tasks} tasks, {phase.outcome}",
        )
        for phase in execution.phases
    ]
    labels = [Tick(k * HEIGHT + HEIGHT / 2 + 4, label) for label, k in lines.items()]
    return Timeline(len(lines) * HEIGHT + AXIS, labels, _time_ticks(execution.seconds), bars)


def memory_line(execution: Execution) -> Line:
    """Bytes in use over time, from 0 to above the peak."""
    height = 150
    top = max(size for _, size in execution.memory) or 1
    x = (WIDTH - LEFT - 10) / max(execution.seconds, 1e-9)
    steps = list(_round_steps(top / 2**20, 4))
    most = max(top / 2**20, steps[-1])
    points = [
        (LEFT + moment * x, height * (1 - size / 2**20 / most) + 6)
        for moment, size in thinned(execution.memory, _POINTS)
    ]
    text = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    area = f"{points[0][0]:.1f},{height + 6} {text} {points[-1][0]:.1f},{height + 6}"
    levels = [Tick(height * (1 - step / most) + 6, bytes_text(step * 2**20)) for step in steps]
    return Line(height + 6 + AXIS, text, area, _time_ticks(execution.seconds), levels)


def thinned(samples: Iterable[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """Samples of which the largest of each few consecutive ones is kept, so that the peak stays.

    Examples
    --------
    >>> thinned([(0, 1), (1, 5), (2, 2), (3, 3)], 2)
    [(1, 5), (3, 3)]
    """
    given = list(samples)
    step = max(1, -(-len(given) // most))
    return [max(given[k : k + step], key=lambda sample: sample[1]) for k in range(0, len(given), step)]


def _time_ticks(seconds: float) -> list[Tick]:
    scale = (WIDTH - LEFT - 10) / max(seconds, 1e-9)
    return [Tick(LEFT + moment * scale, seconds_text(moment) if moment else "0") for moment in _round_steps(seconds, 6)]


def _round_steps(most: float, about: int) -> Iterable[float]:
    """Round numbers from 0 to `most`, about so many.

    Examples
    --------
    >>> _round_steps(7.3, 4)
    [0.0, 2.0, 4.0, 6.0]
    """
    rough = max(most, 1e-9) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [k * step for k in range(int(most / step + 1e-9) + 1)]
