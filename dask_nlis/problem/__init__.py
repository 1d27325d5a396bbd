"""A model, a loss and a set for theta, and the rows that follow from them."""

from dask_nlis.problem.noun import Problem, check_theta, set_for
from dask_nlis.problem.rows import (
    adjoint,
    at_zero,
    dual_parts,
    dual_ray,
    dual_ray_norms,
    dual_rows,
    dual_squared_norms,
    has_closed_form,
    loss_gradients,
    reference_rows,
    reference_squared_norms,
    root_of_curvature,
    singular,
    slope,
    tangent_rows,
)

__all__ = [
    "Problem",
    "adjoint",
    "at_zero",
    "check_theta",
    "dual_parts",
    "dual_ray",
    "dual_ray_norms",
    "dual_rows",
    "dual_squared_norms",
    "has_closed_form",
    "loss_gradients",
    "reference_rows",
    "reference_squared_norms",
    "root_of_curvature",
    "set_for",
    "singular",
    "slope",
    "tangent_rows",
]
