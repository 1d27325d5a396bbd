"""Rows that are images: as pictures in the page, each with a text for who does not see it."""

import base64
import math
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.report.rows import Row

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Pixels a side of a picture in the page, and of all pictures together, of which each takes up to 6 bytes; larger ones lose
#: rows and columns of pixels.
_LARGEST, _IN_ALL = 64, 150_000


class Image(NamedTuple):
    """A picture: its source, what it shows in words, and the number and score of its row."""

    source: str
    text: str
    number: str
    score: str


def image_shape_of(run: "Run", given: Any) -> tuple[int, ...] | None:
    """Height, width and, for colours, channels of a row, given or by the model's `input_shape`; None where it is no image.

    Channels may come first, as torch has them, or last.
    """
    d = len(run.fit.feature_names)
    if given is None:
        stated: Any = getattr(run.problem.model, "input_shape", None)
        return stated if _is_image(stated) and math.prod(stated) == d else None
    if isinstance(given, str | bytes) or not hasattr(given, "__len__") or not all(map(is_whole, given)):
        raise InputTypeError(f"image_shape={str(given)[:60]!r} is no shape; give height and width, such as (28, 28)")
    shape = tuple(map(int, given))
    if not _is_image(shape):
        raise InputError(
            f"image_shape={shape} is not allowed; give (height, width), or with 1, 3 or 4 channels (height, width, 3)"
        )
    if math.prod(shape) != d:
        raise InputError(f"image_shape={shape} makes {math.prod(shape):,} numbers, but a row has {d:,}; give its shape")
    return shape


def _is_image(shape: Any) -> bool:
    return (
        isinstance(shape, tuple)
        and all(size > 0 for size in shape)
        and (len(shape) == 2 or (len(shape) == 3 and bool({1, 3, 4} & {shape[0], shape[2]})))
    )


def images_of(rows: list[Row], shape: tuple[int, ...], scored: str) -> list[Image]:
    """Pictures of the rows whose features are known, on one scale of grey or colour."""
    known = [(row, row.features) for row in rows if row.features is not None]
    if not known:
        return []
    values = _channels_last(np.stack([features for _, features in known]), shape)
    first, last = float(values.min()), float(values.max())
    scaled = np.clip((values - first) / ((last - first) or 1.0), 0, 1)
    return [
        Image(_png(pixels), f"row {row.number}, {scored} {row.score:.3g}", str(row.number), f"{row.score:.3g}")
        for (row, _), pixels in zip(known, scaled, strict=True)
    ]


def _channels_last(features: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Rows (k, d) as (k, height, width) or (k, height, width, channels), no larger than what is shown."""
    images = features.reshape(len(features), *shape)
    if len(shape) == 3 and shape[2] not in (1, 3, 4):
        images = np.moveaxis(images, 1, -1)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    most = min(_LARGEST, math.isqrt(_IN_ALL // len(images)))
    step = max(1, -(-max(images.shape[1:3]) // most))
    return images[:, ::step, ::step]


def _png(pixels: np.ndarray) -> str:
    from matplotlib.image import imsave

    out = BytesIO()
    imsave(out, pixels, format="png", cmap="gray", vmin=0, vmax=1)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
