"""The single-index model, prediction = phi(<coef, x> + intercept)."""

from typing import ClassVar

from dask_nlis.activations import Activation
from dask_nlis.models import affine, checks, indexed
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun


@noun
class SingleIndex:
    """Single-index model: prediction = phi(<coef, x> + intercept).

    Parameters
    ----------
    activation : Activation
        phi, such as `Logistic()` or `Swish(c1=1, c2=2)`.
    intercept : bool, default True
        Whether theta ends with an intercept.

    Raises
    ------
    InputTypeError
        If `activation` is none (a class instead of an instance, say), or `intercept` neither True nor False.

    Notes
    -----
    theta is coef (d,), then intercept. The index is homogeneous of degree 1 in theta, so the adjoint of a
    row is secant(u) [x, 1] (Rajmohan & Roosta, ICML 2025, Proposition 3.1).

    Examples
    --------
    >>> import numpy as np
    >>> from dask_nlis import Tanh
    >>> model = SingleIndex(Tanh())
    >>> model.parameter_names(["age", "income"])
    ('age', 'income', 'intercept')
    >>> model.unpack(np.array([1.0, 2.0, 3.0]))["coef"]
    array([1., 2.])
    """

    activation: Activation
    intercept: bool = True

    degree = 1.0
    n_outputs = 1
    form: ClassVar[Form] = "index"
    n_parameters = affine.n_parameters
    parameter_names = affine.parameter_names
    unpack = affine.unpack
    pack = affine.pack
    inputs = affine.inputs
    index = affine.index
    index_gradient = affine.index_gradient
    index_hessian = affine.index_hessian
    index_and_norms = affine.index_and_norms
    predict = indexed.predict
    jacobian = indexed.jacobian
    hessian = indexed.hessian
    at_zero = indexed.at_zero

    def __post_init__(self) -> None:
        object.__setattr__(self, "intercept", checks.flag("SingleIndex", "intercept", self.intercept))
        checks.check_activation("SingleIndex", self.activation)
