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
