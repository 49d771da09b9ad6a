"""What only Slurm's accounting has: steps, arrays, lists of resources, states with a name behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_samples import FIXTURES

from polluxsim.cli.log import SACCT
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.importing import import_trace

ROOT = Path(__file__).parents[2]


def imported(tmp_path, header, *rows, **options):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([header, *rows]) + "\n")
    report = import_trace("slurm", path, tmp_path / "trace.parquet", **options)
    return report, pq.read_table(tmp_path / "trace.parquet").to_pylist()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:30", 30), ("02:03:04", 7384), ("1-00:00:00", 86400), ("365-23:59:59", 31622399), ("00:01.500", 1)],
)
def test_elapsed(text, seconds, tmp_path):
    _, rows = imported(
        tmp_path, "JobID|Submit|State|ReqTRES|Elapsed", f"1|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|{text}"
    )
    assert rows[0]["duration"] == seconds


@pytest.mark.parametrize("text", ["1:2:3:4", "90", "1-2", "-1:00", "aa:bb", "٣:00"])
def test_elapsed_that_is_none_is_named(text, tmp_path):
    with pytest.raises(InvalidInputError, match="line 2: column 'Elapsed' is not a time like"):
        imported(
            tmp_path,
            "JobID|Submit|State|ReqTRES|Elapsed",
            f"1|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|{text}",
        )


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("gres/gpu=4", 4), ("gres/gpu:a100=4", 4), ("gres/gpu:a100=4,gres/gpu=4", 4),
        ("gres/gpu=6,gres/gpu:a100=4,gres/gpu:v100=2", 6), ("gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("cpu=8,gres/gpumem=40G,gres/gpuutil=50,gres/gpu=1,node=1", 1),
    ],
)  # fmt: skip
def test_gpus_are_counted_once(tres, gpus, tmp_path):
    _, rows = imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw", f"1|2024-01-01T00:00:00|COMPLETED|{tres}|9")
    assert rows[0]["num_gpus"] == gpus


@pytest.mark.parametrize("tres", ["gres/gpu=x", "gres/gpu=", "gres/gpu=-1", "junk", "gres/gpu=9999999"])
def test_resources_that_are_none_are_named(tres, tmp_path):
    with pytest.raises(InvalidInputError, match="line 2: column 'AllocTRES' is not a list"):
        imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw", f"1|2024-01-01T00:00:00|COMPLETED|{tres}|9")


def test_given_resources_count_before_asked_ones(tmp_path):
    _, rows = imported(
        tmp_path,
        "JobID|Submit|State|ReqTRES|AllocTRES|ElapsedRaw",
        "1|2024-01-01T00:00:00|COMPLETED|gres/gpu=8|gres/gpu=2|9",
    )
    assert rows[0]["num_gpus"] == 2


def test_duration_comes_from_start_and_end_where_nothing_else_tells(tmp_path):
    _, rows = imported(
        tmp_path,
        "JobIDRaw|Submit|Start|End|State|AllocTRES",
        "1|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T00:01:10|OUT_OF_MEMORY|gres/gpu=2",
    )
    assert (rows[0]["duration"], rows[0]["status"]) == (60, "out_of_memory")


def test_zone_moves_the_origin_only(tmp_path):
    rows = ("1|2024-07-01T12:00:00|COMPLETED|gres/gpu=2|9", "2|2024-07-01T13:00:00|COMPLETED|gres/gpu=2|9")
    header = "JobID|Submit|State|AllocTRES|ElapsedRaw"
    here, jobs = imported(tmp_path, header, *rows, time_zone="Europe/Berlin")
    assert (here.origin_time, here.time_zone_assumed) == ("2024-07-01T12:00:00+02:00", False)
    assert [job["submit_time"] for job in jobs] == [0, 3600]
    assert imported(tmp_path, header, *rows)[0].time_zone_assumed


@pytest.mark.parametrize("job", ["12x", "x", "12_", "1 2", "12_3_4"])
def test_id_that_is_none_is_named(job, tmp_path):
    with pytest.raises(InvalidInputError, match="line 2: column 'JobID' is not a job id"):
        imported(
            tmp_path,
            "JobID|Submit|State|AllocTRES|ElapsedRaw",
            f"{job}|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        )


def test_unknown_state_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"line 2: column 'State' is not one of COMPLETED, .*; found 'DONE'"):
        imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw", "1|2024-01-01T00:00:00|DONE|gres/gpu=2|9")


def test_header_must_tell_gpus_and_duration(tmp_path):
    with pytest.raises(
        InvalidInputError, match="lacks 'AllocTRES' or 'ReqTRES' or 'AllocGRES', 'ElapsedRaw' or 'Elapsed' or 'End'"
    ):
        imported(tmp_path, "JobID|Submit|State", "1|2024-01-01T00:00:00|COMPLETED")


def test_bar_within_a_name_belongs_to_the_name(tmp_path):
    report, rows = imported(
        tmp_path,
        "JobID|JobName|Submit|State|AllocTRES|ElapsedRaw",
        "1|a|b||2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        "2|c|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
    )
    assert (report.jobs_written, [row["application"] for row in rows]) == (2, ["a|b|", "c"])
    assert [tally.reason for tally in report.suspicious] == ["a text with the delimiter, which was taken for one cell"]


def test_bar_in_one_of_two_texts_is_a_bad_row(tmp_path):
    report, _ = imported(
        tmp_path,
        "JobID|JobName|Comment|Submit|State|AllocTRES|ElapsedRaw",
        "1|a|b|c|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        "2|c|d|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        skip_bad=True,
    )
    assert report.jobs_written == 1
    assert report.bad[0].reason.startswith("the number of cells must be 7: a text may have the delimiter '|'")


@pytest.mark.parametrize(
    ("gres", "gpus", "kind"),
    [
        ("gpu:4", 4, None), ("gpu:a100:4", 4, "a100"), ("gpu:a100:4,gpu:v100:2", 6, None), ("gpu", 1, None),
        ("gres:gpu:2", 2, None), ("gpu:a100:4(S:0-1),nic:1", 4, "a100"), ("gres/gpu:h100:8", 8, "h100"),
    ],
)  # fmt: skip
def test_older_versions_write_gres(gres, gpus, kind, tmp_path):
    _, rows = imported(tmp_path, "JobID|Submit|State|AllocGRES|ElapsedRaw", f"1|2024-01-01T00:00:00|COMPLETED|{gres}|9")
    assert (rows[0]["num_gpus"], rows[0]["gpu_type"]) == (gpus, kind)


@pytest.mark.parametrize("gres", ["gpu:a100:x", "gpu:9999999", "gpu::4"])
def test_gres_that_is_none_is_named(gres, tmp_path):
    with pytest.raises(InvalidInputError, match="line 2: column 'AllocGRES' is not a list with GPUs like gpu:4"):
        imported(tmp_path, "JobID|Submit|State|AllocGRES|ElapsedRaw", f"1|2024-01-01T00:00:00|COMPLETED|{gres}|9")


def test_headers_of_dumps_put_together_are_counted_and_skipped(tmp_path):
    header = "JobID|Submit|State|Partition|AllocTRES|ElapsedRaw"
    row = "{}|2024-01-01T00:00:00|COMPLETED|gpu|gres/gpu:a100=2|9"
    report, rows = imported(tmp_path, header, row.format(1), header, row.format(2), header)
    assert [(job["job"], job["partition"], job["gpu_type"]) for job in rows] == [
        ("1", "gpu", "a100"),
        ("2", "gpu", "a100"),
    ]
    assert [(tally.count, tally.reason) for tally in report.dropped] == [(2, "the header again")]


def test_parts_of_a_heterogeneous_job_are_one_gang(tmp_path):
    header, rest = "JobID|Submit|State|AllocTRES|ElapsedRaw", "2024-01-01T00:00:00|COMPLETED|gres/gpu"
    rows = (
        f"7+0|{rest}=2|9", f"7+0.batch|{rest}=2|9", f"7+1|{rest}=4|12", f"8+0|{rest}=1|5",
        f"9|{rest}=1|5", f"7+2|{rest}=1|1",
    )  # fmt: skip
    report, jobs = imported(tmp_path, header, *rows)
    assert [(job["job"], job["num_gpus"], job["duration"]) for job in jobs] == [
        ("7+0", 6, 12), ("8+0", 1, 5), ("9", 1, 5), ("7+2", 1, 1),
    ]  # fmt: skip
    assert {tally.reason: tally.count for tally in report.dropped}[
        "part of a heterogeneous job, one gang with its first"
    ] == 1
    assert report.rows_read == len(rows)


def test_nodes_and_oddities_of_the_parts_of_a_gang_are_kept(tmp_path):
    header, rest = "JobID|Submit|Start|State|AllocTRES|NNodes|ElapsedRaw", "COMPLETED|gres/gpu"
    report, (job,) = imported(
        tmp_path,
        header,
        f"7+0|2024-01-01T00:00:00|2024-01-01T00:00:00|{rest}=2|1|9",
        f"7+1|2024-01-01T00:00:00|2023-12-31T00:00:00|{rest}=4|2|9",
    )
    assert job["num_nodes"] == 3
    assert [tally.reason for tally in report.suspicious] == ["start before submission"]


def test_gpus_may_stand_in_allocgres_only(tmp_path):
    header, rest = "JobID|Submit|State|AllocTRES|AllocGRES|ReqTRES|ElapsedRaw", "2024-01-01T00:00:00|COMPLETED|cpu=4"
    report, (job,) = imported(tmp_path, header, f"1|{rest}|gpu:a100:4||9", f"2|{rest}||gres/gpu=4|9")
    assert (job["num_gpus"], job["gpu_type"], report.dropped[0].count) == (4, "a100", 1)


def test_a_log_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    path = tmp_path / "sacct.txt"
    path.touch()
    with pytest.raises(InvalidInputError, match=r"sacct.txt: cannot be read \(Permission denied\)"):
        import_trace("slurm", path, tmp_path / "trace.parquet")


@pytest.mark.parametrize(("minutes", "seconds"), [("5", 300), ("0", None), ("UNLIMITED", None), ("4294967295", None)])
def test_a_job_without_a_limit_has_none(minutes, seconds, tmp_path):
    row = f"1|2024-01-01T00:00:00|COMPLETED|gres/gpu=1|9|{minutes}"
    _, (job,) = imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw|TimelimitRaw", row)
    assert job["time_limit"] == seconds


def test_a_limit_that_no_trace_can_hold_is_named(tmp_path):
    row = "1|2024-01-01T00:00:00|COMPLETED|gres/gpu=1|9|1e10"
    with pytest.raises(InvalidInputError, match="column 'TimelimitRaw' is not a number from 0 to 1"):
        imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw|TimelimitRaw", row)


def test_how_many_jobs_of_an_array_may_run_is_kept(tmp_path):
    rest = "2024-01-01T00:00:00|{}|gres/gpu=1|9"
    rows = [f"5_{i}|{rest.format('COMPLETED')}" for i in (1, 2, 3)]
    rows += [f"6_1|{rest.format('COMPLETED')}", f"5_[4-9%2]|{rest.format('PENDING')}"]
    _, jobs = imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw", *rows)
    assert [job["array_limit"] for job in jobs] == [2, 2, 2, None]


def test_a_job_is_submitted_when_it_is_eligible(tmp_path):
    """A dependency held it back for a day. Its wait counts from then, and the day is kept."""
    header = "JobID|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES|QOS|Priority"
    rest = "2024-01-03T00:01:00|2024-01-03T00:02:00|60|COMPLETED|gres/gpu=1"
    _, (first, held) = imported(
        tmp_path,
        header,
        f"2|2024-01-01T00:00:00|2024-01-03T00:00:00|{rest}|high|1000",
        f"1|2024-01-02T00:00:00|Unknown|{rest}|normal|",
    )
    assert (first["job"], first["submit_time"], first["eligibility_delay"], first["priority"]) == ("1", 0, None, None)
    assert (held["submit_time"], held["queueing_delay"], held["eligibility_delay"]) == (86400, 60, 2 * 86400)
    assert (held["priority"], held["qos"], first["qos"]) == (1000, "high", "normal")


def test_epoch_times_give_the_same_trace(tmp_path):
    """As sacct prints them with SLURM_TIME_FORMAT=%s."""
    header = "JobID|Submit|Eligible|Start|End|State|AllocTRES"
    times = [1704067200 + number for number in (0, 10, 70, 130)]
    written = [datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat() for time in times]
    rows = ["1|{}|{}|{}|{}|COMPLETED|gres/gpu=1".format(*each) for each in (times, written)]
    (epoch, jobs), (text, same) = (imported(tmp_path, header, row) for row in rows)
    assert jobs == same
    assert jobs[0]["queueing_delay"] == 60
    assert epoch.origin_time == text.origin_time == "2024-01-01T00:00:10+00:00"
    with pytest.raises(InvalidInputError, match=r"line 2: column 'Start' is not a time like .*, or seconds"):
        imported(tmp_path, header, rows[0].replace(str(times[2]), "-5"))


def test_json_of_sacct(tmp_path):
    report = import_trace("slurm", FIXTURES / "slurm-json", tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    columns = ("job", "submit_time", "duration", "num_gpus", "user", "tenant", "status", "attempts", "application")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("9002_3", 0, 1800, 6, "bob", "lab2", "running", None, "sweep"),
        ("9010+0", 3600, 90, 3, "cat", "lab1", "cancelled", None, "het"),
        ("9001", 82800, 3600, 4, "ann", "lab1", "completed", 3, "train"),
    ]
    assert [(row["gpu_type"], row["priority"], row["qos"], row["time_limit"], row["array_limit"]) for row in rows] == [
        (None, None, "normal", None, 2), (None, 7, "normal", None, None), ("a100", 4500, "high", 7200, None),
    ]  # fmt: skip
    assert (rows[2]["eligibility_delay"], rows[2]["queueing_delay"]) == (86400, 300)
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "no GPU (CPU-only)": 1, "never ran (no start)": 1, "part of a heterogeneous job, one gang with its first": 1,
    }  # fmt: skip


def test_json_in_a_folder_counts_only_without_text(tmp_path):
    shutil.copy(FIXTURES / "slurm" / "sacct.txt", tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    assert import_trace("slurm", tmp_path, tmp_path / "t.parquet").jobs_written == 3
    (tmp_path / "sacct.txt").unlink()
    with pytest.raises(InvalidInputError, match=r"notes.json, line 1: the file has no list 'jobs'"):
        import_trace("slurm", tmp_path, tmp_path / "t.parquet")


jobs_of_a_log = st.lists(
    st.fixed_dictionaries(
        {
            "submit": st.integers(1704067200, 1704067200 + 10**6),
            "held": st.integers(0, 10**5),
            "wait": st.integers(0, 10**4),
            "elapsed": st.integers(0, 10**6),
            "gpus": st.integers(0, 16),
            "type": st.sampled_from(("", "a100")),
            "limit": st.integers(0, 9999),
            "priority": st.integers(0, 2**32 - 1),
            "qos": st.sampled_from(("", "normal", "high")),
            "state": st.sampled_from(("COMPLETED", "RUNNING", "CANCELLED", "OUT_OF_MEMORY")),
            "task": st.none() | st.integers(0, 99),
        }
    ),
    min_size=1,
    max_size=6,
)


def as_text(number, job, form):
    """A job as a row of sacct, with its times in some form."""
    eligible, start = job["submit"] + job["held"], job["submit"] + job["held"] + job["wait"]
    times = "|".join(form(time) for time in (job["submit"], eligible, start, start + job["elapsed"]))
    gpus = f"gres/gpu:{job['type']}={job['gpus']}" if job["type"] else f"gres/gpu={job['gpus']}"
    name = number if job["task"] is None else f"{number}_{job['task']}"
    cells = (name, times, job["elapsed"], job["state"], f"cpu=1,{gpus}", job["limit"], job["priority"], job["qos"])
    return "|".join(map(str, cells))


def as_object(number, job, version):
    """A job as an object of sacct --json. Since version 23, numbers are objects and states are lists."""

    def number_of(value):
        return {"set": value is not None, "infinite": False, "number": value or 0} if version >= 23 else value

    eligible, start = job["submit"] + job["held"], job["submit"] + job["held"] + job["wait"]
    return {
        "job_id": number,
        "array": {"job_id": 0 if job["task"] is None else number, "task_id": number_of(job["task"])},
        "time": {
            "submission": job["submit"], "eligible": eligible, "start": start, "end": start + job["elapsed"],
            "elapsed": job["elapsed"], "limit": number_of(job["limit"]),
        },
        "state": {"current": [job["state"]] if version >= 23 else job["state"]},
        "priority": number_of(job["priority"]),
        "qos": job["qos"],
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "count": 1},
                {"type": "gres", "name": f"gpu:{job['type']}" if job["type"] else "gpu", "count": job["gpus"]},
            ],
        },
    }  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs_of_a_log)
def test_dates_seconds_and_json_give_the_same_trace(tmp_path, jobs):
    header = "JobID|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES|TimelimitRaw|Priority|QOS"

    def date(seconds):
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()

    texts = ["\n".join([header, *(as_text(*job, form) for job in enumerate(jobs, 1))]) for form in (date, str)]
    texts += [json.dumps({"jobs": [as_object(*job, version) for job in enumerate(jobs, 1)]}) for version in (22, 23)]
    found = []
    for text in texts:
        (tmp_path / "log").write_text(text)
        try:
            report = import_trace("slurm", tmp_path / "log", tmp_path / "t.parquet")
        except InvalidInputError as error:
            found.append(str(error))
        else:
            dropped = {tally.reason: tally.count for tally in report.dropped}
            found.append((report.origin_time, dropped, pq.read_table(tmp_path / "t.parquet").to_pylist()))
    assert found == found[:1] * 4


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("time", 5, "key 'time' is not an object"),
        ("time", {"submission": "soon", "start": 6}, "key 'time.submission' is not a time like"),
        ("time", {"submission": [1], "start": 6}, "key 'time.submission' is not a text or a number"),
        ("time", {"submission": 5, "start": 6, "elapsed": -1}, "key 'time.elapsed' is not a number from 0"),
        ("state", {"current": "DONE"}, "key 'state.current' is not one of COMPLETED"),
        ("state", {"current": []}, "key 'state.current' is not a list of states"),
        ("tres", {"allocated": {}}, "key 'tres.allocated' is not a list of objects"),
        (
            "tres",
            {"allocated": [{"type": "gres", "name": "gpu", "count": -1}]},
            "key 'tres.allocated' is not a list with",
        ),
        ("priority", {"set": True, "number": -3}, "key 'priority' is not a number from 0"),
        ("job_id", "x", "key 'job_id' is not a job id like"),
    ],
)
def test_values_of_the_json_that_are_none_are_named(key, value, message, tmp_path):
    log = json.loads((FIXTURES / "slurm-json" / "sacct.json").read_text())
    log["jobs"] = [{**log["jobs"][0], key: value}]
    (tmp_path / "sacct.json").write_text(json.dumps(log))
    with pytest.raises(InvalidInputError, match=f"sacct.json, line 1: {message}"):
        import_trace("slurm", tmp_path / "sacct.json", tmp_path / "t.parquet")


def test_pages_have_the_command_that_prints_such_a_log():
    for page in ("operators", "log-recipes"):
        text = " ".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", "").split())
        assert " ".join(SACCT.replace("\\\n", "").split()) in text


@pytest.mark.slow
def test_the_example_log_is_written_by_its_script():
    script = ROOT / "benchmarks" / "example_log.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "traces" / "example-sacct.txt").read_text(encoding="utf-8")


def test_the_help_names_what_prints_such_a_log(tmp_path, capsys):
    """And a log of just these columns is read, every one of them."""
    with pytest.raises(SystemExit):
        main(["log", "import", "slurm", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "sacct --allusers --parsable2" in told
    columns = SACCT.partition("--format ")[2].split()[0].split(",")
    cells = dict.fromkeys(columns, "") | {
        "JobID": "1", "JobName": "n", "User": "u", "Account": "a", "Partition": "p", "State": "COMPLETED",
        "Submit": "2024-01-01T00:00:00", "Start": "2024-01-01T00:00:10", "ElapsedRaw": "9", "TimelimitRaw": "5",
        "NNodes": "1", "AllocTRES": "gres/gpu:a100=2",
    }  # fmt: skip
    _, (job,) = imported(tmp_path, "|".join(columns), "|".join(cells.values()))
    assert (job["user"], job["tenant"], job["partition"], job["gpu_type"]) == ("u", "a", "p", "a100")
    assert (job["time_limit"], job["queueing_delay"], job["num_nodes"]) == (300, 10, 1)
