"""Parquet files are read without file objects of Python."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.parquet import read_parquet
from polluxsim.common.tables import read_rows


def test_no_thread_of_pyarrow_holds_a_python_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file object of Python that pyarrow's threads release while the process ends aborts the process."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    sources: list[object] = []
    parquet_file = pq.ParquetFile

    def note_source(source: object) -> pq.ParquetFile:
        sources.append(source)
        return parquet_file(source)

    monkeypatch.setattr(pq, "ParquetFile", note_source)
    assert read_parquet(path).to_pydict() == {"a": [1]}
    assert [type(source) for source in sources] == [pa.OSFile]


def test_a_name_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"t\xe4ble.parquet")
    with path.open("wb") as file:
        pq.write_table(pa.table({"a": [1]}), file)
    assert read_parquet(path).to_pydict() == {"a": [1]}


def test_columns_that_the_file_lacks_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": [3.0, None]}), path)
    assert read_parquet(path, ["b", "c"]).to_pydict() == {"b": [3.0, None]}
    assert read_parquet(path).to_pydict() == {"a": [1, 2], "b": [3.0, None]}


def test_a_column_name_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(InvalidInputError, match="twice"):
        list(read_rows(path, ["a"]))
