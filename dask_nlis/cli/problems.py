"""A problem from the command line: a file, or names with numbers in a small fixed grammar.

SPEC is NAME or NAME:key=value,key=value; names are those of the table below, keys are the arguments of the class, values are
numbers, numbers joined by slashes, true, false or a word. Nothing is evaluated.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

import dask_nlis as nlis
from dask_nlis.documents import read_document
from dask_nlis.errors import InputError

Kinds = Mapping[str, type]


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def _table(*classes: type) -> dict[str, type]:
    return {_kebab(cls.__name__): cls for cls in classes}


MODELS = _table(nlis.Linear, nlis.SingleIndex, nlis.ReluNetwork, nlis.DeepReluNetwork, nlis.MultilayerPerceptron)
ACTIVATIONS = _table(
    nlis.Arctan, nlis.Cos, nlis.Elu, nlis.Exp, nlis.Gelu, nlis.Identity, nlis.LeakyRelu, nlis.Logistic, nlis.Probit,
    nlis.Relu, nlis.Sin, nlis.Softplus, nlis.SquaredRelu, nlis.Swish, nlis.Tanh,
)  # fmt: skip
LOSSES = _table(
    nlis.SquaredError, nlis.Huber, nlis.PseudoHuber, nlis.AbsoluteError, nlis.LogisticLoss, nlis.PoissonDeviance
)
CONSTRAINTS = _table(nlis.Ball, nlis.Box, nlis.AmplitudeBand)

#: What --problem files may name besides: sets that no SPEC can write.
_NAMED: Kinds = {
    cls.__name__: cls
    for cls in (
        nlis.Problem, *MODELS.values(), *ACTIVATIONS.values(), *LOSSES.values(), *CONSTRAINTS.values(), nlis.HalfSpaces,
        nlis.Intersection,
    )
}  # fmt: skip

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_WORD = re.compile(r"[A-Za-z_]+")


def problem_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a problem to a command; `problem_from` makes it of their values."""
    options = (
        click.option(
            "--problem", "file", type=click.Path(path_type=Path), help="TOML or JSON, as Problem.to_dict() gives."
        ),
        click.option("--model", metavar="SPEC", help=f"One of {', '.join(MODELS)}."),
        click.option("--activation", metavar="SPEC", help="Such as tanh, or swish:c1=1,c2=2."),
        click.option("--loss", metavar="SPEC", help="Such as squared-error (the default), or huber:delta=1."),
        click.option("--constraint", metavar="SPEC", help="Such as ball:radius=10; none by default."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def problem_from(
    file: Path | None, model: str | None, activation: str | None, loss: str | None, constraint: str | None
) -> nlis.Problem:
    """Make the problem that the options name; raises for what is not known, naming the option."""
    if file is not None:
        if any(part is not None for part in (model, activation, loss, constraint)):
            raise click.UsageError("--problem holds the whole problem; leave --model and the options beside it out")
        return _from_file(file)
    if model is None:
        raise click.UsageError("no problem is named; give --problem FILE, or --model SPEC such as single-index")
    beside = {} if activation is None else {"activation": _noun("--activation", activation, ACTIVATIONS)}
    parts: dict[str, Any] = {}
    if loss is not None:
        parts["loss"] = _noun("--loss", loss, LOSSES)
    if constraint is not None:
        parts["constraint"] = _noun("--constraint", constraint, CONSTRAINTS)
    return nlis.Problem(_noun("--model", model, MODELS, beside), **parts)


def _noun(option: str, spec: str, kinds: Kinds, beside: Mapping[str, Any] | None = None) -> Any:
    """Make the noun of a SPEC, with arguments that other options gave."""
    name, _, rest = spec.partition(":")
    if name not in kinds:
        raise InputError(f"{option} {name[:40]!r} is not known; give one of {', '.join(kinds)}")
    cls = kinds[name]
    given: dict[str, Any] = {}
    for pair in rest.split(",") if rest else ():
        key, equals, text = pair.partition("=")
        if not equals or not key or key in given:
            raise InputError(
                f"{option} {spec[:60]!r}: {pair[:40]!r} is no key=value of its own; give such as {name}:key=1"
            )
        given[key] = _value(option, key, text)
    known = {f.name: f for f in fields(cls) if f.init}
    given |= beside or {}
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise InputError(f"{option} {name} has no {unknown[:40]!r}; it takes {', '.join(known) or 'nothing'}")
    lacking = [
        key for key, f in known.items() if f.default is MISSING and f.default_factory is MISSING and key not in given
    ]
    if lacking:
        remedy = "--activation" if lacking[0] == "activation" else f"{name}:{lacking[0]}="
        raise InputError(f"{option} {name} needs {', '.join(lacking)}; give {remedy}")
    return cls(**given)


def _value(option: str, key: str, text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    numbers = [_number(part) for part in text.split("/")]
    if None not in numbers:
        return numbers[0] if len(numbers) == 1 else tuple(numbers)
    if _WORD.fullmatch(text):
        return text
    raise InputError(
        f"{option} {key}={text[:40]!r} is no value; give a number, numbers as 1/2/3, true, false or a word"
    )


def _number(text: str) -> int | float | None:
    if _WHOLE.fullmatch(text):
        return int(text) if len(text) < 20 else float(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def _from_file(path: Path) -> nlis.Problem:
    return nlis.Problem.from_dict(_completed({"noun": "Problem"} | read_document("--problem", path)))


def _completed(found: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the defaults of what it leaves out, as TOML must of None."""
    cls = _NAMED.get(str(found.get("noun")))
    out = {key: _completed(value) if isinstance(value, Mapping) else value for key, value in found.items()}
    for f in fields(cls) if cls is not None else ():
        if f.init and f.default is not MISSING:
            out.setdefault(f.name, f.default)
    return out
