"""What is integrated along the ray: the root of a loss of one prediction or of several, or a prediction itself."""

import math
from typing import Any, Protocol

from array_api_compat import array_namespace

from dask_nlis.losses import Loss, is_of_several

Array = Any


class RootOfSeveral(Protocol):
    """A number made of the predictions (m, k) of each row."""

    def root(self, prediction: Array, y: Array | None) -> Array:
        """That number, (m,)."""

    def root_gradient(self, prediction: Array, y: Array | None) -> Array:
        """Its gradient in the predictions, (m, k)."""


Root = Loss | RootOfSeveral


def root_of(loss: Any, prediction: Array, y: Array | None) -> Array:
    """The root at predictions (m,) or (m, k), (m,); the prediction itself where there is one and no label."""
    if y is None and not is_of_several(loss):
        return prediction
    return loss.root(prediction, y)


def root_slopes(loss: Any, prediction: Array, y: Array | None) -> Array:
    """Its slopes in the predictions, of their shape."""
    if is_of_several(loss):
        return loss.root_gradient(prediction, y)
    if y is None:
        return array_namespace(prediction).ones_like(prediction)
    return loss.root_slope(prediction, prediction, y)


def slopes_at(loss: Any, prediction: Array, y: Array | None) -> Array:
    """Slopes of what is integrated at predictions (m, k, *out), the same shape."""
    xp, (m, k, *out) = array_namespace(prediction), prediction.shape
    n_outputs = math.prod(out)
    flat = xp.reshape(prediction, (m * k, n_outputs) if n_outputs > 1 else (m * k,))
    labels = None
    if y is not None:
        labels = xp.reshape(xp.broadcast_to(y[:, None, ...], (m, k, *y.shape[1:])), (m * k, *y.shape[1:]))
    return xp.reshape(root_slopes(loss, flat, labels), prediction.shape)
