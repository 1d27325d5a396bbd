"""A block on a GPU: it goes over in one piece where it fits, is cut into sub-blocks there, and one result comes back.

Single numbers that decide how to go on (are all cells finite?) are read on the way, and are no transfer of data.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.device import Device, fit
from dask_nlis.losses import Loss, LossOfSeveral
from dask_nlis.matrix.findings import Finding
from dask_nlis.matrix.leaf import Leaf, beside, counted, float64, inspect

Array = Any

#: Bytes of results that wait on a device.
_HELD = 2**28


def _crossing(values: np.ndarray) -> np.ndarray:
    """Columns as they go over: as they are stored, in fewer bytes than float64, where every device has the type."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if values.dtype.isnative and (kind == "b" or (kind in "iu" and size < 8) or (kind == "f" and size in (4, 8))):
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values, dtype=np.float32) if kind == "f" and size == 2 else float64(values)


class Part(NamedTuple):
    """What the host knows of a sub-block of a piece."""

    place: slice
    finding: Finding
    stand_in: int | None  # its row that stands for those of weight 0; None where there are none
    counts: bool


def cut(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    p: int,
    rows: int,
    device: Device,
    missing: str,
    loss: Loss | LossOfSeveral | None,
) -> Iterator[Leaf]:
    """Sub-blocks of `rows` rows of a block x (n, d), y (n,) or (n, k), weight (n,) on a device, with p columns to work with.

    The host looks at cells of x only where the device says that one is not finite.
    """
    n, at_work = len(x), device.at_work
    label_bytes = 0 if y is None else 8 * y.size // max(1, n)
    row_bytes = x.itemsize * x.shape[1] + label_bytes + 8 * (weight is not None)
    fitted = fit(n, row_bytes, max(p, x.shape[1]), rows, device.memory(), 0 if at_work is None else at_work.halvings)
    if at_work is not None:
        at_work.rows = fitted.rows

    def shipped(values: np.ndarray, source: np.ndarray | None) -> Array:
        """Put on the device what comes from `source`; a whole block stays there for further passes over it."""
        if at_work is None or source is None or fitted.piece < n:
            return device.ship(values)
        # Two Gram matrices in one task make two passes, and two views of the same labels.
        key = source.ctypes.data, source.shape, source.strides, source.dtype.str
        if key not in at_work.data:
            at_work.data[key] = source, device.ship(values)  # with the source, lest its place in memory be used again
        return at_work.data[key][1]

    for first in range(0, n, fitted.piece):
        piece = slice(first, min(first + fitted.piece, n))
        columns = shipped(_crossing(x[piece]), x)
        xp = array_namespace(columns)
        # One sum finds any NaN or infinity; it may overflow, hence the second look, on the host.
        whole_numbers = x.dtype.kind in "biu" and x.itemsize < 8
        finite = whole_numbers or bool(xp.isfinite(xp.sum(columns, dtype=xp.float64)))
        given_y, given_w = (None if part is None else float64(part[piece]) for part in (y, weight))
        parts, labels, weights = _looked_at(
            None if finite else x[piece], given_y, given_w, piece, start, fitted.rows, missing, loss
        )
        label = None if labels is None else shipped(labels, y if labels is given_y else None)
        root = None if weights is None else shipped(np.sqrt(weights), weight if weights is given_w else None)
        for part in parts:
            mine = xp.astype(columns[part.place, :], xp.float64, copy=False)
            own = None if root is None else root[part.place]
            if own is not None and part.stand_in is not None:
                mine = xp.where((own > 0)[:, None], mine, mine[part.stand_in, :][None, :])
            place = slice(first + part.place.start, first + part.place.stop)
            there = None if label is None else label[part.place, ...]
            yield Leaf(place, start + place.start, mine, there, own, part.finding, part.counts)


def _looked_at(
    x: np.ndarray | None,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    piece: slice,
    start: int,
    rows: int,
    missing: str,
    loss: Loss | LossOfSeveral | None,
) -> tuple[list[Part], np.ndarray | None, np.ndarray | None]:
    """Sub-blocks of a piece with labels (m,) and weights (m,), rows to leave out at weight 0; x is None if it is finite.

    Labels of rows of weight 0 are replaced by one that counts.
    """
    parts, labels, weights = [], y, weight
    m = piece.stop - piece.start
    for a in range(0, m, rows):
        place = slice(a, min(a + rows, m))
        columns = np.empty((place.stop - a, 0)) if x is None else float64(x[place])
        own = None if weight is None else weight[place]
        label, row = None if y is None else y[place], start + piece.start + a
        bad, finding = inspect(columns, columns.sum(), label, own, row, missing, loss)
        own, stand_in = counted(own, bad)
        if bad is not None:
            if weights is weight:
                weights = np.ones(m) if weight is None else weight.copy()
            assert weights is not None
            weights[place] = own
        if own is not None and stand_in is not None and labels is not None and y is not None:
            labels = y.copy() if labels is y else labels
            labels[place] = np.where(beside(own > 0, y), y[place], y[place][stand_in])
        parts.append(Part(place, finding, stand_in, own is None or bool(own.any())))
    return parts, labels, weights


class Gathered:
    """Values of the rows of a block, (n,) or (n, k), on the host: on a device they are joined there and fetched once.

    On the CPU they are written where they belong as they come. What is more than 256 MB is fetched in parts.
    """

    def __init__(self, device: Device, shape: tuple[int, ...]) -> None:
        self._device, self._out = device, np.zeros(shape)
        self._waiting: list[tuple[slice, Array]] = []
        halvings = 0 if device.at_work is None else device.at_work.halvings
        self._room = (_HELD >> halvings) // (8 * max(1, int(np.prod(shape[1:]))))

    def add(self, place: slice, values: Array) -> None:
        """Take the values of a sub-block; they come in the order of the rows."""
        if self._device.kind == "cpu":
            self._out[place] = values
            return
        self._waiting.append((place, values))
        if place.stop - self._waiting[0][0].start > self._room:
            self._fetch()

    def host(self) -> np.ndarray:
        """All values."""
        self._fetch()
        return self._out

    def _fetch(self) -> None:
        if self._waiting:
            parts = [values for _, values in self._waiting]
            joined = parts[0] if len(parts) == 1 else array_namespace(parts[0]).concat(parts, axis=0)
            self._out[self._waiting[0][0].start : self._waiting[-1][0].stop] = self._device.fetch(joined)
            self._waiting.clear()
