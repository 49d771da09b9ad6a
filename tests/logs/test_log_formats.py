"""Every format reads its sample exactly, counts every row, and names what it cannot read."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest
from log_samples import SAMPLES

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.formats.log_rows import TableFormat
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import EXTRA_COLUMNS, columns_of

TABLES = {
    "philly": "duration", "itp": "duration", "helios": "gpu_num", "seren": "gpu_num", "kalos": "gpu_num",
    "pai2020": "plan_gpu", "openb2023": "gpu_milli", "sia": "batch_size", "gavel": "total_steps",
    "tiresias": "duration", "slurm": "ElapsedRaw", "swf": "run_time",
}  # fmt: skip
"""For every table, a column whose cells are numbers."""


def test_every_format_has_a_sample():
    assert set(SAMPLES) == set(FORMATS)
    assert set(TABLES) == {name for name, one in FORMATS.items() if isinstance(one, TableFormat)}


@pytest.mark.parametrize("name", FORMATS)
def test_sample_is_read_as_it_must_be(name, tmp_path):
    sample = SAMPLES[name]
    report = import_trace(name, sample.source, tmp_path / "trace.parquet")
    rows = pq.read_table(tmp_path / "trace.parquet").to_pylist()
    assert [{key: row[key] for key in job} for row, job in zip(rows, sample.jobs, strict=True)] == list(sample.jobs)
    assert {tally.reason: tally.count for tally in report.dropped} == sample.dropped
    assert {tally.reason: tally.count for tally in report.suspicious} == sample.suspicious
    assert (report.rows_read, report.jobs_written, report.bad) == (sample.rows, len(sample.jobs), ())
    assert (report.origin_time, report.cluster_gpus) == (sample.origin, sample.cluster_gpus)


@pytest.mark.parametrize("name", FORMATS)
def test_columns_are_the_schemas(name, tmp_path):
    import_trace(name, SAMPLES[name].source, tmp_path / "trace.parquet")
    schema = pq.read_schema(tmp_path / "trace.parquet")
    columns = columns_of(FORMATS[name].extras)
    assert schema.names == [column.name for column in columns]
    for column in columns:
        field = schema.field(column.name)
        assert (field.type, field.metadata[b"unit"].decode()) == (column.kind, column.unit)


def test_every_extra_column_is_somebodys():
    assert {name for one in FORMATS.values() for name in one.extras} == set(EXTRA_COLUMNS)


def spoiled(name, tmp_path, cell):
    """Copy a sample with one cell of its first row exchanged; return the copy and the line."""
    layout = FORMATS[name].layout
    lines = SAMPLES[name].log.read_text().splitlines()
    header = lines[0].split(layout.delimiter) if layout.has_header else list(layout.columns)
    line = 1 if layout.has_header else sum(line.startswith(";") for line in lines)
    cells = lines[line].split(layout.delimiter)
    cells[header.index(TABLES[name])] = cell
    lines[line] = layout.delimiter.join(cells)
    path = tmp_path / SAMPLES[name].log.name
    path.write_text("\n".join(lines))
    return path, line + 1


BLANK_ALLOWED = ("pai2020", "slurm", "swf")
"""Tables in which the numeric column may say nothing, or in which a blank is no cell."""


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        (name, cell)
        for name in TABLES
        for cell in (
            *([] if name == "swf" else ["-1"]),
            "inf",
            "x",
            "1_0",
            "٣",
            "1e300",
            *(() if name in BLANK_ALLOWED else ("", "nan")),
        )
    ],
)
def test_bad_cell_is_named(name, cell, tmp_path):
    path, line = spoiled(name, tmp_path, cell)
    with pytest.raises(InvalidInputError) as caught:
        import_trace(name, path, tmp_path / "trace.parquet")
    message = str(caught.value)
    assert f"{path}, line {line}: column {TABLES[name]!r} is not " in message
    assert repr(cell) in message
    assert message.endswith("; correct the row, or leave out bad rows with --skip-bad")
    assert not (tmp_path / "trace.parquet").exists()


@pytest.mark.parametrize("name", TABLES)
def test_bad_row_is_counted_where_it_may_be_skipped(name, tmp_path):
    path, line = spoiled(name, tmp_path, "x")
    report = import_trace(name, path, tmp_path / "trace.parquet", skip_bad=True)
    (bad,) = report.bad
    assert (bad.count, [place.line for place in bad.places]) == (1, [line])
    assert report.rows_read == SAMPLES[name].rows == report.jobs_written + 1 + sum(t.count for t in report.dropped)


@pytest.mark.parametrize("name", TABLES)
def test_row_with_a_cell_too_few_is_named(name, tmp_path):
    path = tmp_path / SAMPLES[name].log.name
    text = SAMPLES[name].log.read_text()
    path.write_text(text + text.splitlines()[-1].rsplit(FORMATS[name].layout.delimiter, 1)[0] + "\n")
    line = len(text.splitlines()) + 1
    with pytest.raises(InvalidInputError, match=rf"line {line}: the number of cells must be \d+( or \d+)*; found \d+"):
        import_trace(name, path, tmp_path / "trace.parquet")
    assert import_trace(name, path, tmp_path / "trace.parquet", skip_bad=True).bad[0].count == 1


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"gavel", "pai2020", "swf"}))
def test_missing_column_is_named(name, tmp_path):
    path = tmp_path / SAMPLES[name].log.name
    needed = FORMATS[name].layout.columns[0]
    text = SAMPLES[name].log.read_text()
    header, rest = text.split("\n", 1)
    path.write_text(header.replace(needed, "other", 1) + "\n" + rest)
    with pytest.raises(InvalidInputError, match=f"line 1: the header lacks '{needed}'"):
        import_trace(name, path, tmp_path / "trace.parquet", skip_bad=True)


def test_blank_lines_windows_ends_and_byte_order_mark_are_no_rows(tmp_path):
    text = SAMPLES["itp"].log.read_text()
    path = tmp_path / "cluster01.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (text.replace("\n", "\r\n") + "\r\n  \r\n").encode())
    report = import_trace("itp", path, tmp_path / "a.parquet")
    assert (report.rows_read, report.jobs_written) == (3, 3)
    import_trace("itp", SAMPLES["itp"].source, tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"))


def test_folder_is_read_file_by_file(tmp_path):
    for name in ("cluster02.csv", "cluster01.csv"):
        shutil.copy(SAMPLES["itp"].source, tmp_path / name)
    report = import_trace("itp", tmp_path, tmp_path / "trace.parquet")
    assert report.rows_read == 6
    (tally,) = report.suspicious
    assert (tally.reason, tally.count) == ("a job's name that another row had before", 3)
    assert {place.file for place in tally.places} == {"cluster02.csv"}


def test_quoted_cells_are_one_cell_and_an_open_quote_costs_its_line_only(tmp_path):
    path = tmp_path / "cluster01.csv"
    rows = ['"a,b",1,2,1', '"c,3,4,1', "d,5,6,1"]
    path.write_text("\n".join(["job_id,submission_time,duration,num_gpu", *rows]))
    report = import_trace("itp", path, tmp_path / "trace.parquet", skip_bad=True)
    assert [(bad.reason, bad.places[0].line) for bad in report.bad] == [("its quotes do not match", 3)]
    assert pq.read_table(tmp_path / "trace.parquet")["job"].to_pylist() == ["a,b", "d"]


def test_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("polluxsim.logs.formats.log_rows.MAX_LINE", 64)
    path = tmp_path / "cluster01.csv"
    path.write_text("job_id,submission_time,duration,num_gpu\na,1,2,1\n" + "x" * 1000 + "\nb,3,4,1\n")
    report = import_trace("itp", path, tmp_path / "trace.parquet", skip_bad=True)
    assert [(bad.reason, bad.places[0].line) for bad in report.bad] == [("the line must have less than 64 bytes", 3)]
    assert report.jobs_written == 2


def test_text_that_is_not_utf8_is_named_by_line(tmp_path):
    path = tmp_path / "cluster01.csv"
    path.write_bytes(b"job_id,submission_time,duration,num_gpu\na,1,2,1\n\xff,1,2,1\n")
    with pytest.raises(InvalidInputError, match=r"line 3: the line must be UTF-8 text; found b'\\xff'"):
        import_trace("itp", path, tmp_path / "trace.parquet")


@pytest.mark.parametrize(
    "text", ["20171002 080000", "2017-10-02", "2017-13-02 08:00:00", "None", "2017-10-02 08:00:61"]
)
def test_time_that_is_none_is_named(text, tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(f"timestamp,duration,num_gpus,gpu_time,cluster\n{text},1,1,1,a\n")
    with pytest.raises(InvalidInputError, match="line 2: column 'timestamp' is not a time like"):
        import_trace("philly", path, tmp_path / "trace.parquet")


def test_acme_times_must_have_their_offset(tmp_path):
    path = tmp_path / "trace_seren.csv"
    path.write_text(SAMPLES["seren"].log.read_text().replace("2023-03-01 00:10:00+08:00", "2023-03-01 00:10:00"))
    with pytest.raises(InvalidInputError, match=r"line 2: column 'submit_time' is not .* an offset like \+08:00"):
        import_trace("seren", path, tmp_path / "trace.parquet")


def test_a_helios_job_without_an_end_has_the_duration_of_the_log(tmp_path):
    header, first = SAMPLES["helios"].log.read_text().splitlines()[:2]
    path = tmp_path / "cluster_log.csv"
    path.write_text(f"{header}\n{first.replace('2020-06-01 01:12:00', '')}\n")
    import_trace("helios", path, tmp_path / "trace.parquet")
    assert pq.read_table(tmp_path / "trace.parquet")["duration"].to_pylist() == [3600]
