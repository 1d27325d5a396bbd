"""The adjoint along the ray from 0 to theta, for models without a closed form."""

from dask_nlis.rays.along import Ray, RayNorms, along_ray, identity_residual, norms_along_ray

__all__ = ["Ray", "RayNorms", "along_ray", "identity_residual", "norms_along_ray"]
