"""The one door for data: open, check, align, name; and give results back in the container that came."""

from dask_nlis.intake.containers import Container, give_back
from dask_nlis.intake.names import column_names, default_names, name_columns, with_names
from dask_nlis.intake.open_rows import open_rows
from dask_nlis.intake.opened import LARGEST_INTEGER, Opened, check_block_bytes, check_dtype, in_memory, open_array
from dask_nlis.intake.reader import Storage, stored_as
from dask_nlis.intake.rows import Rows, take_in
from dask_nlis.intake.score_files import (
    ScoreRecord,
    block_name,
    create_scores,
    is_written,
    regular,
    scratch_scores,
    write_block,
    write_scores,
    written_scores,
)
from dask_nlis.intake.scratch import leave_array, left_array
from dask_nlis.intake.standardize import Standardization, Standardized, standardize
from dask_nlis.intake.tables import read_table, write_table
from dask_nlis.intake.written import written_since
from dask_nlis.intake.zarr_files import open_stored, write_rows

__all__ = [
    "LARGEST_INTEGER",
    "Container",
    "Opened",
    "Rows",
    "ScoreRecord",
    "Standardization",
    "Standardized",
    "Storage",
    "block_name",
    "check_block_bytes",
    "check_dtype",
    "column_names",
    "create_scores",
    "default_names",
    "give_back",
    "in_memory",
    "is_written",
    "leave_array",
    "left_array",
    "name_columns",
    "open_array",
    "open_rows",
    "open_stored",
    "read_table",
    "regular",
    "scratch_scores",
    "standardize",
    "stored_as",
    "take_in",
    "with_names",
    "write_block",
    "write_rows",
    "write_scores",
    "write_table",
    "written_scores",
    "written_since",
]
