"""Columns of Arrow from buffers: what `pyarrow.array` makes, without what it loads."""

from __future__ import annotations

import subprocess
import sys
from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.records.tables import arrow_column

if TYPE_CHECKING:
    from pathlib import Path

TEXTS, WHOLES, NUMBERS = st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
KINDS = [
    (pa.string(), st.none() | TEXTS),
    (pa.int64(), st.none() | WHOLES),
    (pa.float64(), st.none() | NUMBERS),
    (pa.list_(pa.int64()), st.lists(WHOLES).map(tuple)),
    (pa.list_(pa.string()), st.lists(TEXTS).map(tuple)),
    (pa.map_(pa.string(), pa.float64()), st.lists(st.tuples(TEXTS, NUMBERS)).map(tuple)),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
@given(data=st.data())
def test_a_column_is_what_pyarrow_makes(kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(values, max_size=20))
    column = arrow_column(rows, kind)
    column.validate(full=True)
    assert column.equals(pa.array(rows, type=kind))
    assert column.null_count == rows.count(None)


def test_numbers_of_an_array_are_taken_as_they_are() -> None:
    assert arrow_column(array("d", [1.5, -2.0]), pa.float64()).to_pylist() == [1.5, -2.0]


def test_a_run_does_not_load_pandas(tmp_path: Path) -> None:
    run = f"'run', 'policy=fifo', 'workload.num_jobs=3', 'hydra.run.dir={tmp_path}/run'"
    code = f"import sys; from polluxsim.cli.main import main; main([{run}]); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split()[-1] == "False"
