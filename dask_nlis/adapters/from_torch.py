"""Torch modules as models."""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_nlis.adapters.torch_layers import layers_of
from dask_nlis.adapters.torch_model import TorchModel
from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.kernels.numbers import is_number, is_whole
from dask_nlis.models import LayerStack, Numerical

#: Rows on which layers taken over are compared with the module, and how exactly they have to agree.
_COMPARED, _AGREE = 8, 1e-10

#: Numbers that a row may be: 128 MB in float64.
_LONGEST = 2**24


def from_torch(
    module: Any,
    *,
    wrt: str | Sequence[str] | None = None,
    input_shape: Sequence[int] | int | None = None,
    tolerance: float = Numerical.default_tolerance,
) -> LayerStack | TorchModel:
    """Take a torch module of one output a row, or several, over as a model, with its parameters theta (p,); reads nothing.

    A module that is nothing but dense layers, convolutions, flattening and known functions, one after the other, becomes a
    `LayerStack`: the adjoint of rectified ones is exact, biases or not, norm scores need no gradient of a row, and
    workers need no torch. Any other module becomes a `TorchModel`: gradients of rows by `torch.func`, integrated along
    the ray until the identity residual is below `tolerance`, in every process that works on blocks.

    Parameters
    ----------
    module : torch.nn.Module
        Takes a batch (m, *input_shape), returns (m,), (m, 1) or (m, k). A copy in float64 and evaluation mode is kept.
    wrt : str or sequence of str, optional
        Parameters that are theta: names as of ``named_parameters()``, or of submodules for all in them; the others stay
        as they are. All by default. The last layer alone gives small matrices: the model is then linear in theta.
    input_shape : int or sequence of int, optional
        Shape of a row. That of the features of the first layer by default, where that is dense.
    tolerance : float, default 1e-6
        Largest identity residual, relative to 1 + |f(theta)| + |f(0)|, that is accepted of a `TorchModel`.

    Returns
    -------
    LayerStack or TorchModel
        Their attribute `theta` holds the parameters as they came.

    Raises
    ------
    InputTypeError
        If `module` is no torch module, or another argument not of its kind.
    InputError
        If the module returns something else than numbers of each row, couples the rows of a batch or depends on chance
        (batch normalisation or dropout in training mode), or a name is not known.
    MissingExtraError
        If torch is not installed.

    Notes
    -----
    theta has its parameters in the order of ``named_parameters()``, each C-flattened. Kinks that a `TorchModel` has along
    the ray converge slowly: 256 nodes leave about 1e-3, and `tolerance` has to allow for that or an error tells.

    Examples
    --------
    >>> import torch, dask_nlis as nlis
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> model = nlis.from_torch(net)
    >>> model
    LayerStack(input_shape=(3,), layers=('dense Relu', 'dense'), n_outputs=1, parameters=('0.weight', '0.bias', '2.weight', '2.bias'), p=21)
    >>> nlis.from_torch(net, wrt="2").parameter_names("abc")[-1]
    '2.bias[0]'
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        raise InputTypeError(f"module is {what}; give an instance of torch.nn.Module")
    if not is_number(tolerance) or not 0 < tolerance < 1:
        raise InputError(f"tolerance={tolerance!r} is not allowed; give a number between 0 and 1")
    _check_mode(module)
    own = _copied(module)
    names = _wanted(own, wrt)
    shape = _shape(own, input_shape)
    rows = torch.randn(_COMPARED, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    predicted = _predicted(own, rows)
    stack = layers_of(own, names, shape)
    if stack is not None:
        ours = stack.predict(stack.theta, rows.reshape(_COMPARED, -1).numpy()).reshape(predicted.shape)
        if np.abs(ours - predicted).max() <= _AGREE * (1 + np.abs(predicted).max()):
            return stack
    theta = np.concatenate([own.get_parameter(name).detach().numpy().ravel() for name in names])
    return TorchModel(own, names, shape, theta, _token(own), float(tolerance), predicted.shape[1])


def _torch() -> Any:
    try:
        import torch
    except ImportError as cause:
        raise MissingExtraError("from_torch needs torch; pip install 'dask-nlis[torch]'") from cause
    return torch


def _check_mode(module: Any) -> None:
    """Raise where rows of a batch depend on each other, or on chance: there is no prediction of one row."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        if part.training and any(word in kind for word in ("BatchNorm", "Dropout")):
            raise InputError(
                f"module {kind} {name!r} is in training mode, where a prediction is not that of one row alone; call "
                "module.eval() first"
            )


def _copied(module: Any) -> Any:
    import copy

    own = copy.deepcopy(module).cpu().double().eval()
    for parameter in own.parameters():
        parameter.requires_grad_(False)
    return own


def _wanted(module: Any, wrt: Any) -> tuple[str, ...]:
    """Names of the parameters that are theta, in the order of the module."""
    known = [name for name, _ in module.named_parameters()]
    if not known:
        raise InputError(f"module {type(module).__name__} has no parameters; give one that has")
    if wrt is None:
        return tuple(known)
    asked = [wrt] if isinstance(wrt, str) else wrt
    if not isinstance(asked, Sequence) or not all(isinstance(name, str) for name in asked):
        raise InputTypeError(f"wrt={wrt!r} is not allowed; give names of parameters or submodules")
    found: set[str] = set()
    for name in asked:
        mine = {each for each in known if each == name or each.startswith(f"{name}.")}
        if not mine:
            raise InputError(
                f"wrt names {name!r}, which the module has not (it has {', '.join(known)}); "
                "give names of its parameters or submodules"
            )
        found |= mine
    if not found:
        raise InputError("wrt names nothing; give names of parameters or submodules")
    return tuple(name for name in known if name in found)


def _shape(module: Any, given: Any) -> tuple[int, ...]:
    import torch

    if given is None:
        first: Any = next(
            (part for part in module.modules() if next(part.parameters(recurse=False), None) is not None), None
        )
        if type(first) is not torch.nn.Linear:
            raise InputError(
                f"input_shape is None, and the first layer ({type(first).__name__}) does not tell the shape of a row; give "
                "input_shape, such as (1, 28, 28)"
            )
        return (int(first.in_features),)
    sizes = (given,) if is_whole(given) else given
    if (
        not isinstance(sizes, Sequence)
        or isinstance(sizes, str)
        or not sizes
        or any(not is_whole(n) or n < 1 for n in sizes)
    ):
        raise InputError(f"input_shape={given!r} is not allowed; give positive integers, such as (1, 28, 28)")
    shape = tuple(map(int, sizes))
    if math.prod(shape) > _LONGEST:
        raise InputError(f"input_shape makes more than {_LONGEST:,} numbers a row; give the shape of one row")
    return shape


def _predicted(module: Any, rows: Any) -> np.ndarray:
    """What the module returns for rows (m, *input_shape), checked: numbers of the row alone, (m, k)."""
    import torch

    with torch.no_grad():
        try:
            found = module(rows)
            alone = module(rows[:1])
        except Exception as cause:
            first = (str(cause).splitlines() or [""])[0][:120]
            raise InputError(
                f"module takes no batch of shape {tuple(rows.shape)}: {type(cause).__name__}: {first}; give the input_shape "
                "of a row"
            ) from cause
    m = rows.shape[0]
    if not isinstance(found, torch.Tensor) or found.ndim not in (1, 2) or found.shape[0] != m or not found.numel():
        came = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise InputError(
            f"module returns {came} for a batch of {m} rows; give one of numbers of each row, (m,) or (m, k)"
        )
    values: np.ndarray = found.reshape(m, -1).numpy()
    if np.abs(alone.reshape(-1).numpy() - values[0]).max() > _AGREE * (1 + np.abs(values[0]).max()):
        raise InputError(
            "module predicts other numbers for a row in a batch than for the row alone; give one that does not"
        )
    return values


def _token(module: Any) -> str:
    """Structure, code and numbers of a module."""
    code = []
    for part in module.modules():
        try:
            code.append(inspect.getsource(type(part)))
        except (OSError, TypeError):  # typed in
            code.append(type(part).__qualname__)
    state = {name: values.numpy() for name, values in module.state_dict().items()}
    return tokenize(str(module), code, state)
