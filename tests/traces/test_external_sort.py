"""Sorting on disk gives what sorting in memory gives, ties in the order they came."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.traces import sorting
from polluxsim.traces.sorting import ExternalSort

SCHEMAS = {
    "number": pa.schema([("key", pa.float64()), ("row", pa.int64())]),
    "text": pa.schema([("key", pa.string()), ("row", pa.int64())]),
}

numbers = st.lists(st.integers(0, 20).map(float) | st.floats(-1e11, 1e11), max_size=200)
texts = st.lists(st.text(max_size=3), max_size=200)


@settings(max_examples=150, deadline=None)
@given(
    keys=st.one_of(numbers.map(lambda keys: ("number", keys)), texts.map(lambda keys: ("text", keys))),
    run=st.integers(1, 40),
    batch=st.integers(1, 8),
    piece=st.integers(1, 50),
)
def test_as_in_memory(keys, run, batch, piece, tmp_path_factory):
    kind, values = keys
    with (
        pytest.MonkeyPatch.context() as patch,
        ExternalSort(SCHEMAS[kind], "key", tmp_path_factory.getbasetemp()) as rows,
    ):
        patch.setattr(sorting, "RUN_ROWS", run)
        patch.setattr(sorting, "BATCH_ROWS", batch)
        pairs = list(zip(values, range(len(values)), strict=True))
        for first in range(0, len(pairs), piece):
            columns = [list(column) for column in zip(*pairs[first : first + piece], strict=True)]
            rows.add(
                pa.record_batch(
                    [pa.array(c, t) for c, t in zip(columns, SCHEMAS[kind].types, strict=True)],
                    schema=SCHEMAS[kind],
                )
            )
        merged = [(key, row) for table in rows.merged() for key, row in zip(*table.to_pydict().values(), strict=True)]
    assert rows.num_rows == len(values)
    assert merged == sorted(pairs, key=lambda pair: pair[0])


def test_holds_little_of_what_it_sorts(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "RUN_ROWS", 1000)
    monkeypatch.setattr(sorting, "BATCH_ROWS", 10)
    with ExternalSort(SCHEMAS["number"], "key", tmp_path) as rows:
        for number in range(20):
            keys = [float((row * 7919 + number) % 1000) for row in range(1000)]
            rows.add(pa.record_batch([pa.array(keys), pa.array(range(1000))], schema=SCHEMAS["number"]))
            assert rows._pending_rows == 0
        sizes = [table.num_rows for table in rows.merged()]
    assert sum(sizes) == 20_000
    assert max(sizes) <= 20 * 10


def test_leaves_no_file(tmp_path):
    with ExternalSort(SCHEMAS["number"], "key", tmp_path) as rows:
        rows.add(pa.record_batch([pa.array([1.0]), pa.array([0])], schema=SCHEMAS["number"]))
    assert list(tmp_path.iterdir()) == []
