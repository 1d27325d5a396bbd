"""The record of how the columns of a table became columns of numbers."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_nlis.adapters.cells import CATEGORY, Cells, as_kind, cells_of, one_hot
from dask_nlis.errors import ChangedDataError, InputError, InputTypeError
from dask_nlis.intake import Standardization, column_there, is_dask_table, read_record
from dask_nlis.nouns import from_dict, noun, to_dict

#: Characters of a name and of a value in a message.
_SHOWN = 40


@noun
class Encoding:
    """How the columns of a table became features: numbers as they are, categories and text as columns of 0 and 1.

    Attributes
    ----------
    columns : tuple of str
        Columns of the table that features come from, in order.
    kinds : tuple of str
        Of each: "number", "bool" (0 and 1), or "category".
    categories : tuple of (tuple of str or None)
        Of each column of categories, those of the whole table in order; None for other columns.
    drop_first : bool
        Whether the first category has no column: with an intercept, the others tell it.
    target, sample_weight : str or None
        Columns of y and of the row weights.
    standardization : Standardization or None
        Means and scales, of columns of numbers alone, where they were standardised; 0 and 1 stay as they are.
    n_rows, n_dropped : int
        Rows that were written, and rows with a missing cell that were left out; 0 where no store was written.

    Examples
    --------
    >>> import pandas as pd, dask_nlis as nlis
    >>> table = pd.DataFrame({"carat": [0.3, 0.9], "cut": ["good", "ideal"]})
    >>> encoding = nlis.from_dataframe(table).encoding
    >>> encoding.feature_names
    ('carat', 'cut=ideal')
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    categories: tuple[tuple[str, ...] | None, ...]
    drop_first: bool = True
    target: str | None = None
    sample_weight: str | None = None
    standardization: Standardization | None = None
    n_rows: int = 0
    n_dropped: int = 0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features: those of the columns, `column=category` for a category."""
        names: list[str] = []
        for column, known in zip(self.columns, self.categories, strict=True):
            names += [column] if known is None else [f"{column}={each}" for each in known[self.drop_first :]]
        return tuple(names)

    def encode(self, table: Any) -> Any:
        """Encode another table in the same way, such as rows that came later.

        Parameters
        ----------
        table : DataFrame of pandas or Dask
            Has the columns; others are left out.

        Returns
        -------
        DataFrame
            Of float64, (n, number of features), with the index of the table; lazy for Dask. A missing cell is NaN in all
            columns of its column.

        Raises
        ------
        InputError
            If a column is missing, or holds a category that the encoding has not.
        InputTypeError
            If it holds something else than numbers, or text, as it should.

        Examples
        --------
        >>> import pandas as pd, dask_nlis as nlis
        >>> first = pd.DataFrame({"cut": ["good", "ideal", "good"]})
        >>> encoding = nlis.from_dataframe(first).encoding
        >>> encoding.encode(pd.DataFrame({"cut": ["ideal"]}))
           cut=ideal
        0        1.0
        """
        names = check_table("table", table)
        for name in self.columns:
            column_there("table", name, names, "the table")
        if is_dask_table(table):
            import pandas

            meta = pandas.DataFrame({k: np.empty(0) for k in range(len(self.feature_names))})
            meta.columns = pandas.Index(self.feature_names)
            return table.map_partitions(_encoded_part, self, names, meta=meta)
        return _encoded_part(table, self, names)

    def block(self, cells: Mapping[str, Cells], row: int = 0) -> np.ndarray:
        """Features (n, number of features) of rows from a row on, from the cells of each column."""
        parts = []
        for name, kind, known in zip(self.columns, self.kinds, self.categories, strict=True):
            found = as_kind(cells[name], kind)
            if (kind == CATEGORY) != (found.kind == CATEGORY):
                raise InputTypeError(
                    f"table column {name[:_SHOWN]!r} holds {found.kind} in place of {kind}; give a table of the same kinds"
                )
            if known is None:
                parts.append(found.values.reshape(-1, 1))
                continue

            def unknown(k: int, name: str = name, found: Cells = found) -> Exception:
                return InputError(
                    f"table column {name[:_SHOWN]!r} holds {found.words[found.values[k]][:_SHOWN]!r} at row {row + k}, no category of the "
                    "encoding; encode all data anew, or leave such rows out"
                )

            parts.append(one_hot(found, known, unknown)[:, int(self.drop_first) :])
        out = np.concatenate(parts, axis=1)
        if self.standardization is not None:
            out = (out - self.standardization.mean) / self.standardization.scale
        return out

    def to_raw(self, theta: Any) -> np.ndarray:
        """Turn theta of the standardised features into the one that gives the same index on features as they were.

        Without a standardisation theta is returned as it is. Of Linear and SingleIndex with an intercept alone.

        Parameters
        ----------
        theta : array_like of shape (d + 1,)
            coef (d,), then the intercept, in standardised units.

        Returns
        -------
        ndarray of shape (d + 1,), float64
            The same in the units of the columns.

        Raises
        ------
        InputError, InputTypeError
            If theta has another length, or holds no numbers.

        Examples
        --------
        >>> Encoding(("a",), ("number",), (None,)).to_raw([2.0, 1.0])
        array([2., 1.])
        """
        none = Standardization(np.zeros(len(self.feature_names)), np.ones(len(self.feature_names)))
        return (self.standardization or none).to_raw(theta)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as JSON values and NumPy arrays; `Encoding.from_dict` reads it back.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Encoding":
        """Rebuild an encoding from `to_dict`, its arrays as arrays or as the lists that JSON makes of them.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned.

        Returns
        -------
        Encoding
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no encoding, or its fields do not fit together.

        Examples
        --------
        >>> encoding = Encoding(("a",), ("number",), (None,), target="b")
        >>> Encoding.from_dict(encoding.to_dict()) == encoding
        True
        """
        made: Encoding = from_dict(found, {"Encoding": Encoding, "Standardization": Standardization}, typed=True)
        n, scaled = len(made.columns), made.standardization
        lengths = {n, len(made.kinds), len(made.categories)}
        if len(lengths) > 1 or (scaled is not None and scaled.mean.shape != (len(made.feature_names),)):
            raise InputError("Encoding is stored with fields of different lengths; write it anew with this version")
        return made

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Encoding":
        """Read the encoding back that `ingest` recorded in a store it wrote.

        Parameters
        ----------
        path : str or path
            The `out` of `ingest`.

        Returns
        -------
        Encoding
            Reads metadata only.

        Raises
        ------
        MissingDataError
            If there is no store at the path.
        InputError, InputTypeError
            If the store is another one, or the path none.

        Examples
        --------
        >>> import tempfile, pathlib, dask_nlis as nlis
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("size,price\\n1,5\\n2,6\\n")
        >>> written = nlis.ingest(folder / "a.csv", folder / "a.zarr", target="price")
        >>> nlis.Encoding.load(folder / "a.zarr") == written
        True
        """
        found = read_record("path", path).get("encoding")
        if not isinstance(found, dict):
            raise InputError(f"path={os.fspath(path)!r} holds no encoding; give the path of a store that ingest wrote")
        return Encoding.from_dict(found)

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"feature_names": self.feature_names, "target": self.target}
        more = {"sample_weight": self.sample_weight, "n_rows": self.n_rows, "n_dropped": self.n_dropped}
        shown |= {name: value for name, value in more.items() if value}
        return shown | ({"standardized": True} if self.standardization is not None else {})


def check_table(argument: str, table: Any) -> tuple[str, ...]:
    """Names of the columns of a DataFrame, or an error where it is none or two columns have one name."""
    of_pandas = type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "index")
    if not (of_pandas or is_dask_table(table)) or getattr(table, "ndim", 0) != 2:
        raise InputTypeError(f"{argument} is {type(table).__name__}; give a DataFrame of pandas or Dask")
    names = tuple(map(str, table.columns))
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise InputError(f"{argument} has two columns {twice[:_SHOWN]!r}; give each a name of its own")
    return names


def check_features(names: tuple[str, ...]) -> None:
    """Raise where two features would have one name, as a column `a=b` beside a category b of a column a."""
    twice = next((name for name, count in _counted(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"columns give two features {twice[:_SHOWN]!r}; rename a column, or leave one out")


def _counted(names: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _encoded_part(part: Any, encoding: Encoding, names: tuple[str, ...]) -> Any:
    import pandas

    cells = {
        name: cells_of("table", name, part.iloc[:, names.index(name)], as_words=kind == CATEGORY)
        for name, kind in zip(encoding.columns, encoding.kinds, strict=True)
    }
    if names != tuple(map(str, part.columns)):
        raise ChangedDataError("table has other columns in a partition than its metadata tell; make it anew")
    return pandas.DataFrame(encoding.block(cells), index=part.index, columns=list(encoding.feature_names))
