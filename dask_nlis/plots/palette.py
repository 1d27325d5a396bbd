"""The colours of data: few, each at least 3 to 1 against white and against near-black, told apart by the colour-blind."""

#: In the order of their use; lines have a marker each besides.
COLOURS = ("#1f78c8", "#d95f02", "#1b9e77", "#9467d8", "#a8871a", "#d6488a")

#: All rows, beside what is drawn from them.
GREY = "#8a8f98"

#: One for each colour.
MARKERS = ("o", "s", "^", "D", "v", "P")


def colour(k: int) -> str:
    """Colour of the k-th series; they repeat."""
    return COLOURS[k % len(COLOURS)]


def marker(k: int) -> str:
    """Marker of the k-th series: series that share a colour do not share it."""
    return MARKERS[(k + k // len(COLOURS)) % len(MARKERS)]
