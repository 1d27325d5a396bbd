"""The linear model, prediction = <coef, x> + intercept."""

from typing import ClassVar

from dask_nlis.activations import Identity
from dask_nlis.models import affine, checks, indexed
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun


@noun
class Linear:
    """Linear model: prediction = <coef, x> + intercept.

    Its leverage scores without labels are the diagonal of the ordinary hat matrix.

    Parameters
    ----------
    intercept : bool, default True
        Whether theta ends with an intercept.

    Raises
    ------
    InputTypeError
        If `intercept` is neither True nor False.

    Notes
    -----
    theta is coef (d,), then intercept. The adjoint of a row is its gradient [x, 1] at every theta (Rajmohan & Roosta, ICML
    2025, Proposition 3.1, with phi the identity).

    Examples
    --------
    >>> Linear().n_parameters(3)
    4
    """

    intercept: bool = True

    activation = Identity()
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
        object.__setattr__(self, "intercept", checks.flag("Linear", "intercept", self.intercept))
