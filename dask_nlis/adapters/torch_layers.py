"""A torch module as layers of this library, where it is nothing but such layers one after the other."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dask_nlis.activations import Activation, Elu, Gelu, Identity, LeakyRelu, Logistic, Relu, Softplus, Swish, Tanh
from dask_nlis.models import LayerOf, LayerStack


def layers_of(module: Any, wrt: Collection[str], input_shape: tuple[int, ...]) -> LayerStack | None:
    """The layers of a module in float64 whose parameters `wrt` are theta; None where it is something else.

    What is not known is not guessed: modules with branches, loops, shared or unused parameters are something else.
    """
    import torch

    try:
        traced = torch.fx.symbolic_trace(module)
    except Exception:  # whatever the module's code raises when it meets no numbers
        return None
    chain = _chain(traced, module)
    if chain is None:
        return None
    stack: list[LayerOf] = []
    shape = input_shape
    for name, step in chain:
        unit = _unit(step)
        if unit is not None:
            if not stack or not isinstance(stack[-1].unit, Identity):
                return None
            stack[-1] = replace(stack[-1], unit=unit)
        elif not _changes_nothing(step, shape):
            layer = _layer(name, step, wrt, shape)
            if layer is None:
                return None
            stack.append(layer)
            shape = layer.linear(layer.kernel, shape).shape
    ours = [name for each in stack for name in (each.kernel_name, each.bias_name) if name]
    if not ours or ours != [name for name, _ in module.named_parameters()]:
        return None
    return LayerStack(tuple(stack), input_shape)


def _chain(traced: Any, module: Any) -> list[Any] | None:
    """Submodules and functions in the order in which one input goes through them; None where there is no such order."""
    steps: list[Any] = []
    before = None
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if before is not None:
                return None
        elif node.op == "output":
            return steps if node.args == (before,) else None
        else:
            if node.args[:1] != (before,) or any(arg is before for arg in node.args[1:]):
                return None
            step = _step(node, module)
            if step is None:
                return None
            steps.append(step)
        before = node
    return None


def _step(node: Any, module: Any) -> Any:
    """A submodule with its name, or what a function is as a module; None for what is not known."""
    import torch
    from torch.nn import functional

    if node.op == "call_module":
        return node.target, module.get_submodule(node.target)
    units = {
        "relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh(), "sigmoid": torch.nn.Sigmoid(), "silu": torch.nn.SiLU(),
        "flatten": torch.nn.Flatten(), "squeeze": torch.nn.Flatten(0),
    }  # fmt: skip
    named = {getattr(owner, name): name for owner in (torch, functional) for name in units if hasattr(owner, name)}
    name = node.target if node.op == "call_method" else named.get(node.target)
    if name not in units:
        return None
    arguments = [*node.args[1:], *node.kwargs.values()]
    allowed = {"flatten": ([1],), "squeeze": ([-1], [1])}.get(name, ([], [False], [True]))  # inplace or not
    return ("", units[name]) if arguments in allowed else None


def _changes_nothing(step: Any, shape: tuple[int, ...]) -> bool:
    """Whether a step leaves rows of a shape as they are: numbers that are one already need no flattening."""
    import torch

    if type(step) in (torch.nn.Identity, torch.nn.Dropout):  # evaluation mode is asked for before
        return True
    if type(step) is not torch.nn.Flatten:
        return False
    first = step.start_dim, step.end_dim
    return (first == (1, -1) and len(shape) == 1) or (first == (0, -1) and shape == (1,))


def _layer(name: str, module: Any, wrt: Collection[str], shape: tuple[int, ...]) -> LayerOf | None:
    import torch

    # Subclasses may do anything.
    if type(module) is torch.nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return LayerOf("reshape")
    if type(module) is torch.nn.Linear and len(shape) == 1:
        return _with_parameters(name, module, wrt, kind="dense")
    plain = type(module) is torch.nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros"
    if plain and len(shape) == 3 and not isinstance(module.padding, str):
        how = {"stride": module.stride, "padding": module.padding, "dilation": module.dilation}
        return _with_parameters(name, module, wrt, kind="convolution", **how)
    return None


def _with_parameters(name: str, module: Any, wrt: Collection[str], **layer: Any) -> LayerOf:
    prefix = f"{name}." if name else ""
    for part in ("kernel", "bias"):
        known = f"{prefix}{'weight' if part == 'kernel' else 'bias'}"
        values = module.weight if part == "kernel" else module.bias
        if values is not None:
            moves = "moves" if part == "kernel" else "bias_moves"
            layer |= {
                part: values.detach().cpu().numpy().astype(np.float64),
                f"{part}_name": known,
                moves: known in wrt,
            }
    return LayerOf(**layer)


def _unit(module: Any) -> Activation | None:
    """The activation of this library that a module is; None if it is none."""
    import torch

    found: dict[type, Callable[[Any], Activation | None]] = {
        torch.nn.ReLU: lambda m: Relu(),
        torch.nn.LeakyReLU: lambda m: LeakyRelu(m.negative_slope),
        torch.nn.Tanh: lambda m: Tanh(),
        torch.nn.Sigmoid: lambda m: Logistic(),
        torch.nn.SiLU: lambda m: Swish(0.0, 1.0),
        torch.nn.GELU: lambda m: Gelu() if m.approximate == "none" else None,
        torch.nn.ELU: lambda m: Elu() if m.alpha == 1 else None,
        torch.nn.Softplus: lambda m: Softplus() if m.beta == 1 else None,
    }
    make = found.get(type(module))
    with suppress(ValueError, TypeError):  # a slope that the activation here does not take
        return None if make is None else make(module)
    return None
