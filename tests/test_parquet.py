"""Parquet files are read without threads that still hold the file when the call returns."""

from __future__ import annotations

import weakref
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.parquet import read_parquet
from polluxsim.common.tables import read_rows


def test_no_thread_holds_the_file_after_the_table_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pyarrow.parquet.read_table` fails this test, and processes that ended meanwhile were aborted."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({f"c{number}": list(range(1000)) for number in range(8)}), path, row_group_size=50)
    opened: list[weakref.ref[FileIO]] = []

    def open_and_note(path: Path, mode: str) -> FileIO:
        file = FileIO(path, mode)
        opened.append(weakref.ref(file))
        return file

    monkeypatch.setattr(Path, "open", open_and_note)
    held = 0
    for _ in range(100):
        read_parquet(path)
        held += opened[-1]() is not None
    assert (len(opened), held) == (100, 0)


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
