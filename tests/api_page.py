"""The index of public names in the guide, made of their docstrings: `python tests/api_page.py` writes it anew."""

import inspect
import re
from pathlib import Path

from names import BETWEEN_ROOMS, PROTOCOLS, PUBLIC, Public

from dask_nlis.cli.main import group

PAGE = Path(__file__).parents[1] / "examples" / "guide" / "api.md"

HEAD = """# All names

Made from the docstrings by `python tests/api_page.py`; `help(nlis.draw)` tells arguments, results, errors and sources, and
every docstring has an example that runs. Arrays are float64 unless an entry names another dtype. The five words are matrix
-> scores -> draw -> take -> refit; `run` does them as one job.

```python
>>> import dask_nlis as nlis
>>> print(nlis.pool.__doc__.partition(".")[0])
{pool}

```
"""

#: Headings of the page, with what stands under them and the rooms whose functions, classes and nouns those are.
VERBS = {
    "Open": ("Rows, from files or from nothing.", ("intake", "datasets")),
    "Matrix": ("Lazy and tall, one row a data row, never formed.", ("matrix",)),
    "Scores": ("A factor, and a number a row.", ("factor", "scores")),
    "Draw": ("Scores to a sample.", ("sampling",)),
    "Take": ("Rows of a sample, which are small; `Sample.take` above. Samples joined.", ("sample",)),
    "Refit": ("The weighted, constrained fit, in memory.", ("refit",)),
    "Judge": ("What a sample, a fit or a row is worth.", ("diagnostics",)),
    "One job": ("The five words with a store.", ("pipeline",)),
}
OTHERS = {
    "Theory": ("Sizes and bounds, corrected; nothing is read.", ("theory",)),
    "Adapters": ("Models and tables of other libraries.", ("adapters",)),
    "Plots and pages": ("Axes of matplotlib, and what is watched.", ("plots", "report", "monitor")),
    "Cluster": (
        "Workers on this machine; any other Dask cluster serves as well, best with the Dask settings `cluster.SETTINGS`.",
        ("cluster",),
    ),
}
PARTS = {
    "Models": ("What is predicted.", ("models",)),
    "Activations": ("phi of a model.", ("activations",)),
    "Losses": ("What a prediction costs.", ("losses",)),
    "Sets": ("Where theta may lie.", ("constraints",)),
}


def page() -> str:
    """The whole page in Markdown."""
    pool = next(each for each in PUBLIC if each.name == "pool").text.partition(".")[0]
    lines = [HEAD.format(pool=pool), "## Nouns", "", "What users make, and what verbs return; frozen.", ""]
    nouns = [each for each in PUBLIC if each.kind == "made" or (each.kind == "class" and each.room == "problem")]
    for each in nouns:
        lines += [*_noun(each), ""]
    made = {each.name for each in nouns}
    for title, (said, rooms) in PARTS.items():
        found = [each for each in PUBLIC if each.kind == "class" and each.room in rooms and each.name not in made]
        lines += [f"## {title}", "", said, "", *_table(found), ""]
        for protocol in (each for each in PROTOCOLS if each.__module__.split(".")[1] in rooms):
            lines += [*_protocol(protocol), ""]
    lines += ["## Verbs", ""]
    for title, (said, rooms) in VERBS.items():
        lines += [f"### {title}", "", said, "", *_table(_functions(rooms)), ""]
    for title, (said, rooms) in OTHERS.items():
        classes = [each for each in PUBLIC if each.kind == "class" and each.room in rooms]
        found = _functions(rooms) + classes
        if found:
            lines += [f"## {title}", "", said, "", *_table(found), ""]
            for each in classes:
                lines += [f"### {each.name}", *_members(each), ""]
    lines += [
        "## Shell",
        "",
        "`dask-nlis COMMAND --help` tells the options.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    lines += [
        f"| `dask-nlis {name}` | {_cell(one.get_short_help_str(300))} |" for name, one in sorted(group.commands.items())
    ]
    lines += [
        "",
        "## Errors and warnings",
        "",
        "Each is one line: the argument, what came, what is allowed, a remedy.",
        "",
    ]
    lines += ["| name | a kind of | when |", "|---|---|---|"]
    for each in (each for each in PUBLIC if each.kind == "error"):
        kinds = ", ".join(f"`{base.__name__}`" for base in each.value.__bases__)
        lines.append(f"| `{each.name}` | {kinds} | {_cell(each.summary)} |")
    return "\n".join(lines) + "\n"


def _functions(rooms: tuple[str, ...]) -> list[Public]:
    return [each for each in PUBLIC if each.kind == "function" and each.room in rooms]


def _table(found: list[Public]) -> list[str]:
    if not any(each.reads for each in found):
        return [
            "| name | what it is |",
            "|---|---|",
            *(f"| `{_signature(each)}` | {_cell(each.summary)} |" for each in found),
        ]
    rows = (f"| `{_signature(each)}` | {_cell(_said(each))} | {_cell(_reads(each))} |" for each in found)
    return ["| name | what it does | reads |", "|---|---|---|", *rows]


def _said(each: Public) -> str:
    """The summary without what it says of reads, which has a column of its own."""
    return each.summary.replace(each.reads, "").strip(" ;:,") if each.reads else each.summary


def _reads(each: Public) -> str:
    return each.reads[:1].upper() + each.reads[1:].rstrip(".;:")


def _noun(each: Public) -> list[str]:
    return [f"### {each.name}", "", each.summary, "", *_fields(each), *_members(each)]


def _fields(each: Public) -> list[str]:
    fields = ", ".join(f"`{name}`" for name in each.parameters)
    return [f"{'Fields' if each.kind == 'made' else 'Arguments'}: {fields}."]


def _members(each: Public) -> list[str]:
    found = [
        one
        for one in PUBLIC
        if one.name.startswith(f"{each.name}.") and one.kind in ("method", "property") and one.name not in BETWEEN_ROOMS
    ]
    if not found:
        return []
    rows = (f"| `{_signature(one)}` | {_cell(one.summary)} |" for one in found)
    return ["", "| method or property | what it gives |", "|---|---|", *rows]


def _protocol(protocol: type) -> list[str]:
    rows = [
        f"| `{_called(name, value)}` | {_cell((inspect.getdoc(value) or '').partition(chr(10))[0])} |"
        for name, value in vars(protocol).items()
        if not name.startswith("_")
    ]
    said = (inspect.getdoc(protocol) or "").partition("\n")[0]
    return [f"### {protocol.__name__}: what each has", "", said, "", "| name | what it gives |", "|---|---|", *rows]


def _signature(each: Public) -> str:
    name = each.name.rpartition(".")[2] if each.kind in ("method", "property") else each.name
    return _called(name, each.value)


def _called(name: str, value: object) -> str:
    """A name with its arguments and defaults, without their types."""
    if isinstance(value, property):
        return name
    signature = inspect.signature(value)  # type: ignore[arg-type]
    bare = [
        one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values() if one.name != "self"
    ]
    return name + str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _cell(text: str) -> str:
    """Text that stays within one cell, and is no markup."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([|*<])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
