"""The public names and what is said of them: read off `dask_nlis.__all__`, its public modules and its nouns."""

import builtins
import inspect
import re
import types
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

from docstring_parser import Docstring, DocstringStyle, parse

import dask_nlis as nlis
from dask_nlis.activations import Activation
from dask_nlis.constraints.protocol import Constraint, Piecewise
from dask_nlis.losses import Loss
from dask_nlis.losses.several import LossOfSeveral
from dask_nlis.models import protocol as models

#: The interfaces whose methods are documented once, for all activations, losses, models and sets.
PROTOCOLS = (
    Activation,
    Loss,
    models.Model,
    models.IndexModel,
    models.AdjointModel,
    models.LayeredModel,
    models.ModelOfSeveral,
    LossOfSeveral,
    Constraint,
    Piecewise,
)


#: What rooms ask of each other's nouns; users call none of it, and a line suffices.
BETWEEN_ROOMS = {
    *("AmplitudeBand.check_count", "Ball.pieces", "Box.pieces", "HalfSpaces.pieces", "Intersection.pieces"),
    *("DeepReluNetwork.layer_width", "ReluNetwork.layer_width", "JaxModel.tree", "Encoding.block", "Problem.row_loss"),
    *("Problem.one_loss", "TallMatrix.job", "TallMatrix.rule_token", "Plan.lines", "Plan.table"),
}


@dataclass(frozen=True)
class Public:
    """A public name with its docstring taken apart."""

    name: str
    value: Any
    #: "function", "method", "property", "class", "made" (by a verb), "shared" (a method of a protocol) or "error".
    kind: str

    @cached_property
    def text(self) -> str:
        return inspect.getdoc(self.value) or ""

    @cached_property
    def parsed(self) -> Docstring:
        return parse(self.text, style=DocstringStyle.NUMPYDOC)

    @cached_property
    def room(self) -> str:
        value = self.value.fget if isinstance(self.value, property) else self.value
        return value.__module__.split(".")[1]

    @cached_property
    def summary(self) -> str:
        return self.text.partition("\n")[0]

    @cached_property
    def description(self) -> str:
        """What stands above the first section."""
        return re.split(r"^\w[\w ]*\n-{3,}$", self.text, maxsplit=1, flags=re.MULTILINE)[0]

    @cached_property
    def parameters(self) -> list[str]:
        """Parameters of the signature, in order; `self` left out, as is what a bound method has instead."""
        called = self.value
        if is_dataclass(called) and self.kind == "made":
            return [field.name for field in fields(called) if not field.name.startswith("_")]
        if self.kind == "made":
            return list(called._fields)
        if self.kind == "property" or (self.kind == "class" and not signed(called)):
            return []
        names = list(inspect.signature(called).parameters)
        return (
            names[1:] if self.kind in ("method", "shared") and names[:1] in (["self"], ["model"], ["loss"]) else names
        )

    def entries(self, section: str) -> list[Any]:
        return [each for each in self.parsed.meta if each.args and each.args[0] == section]

    def has(self, section: str) -> bool:
        return re.search(rf"^{section}\n-{{{len(section)}}}$", self.text, re.MULTILINE) is not None

    @cached_property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes that the section of errors names."""
        named = [name.strip() for one in self.entries("raises") for name in (one.type_name or "").split(",")]
        return tuple(getattr(nlis, name, None) or getattr(builtins, name) for name in named)

    @cached_property
    def reads(self) -> str:
        """What is said of how often the data are read, from its clause to the end of the sentence; empty where nothing is."""
        for sentence in re.split(r"(?<=\.)\s+", " ".join(self.description.split())):
            clauses = re.split(r"(?<=[;:])\s+", sentence)
            for k, clause in enumerate(clauses):
                if READS.search(clause):
                    return " ".join(clauses[k:])
        return ""


#: How a docstring speaks of passes over the data.
READS = re.compile(
    r"\b[Rr]eads (nothing|no |X|only|metadata|scores|them|each|a file|the (blocks|scores|rows))"
    r"|\b([Oo]ne|[Tt]wo|[Tt]hree|[Nn]o) reads?\b|[Ww]orks in memory|In memory|Computes lazy scores once"
)


def signed(cls: type) -> bool:
    try:
        inspect.signature(cls)
    except ValueError:
        return False
    return True


def members(cls: type) -> list[tuple[str, Any]]:
    """Public methods and properties that a class defines itself, without its fields."""
    found = []
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, classmethod | staticmethod):
            found.append((name, getattr(cls, name)))
        elif isinstance(value, property) or inspect.isfunction(value):
            found.append((name, value))
    return found


def of_protocols(name: str) -> list[Any]:
    """The methods and properties of this name that protocols have."""
    return [vars(protocol)[name] for protocol in PROTOCOLS if name in vars(protocol)]


def _shared(cls: type) -> set[str]:
    """Names of the methods of the protocols that a class keeps."""
    kept: set[str] = set()
    for protocol in PROTOCOLS:
        names = {name for name in vars(protocol) if not name.startswith("_")}
        if cls is not protocol and names <= set(dir(cls)) | set(getattr(cls, "__dataclass_fields__", ())):
            kept |= names
    return kept


def of(name: str, value: Any) -> list[Public]:
    """A name, and those of its members."""
    if isinstance(value, types.ModuleType):
        listed = value.__all__
        return [each for part in listed for each in of(f"{name}.{part}", getattr(value, part))]
    if not inspect.isclass(value):
        return [Public(name, value, "function")] if callable(value) else []
    if issubclass(value, BaseException):
        return [Public(name, value, "error")]
    kind = "made" if "Attributes\n" in (value.__doc__ or "") and "Parameters\n" not in value.__doc__ else "class"
    shared = _shared(value)
    return [Public(name, value, kind)] + [
        Public(
            f"{name}.{part}",
            member,
            "shared" if part in shared else "property" if isinstance(member, property) else "method",
        )
        for part, member in members(value)
    ]


PUBLIC = [each for name in nlis.__all__ for each in of(name, getattr(nlis, name))]
BY_NAME = {each.name: each for each in PUBLIC}
