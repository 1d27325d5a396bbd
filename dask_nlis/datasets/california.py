"""California housing, shipped with the package.

Source: Pace & Barry (1997), "Sparse spatial autoregressions", StatLib `cal_housing`, 1990 US census block
groups; text copy from GitHub lapets/course-data-science (cal_housing.data). StatLib public data; no formal
licence is stated. 20,640 rows, no missing values.
"""

import gzip
from importlib.resources import files

import dask.array as da
import numpy as np
from dask.base import tokenize

from dask_nlis.errors import InputError
from dask_nlis.intake import name_columns

FEATURES = ("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude", "Longitude")


def california_housing(*, standardized: bool = False, block_rows: int = 4096) -> tuple[da.Array, da.Array]:
    """Load California housing: X (20640, 8) and the median house value y (20640,), as Dask arrays.

    The columns are scikit-learn's eight: MedInc (10,000 dollars of 1990), HouseAge (years), AveRooms and AveBedrms
    (a household), Population (persons), AveOccup (persons a household), Latitude and Longitude (degrees); y is in
    dollars. Feature names travel along. Reads a file of 0.4 MB in the package.

    Parameters
    ----------
    standardized : bool, default False
        Centre and scale X and y (population standard deviation).
    block_rows : int, default 4096
        Rows of a Dask block.

    Returns
    -------
    X, y : dask.array.Array of shape (20640, 8), dask.array.Array of shape (20640,)
        In float64.

    Raises
    ------
    InputError
        If block_rows is no positive integer.

    Notes
    -----
    Pace & Barry (1997), StatLib `cal_housing`; 1990 US census block groups. MedInc is in tens of thousands of
    dollars as in the source.

    Examples
    --------
    >>> X, y = california_housing()
    >>> X.shape, y.shape, X.numblocks
    ((20640, 8), (20640,), (6, 1))
    """
    if isinstance(block_rows, bool) or not isinstance(block_rows, int) or block_rows < 1:
        raise InputError(f"block_rows={block_rows!r} is not allowed; give a positive integer")
    with (files("dask_nlis.datasets") / "california_housing.csv.gz").open("rb") as packed, gzip.open(packed) as text:
        raw = np.loadtxt(text, delimiter=",", skiprows=1, encoding="ascii")
    longitude, latitude, age, rooms, bedrooms, population, households, income, value = raw.T
    table = np.column_stack(
        [
            income,
            age,
            rooms / households,
            bedrooms / households,
            population,
            population / households,
            latitude,
            longitude,
        ]
    )
    if standardized:
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        value = (value - value.mean()) / value.std()
    token = tokenize("california", standardized, block_rows)
    X = da.from_array(table, chunks=(block_rows, 8), name=f"california-x-{token}")
    y = da.from_array(np.ascontiguousarray(value), chunks=block_rows, name=f"california-y-{token}")
    return name_columns(X, FEATURES), y
