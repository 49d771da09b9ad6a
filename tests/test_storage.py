"""Run folders that were written before some columns were recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from older_runs import forget_files

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.records.results import AllocationRecord, JobRecord, RoundRecord
from polluxsim.records.storage import read_reasons, read_run, read_timings

TABLES = {"jobs": JobRecord, "rounds": RoundRecord, "allocations": AllocationRecord}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert main(["run", "policy=fifo", "workload=one-job", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    forget_files(tmp_path / "run")
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
        ("timeline", folder, "-o", out / "trace.json"),
    ):
        assert main([str(word) for word in command]) == 0


def test_a_column_without_a_default_is_needed(folder: Path) -> None:
    drop(folder / "jobs.parquet", "jct")
    with pytest.raises(InvalidInputError, match=r"jobs\.parquet: not a table of a polluxsim run"):
        read_run(folder)


def test_a_run_is_saved_in_the_folder_one_is_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = polluxsim.read(folder)
    inside = folder.parent / "here" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    for name in (".", ".."):
        run.save(name)
        assert polluxsim.read(name).result == run.result
    assert not list(folder.parent.glob("here/**/.*.tmp"))


def damage(path: Path, column: str, value: object) -> None:
    """Put a value into the first row of a table."""
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    values = table.column(column).to_pylist()
    values[0] = value
    pq.write_table(
        table.set_column(place, table.schema.field(column), pa.array(values, table.schema.types[place])), path
    )


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("jobs", "status", "x", "line 1: column 'status' is 'x', must be one of completed, cut off"),
        ("jobs", "job", None, "line 1: column 'job' is None, must be a value"),
        (
            "jobs",
            "submit_time",
            float("nan"),
            "line 1: column 'submit_time' is nan, must be a number of seconds up to 1e+16",
        ),
        ("jobs", "completion_time", float("inf"), "line 1: column 'completion_time' is inf"),
        ("jobs", "gpu_seconds", float("nan"), "line 1: column 'gpu_seconds' is nan, must be a number up to 1e+28"),
        (
            "jobs",
            "finish_time_fairness",
            float("inf"),
            "line 1: column 'finish_time_fairness' is inf, must be a num",
        ),
        ("jobs", "submit_time", float("inf"), "line 1: column 'submit_time' is inf, must be a time before start_t"),
        ("jobs", "submit_time", float("-inf"), "line 1: column 'submit_time' is -inf"),
        ("rounds", "time", float("nan"), "line 1: column 'time' is nan"),
        ("rounds", "gpus_in_use", None, "line 1: column 'gpus_in_use' is None"),
        ("allocations", "time", float("-inf"), "line 1: column 'time' is -inf"),
        ("allocations", "nodes", [0, None], "line 1: column 'nodes' is [0, None], must be without missing values"),
        ("allocations", "nodes", [0, 1], "line 1: column 'gpus' is [1], must be as long as nodes"),
        ("allocations", "nodes", None, "line 1: column 'nodes' is None"),
    ],
)
def test_a_damaged_table_is_named(folder: Path, table: str, column: str, value: object, message: str) -> None:
    damage(folder / f"{table}.parquet", column, value)
    with pytest.raises(InvalidInputError, match=re.escape(f"{table}.parquet, {message}")):
        read_run(folder)


def test_damaged_reasons_and_times_of_the_end_are_named(folder: Path) -> None:
    damage(folder / "reasons.parquet", "numbers", [("gpus", None)])
    with pytest.raises(InvalidInputError, match=r"reasons\.parquet, line 1: column 'numbers' is"):
        read_reasons(folder)
    damage(folder / "timing.parquet", "seconds", float("nan"))
    with pytest.raises(InvalidInputError, match=r"timing\.parquet, line 1: column 'seconds' is nan"):
        read_timings(folder)
    text = (folder / "run.json").read_text()
    for wrong in ("NaN", "-1", '"soon"', "null", "true"):
        (folder / "run.json").write_text(re.sub(r'"end_time": [^,]*', f'"end_time": {wrong}', text))
        with pytest.raises(InvalidInputError, match=r"run\.json: end_time is"):
            read_run(folder)
