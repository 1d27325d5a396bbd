"""Whether HTML of ours is inert: tags and attributes that do nothing, and what came as text is text."""

from html.parser import HTMLParser

#: Tags and attributes that run nothing and load nothing, which is all that tables need.
TAGS = {
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "p",
    "br",
    "b",
    "span",
    "div",
    "pre",
    "code",
    "details",
    "summary",
}
ATTRIBUTES = {"style", "class", "colspan"}


class _Seen(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        self.tags.append(f"<!--{data}")

    def handle_decl(self, decl):
        self.tags.append(f"<!{decl}")


def assert_inert(page, *, tags=TAGS, attributes=ATTRIBUTES):
    """Raise where a page holds a tag or an attribute that is not allowed; return what a person reads in it."""
    seen = _Seen()
    seen.feed(page)
    seen.close()
    assert set(seen.tags) <= tags, set(seen.tags) - tags
    for name, value in seen.attributes:
        assert name in attributes, f"{name}={value}"
        assert not any(word in (value or "").lower() for word in ("url(", "expression", "javascript:", "@import")), (
            value
        )
    return "".join(seen.text)
