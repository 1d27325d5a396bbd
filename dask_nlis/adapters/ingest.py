"""A table in CSV or Parquet files -> a Zarr group of X, y and row weights, in two passes of bounded memory."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_nlis.adapters.cells import CATEGORY, NUMBER, as_kind
from dask_nlis.adapters.dataframes import check_options
from dask_nlis.adapters.encoding import Encoding, check_features
from dask_nlis.adapters.pieces import Piece, Source, open_source
from dask_nlis.adapters.survey import Asked, Survey, asked_for, check_rows, surveyed
from dask_nlis.blocks import block_rows
from dask_nlis.errors import ChangedDataError, InputError, InputTypeError, NonFiniteError
from dask_nlis.intake import (
    NewRows,
    Standardization,
    check_block_bytes,
    check_new,
    is_within,
    scales_of,
    written_beside,
)
from dask_nlis.versions import versions_here
from dask_nlis.watch import Advance, Compute, watched

#: Bytes that one task of the progress bar stands for, and bytes of features that are made at a time.
_TASK, _BLOCK = 2**20, 2**24


def ingest(
    table: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    target: str | None = None,
    sample_weight: str | None = None,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    na: str | Sequence[str] = (),
    drop_first: bool = True,
    standardize: bool = False,
    missing: str = "raise",
    max_categories: int = 100,
    dtype: str = "float64",
    block_bytes: int | None = None,
) -> Encoding:
    """Write a table (n rows) in CSV or Parquet files as a Zarr group for `open_rows` and `dask-nlis run`: two reads of it.

    The group holds `X` (n, d), with the names of the features, `y` and `weight` where asked for, in chunks with a checksum.
    The first pass finds kinds, categories, missing cells, means and scales; the second writes. Memory is that of a chunk and
    of some megabytes of the table, whatever its length. The group is written beside `out` and moved there in the end.

    Parameters
    ----------
    table : str or path
        A file that ends in .csv (UTF-8, commas, names in the first row), .csv.gz or .parquet, or a folder of Parquet files
        with the same columns, in natural order of their names.
    out : str or path
        Folder to be made.
    target, sample_weight : str, optional
        Columns of y and of the row weights, of numbers.
    columns : str or sequence of str, optional
        Columns to make X of; by default all but these two.
    exclude : str or sequence of str
        Columns that are left out.
    categorical : str or sequence of str
        Columns of numbers that stand for groups, such as codes of towns: taken as text.
    na : str or sequence of str
        Words of a CSV file that stand for a missing cell, besides the empty one, NA, NaN, null and the like.
    drop_first : bool, default True
        Leave the first category of each column out, as in `from_dataframe`.
    standardize : bool, default False
        Centre and scale columns of numbers; columns of 0 and 1 and y stay as they are. `Encoding.to_raw` is the way back.
    missing : {"raise", "drop"}
        What to do with rows that have a missing or infinite cell.
    max_categories : int, default 100
        A column of text with more values is refused: it may name the rows.
    dtype : {"float64", "float32"}
        Of X as it is stored.
    block_bytes : int, optional
        Bytes of a chunk of X; 64 MB by default, from the Dask config key `dask-nlis.block-bytes`.

    Returns
    -------
    Encoding
        How features were made, with the rows written and left out; `Encoding.load(out)` reads it back.

    Raises
    ------
    InputError
        If there is no such column, a column has too many categories, the table is empty, or a file is no table.
    InputTypeError
        If a column holds a word among numbers, dates or lists, or the target is text; the first such cell is named.
    NonFiniteError
        If a cell is missing and `missing` is "raise"; the first one and the number of rows are named.
    MissingDataError
        If a file, or the folder of `out`, is not there.
    StoreExistsError
        If there is something at `out`.

    Examples
    --------
    >>> import tempfile, pathlib, dask_nlis as nlis
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("size,color,price\\n1,red,5\\n2,blue,6\\n3,red,9\\n")
    >>> nlis.ingest(folder / "a.csv", folder / "a.zarr", target="price")
    Encoding(feature_names=('size', 'color=red'), target='price', n_rows=3)
    >>> X, y = nlis.open_rows(folder / "a.zarr", X="X", y="y")
    >>> X.compute()
    array([[1., 1.],
           [2., 0.],
           [3., 1.]])
    """
    check_options(drop_first, max_categories)
    _check_choice("missing", missing, ("raise", "drop"))
    _check_choice("dtype", dtype, ("float64", "float32"))
    if not isinstance(standardize, bool | np.bool_):
        raise InputTypeError(f"standardize={standardize!r} is {type(standardize).__name__}; give True or False")
    size = check_block_bytes(block_bytes)
    where = check_new("out", out)
    source = open_source(table)
    if os.path.isdir(table) and is_within(str(where), os.fspath(table)):
        raise InputError(f"out={str(where)!r} lies in the folder of the table; give another path")
    asked = asked_for(source, target, sample_weight, columns, exclude, categorical, na)
    with _progress(2 * source.n_bytes) as told:
        survey = surveyed(source, asked, max_categories, bool(standardize), told)
        check_rows(survey, missing)
        encoding = _encoding(asked, survey, bool(drop_first))
        d = len(encoding.feature_names)
        chunk = block_rows(encoding.n_rows, d * np.dtype(dtype).itemsize, 1, size)
        with written_beside(where) as folder:
            store = NewRows(folder, encoding.n_rows, chunk)
            store.add_array("X", (d,), dtype, {"feature_names": list(encoding.feature_names)})
            for name in asked.beside.values():
                store.add_array(name, (), "float64")
            _write(source, asked, encoding, survey, store, told)
            record = {
                "encoding": _listed(encoding.to_dict()),
                "versions": versions_here(),
                "table": os.path.basename(os.fspath(table)),
            }
            store.finish(record)
    return encoding


def _check_choice(argument: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give {' or '.join(map(repr, allowed))}")
    if value not in allowed:
        raise InputError(f"{argument}={value[:40]!r} is not allowed; give {' or '.join(map(repr, allowed))}")


def _encoding(asked: Asked, survey: Survey, drop_first: bool) -> Encoding:
    kinds = tuple(survey.seen[name].kind for name in asked.features)
    known = tuple(
        tuple(sorted(survey.seen[name].words)) if kind == CATEGORY else None
        for name, kind in zip(asked.features, kinds, strict=True)
    )
    plain = Encoding(asked.features, kinds, known, drop_first, asked.target, asked.sample_weight)
    check_features(plain.feature_names)
    if not plain.feature_names:
        raise InputError(
            "columns hold one category each, which drop_first leaves out; give other columns, or drop_first=False"
        )
    kept = survey.n_rows - survey.n_incomplete
    scaled = None if survey.moments is None else _standardization(plain, *survey.moments)
    return Encoding(
        *(plain.columns, plain.kinds, plain.categories, drop_first, asked.target, asked.sample_weight),
        standardization=scaled,
        n_rows=kept,
        n_dropped=survey.n_incomplete,
    )


def _standardization(plain: Encoding, mean: np.ndarray, std: np.ndarray) -> Standardization:
    """Means and scales of all features: 0 and 1 of those that are no numbers."""
    widths = [1 if each is None else len(each[plain.drop_first :]) for each in plain.categories]
    numbers = np.repeat([kind == NUMBER for kind in plain.kinds], widths)
    means, scales = np.zeros(len(numbers)), np.ones(len(numbers))
    among = np.array([kind == NUMBER for kind in plain.kinds if kind != CATEGORY])  # 0 and 1 stay as they are
    means[numbers], scales[numbers] = mean[among], scales_of(mean, std)[among]
    if not (np.isfinite(means).all() and np.isfinite(scales).all()):
        name = plain.feature_names[int(np.argmin(np.isfinite(means) & np.isfinite(scales)))]
        raise NonFiniteError(
            f"table column {name[:40]!r} holds values that overflow when they are squared; scale it first"
        )
    return Standardization(means, scales)


def _write(
    source: Source, asked: Asked, encoding: Encoding, survey: Survey, store: NewRows, told: Callable[[int], None]
) -> None:
    n_rows = 0
    words = [name for name, kind in zip(encoding.columns, encoding.kinds, strict=True) if kind == CATEGORY]
    for piece in source.pieces(asked.used, words, asked.na):
        for rows in _features(piece, asked, encoding):
            n_rows += len(rows["X"])
            if n_rows > encoding.n_rows:
                raise _changed()
            store.add_rows(rows)
        told(source.n_bytes + piece.read)
    if n_rows != encoding.n_rows:
        raise _changed()


def _changed() -> ChangedDataError:
    return ChangedDataError("table changed between the two passes over it; run again when it is complete")


def _features(piece: Piece, asked: Asked, encoding: Encoding) -> Iterator[dict[str, np.ndarray]]:
    """X, y and weights of the complete rows of a piece, some at a time: a word may become very many columns."""
    complete = np.flatnonzero(~np.logical_or.reduce([cells.missing for cells in piece.cells.values()]))
    kinds = dict(zip(encoding.columns, encoding.kinds, strict=True)) | dict.fromkeys(asked.beside, NUMBER)
    cells = {name: as_kind(each, kinds[name]) for name, each in piece.cells.items()}
    step = max(1, _BLOCK // (8 * len(encoding.feature_names)))
    for start in range(0, len(complete), step):
        kept = {name: each.taken(complete[start : start + step]) for name, each in cells.items()}
        yield {"X": encoding.block(kept, piece.first)} | {
            name: kept[column].values.astype(np.float64) for column, name in asked.beside.items()
        }


@contextmanager
def _progress(n_bytes: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over bytes, told how many are read by now."""
    done = 0
    with watched(Compute("nlis-ingest", -(-n_bytes // _TASK), 0, n_bytes, "one thread", None, None)) as advance:

        def told(read: int) -> None:
            nonlocal done
            done = _advanced(advance, done, read // _TASK)

        yield told
        _advanced(advance, done, -(-n_bytes // _TASK))


def _advanced(advance: Advance, done: int, now: int) -> int:
    if now > done:
        advance(now - done)
    return max(done, now)


def _listed(value: Any) -> Any:
    """A dictionary form with lists in place of arrays, as JSON takes it."""
    if isinstance(value, dict):
        return {name: _listed(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
