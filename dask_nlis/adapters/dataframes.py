"""A DataFrame with columns of all kinds -> X, y and row weights, with categories fixed over the whole data."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_nlis import phase
from dask_nlis.adapters.cells import BOOL, CATEGORY, NUMBER, Seen, cells_of, check_count
from dask_nlis.adapters.encoding import Encoding, check_features, check_table
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import column_there, is_dask_table, of_partitions
from dask_nlis.kernels.numbers import is_whole

#: What Dask puts among the categories of a column whose categories are not known.
UNKNOWN = "__UNKNOWN_CATEGORIES__"

_REMEDY = "make numbers of it (pandas.to_numeric(errors='coerce')), or a category (.astype('category'))"


class Encoded(NamedTuple):
    """X, y and row weights of a table, and the `Encoding` that made X; columns that were not asked for are None.

    Attributes
    ----------
    X : DataFrame (n, d), float64
        Features, with the index of the table; lazy for Dask.
    y, sample_weight : Series (n,) or None
        Labels and row weights as they were.
    encoding : Encoding
        How X was made; `encode` does the same to other rows.

    Examples
    --------
    >>> import pandas as pd
    >>> X, y, weights, encoding = from_dataframe(pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}), target="b")
    >>> list(X), y.tolist(), weights
    (['a'], [3.0, 4.0], None)
    """

    X: Any
    y: Any
    sample_weight: Any
    encoding: Encoding


def from_dataframe(
    table: Any,
    features: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    sample_weight: str | None = None,
    drop_first: bool = True,
    max_categories: int = 100,
) -> Encoded:
    """Take X, y and row weights out of a DataFrame (n rows), text and categories as columns of 0 and 1.

    Numbers and bools, nullable ones too, stay one column each. Categories and text become a column a category, named
    `color=red`, with the categories of the whole table: those a categorical dtype declares, in its order, else those that
    occur, sorted. Of a Dask table, reads nothing but columns of text and categories that are not known, once at the call; the
    rest is lazy, and every partition gets the same columns.

    Parameters
    ----------
    table : DataFrame of pandas or Dask
        Whose columns have different names.
    features : str or sequence of str, optional
        Columns to make X of; by default all but `target` and `sample_weight`.
    target, sample_weight : str, optional
        Columns of y and of the row weights, of numbers.
    drop_first : bool, default True
        Leave the first category of each column out. All columns of one categorical add up to 1, which is the intercept
        of the models: with all of them no coefficient is determined. False suits models without an intercept.
    max_categories : int, default 100
        A column with more is refused: it may name the rows.

    Returns
    -------
    Encoded
        X a DataFrame of float64, y and sample_weight Series as they were, all with the index of the table and lazy for
        Dask; they go straight to the matrix functions and `run`. `encoding.encode` does the same to other rows.

    Raises
    ------
    InputError
        If a column is not there, has too many categories, or two features would have one name.
    InputTypeError
        If a column holds dates, objects of several kinds, or a word among numbers; the first such cell is named.

    Examples
    --------
    >>> import pandas as pd, dask_nlis as nlis
    >>> table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "color": ["red", "blue", "red"], "price": [5.0, 6.0, 9.0]})
    >>> X, y, _, encoding = nlis.from_dataframe(table, target="price")
    >>> X
       size  color=red
    0   1.0        1.0
    1   2.0        0.0
    2   3.0        1.0
    """
    names = check_table("table", table)
    check_options(drop_first, max_categories)
    chosen = choose(features, target, sample_weight, names)
    positions = {name: names.index(name) for name in chosen}
    found = _kinds(table, positions, max_categories)
    for argument, name in (("target", target), ("sample_weight", sample_weight)):
        if name is not None:
            _check_numbers(argument, name, table.dtypes.iloc[names.index(name)])
    encoding = Encoding(
        chosen,
        tuple(kind for kind, _ in found.values()),
        tuple(known for _, known in found.values()),
        bool(drop_first),
        target,
        sample_weight,
    )
    check_features(encoding.feature_names)
    y, weights = (None if name is None else table.iloc[:, names.index(name)] for name in (target, sample_weight))
    if is_dask_table(table):
        y, weights = (
            None if name is None else table[table.columns[names.index(name)]] for name in (target, sample_weight)
        )
    return Encoded(encoding.encode(table), y, weights, encoding)


def check_options(drop_first: Any, max_categories: Any) -> None:
    """Raise where options that ingest shares are none."""
    if not isinstance(drop_first, bool | np.bool_):
        raise InputTypeError(f"drop_first={drop_first!r} is {type(drop_first).__name__}; give True or False")
    if not is_whole(max_categories):
        raise InputTypeError(
            f"max_categories={max_categories!r} is {type(max_categories).__name__}; give a positive integer"
        )
    if max_categories < 1:
        raise InputError(f"max_categories={max_categories} is not allowed; give a positive integer")


def choose(
    features: Any,
    target: Any,
    sample_weight: Any,
    names: Sequence[str],
    argument: str = "features",
    where: str = "table",
) -> tuple[str, ...]:
    """Columns of X: those given, or all but y and the weights; raises where one is not there or is named twice."""
    taken = {"target": target, "sample_weight": sample_weight}
    for each, name in taken.items():
        if name is not None:
            column_there(each, name, names, where)
    if target is not None and target == sample_weight:
        raise InputError(f"sample_weight={target!r} is the target; give another column")
    if features is None:
        given = tuple(name for name in names if name not in taken.values())
    elif isinstance(features, str):
        given = (features,)
    elif isinstance(features, list | tuple):
        given = tuple(features)
    else:
        raise InputTypeError(f"{argument} is {type(features).__name__}; give names of columns, or leave it out")
    if not given:
        raise InputError(f"{argument} are none: {where} has no column for X; give one at least")
    for name in given:
        column_there(argument, name, names, where)
        if given.count(name) > 1:
            raise InputError(f"{argument} names {name[:40]!r} twice; name each column once")
        role = next((each for each, other in taken.items() if other == name), None)
        if role is not None:
            raise InputError(f"{argument} names {name[:40]!r}, which is {role}; leave it out")
    return given


def _check_numbers(argument: str, name: str, dtype: Any) -> None:
    if getattr(dtype, "kind", "O") not in "biuf":
        raise InputTypeError(f"{argument}={name[:40]!r} has dtype {str(dtype)[:40]}; give a column of numbers")


_Found = dict[str, tuple[str, tuple[str, ...] | None]]


def _kinds(table: Any, positions: dict[str, int], max_categories: int) -> _Found:
    """The kind of each column, and its categories in order."""
    found: _Found = {}
    open_ones: list[str] = []
    for name, k in positions.items():
        dtype = table.dtypes.iloc[k]
        kind = getattr(dtype, "kind", "O")
        known = _declared(dtype)
        if known is not None:
            _check_declared(name, known, max_categories)
            found[name] = CATEGORY, known
        elif kind in "biuf":
            found[name] = (BOOL if kind == "b" else NUMBER), None
        elif kind in "OUTS":
            open_ones.append(name)
        else:
            cells_of("table", name, table.iloc[:0, k] if not is_dask_table(table) else table._meta.iloc[:, k])
    for name, seen in _seen(table, {name: positions[name] for name in open_ones}, max_categories).items():
        seen.check("table", name, max_categories, _REMEDY)
        found[name] = seen.kind, tuple(sorted(seen.words)) if seen.kind == CATEGORY else None
    return {name: found[name] for name in positions}


def _seen(table: Any, positions: dict[str, int], max_categories: int) -> dict[str, Seen]:
    """What columns of objects hold; of Dask by one read of those columns."""
    if not positions or not is_dask_table(table):
        return _seen_in(table, positions)
    part = table[[table.columns[k] for k in positions.values()]]
    array = of_partitions("table", part, _block_seen, {name: k for k, name in enumerate(positions)}, max_categories)
    together: dict[str, Seen] = {name: Seen(typed=True) for name in positions}
    row = 0
    for block in phase.blocks_of(array, "nlis-categories"):
        n_rows, found = block[0]
        for name, seen in found.items():
            together[name].join(seen, row)
        row += n_rows
    return together


def _seen_in(part: Any, positions: dict[str, int]) -> dict[str, Seen]:
    found = {}
    for name, k in positions.items():
        found[name] = Seen(typed=True)
        found[name].add(cells_of("table", name, part.iloc[:, k]), 0)
    return found


def _block_seen(part: Any, positions: dict[str, int], max_categories: int) -> np.ndarray:
    """What a partition holds; words that are too many already are not sent anywhere."""
    found = _seen_in(part, positions)
    for name, seen in found.items():
        if not (seen.kinds or seen.looks_like_numbers):
            check_count("table", name, len(seen.words), max_categories, f" in {len(part):,} rows")
    out = np.empty(1, dtype=object)
    out[0] = len(part), found
    return out


def _declared(dtype: Any) -> tuple[str, ...] | None:
    """Categories that a dtype declares, as text; None where it is none, or they are not known."""
    categories = getattr(dtype, "categories", None)
    if categories is None:
        return None
    known = tuple(map(str, categories))
    return None if UNKNOWN in known else known


def _check_declared(name: str, known: tuple[str, ...], max_categories: int) -> None:
    check_count("table", name, len(known), max_categories)
    if len(set(known)) < len(known):
        raise InputError(f"table column {name[:40]!r} has two categories of one name; rename one")
