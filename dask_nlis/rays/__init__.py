"""The adjoint along the ray from 0 to theta, for models without a closed form."""

from dask_nlis.rays.along import Ray, RayNorms, along_ray, identity_residual, norms_along_ray
from dask_nlis.rays.roots import root_of

__all__ = ["Ray", "RayNorms", "along_ray", "identity_residual", "norms_along_ray", "root_of"]
