"""Rows that are images, side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError, NonFiniteError
from dask_nlis.intake import open_array
from dask_nlis.plots.panel import check_axes, panel, points
from dask_nlis.plots.rows import LABEL, checked_number

#: Images on a page, and numbers in all of them.
_MOST, _MOST_CELLS = 1_000, 2**26

#: Inches of an image across, of a line of its title, and of the narrowest picture.
_INCH, _TITLE_INCH, _NARROWEST = 0.75, 0.15, 1.5

#: Points of titles, and of the smallest image across; width of a letter in sizes of the type; gap in widths of an image.
_SMALLEST, _LARGEST, _LEAST, _LETTER, _GAP = 5.5, 8.0, 20.0, 0.6, 0.03


def gallery(
    images: Any, shape: Any, *, titles: Sequence[str] | None = None, columns: int = 10, ax: Any = None
) -> np.ndarray:
    """Draw rows (k, d) as images of this shape -> array (k,) of Axes, one an image. Reads the rows once.

    All images share one grey scale, from the smallest value of all to the largest; images of three or four channels
    are in colour. A Dask array is computed whole, so give the rows to look at: `top_rows(scores, 20, X=X).X`.

    Parameters
    ----------
    images : array_like of shape (k, d)
        NumPy, Dask, Zarr, pandas or xarray; up to 1,000 rows.
    shape : tuple of int
        (height, width), or (height, width, channels) with 3 or 4 channels; their product is d.
    titles : sequence of str, optional
        A line above each image.
    columns : int, default 10
        Images in a row, at most; fewer where the Axes are too narrow for them or their titles.
    ax : matplotlib Axes, optional
        Where to draw: the images are Axes inside it. A new figure, unknown to pyplot, by default.

    Returns
    -------
    ndarray of shape (k,) of matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If images are not (k, d) with d the product of shape, are too many, or titles are not as many.
    NonFiniteError
        If a value is not finite.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> axes = nlis.plots.gallery(np.eye(4), (2, 2), titles=["a", "b", "c", "d"], columns=3)
    >>> [ax.get_title() for ax in axes], axes[0].images[0].get_array().shape
    (['a', 'b', 'c', 'd'], (2, 2))
    """
    sides = _shape(shape)
    array = open_array("images", images).array
    if array.ndim != 2 or array.shape[1] != int(np.prod(sides)):
        raise InputError(f"images have shape {array.shape}; for shape={sides} give (k, {int(np.prod(sides))})")
    k = array.shape[0]
    if not 1 <= k <= _MOST or k * array.shape[1] > _MOST_CELLS:
        raise InputError(
            f"images have {k:,} rows of {array.shape[1]:,}; give 1 to {_MOST:,} rows of together {_MOST_CELLS:,} numbers, "
            "such as top_rows(scores, 20, X=X).X"
        )
    columns = checked_number("columns", columns, _MOST)
    names = _titles(titles, k)
    check_axes(ax)
    values = np.concatenate(phase.blocks_of(array, LABEL)).astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise NonFiniteError(f"images hold values that are not finite, first in row {row}; leave those rows out")

    letters = max((len(part) for name in names for part in name.split("\n")), default=0)
    lines = max((name.count("\n") + 1 for name in names), default=0)
    wide = min(columns, k)
    if ax is None:
        title = _TITLE_INCH * lines
        ax = panel(ax, max(_INCH * wide, _NARROWEST), (_INCH * sides[0] / sides[1] + title) * -(-k // wide))
    width, height = points(ax)
    wide = max(1, min(wide, int(width / max(_SMALLEST * _LETTER * letters, _LEAST))))
    size = min(_LARGEST, max(_SMALLEST, width / wide / _LETTER / max(letters, 1)))
    ax.set_axis_off()
    axes = np.empty(k, dtype=object)
    for m, place in enumerate(_places(k, wide, sides[0] / sides[1], lines * size * 1.3, width, height)):
        axes[m] = ax.inset_axes(place)
    low, high = float(values.min()), float(values.max())
    for inner, image in zip(axes, values.reshape(k, *sides), strict=True):
        shown = (image - low) / (high - low) if high > low else np.zeros(sides)
        inner.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        inner.set(xticks=[], yticks=[])
        inner.spines[:].set(linewidth=0.5, alpha=0.5)
    for inner, name in zip(axes, names, strict=False):
        inner.set_title(name, fontsize=size, pad=2, parse_math=False)
    return axes


def _places(k: int, wide: int, ratio: float, title: float, width: float, height: float) -> list[tuple[float, ...]]:
    """Left, bottom, width and height of the images, as shares of Axes of this size in points, from the top on."""
    deep = -(-k // wide)
    across, down = width / wide, min(width / wide * ratio + title, height / deep)
    inner = (across * (1 - 2 * _GAP) / width, max(down - title - 2 * _GAP * across, 0.2 * down) / height)
    return [
        ((m % wide + _GAP) * across / width, 1 - ((m // wide + 1) * down - _GAP * across) / height, *inner)
        for m in range(k)
    ]


def _shape(shape: Any) -> tuple[int, ...]:
    allowed = "(height, width) or (height, width, 3 or 4)"
    if not isinstance(shape, tuple | list):
        raise InputTypeError(f"shape is {type(shape).__name__}; give {allowed}")
    if len(shape) not in (2, 3):
        raise InputError(f"shape has {len(shape)} numbers; give {allowed}")
    sides = tuple(checked_number("shape", side, _MOST_CELLS) for side in shape)
    if len(sides) == 3 and sides[2] not in (3, 4):
        raise InputError(f"shape={sides} has {sides[2]} channels; give {allowed}")
    return sides


def _titles(titles: Any, k: int) -> list[str]:
    if titles is None:
        return []
    if not isinstance(titles, Sequence) or isinstance(titles, str | bytes):
        raise InputTypeError(f"titles is {type(titles).__name__}; give a sequence of {k:,} texts, or None")
    if len(titles) != k:
        raise InputError(f"titles has {len(titles):,} texts, but there are {k:,} images; give one for each")
    return [str(title) for title in titles]
