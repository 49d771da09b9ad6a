"""Whatever a log holds, it is read right or what is wrong is said in one line; no reader breaks or hangs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_samples import FIXTURES, SAMPLES

from polluxsim.common.errors import PolluxSimError
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.formats.base import LogJob
from polluxsim.logs.formats.json_rows import JsonRow
from polluxsim.logs.formats.log_rows import TableFormat
from polluxsim.logs.formats.philly import PHILLY_RAW
from polluxsim.logs.import_report import as_text
from polluxsim.logs.importing import import_trace

fuzzing = settings(
    max_examples=20,
    deadline=timedelta(seconds=20),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

TABLES = sorted(name for name, one in FORMATS.items() if isinstance(one, TableFormat))

JSON_SAMPLES = {
    "kueue": SAMPLES["kueue"].log,
    "volcano": SAMPLES["volcano"].log,
    "slurm": FIXTURES / "slurm-json" / "sacct.json",
}
"""Samples of formats that are one JSON object."""

NASTY = (
    "", " ", "0", "-0", "-1", "1e400", "1e18", "99999999999999999999", "nan", "inf", "None", "NULL", "0x10",
    "1_000", "1.5", "١٢", "é", "\x00", '"', '""', '"a"', "a\rb", "\u2028", "\ufeff", "2017-02-29 00:00:00",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2017-10-02T08:00:00Z", "2017-10-02 08:00:00+99:00",
    "2017-10-02 08:00:00.5+08:00", "Unknown", "CANCELLED by 0", "CANCELLED by", "RUNNING", "12.batch",
    "12_[3-5]", "gres/gpu=", "gres/gpu:=1", "99999999-00:00:00", "=", ",", "|", "\t",
)  # fmt: skip


@cache
def table_of(name):
    """The header of a sample, its rows, and the cells of each of its columns."""
    layout = FORMATS[name].layout
    lines = SAMPLES[name].log.read_text().splitlines()
    rows = [line.split(layout.delimiter) for line in lines if not line.startswith(";")]
    header = rows.pop(0) if layout.has_header else []
    return header, rows, [sorted(set(column)) for column in zip(*rows, strict=True)]


@st.composite
def table_text(draw, name):
    """A log in its format: mostly plausible cells, some nasty ones, some rows too short or long."""
    header, rows, columns = table_of(name)
    # Whole rows are often jobs; cells of different rows together seldom are.
    usual = st.sampled_from(rows) | st.tuples(*map(st.sampled_from, columns)).map(list)
    unusual = st.sampled_from(NASTY) | st.text(max_size=8)
    delimiter = FORMATS[name].layout.delimiter
    lines = [delimiter.join(header)] if header else []
    for _ in range(draw(st.integers(0, 8))):
        cells = list(draw(usual))
        for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
            cells[draw(st.integers(0, len(cells) - 1))] = draw(unusual)
        if draw(st.integers(0, 9)) == 0:
            cells = cells[: draw(st.integers(0, len(cells)))] + draw(st.lists(unusual, max_size=2))
        lines.append(delimiter.join(cells))
    return draw(st.sampled_from(("\n", "\r\n"))).join(lines)


def check_refusal(message, destination):
    assert message
    assert len(message) < 2000
    assert not destination.exists()


def outcome(name, source, folder, **options):
    """Import and check what must hold of any outcome; return the report, or None if it was refused."""
    destination = folder / "trace.parquet"
    destination.unlink(missing_ok=True)
    try:
        report = import_trace(name, source, destination, **options)
    except PolluxSimError as error:
        check_refusal(str(error), destination)
        return None
    finally:
        assert {path.name for path in folder.iterdir()} <= {"log", "trace.parquet"}
    table = pq.read_table(destination)
    times = table["submit_time"].to_pylist()
    assert times == sorted(times)
    assert times[0] == 0
    assert all(value is None or value >= 0 for value in table["duration"].to_pylist())
    assert all(value > 0 for value in table["num_gpus"].to_pylist())
    left_out = sum(tally.count for tally in (*report.dropped, *report.bad))
    assert report.rows_read == report.jobs_written + left_out == table.num_rows + left_out
    assert sum(item.jobs for item in report.gpu_counts) == sum(day.jobs for day in report.load) == table.num_rows
    json.dumps(report.as_json(), allow_nan=False)
    assert as_text(report)
    return report


def check_both_ways(name, data, folder):
    """Import strictly and leniently: a strict import succeeds exactly where a lenient one skips nothing."""
    source = folder / "log"
    source.write_bytes(data)
    lenient = outcome(name, source, folder, skip_bad=True, cluster_gpus=4)
    strict = outcome(name, source, folder, cluster_gpus=4)
    assert strict == (lenient if lenient is None or not lenient.bad else None)
    return lenient


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, tmp_path):
    lines = []

    @fuzzing
    @given(table_text(name))
    def check(text):
        report = check_both_ways(name, text.encode("utf-8", "surrogatepass"), tmp_path)
        if report is not None:
            header = bool(FORMATS[name].layout.has_header)
            # Cells hold no line feed unless drawn as text: what is read is every line that is not blank.
            expected = sum(bool(line.strip()) for line in text.split("\n")) - header
            assert report.rows_read == expected
            lines.append(report.jobs_written)

    check()
    assert sum(lines) > 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(NASTY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)

TIMES = st.sampled_from(("None", "", None)) | st.datetimes(datetime(2017, 8, 1), datetime(2017, 12, 31)).map(
    lambda time: time.strftime("%Y-%m-%d %H:%M:%S")
)

philly_jobs = st.fixed_dictionaries(
    {
        "status": st.sampled_from(("Pass", "Killed", "Failed")),
        "vc": st.sampled_from(("v1", "v2")),
        "jobid": st.integers(0, 99).map("application_1_{}".format),
        "user": st.just("u"),
        "submitted_time": TIMES,
        "attempts": st.lists(
            st.fixed_dictionaries(
                {
                    "start_time": TIMES,
                    "end_time": TIMES,
                    "detail": st.lists(
                        st.fixed_dictionaries(
                            {
                                "ip": st.sampled_from(("m1", "m2")),
                                "gpus": st.lists(st.just("gpu0"), max_size=4),
                            }
                        ),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
    }
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value, path, new):
    """A JSON value with what is at one place exchanged."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


@fuzzing
@given(jobs=st.lists(philly_jobs, max_size=5), data=st.data())
def test_raw_philly_jobs(jobs, data, tmp_path):
    text = json.dumps(jobs, indent=data.draw(st.sampled_from((None, 1))))
    report = check_both_ways("philly-raw", text.encode(), tmp_path)
    assert report is None or not report.bad
    if jobs:
        where = data.draw(st.sampled_from(list(places(jobs))))
        broken = json.dumps(replaced(jobs, where, data.draw(json_values)), ensure_ascii=data.draw(st.booleans()))
        check_both_ways("philly-raw", broken.encode("utf-8", "surrogatepass"), tmp_path)


@pytest.mark.parametrize("name", JSON_SAMPLES)
def test_objects_with_other_values(name, tmp_path):
    original = json.loads(JSON_SAMPLES[name].read_text())
    spots, jobs = list(places(original)), []

    @fuzzing
    @given(st.sampled_from(spots), json_values, st.booleans())
    def check(where, value, is_ascii):
        text = json.dumps(replaced(original, where, value), ensure_ascii=is_ascii)
        report = check_both_ways(name, text.encode("utf-8", "surrogatepass"), tmp_path)
        jobs.append(report.jobs_written if report else 0)

    check()
    assert sum(jobs) > 0


@fuzzing
@given(st.lists(st.dictionaries(st.sampled_from(("job", "submit", "gpus", "duration", "start", "x")), json_values)))
def test_tables_of_any_values(tmp_path, rows):
    """As a list, and with an object on each line: both are read alike."""
    reports = []
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        report = check_both_ways("table", text.encode("utf-8", "surrogatepass"), tmp_path)
        reports.append(None if report is None else (report.jobs_written, [one.count for one in report.bad]))
    assert reports[0] == reports[1]


@fuzzing
@given(philly_jobs)
def test_raw_philly_figures_are_those_of_a_plain_count(tmp_path, record):
    def seconds(text):
        return None if text in (None, "", "None") else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    job = PHILLY_RAW.parse(JsonRow(tmp_path, 1, record, UTC))
    runs = [
        (
            seconds(one["end_time"]) - seconds(one["start_time"]),
            sum(len(server["gpus"]) for server in one["detail"]),
        )
        for one in record["attempts"]
        if seconds(one["end_time"]) is not None and seconds(one["start_time"]) is not None
    ]
    usable = [(time, gpus) for time, gpus in runs if time > 0 and gpus > 0]
    assert isinstance(job, LogJob) == bool(usable and seconds(record["submitted_time"]) is not None)
    if isinstance(job, LogJob):
        figures = dict(zip(PHILLY_RAW.extras, job.extras, strict=True))
        assert job.duration == sum(time for time, _ in usable)
        assert figures["gpu_time"] == sum(time * gpus for time, gpus in usable)
        assert figures["has_hole"] == (len(runs) < len(record["attempts"]))


@fuzzing
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**7), st.integers(1, 64), st.booleans()),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_wellformed_slurm_jobs_are_read_exactly(tmp_path, jobs):
    lines = ["JobID|Submit|State|AllocTRES|Elapsed"]
    begin = datetime(2024, 1, 1)
    for number, (time, duration, gpus, typed) in enumerate(jobs):
        submit = (begin + timedelta(seconds=time)).isoformat()
        tres = f"cpu=1,gres/gpu:a100={gpus},node=1" if typed else f"cpu=1,gres/gpu={gpus},node=1"
        minutes, seconds = divmod(duration, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        elapsed = (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"
        lines.append(f"{number}|{submit}|COMPLETED|{tres}|{elapsed}")
    (tmp_path / "log").write_text("\n".join(lines))
    import_trace("slurm", tmp_path / "log", tmp_path / "trace.parquet")
    rows = pq.read_table(tmp_path / "trace.parquet").to_pylist()
    first = min(time for time, *_ in jobs)
    assert [(int(row["job"]), row["submit_time"], row["duration"], row["num_gpus"]) for row in rows] == sorted(
        ((number, time - first, duration, gpus) for number, (time, duration, gpus, _) in enumerate(jobs)),
        key=lambda row: row[1],
    )


@st.composite
def damaged(draw, original):
    """Bytes of a file with some flipped, cut out, doubled or cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(("flip", "cut off", "cut out", "double", "insert")))
        size = draw(st.integers(1, 40))
        if kind == "flip" and data:
            data[at] ^= draw(st.integers(1, 255))
        elif kind == "cut off":
            del data[at:]
        elif kind == "cut out":
            del data[at : at + size]
        elif kind == "double":
            data[at:at] = data[at : at + size]
        else:
            data[at:at] = draw(st.binary(max_size=size))
    return bytes(data)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_samples(name, tmp_path):
    original = SAMPLES[name].log.read_bytes()

    @fuzzing
    @given(damaged(original))
    def check(data):
        check_both_ways(name, data, tmp_path)

    check()


@pytest.mark.parametrize(
    ("name", "path", "size"),
    [
        ("philly", "osdi21/traces/philly.csv", 4000),
        ("itp", "itp/cluster04.csv", 4000),
        ("philly-raw", "philly-fixture/cluster_job_log", 1 << 20),
    ],
)
def test_damaged_published_logs(name, path, size, published_logs, tmp_path):
    original = (published_logs / path).read_bytes()[:size]

    @fuzzing
    @given(damaged(original))
    def check(data):
        check_both_ways(name, data, tmp_path)

    check()


@pytest.mark.parametrize("name", FORMATS)
def test_logs_of_another_kind(name, tmp_path):
    for other in FORMATS:
        check_both_ways(name, SAMPLES[other].log.read_bytes(), tmp_path)
    for data in (
        b"",
        b"\x00" * 5000,
        b"\xff\xfe" * 100,
        b"\n" * 1000,
        b"[" * 200_000,
        b"PAR1" + bytes(range(256)) * 8,
    ):
        assert check_both_ways(name, data, tmp_path) is None
