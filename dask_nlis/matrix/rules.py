"""How a data row becomes a matrix row: plain, reference, dual or tangent. Everything nonlinear ends here."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from dask_nlis import problem as problems
from dask_nlis.device import like
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.models import Numerical, is_layered
from dask_nlis.nouns import noun
from dask_nlis.problem import Problem
from dask_nlis.rays import Ray, RayNorms

Array = Any


class Rule(Protocol):
    """Turns x (m, d) and y (m,) or None, float64 on one device, into rows of the matrix."""

    def columns(self, names: Sequence[str], labelled: bool) -> tuple[str, ...]:
        """Name the p columns of the matrix."""

    def rows(self, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
        """Rows of the matrix, (m, p); in the first m rows of `out` where it is given and that saves a copy."""

    def squared_norms(self, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
        """Squared norms of those rows, (m,), in closed form where there is one; `lengths` are those of x, if known."""

    def exact(self, labelled: bool) -> bool:
        """Whether rows are a formula; the others, of some dual matrices, are integrals (`Dual.ray`)."""

    @property
    def each(self) -> int:
        """Rows of the matrix that a data row is; they follow one another."""


def _last(labelled: bool) -> str:
    return "f(0), with label" if labelled else "phi(0)"


@noun
class Plain:
    """The data row itself."""

    def columns(self, names: Sequence[str], labelled: bool) -> tuple[str, ...]:
        """Feature names."""
        return tuple(names)

    def rows(self, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
        """Return x."""
        return x

    def squared_norms(self, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
        """Squared row norms of x."""
        return squared_row_norms(x) if lengths is None else lengths

    def exact(self, labelled: bool) -> bool:
        """True: these rows are a formula."""
        return True

    @property
    def each(self) -> int:
        """One."""
        return 1


@noun
class Reference:
    """[x, 1 | f(0)]: the dual row with every slope replaced by its sign; needs no theta."""

    problem: Problem

    def columns(self, names: Sequence[str], labelled: bool) -> tuple[str, ...]:
        """Feature names, the constant where the model has a bias, and the last column."""
        constant = self.problem.model.inputs(np.zeros((1, len(names)))).shape[1] - len(names)
        return (*names, *("intercept",) * constant, _last(labelled))

    def rows(self, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
        """Rows by `dask_nlis.problem.reference_rows`."""
        return problems.reference_rows(self.problem, x, y, out)

    def squared_norms(self, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
        """Squared norms by `dask_nlis.problem.reference_squared_norms`."""
        return problems.reference_squared_norms(self.problem, x, y, lengths)

    def exact(self, labelled: bool) -> bool:
        """True: these rows are a formula."""
        return True

    @property
    def each(self) -> int:
        """One."""
        return 1


@noun
class Dual:
    """[f*(theta) ; f(0)]: the adjoint of the row at theta, then the row's value at 0."""

    problem: Problem
    theta: np.ndarray

    def columns(self, names: Sequence[str], labelled: bool) -> tuple[str, ...]:
        """Parameter names and the last column."""
        return (*self.problem.model.parameter_names(names), _last(labelled))

    def rows(self, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
        """Rows by `dask_nlis.problem.dual_rows`."""
        return problems.dual_rows(self.problem, self._theta_like(x), x, y, out)

    def squared_norms(self, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
        """Squared norms by `dask_nlis.problem.dual_squared_norms`."""
        return problems.dual_squared_norms(self.problem, self._theta_like(x), x, y, lengths)

    def exact(self, labelled: bool) -> bool:
        """Whether the adjoint is a formula, not an integral along the ray."""
        return problems.has_closed_form(self.problem, labelled)

    def ray(self, x: Array, y: Array | None) -> Ray:
        """Rows by quadrature, with the nodes and the identity residual: `dask_nlis.problem.dual_ray`."""
        return problems.dual_ray(self.problem, self._theta_like(x), x, y)

    def ray_norms(self, x: Array, y: Array | None) -> RayNorms:
        """Squared norms of those rows where the model is made of layers: `dask_nlis.problem.dual_ray_norms`."""
        return problems.dual_ray_norms(self.problem, self._theta_like(x), x, y)

    @property
    def each(self) -> int:
        """One, or one an output where they are separate."""
        return problems.rows_each(self.problem)

    @property
    def layered(self) -> bool:
        """Whether the model is made of layers, so that norms need no rows."""
        return is_layered(self.problem.model)

    @property
    def tolerance(self) -> float:
        """Largest identity residual of an integral that is accepted: that of a Numerical model, or its default."""
        model = self.problem.model
        return float(getattr(model, "tolerance", Numerical.default_tolerance))

    def _theta_like(self, x: Array) -> Array:
        return array_like(self.theta, x)


@noun
class Tangent:
    """sqrt(max(l'', 0)) J: rows whose Gram matrix is the Gauss-Newton Hessian, with the row's gradient beside them."""

    problem: Problem
    theta: np.ndarray

    def columns(self, names: Sequence[str], labelled: bool) -> tuple[str, ...]:
        """Parameter names."""
        return tuple(self.problem.model.parameter_names(names))

    def rows(self, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
        """Rows by `dask_nlis.problem.tangent_rows`."""
        return problems.tangent_rows(self.problem, array_like(self.theta, x), x, y, out)

    def squared_norms(self, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
        """Squared norms of those rows, summed over the outputs."""
        return summed_over(squared_row_norms(self.rows(x, y)), x.shape[0])

    def exact(self, labelled: bool) -> bool:
        """True: these rows are a formula."""
        return True

    @property
    def each(self) -> int:
        """One an output."""
        return self.problem.model.n_outputs

    def gradients(self, x: Array, y: Array | None) -> Array:
        """Gradients of the losses by `dask_nlis.problem.loss_gradients`, (m, p)."""
        return problems.loss_gradients(self.problem, array_like(self.theta, x), x, y)


def width(rule: Rule, names: Sequence[str], labelled: bool) -> int:
    """How many columns the matrix has, which are not named for it: a network may have millions."""
    if isinstance(rule, Dual | Tangent):
        return len(rule.theta) + isinstance(rule, Dual)
    return len(rule.columns(names, labelled))


def summed_over(values: Array, m: int) -> Array:
    """Values of the rows of the matrix (m k,) of m data rows, summed over the k of each, (m,)."""
    xp = array_namespace(values)
    return values if values.shape[0] == m else xp.sum(xp.reshape(values, (m, -1)), axis=1)


def array_like(theta: np.ndarray, x: Array) -> Array:
    """Theta where x lies, put there once a process."""
    return like(theta, x)


#: Rules behind which there is a problem.
Modelled = Reference | Dual | Tangent
