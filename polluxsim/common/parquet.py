"""Read Parquet files without file objects of Python.

pyarrow's threads may release a file after the call has returned. If a thread releases a file object of Python while the
process ends, Python ends the thread inside a destructor of C++, which aborts the process. So pyarrow opens the files.
It gets their names as bytes, which need not be UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some columns of it; columns that it lacks are left out."""
    with pa.OSFile(os.fsencode(path)) as file, pq.ParquetFile(file) as parquet:
        return parquet.read(columns)


def read_schema(path: Path) -> pa.Schema:
    """Read the names, types and metadata of the columns of a Parquet file."""
    with pa.OSFile(os.fsencode(path)) as file, pq.ParquetFile(file) as parquet:
        return parquet.schema_arrow
