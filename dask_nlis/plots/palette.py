"""The colours of data: at least 3 to 1 against white and against near-black, told apart in every kind of colour blindness.

Found by search for the set whose closest pair is farthest apart to normal sight and without any one kind of cones;
tests/test_plots.py measures it. Series differ by their marker besides, and are named where they end.
"""

#: In the order of their use: blue, orange, magenta, teal, brown.
COLOURS = ("#2a6fdb", "#dc7000", "#c70e81", "#179dc6", "#9d571f")

#: All rows, behind those drawn from them.
GREY = "#8a8f98"

#: Markers of the series; one more than colours, so that series of one colour differ.
MARKERS = ("o", "s", "^", "D", "v", "P")


def colour(k: int) -> str:
    """Colour of the k-th series; they repeat."""
    return COLOURS[k % len(COLOURS)]


def marker(k: int) -> str:
    """Marker of the k-th series."""
    return MARKERS[k % len(MARKERS)]
