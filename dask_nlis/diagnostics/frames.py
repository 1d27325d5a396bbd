"""pandas, for tables that become DataFrames; it is imported where one does."""

from types import ModuleType

from dask_nlis.errors import MissingExtraError


def pandas() -> ModuleType:
    """The library, or one line that says what to install."""
    try:
        import pandas as pd
    except ImportError as cause:
        raise MissingExtraError("to_frame needs pandas; pip install 'dask-nlis[dataframe]'") from cause
    found: ModuleType = pd
    return found
