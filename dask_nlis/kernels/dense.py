"""A dense layer: signals times a matrix."""

from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.kernels.linalg import squared_row_norms

Array = Any


class Dense(NamedTuple):
    """h -> W h, W (out, in); see `dask_nlis.kernels.stack.Linear`."""

    matrix: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """(out,)."""
        return (int(self.matrix.shape[0]),)

    @property
    def size(self) -> int:
        """Entries of W."""
        return int(self.matrix.shape[0] * self.matrix.shape[1])

    def apply(self, signal: Array) -> Array:
        """h W'."""
        return signal @ _swapped(self.matrix)

    def pull(self, signal: Array) -> Array:
        """Return the signal times W."""
        return signal @ self.matrix

    def outer(self, back: Array, ahead: Array) -> Array:
        """Sum of outer products: one product of matrices a row."""
        xp = array_namespace(back)
        if ahead.shape[1] == 1:
            back = xp.sum(back, axis=1, keepdims=True)
        return xp.reshape(_swapped(back) @ ahead, (back.shape[0], -1))

    def outer_norms(self, back: Array, ahead: Array) -> Array:
        """|sum_k b_k a_k'|^2 = sum_kl (b_k . b_l)(a_k . a_l): the sum is not formed where that takes less."""
        xp = array_namespace(back)
        if ahead.shape[1] == 1:
            summed = xp.sum(back, axis=1)
            return squared_row_norms(summed) * squared_row_norms(ahead[:, 0, :])
        k = back.shape[1]
        if k * k > self.size:
            return squared_row_norms(self.outer(back, ahead))
        return xp.sum((back @ _swapped(back)) * (ahead @ _swapped(ahead)), axis=(1, 2))

    def shared(self, back: Array) -> Array:
        """One bias a unit."""
        return array_namespace(back).sum(back, axis=1)


def _swapped(a: Array) -> Array:
    """Last two axes exchanged."""
    axes = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
    return array_namespace(a).permute_dims(a, axes)
