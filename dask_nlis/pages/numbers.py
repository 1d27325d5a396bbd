"""Numbers as a person reads them."""


def big(value: float | None) -> str:
    """Three digits and a word for thousands; a dash for what is not known.

    Examples
    --------
    >>> [big(value) for value in (None, 0, 999, 1234, 2.5e6, 1.2e10)]
    ['-', '0', '999', '1.23 k', '2.5 M', '12 G']
    """
    return "-" if value is None else _scaled(value, 1000, ("", " k", " M", " G", " T", " P"))


def bytes_text(value: float | None) -> str:
    """Bytes in binary units; a dash for what is not known.

    Examples
    --------
    >>> bytes_text(None), bytes_text(512), bytes_text(64 * 2**20)
    ('-', '512 B', '64 MiB')
    """
    return "-" if value is None else _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def _scaled(value: float, base: int, words: tuple[str, ...]) -> str:
    place = 0
    while round(abs(value), 0) >= base and place < len(words) - 1:
        value, place = value / base, place + 1
    return f"{value:.0f}{words[place]}" if abs(value) >= 100 else f"{value:.3g}{words[place]}"


def seconds_text(value: float) -> str:
    """Seconds, from a minute on with minutes and hours.

    Examples
    --------
    >>> seconds_text(0.0123), seconds_text(59.94), seconds_text(75), seconds_text(7325)
    ('12.3 ms', '59.9 s', '1:15 min', '2:02:05 h')
    """
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"
