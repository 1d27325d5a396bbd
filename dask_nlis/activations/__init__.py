"""Activations phi: value, derivatives and the secant slope (phi(t) - phi(0)) / t, free of cancellation.

The secant is what the adjoint of a nonlinear model is made of (DESIGN: Prop. 3.1 of Rajmohan & Roosta,
ICML 2025). The naive quotient loses every digit near t = 0; the closed forms here keep a relative error
of a few units in the last place, times the condition of the function itself, for all t, and return phi'(0)
at t = 0.

Every method takes and returns an array of any shape in any array API namespace; t is finite.
"""

from dask_nlis.activations.gated import Gelu, Swish
from dask_nlis.activations.links import Exp, Identity, Softplus
from dask_nlis.activations.protocol import Activation
from dask_nlis.activations.rectifiers import Elu, LeakyRelu, Relu, SquaredRelu
from dask_nlis.activations.sigmoids import Arctan, Logistic, Probit, Tanh
from dask_nlis.activations.waves import Cos, Sin
from dask_nlis.kernels.special import expit

__all__ = [
    "Activation",
    "Arctan",
    "Cos",
    "Elu",
    "Exp",
    "Gelu",
    "Identity",
    "LeakyRelu",
    "Logistic",
    "Probit",
    "Relu",
    "Sin",
    "Softplus",
    "SquaredRelu",
    "Swish",
    "Tanh",
    "expit",
]
