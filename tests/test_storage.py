"""Run folders that were written before some columns were recorded."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from polluxsim.app.cli import main
from polluxsim.errors import InvalidInputError
from polluxsim.records import AllocationRecord, JobRecord, RoundRecord
from polluxsim.storage import read_reasons, read_run

TABLES = {"jobs": JobRecord, "rounds": RoundRecord, "allocations": AllocationRecord}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert main(["run", "policy=fifo", "workload=one-job", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    return tmp_path / "run"


def drop(path: Path, *columns: str) -> None:
    pq.write_table(pq.read_table(path).drop_columns(list(columns)), path)


def test_a_folder_with_fewer_columns_is_read_with_the_defaults(folder: Path) -> None:
    new = read_run(folder).result
    assert new.job_records[0].finish_time_fairness is not None
    for name, record in TABLES.items():
        drop(folder / f"{name}.parquet", *record._field_defaults)
    (folder / "reasons.parquet").unlink()
    old = read_run(folder).result
    assert old.job_records == tuple(job._replace(**JobRecord._field_defaults) for job in new.job_records)
    assert old.round_records == tuple(record._replace(**RoundRecord._field_defaults) for record in new.round_records)
    assert old.allocation_records == new.allocation_records
    assert read_reasons(folder) is None
    out = folder.parent
    for command in (
        ("table", folder),
        ("why", folder, old.job_records[0].job),
        ("report", folder, "-o", out / "report.html"),
        ("trace", folder, "-o", out / "trace.json"),
    ):
        assert main([str(word) for word in command]) == 0


def test_a_column_without_a_default_is_needed(folder: Path) -> None:
    drop(folder / "jobs.parquet", "jct")
    with pytest.raises(InvalidInputError, match=r"jobs\.parquet: not a table of a polluxsim run"):
        read_run(folder)
