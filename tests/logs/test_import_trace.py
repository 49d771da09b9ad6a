"""An import as a whole: what it refuses, what it leaves behind, what it writes into the file."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_samples import SAMPLES

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs import importing
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import TraceInfo, read_info

HEADER = "job_id,submission_time,duration,num_gpu\n"


def itp(tmp_path, rows):
    path = tmp_path / "cluster01.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format_name": "lsf"}, "the format is 'lsf', must be one of philly-raw, philly, itp"),
        ({"cluster_gpus": 0}, "cluster_gpus is 0, must be a whole number ≥ 1"),
        ({"time_zone": "UTC"}, "time_zone is 'UTC', must be absent"),
        (
            {"format_name": "philly", "time_zone": "Mars/Olympus"},
            "time_zone is 'Mars/Olympus', must be a name",
        ),
        ({"format_name": "philly", "time_zone": "../etc/passwd"}, "must be a name like"),
        ({"format_name": "philly", "time_zone": ""}, "must be a name like"),
        ({"format_name": "philly", "time_zone": "Europe"}, "must be a name like"),
    ],
)
def test_wrong_settings_are_named(options, message, tmp_path):
    arguments = {"format_name": "itp", "source": SAMPLES["itp"].source, "destination": tmp_path / "a.parquet"}
    with pytest.raises(InvalidConfigError, match=message):
        import_trace(**{**arguments, **options})


@pytest.mark.parametrize("name", FORMATS)
def test_source_that_is_not_there_is_named(name, tmp_path):
    with pytest.raises(InvalidInputError, match="nowhere: no such file or folder"):
        import_trace(name, tmp_path / "nowhere", tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"no file .* in this folder"):
        import_trace(name, tmp_path, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_destination_must_be_a_parquet_file_to_be(tmp_path):
    log = itp(tmp_path, ["a,1,2,1"])
    for name in ("cluster01.csv", "a.csv", ".parquet"):
        with pytest.raises(InvalidInputError, match=r"the name of the file to write must end in .parquet"):
            import_trace("itp", log, tmp_path / name)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(InvalidInputError, match="the name of the file to write"):
        import_trace("itp", log, tmp_path / "folder.parquet")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        import_trace("itp", log, log / "a.parquet")
    assert log.read_text() == HEADER + "a,1,2,1\n"


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_failure_leaves_the_folder_as_it_was(when, tmp_path, monkeypatch):
    log = itp(tmp_path, ["a,1,2,1", "b,1,2,x" if when == "reading" else "b,1,2,1"])
    (tmp_path / "a.parquet").write_text("old")
    if when == "writing":

        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(importing.pq, "write_table", fail)
    with pytest.raises(InvalidInputError, match="line 3" if when == "reading" else "No space left on device"):
        import_trace("itp", log, tmp_path / "a.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "cluster01.csv"]
    assert (tmp_path / "a.parquet").read_text() == "old"


def test_log_without_jobs_says_what_became_of_its_rows(tmp_path):
    log = itp(tmp_path, ["a,1,2,0", "b,1,2,0", "c,1,x,1"])
    with pytest.raises(InvalidInputError, match="no job with GPUs in 3 rows: 2 × no GPU; 1 × column 'duration'"):
        import_trace("itp", log, tmp_path / "a.parquet", skip_bad=True)
    with pytest.raises(InvalidInputError, match=r"no job with GPUs in 0 rows$"):
        import_trace("itp", itp(tmp_path, []), tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()


def test_metadata_tells_units_zone_and_origin(tmp_path):
    import_trace("helios", SAMPLES["helios"].source, tmp_path / "a.parquet")
    info = read_info(tmp_path / "a.parquet")
    assert replace(info, left_out="{}") == TraceInfo(
        "helios", "helios", FORMATS["helios"].citation, "Asia/Shanghai", "2020-06-01T00:05:00+08:00"
    )
    assert info.num_left_out["never ran (no start)"] == info.num_left_out["no GPU (CPU-only)"] == 1
    field = pq.read_schema(tmp_path / "a.parquet").field("submit_time")
    assert (field.metadata[b"unit"], field.nullable) == (b"s", False)


def test_file_that_is_no_trace_is_named(tmp_path):
    (tmp_path / "a.parquet").write_text("x")
    with pytest.raises(InvalidInputError, match="not a Parquet file"):
        read_info(tmp_path / "a.parquet")
    pq.write_table(pa.table({"job": ["a"]}), tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="schema version is None, must be '1'"):
        read_info(tmp_path / "b.parquet")


def test_order_is_that_of_submission_then_of_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "BATCH_ROWS", 20)
    monkeypatch.setattr(importing, "GROUP_ROWS", 60)
    times = [random.Random(3).randrange(100) for _ in range(1000)]
    rows = [f"j{number},{time},{number},1" for number, time in enumerate(times)]
    report = import_trace("itp", itp(tmp_path, rows), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    expected = sorted(range(1000), key=lambda number: times[number])
    assert table["job"].to_pylist() == [f"j{number}" for number in expected]
    assert table["submit_time"].to_pylist() == [times[number] - min(times) for number in expected]
    assert report.jobs_written == 1000
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups > 5


@pytest.mark.parametrize("name", FORMATS)
def test_same_log_gives_the_same_bytes(name, tmp_path):
    for folder in ("a", "b"):
        import_trace(name, SAMPLES[name].source, tmp_path / folder / "trace.parquet")
    assert (tmp_path / "a/trace.parquet").read_bytes() == (tmp_path / "b/trace.parquet").read_bytes()


def test_shifting_a_log_shifts_nothing_but_its_origin(tmp_path):
    rows = [(number * 37 % 11, number) for number in range(30)]
    reports = []
    for shift, name in ((0, "a"), (1000, "b")):
        log = itp(tmp_path, [f"j{number},{time + shift},{number},1" for time, number in rows])
        reports.append(import_trace("itp", log, tmp_path / f"{name}.parquet"))
    tables = [pq.read_table(tmp_path / f"{name}.parquet") for name in "ab"]
    assert tables[0].equals(tables[1])
    assert [report.origin_time for report in reports] == ["0.0", "1000.0"]
    assert reports[0].inter_arrivals == reports[1].inter_arrivals
