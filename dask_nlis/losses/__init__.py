"""Losses: what a prediction costs, and the signed root through which a loss enters the adjoint.

l(prediction, y) >= 0 has the root sign(prediction - y) sqrt(l), smooth through a zero residual; its divided
difference composes with the secant of the activation without cancellation and without 0/0.
"""

from dask_nlis.losses.absolute import AbsoluteError
from dask_nlis.losses.logistic import LogisticLoss
from dask_nlis.losses.poisson import PoissonDeviance
from dask_nlis.losses.protocol import Loss
from dask_nlis.losses.robust import Huber, PseudoHuber
from dask_nlis.losses.several import LossOfSeveral, OneOutput, OverOutputs, is_of_several
from dask_nlis.losses.softmax import SoftmaxLoss
from dask_nlis.losses.squared import SquaredError
from dask_nlis.losses.user import CustomLoss

__all__ = [
    "AbsoluteError",
    "CustomLoss",
    "Huber",
    "LogisticLoss",
    "Loss",
    "LossOfSeveral",
    "OneOutput",
    "OverOutputs",
    "PoissonDeviance",
    "PseudoHuber",
    "SoftmaxLoss",
    "SquaredError",
    "is_of_several",
]
