"""Read Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some columns of it; columns that it lacks are left out.

    The file is opened here, because pyarrow takes only names in UTF-8. It is not read by `pyarrow.parquet.read_table`
    or `pandas.read_parquet`: threads of theirs release the file after the table was returned. If the process ends
    meanwhile, Python ends such a thread inside a destructor of C++, which aborts the process.
    """
    with path.open("rb") as file, pq.ParquetFile(file) as parquet:
        return parquet.read(columns)
