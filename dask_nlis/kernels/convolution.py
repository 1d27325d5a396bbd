"""A convolution of images: each offset of its kernel is a dense layer on a shifted image."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.kernels.linalg import squared_row_norms

Array = Any


class Convolution(NamedTuple):
    """h (m, k, channels, height, width) -> (m, k, out, ...), as convolutions of neural networks are (no kernel is turned).

    See `dask_nlis.kernels.stack.Linear`. The kernel is (out, channels, kernel height, kernel width).
    """

    kernel: Array
    image: tuple[int, int, int]  # channels, height, width of what comes in
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """(out, height, width) of what comes out."""
        sizes = (
            (self.image[1 + j] + 2 * self.padding[j] - self.dilation[j] * (self.kernel.shape[2 + j] - 1) - 1)
            // self.stride[j]
            + 1
            for j in range(2)
        )
        return (int(self.kernel.shape[0]), *sizes)

    @property
    def size(self) -> int:
        """Entries of the kernel."""
        out, channels, height, width = self.kernel.shape
        return int(out * channels * height * width)

    def _offsets(self) -> Iterator[tuple[int, int, tuple[slice, slice]]]:
        """Offsets of the kernel, each with where it takes its numbers in the padded image."""
        for i in range(self.kernel.shape[2]):
            for j in range(self.kernel.shape[3]):
                yield i, j, (self._places(0, i), self._places(1, j))

    def _places(self, axis: int, offset: int) -> slice:
        """Rows (axis 0) or columns (axis 1) of the padded image that an offset of the kernel meets."""
        first, step = offset * self.dilation[axis], self.stride[axis]
        return slice(first, first + step * (self.shape[1 + axis] - 1) + 1, step)

    def _padded(self, signal: Array) -> Array:
        if self.padding == (0, 0):
            return signal
        xp, (up, left) = array_namespace(signal), self.padding
        channels, height, width = self.image
        padded = xp.zeros((*signal.shape[:2], channels, height + 2 * up, width + 2 * left), dtype=signal.dtype)
        padded[..., up : up + height, left : left + width] = signal
        return padded

    def apply(self, signal: Array) -> Array:
        """Sum over offsets of the kernel there times the shifted image."""
        padded, total = self._padded(signal), 0.0
        for i, j, place in self._offsets():
            total = total + self.kernel[:, :, i, j] @ _flat(padded[(..., *place)])
        return array_namespace(signal).reshape(total, (*signal.shape[:2], *self.shape))

    def pull(self, signal: Array) -> Array:
        """What each offset sends back, added where it came from."""
        xp, (up, left) = array_namespace(signal), self.padding
        channels, height, width = self.image
        out = xp.zeros((*signal.shape[:2], channels, height + 2 * up, width + 2 * left), dtype=signal.dtype)
        flat = _flat(signal)
        for i, j, place in self._offsets():
            back = xp.permute_dims(self.kernel[:, :, i, j], (1, 0)) @ flat
            out[(..., *place)] += xp.reshape(back, (*signal.shape[:2], channels, *self.shape[1:]))
        return out[..., up : up + height, left : left + width]

    def _patches(self, ahead: Array) -> Array:
        """What each position of the output is made of, (m, k positions, channels kernel height kernel width)."""
        xp, padded = array_namespace(ahead), self._padded(ahead)
        each = [_flat(padded[(..., *place)]) for _, _, place in self._offsets()]  # (m, k, channels, positions)
        together = xp.permute_dims(xp.stack(each, axis=3), (0, 1, 4, 2, 3))
        return xp.reshape(together, (ahead.shape[0], -1, self.size // int(self.kernel.shape[0])))

    def outer(self, back: Array, ahead: Array) -> Array:
        """Sum over points and positions of outer products: one product of matrices a row."""
        xp = array_namespace(back)
        if ahead.shape[1] == 1:
            back = xp.sum(back, axis=1, keepdims=True)
        return xp.reshape(_by_output(back) @ self._patches(ahead), (back.shape[0], -1))

    def outer_norms(self, back: Array, ahead: Array) -> Array:
        """As of a dense layer over points and positions: by products of these among themselves where they are few."""
        xp = array_namespace(back)
        if ahead.shape[1] == 1:
            back = xp.sum(back, axis=1, keepdims=True)
        signals, patches = _by_output(back), self._patches(ahead)
        if signals.shape[2] ** 2 > self.size:
            return squared_row_norms(xp.reshape(signals @ patches, (back.shape[0], -1)))
        among = xp.permute_dims(signals, (0, 2, 1)) @ signals
        return xp.sum(among * (patches @ xp.permute_dims(patches, (0, 2, 1))), axis=(1, 2))

    def shared(self, back: Array) -> Array:
        """One bias an output channel."""
        return array_namespace(back).sum(back, axis=(1, 3, 4))


def _flat(image: Array) -> Array:
    """(..., height, width) -> (..., positions)."""
    return array_namespace(image).reshape(image, (*image.shape[:-2], image.shape[-2] * image.shape[-1]))


def _by_output(back: Array) -> Array:
    """(m, k, out, height, width) -> (m, out, k positions)."""
    xp, flat = array_namespace(back), _flat(back)
    return xp.reshape(xp.permute_dims(flat, (0, 2, 1, 3)), (back.shape[0], back.shape[2], -1))


class Reshaped(NamedTuple):
    """The same numbers in another shape; no parameters."""

    before: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """0: there are no parameters."""
        return 0

    def apply(self, signal: Array) -> Array:
        """(m, k, *before) -> (m, k, *shape)."""
        return array_namespace(signal).reshape(signal, (*signal.shape[:2], *self.shape))

    def pull(self, signal: Array) -> Array:
        """(m, k, *shape) -> (m, k, *before)."""
        return array_namespace(signal).reshape(signal, (*signal.shape[:2], *self.before))

    def outer(self, back: Array, ahead: Array) -> Array:
        """Nothing: (m, 0)."""
        return array_namespace(back).zeros((back.shape[0], 0), dtype=back.dtype)

    def outer_norms(self, back: Array, ahead: Array) -> Array:
        """Zeros, (m,)."""
        return array_namespace(back).zeros((back.shape[0],), dtype=back.dtype)

    def shared(self, back: Array) -> Array:
        """Nothing: (m, 0)."""
        return array_namespace(back).zeros((back.shape[0], 0), dtype=back.dtype)
