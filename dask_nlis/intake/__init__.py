"""The one door for data: open, check, align, name; and give results back in the container that came."""

from dask_nlis.intake.cell_words import number_of
from dask_nlis.intake.containers import Container, give_back
from dask_nlis.intake.csv_files import is_csv, pandas_for, parse_rows
from dask_nlis.intake.csv_scan import Cut, read_header, rows_of_csv
from dask_nlis.intake.flattened import flat_in_memory
from dask_nlis.intake.frames import LARGEST_INTEGER, is_dask_table, of_partitions
from dask_nlis.intake.links import is_within
from dask_nlis.intake.names import column_names, default_names, name_columns, with_names
from dask_nlis.intake.new_rows import NewRows, check_new, read_record, written_beside
from dask_nlis.intake.open_rows import open_rows
from dask_nlis.intake.open_table import columns_of, is_table
from dask_nlis.intake.opened import Opened, check_block_bytes, check_dtype, in_memory, open_array
from dask_nlis.intake.parquet_files import column_values
from dask_nlis.intake.parquet_footers import Footers, column_there, is_parquet, read_footers, short
from dask_nlis.intake.reader import Storage, stored_as
from dask_nlis.intake.retrying import brief
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
from dask_nlis.intake.standardize import Standardization, Standardized, moments_of, scales_of, standardize, together
from dask_nlis.intake.tables import read_table, write_table
from dask_nlis.intake.written import written_since
from dask_nlis.intake.zarr_files import open_stored, write_rows

__all__ = [
    "LARGEST_INTEGER",
    "Container",
    "Cut",
    "Footers",
    "NewRows",
    "Opened",
    "Rows",
    "ScoreRecord",
    "Standardization",
    "Standardized",
    "Storage",
    "block_name",
    "brief",
    "check_block_bytes",
    "check_dtype",
    "check_new",
    "column_names",
    "column_there",
    "column_values",
    "columns_of",
    "create_scores",
    "default_names",
    "flat_in_memory",
    "give_back",
    "in_memory",
    "is_csv",
    "is_dask_table",
    "is_parquet",
    "is_table",
    "is_within",
    "is_written",
    "leave_array",
    "left_array",
    "moments_of",
    "name_columns",
    "number_of",
    "of_partitions",
    "open_array",
    "open_rows",
    "open_stored",
    "pandas_for",
    "parse_rows",
    "read_footers",
    "read_header",
    "read_record",
    "read_table",
    "regular",
    "rows_of_csv",
    "scales_of",
    "scratch_scores",
    "short",
    "standardize",
    "stored_as",
    "take_in",
    "together",
    "with_names",
    "write_block",
    "write_rows",
    "write_scores",
    "write_table",
    "written_beside",
    "written_scores",
    "written_since",
]
