"""Functions of JAX as models."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_nlis.adapters.jax_model import JaxModel
from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.kernels.numbers import is_number, is_whole
from dask_nlis.models import Numerical


def from_jax(
    function: Callable[[Any, Any], Any],
    theta: Any,
    *,
    n_outputs: int = 1,
    tolerance: float = Numerical.default_tolerance,
) -> JaxModel:
    """Take a function of JAX over as a model, with its parameters theta; reads nothing.

    Gradients of rows come from `jax.grad` under `jax.vmap`, compiled, in float64; they are integrated along the ray until
    the identity residual is below `tolerance`. Every process that works on blocks needs JAX.

    Parameters
    ----------
    function : callable
        (theta, x (m, d)) -> (m,) or (m, n_outputs), each row on its own, in operations of JAX.
    theta : pytree of array_like
        Parameters: an array, or dicts and lists of arrays. Their order is that of ``jax.tree_util.tree_leaves``.
    n_outputs : int, default 1
        Predictions a row.
    tolerance : float, default 1e-6
        Largest identity residual, relative to 1 + |f(theta)| + |f(0)|, that is accepted.

    Returns
    -------
    JaxModel
        Its attribute `theta` (p,) holds the parameters, flattened array by array in C order.

    Raises
    ------
    InputTypeError
        If `function` cannot be called, or `theta` holds something else than numbers.
    InputError
        If `theta` holds no number, or `n_outputs` is no positive integer. Tasks raise it if the function does not return
        `n_outputs` numbers a row.
    MissingExtraError
        If JAX is not installed.

    Notes
    -----
    Kinks along the ray (rectifiers behind biases, two layers deep) converge slowly: 256 nodes leave about 1e-3, and
    `tolerance` has to allow for that or an error tells; `MultilayerPerceptron` and `from_torch` follow kinks.

    Examples
    --------
    >>> import jax, numpy as np, dask_nlis as nlis
    >>> model = nlis.from_jax(lambda theta, x: jax.numpy.tanh(x @ theta["w"] + theta["b"]), {"w": np.ones(2), "b": 0.5})
    >>> model.parameter_names(["x0", "x1"])
    ("['b']", "['w'][0]", "['w'][1]")
    >>> model.predict(model.theta, np.array([[0.0, -0.5]]))
    array([0.])
    """
    try:
        import jax
    except ImportError as cause:
        raise MissingExtraError("from_jax needs JAX; pip install 'dask-nlis[jax]'") from cause
    if not callable(function):
        raise InputTypeError(f"function={function!r} is not callable; give a function of (theta, x)")
    if not is_whole(n_outputs) or n_outputs < 1:
        raise InputError(f"n_outputs={n_outputs!r} is not allowed; give a positive integer")
    if not is_number(tolerance) or not 0 < tolerance < 1:
        raise InputError(f"tolerance={tolerance!r} is not allowed; give a number between 0 and 1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is no tree: it is refused below
        leaves, structure = jax.tree_util.tree_flatten_with_path(theta)
    names, arrays = [], []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path)
        try:
            array = np.asarray(leaf)
        except Exception as cause:  # of whatever came
            raise InputTypeError(f"theta{name} is {type(leaf).__name__}; give an array of numbers") from cause
        if array.dtype.kind not in "biuf":
            raise InputTypeError(
                f"theta{name} is {type(leaf).__name__} of dtype {array.dtype}; give an array of numbers"
            )
        names.append(name or "theta")
        arrays.append(array.astype(np.float64))
    if not sum(array.size for array in arrays):
        raise InputError("theta holds no numbers; give a pytree of arrays, such as {'w': np.ones(3)}")
    flat = np.concatenate([array.ravel() for array in arrays])
    template = jax.tree_util.tree_unflatten(structure, arrays)
    token = tokenize(function, str(structure), arrays)
    return JaxModel(function, template, tuple(names), flat, token, float(tolerance), int(n_outputs))
