"""Words that are numbers."""


def number_of(text: str) -> float | None:
    """What a cell says as a number, as Python reads it without underscores; None where it is none.

    >>> number_of(" 1e3"), number_of("1_000"), number_of("True"), number_of("-")
    (1000.0, None, 1.0, None)
    """
    word = text.strip()
    if word in ("True", "TRUE", "true", "False", "FALSE", "false"):
        return float(word.lower() == "true")
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None
