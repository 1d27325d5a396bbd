"""Activations as gates of layers: which of them are rectifiers."""

from dask_nlis.activations import Activation, Identity, LeakyRelu, Relu
from dask_nlis.kernels.stack import Gate


def gate(phi: Activation) -> Gate | None:
    """The gate of an activation; None where nothing is applied."""
    if isinstance(phi, Identity):
        return None
    left = 0.0 if isinstance(phi, Relu) else phi.slope if isinstance(phi, LeakyRelu) else None
    return Gate(phi.value, phi.derivative, left)
