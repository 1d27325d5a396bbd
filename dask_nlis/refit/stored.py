"""Whether a fit that was stored is one: its arrays belong to its problem."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError


def check_stored(fit: Any) -> None:
    """Raise an InputError naming the first thing that no fit has."""
    p = fit.problem.model.n_parameters(len(fit.feature_names))
    for name, shape in (("theta", (p,)), ("covariance", (p, p)), ("population_covariance", (p, p))):
        array = getattr(fit, name)
        if array.shape != shape or array.dtype != np.float64:
            raise InputError(
                f"Fit is stored with {name} of {array.dtype}{list(array.shape)}, but its problem has {p} parameters in "
                "float64; write it anew"
            )
    if fit.n_rows < 0:
        raise InputError(f"Fit is stored with n_rows={fit.n_rows}, which is no count; write it anew")
