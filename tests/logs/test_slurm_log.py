"""What only Slurm's accounting has: steps, arrays, lists of resources, states with a name behind."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from polluxsim.errors import InvalidInputError
from polluxsim.logs.importing import import_trace


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
    with pytest.raises(InvalidInputError, match="lacks 'AllocTRES' or 'ReqTRES', 'ElapsedRaw' or 'Elapsed' or 'End'"):
        imported(tmp_path, "JobID|Submit|State", "1|2024-01-01T00:00:00|COMPLETED")


def test_bar_within_a_name_is_a_bad_row(tmp_path):
    report, _ = imported(
        tmp_path,
        "JobID|JobName|Submit|State|AllocTRES|ElapsedRaw",
        "1|a|b|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        "2|c|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        skip_bad=True,
    )
    assert (report.jobs_written, report.bad[0].reason) == (1, "allowed are 6 cells")
