"""The data sets behind the golden values, with the encodings those were made with; standardised, ddof 0."""

import csv
import gzip
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_HERE = Path(__file__).parent / "data"
_CUT = ("Fair", "Good", "Very Good", "Premium", "Ideal")
_COLOR = "JIHGFED"
_CLARITY = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")


class Dataset(NamedTuple):
    """Standardised X (n, d) and y (n,)."""

    X: np.ndarray
    y: np.ndarray


def _columns(path: Any) -> dict[str, list[str]]:
    with path.open("rb") as packed, gzip.open(packed, "rt", newline="") as text:
        header, *rows = csv.reader(text)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _coded(values: list[str], order: Any = None) -> np.ndarray:
    """Position in `order`, alphabetical by default."""
    code = {value: k for k, value in enumerate(sorted(set(values)) if order is None else order)}
    return np.array([code[value] for value in values], dtype=np.float64)


def _numbers(table: dict[str, list[str]], *names: str) -> list[np.ndarray]:
    return [np.array(table[name], dtype=np.float64) for name in names]


def _insurance() -> tuple[list[np.ndarray], np.ndarray]:
    table = _columns(_HERE / "insurance.csv.gz")
    age, bmi, children, charges = _numbers(table, "age", "bmi", "children", "charges")
    sex, smoker, region = (_coded(table[name]) for name in ("sex", "smoker", "region"))
    return [age, sex, bmi, children, smoker, region], charges


def _diamonds() -> tuple[list[np.ndarray], np.ndarray]:
    table = _columns(_HERE / "diamonds.csv.gz")
    carat, *others, price = _numbers(table, "carat", "depth", "table", "x", "y", "z", "price")
    grades = [_coded(table[name], order) for name, order in (("cut", _CUT), ("color", _COLOR), ("clarity", _CLARITY))]
    return [carat, *grades, *others], price


def _california_table() -> dict[str, list[str]]:
    return _columns(files("dask_nlis.datasets") / "california_housing.csv.gz")


def _california() -> tuple[list[np.ndarray], np.ndarray]:
    names = ("median_income", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households")
    table = _california_table()
    income, age, rooms, bedrooms, population, households = _numbers(table, *names)
    latitude, longitude, value = _numbers(table, "latitude", "longitude", "median_house_value")
    ratios = [rooms / households, bedrooms / households, population, population / households]
    return [income, age, *ratios, latitude, longitude], value


def _california_raw() -> tuple[list[np.ndarray], np.ndarray]:
    table = _california_table()
    *columns, value = _numbers(table, *table)  # the file's order, the target last
    return columns, value


_LOADERS = {
    "insurance": _insurance,
    "california": _california,
    "california_raw": _california_raw,
    "diamonds": _diamonds,
}
NAMES = tuple(_LOADERS)


@cache
def load(name: str) -> Dataset:
    """Load one of `NAMES`, every column and the target centred and over its population standard deviation."""
    columns, y = _LOADERS[name]()
    X = np.column_stack(columns)
    data = Dataset((X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std())
    for array in data:
        array.setflags(write=False)
    return data


@cache
def golden(name: str) -> dict[str, Any]:
    """Return the golden values of a data set."""
    with (_HERE / "golden_scores.json").open(encoding="utf-8") as text:
        values: dict[str, Any] = json.load(text)[name]
    return values
