"""Figures of matplotlib as inline SVG: text stays text, colours are those of the page, ids are unique on it."""

import re
from html import escape
from io import StringIO
from typing import Any

#: Attributes of SVG that matplotlib writes as CSS; the page allows no style but its own sheet.
_KEPT = {
    "fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-linejoin", "stroke-linecap",
    "stroke-dasharray", "stroke-dashoffset", "opacity", "text-anchor", "font-weight",
}  # fmt: skip

_RC: Any = {"svg.fonttype": "none", "svg.hashsalt": "dask-nlis", "path.simplify": True}


def figure(more: float = 0.0) -> tuple[Any, Any]:
    """A figure with one axes, so many inches higher than others; outside of pyplot, so that nothing of the user's is touched."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(4.2, 3.3 + more), layout="constrained")
    return made, made.add_subplot()


def inline(made: Any, name: str, text: str, colours: dict[str, str]) -> str:
    """SVG of a figure: `name` makes its ids unique, `text` is read out in its place, `colours` maps hex to CSS."""
    import matplotlib as mpl

    out = StringIO()
    with mpl.rc_context(_RC):
        made.savefig(out, format="svg", transparent=True, dpi=144, metadata={"Date": None, "Creator": None})
    found = out.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<(metadata|style).*?</\1>", "", found, flags=re.DOTALL)
    found = re.sub(r"<!--.*?-->", "", found, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', found)
    assert box is not None
    label = escape(text)
    head = f'<svg class="chart" viewBox="{box[1]}" role="img" aria-label="{label}"><title>{label}</title>'
    found = head + found[found.index(">") + 1 :]
    found = re.sub(r' style="([^"]*)"', lambda style: _attributes(style[1], colours), found)
    # A hundredth of a point is seen by nobody.
    found = re.sub(r' (?:d|x|y)="[^"]*"', lambda place: re.sub(r"(\.\d\d)\d+", r"\1", place[0]), found)
    return re.sub(r"\s*\n\s*", "\n", _own_ids(found, name)).strip()


def _attributes(style: str, colours: dict[str, str]) -> str:
    """CSS as attributes, hex colours as those of the page; a size of type in pixels of the picture."""
    out = []
    for part in filter(None, map(str.strip, style.split(";"))):
        key, _, value = (piece.strip() for piece in part.partition(":"))
        if key == "font-size":
            out.append(f' font-size="{value.removesuffix("px")}"')
        elif key in _KEPT:
            out.append(f' {key}="{colours.get(value.lower(), value)}"')
    return "".join(out)


def _own_ids(found: str, name: str) -> str:
    """Ids that are referred to, made the picture's own; all others out."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', found))
    found = re.sub(r' id="([^"]*)"', lambda each: f' id="{name}-{each[1]}"' if each[1] in used else "", found)
    found = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", found)
    return re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{name}-\1"', found)
