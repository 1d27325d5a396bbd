"""Where the rows of a CSV file begin: one pass over its bytes, which counts rows and cells and keeps a place a block.

A row ends at a line break outside of quotation marks. All rows must have as many cells as the header has names, so that no
cell moves into another column where a task reads the middle of the file.
"""

import csv
import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize

from dask_nlis.errors import DamagedDataError, InputError, MissingDataError
from dask_nlis.intake.limits import MOST_ROWS
from dask_nlis.intake.parquet_footers import short
from dask_nlis.intake.retrying import brief
from dask_nlis.intake.stamps import Stamp, stamp_of

#: Bytes read at a time, and those that a row, the header among them, may have.
_PIECE, LONGEST_ROW = 2**22, 2**24

_BREAK, _RETURN, _QUOTE, _COMMA = b'\n\r",'


class Header(NamedTuple):
    """Names of the columns of a CSV file, and the byte that its first row begins at."""

    names: tuple[str, ...]
    begin: int


class Stretch(NamedTuple):
    """Consecutive rows of a CSV file: bytes from `begin` to before `end`."""

    begin: int
    end: int
    rows: int


class Scanned(NamedTuple):
    """What one pass over a CSV file tells."""

    path: str
    names: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    stamp: Stamp
    token: str

    @property
    def n_rows(self) -> int:
        """Rows of the file."""
        return sum(each.rows for each in self.stretches)


class Cut(NamedTuple):
    """Whole rows of a CSV file: their text, the number of the first, and the bytes of the file behind each."""

    text: bytes
    first: int
    ends: np.ndarray
    read: int  # bytes of the file on disk that are read by now


def read_header(argument: str, path: str) -> Header:
    """Read the names in the first row of a CSV file, which may be compressed by gzip."""
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        raise MissingDataError(f"{argument}={path!r} {what}; give the path of a CSV file")
    with _opened(path) as file, _decoded(argument, path):
        head = file.read(LONGEST_ROW)
    mark = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    end = int(np.append(_ends(np.frombuffer(head, dtype=np.uint8)), len(head))[0])
    if end == LONGEST_ROW:
        raise InputError(
            f"{argument}={short(path)} has a first row of more than {LONGEST_ROW:,} bytes; it is no CSV file"
        )
    return Header(header_names(argument, path, head[mark:end]), end)


def _opened(path: str) -> Any:
    return gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")


@contextmanager
def _decoded(argument: str, path: str) -> Iterator[None]:
    """Say in one line what is wrong with a compressed file."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise DamagedDataError(
            f"{argument}={short(path)} cannot be decompressed ({brief(cause)}); write it anew"
        ) from cause


def header_names(argument: str, path: str, line: bytes) -> tuple[str, ...]:
    """Names in the first row, which must be UTF-8."""
    try:
        rows = list(csv.reader([line.decode("utf-8").rstrip("\r\n")], strict=True))
    except UnicodeDecodeError as cause:
        raise InputError(
            f"{argument}={short(path)} is no UTF-8 (byte {cause.start} of its first row is none); save it as UTF-8"
        ) from cause
    except csv.Error as cause:
        raise InputError(f"{argument}={short(path)} has a first row that is no CSV ({cause}); write it anew") from cause
    names = tuple(rows[0]) if rows else ()
    if not any(names):
        raise InputError(
            f"{argument}={short(path)} has no names in its first row; write the names of the columns there"
        )
    return names


def scan_csv(argument: str, path: str, most_rows: int, most_bytes: int) -> Scanned:
    """Read a CSV file once and cut it into stretches of at most so many rows and about so many bytes."""
    where = os.path.abspath(path)
    head = read_header(argument, path)
    stretches: list[Stretch] = []
    begin = end = head.begin
    rows = total = 0
    stat = os.stat(where)
    for cut in rows_of_csv(argument, where, len(head.names), head.begin):
        ends = np.minimum(cut.ends, stat.st_size)  # the last row may have no line break
        while len(ends):
            # As many rows as fit, one at least.
            count = min(most_rows - rows, int(np.searchsorted(ends, begin + most_bytes, side="right")), len(ends))
            if not count and rows:
                stretches.append(Stretch(begin, end, rows))
                begin, rows = end, 0
                continue
            count = max(1, count)
            rows, total, end, ends = rows + count, total + count, int(ends[count - 1]), ends[count:]
        if total > MOST_ROWS:
            raise InputError(f"{argument}={short(path)} has more than {MOST_ROWS:,} rows; give parts of it")
    if rows:
        stretches.append(Stretch(begin, end, rows))
    token = tokenize(where, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    stamp = stamp_of([(where, stat)], stat.st_mtime_ns)
    return Scanned(where, head.names, tuple(stretches), stamp, token)


def rows_of_csv(
    argument: str, path: str, n_cells: int, begin: int, end: int | None = None, first: int = 0
) -> Iterator[Cut]:
    """The rows of a CSV file between two bytes, some megabytes at a time, the first of them with the number `first`.

    Raises where a row has not as many cells as the header has names.
    """
    n_rows = first
    with _opened(path) as file, _decoded(argument, path):
        file.seek(begin)
        rest, start, last, left = b"", begin, False, sys.maxsize if end is None else end - begin
        while not last:
            new = file.read(min(_PIECE, left))
            left -= len(new)
            last = not new
            piece = rest + (new or (b"\n" if rest and not rest.endswith(b"\n") else b""))
            ends, commas = _rows(np.frombuffer(piece, dtype=np.uint8))
            wrong = np.flatnonzero(commas != n_cells - 1)
            if len(wrong):
                raise InputError(
                    f"{argument}={short(path)}: row {n_rows + int(wrong[0])} has {int(commas[wrong[0]]) + 1} cells, the header "
                    f"{n_cells}; correct the row (text with commas stands in quotation marks)"
                )
            # Blank rows at the end of a piece are gone through again, which counts none of them.
            done = int(ends[-1]) if len(ends) else 0
            rest = piece[done:]
            if len(ends):
                yield Cut(piece[:done], n_rows, ends + start, _told(file))
            n_rows += len(ends)
            start += done
            if len(rest) > LONGEST_ROW or (last and rest.strip(b"\r\n")):
                raise InputError(
                    f"{argument}={short(path)}: row {n_rows} does not end (a quotation mark that is not closed, or more than "
                    f"{LONGEST_ROW:,} bytes); correct the row"
                )


def _told(file: Any) -> int:
    """Bytes of a file on disk that are read by now."""
    inner: Any = file.fileobj if isinstance(file, gzip.GzipFile) else file
    return int(inner.tell())


def _ends(data: np.ndarray) -> np.ndarray:
    """The bytes behind the line breaks outside of quotation marks, in data that begins outside of them."""
    breaks = data == _BREAK
    quotes = data == _QUOTE
    if quotes.any():
        breaks &= np.cumsum(quotes, dtype=np.int32) % 2 == 0
    return np.flatnonzero(breaks) + 1


def _rows(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes behind the rows that are not blank, and the commas between the cells of each."""
    ends = _ends(data)
    if not len(ends):
        return ends, ends
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    blank = (lengths == 1) | ((lengths == 2) & (data[np.maximum(ends - 2, 0)] == _RETURN))
    commas = data == _COMMA
    quotes = data == _QUOTE
    if quotes.any():
        commas &= np.cumsum(quotes, dtype=np.int32) % 2 == 0
    counts = np.add.reduceat(commas[: ends[-1]].astype(np.int64), begins)
    return ends[~blank], counts[~blank]
