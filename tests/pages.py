"""A page as its readers meet it: parsed strictly, its tables as cells, its text as read out; used where pages are tested."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import NamedTuple

#: Elements that have no end.
VOID = {"meta", "img", "br", "hr", "input", "link"}

#: Attributes that load something; all a page may give there is a place on itself or a picture inside it.
LOADS = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "formaction", "background"}


class Cell(NamedTuple):
    """A cell of a table: the number behind it, where it has one, and what is read."""

    value: float | None
    text: str


class Page(HTMLParser):
    """A parsed page; raises AssertionError where it is not well formed, or would load or run anything."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open, self.ids, self.headings, self.alts, self.tags = [], [], [], [], []
        self.tables, self.raw, self.text, self.titles = {}, {"style": [], "script": []}, [], []
        self.policy, self._table, self._cell = None, None, None
        assert html.startswith("<!DOCTYPE html>")
        self.feed(html)
        self.close()
        assert not self.open, self.open
        assert len(set(self.ids)) == len(self.ids)
        levels = [level for level, _ in self.headings]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels)), levels

    def handle_starttag(self, tag, attrs):
        self._opened(tag, dict(attrs))
        assert len(dict(attrs)) == len(attrs), f"{tag} {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert "svg" in self.open or tag in VOID, tag
        self._opened(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag
        if tag == "table":
            self._table = None
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside in self.raw:
            self.raw[inside].append(data)
            return
        self.text.append(data)
        if self._cell is not None:
            self._cell[1] += data
        if inside in ("h1", "h2", "h3"):
            self.headings[-1][1] += data

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:80]}")

    def _opened(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} {name}"
            assert name != "style", f"{tag} {value}"
            if name in LOADS:
                assert value.startswith(("#", "data:image/png;base64,")), f"{tag} {name}={value[:80]}"
            assert not re.search(r"url\((?!#)|javascript:|expression\(", value or ""), value
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag == "img":
            assert attributes["alt"]
            self.alts.append(attributes["alt"])
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or (attributes["role"] == "img" and attributes["aria-label"])
        if attributes.get("aria-label") and attributes.get("role") == "region":
            self._name = attributes["aria-label"]
        if "title" in attributes:
            self.titles.append(attributes["title"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append([int(tag[1]), ""])
        if tag == "table":
            self._table = self.tables.setdefault(self._name, [])
        if tag == "tr" and self._table is not None:
            self._table.append([])
        if tag in ("td", "th") and self._table is not None:
            self._cell = [attributes.get("data-value"), ""]
            self._table[-1].append(self._cell)

    def column(self, table, k):
        """Cells of a column of a table below its head."""
        return [Cell(float(row[k][0]) if row[k][0] else None, row[k][1]) for row in self.tables[table][1:]]

    def head(self, table):
        """Names of the columns."""
        return [text for _, text in self.tables[table][0]]

    def read(self):
        """All that is read."""
        return " ".join("".join(self.text).split())

    def assert_closed(self):
        """Raise unless the policy lets nothing in but the page's own sheet and script."""
        allowed = dict(part.strip().split(" ", 1) for part in self.policy.split(";"))
        assert allowed["default-src"] == "'none'"
        assert allowed["img-src"] == "data:"
        assert allowed["base-uri"] == allowed["form-action"] == "'none'"
        for kind, name in (("style", "style-src"), ("script", "script-src")):
            (text,) = self.raw[kind]
            found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert allowed[name] == f"'sha256-{found}'"
        assert set(allowed) == {"default-src", "style-src", "script-src", "img-src", "base-uri", "form-action"}
