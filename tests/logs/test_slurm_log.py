"""What only Slurm's accounting has: steps, arrays, lists of resources, states with a name behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from polluxsim.cli.import_log import EXAMPLE, SACCT
from polluxsim.cli.main import main
from polluxsim.errors import InvalidInputError
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


def test_bar_within_a_name_is_a_bad_row(tmp_path):
    report, _ = imported(
        tmp_path,
        "JobID|JobName|Submit|State|AllocTRES|ElapsedRaw",
        "1|a|b|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        "2|c|2024-01-01T00:00:00|COMPLETED|gres/gpu=2|9",
        skip_bad=True,
    )
    assert (report.jobs_written, report.bad[0].reason) == (1, "allowed are 6 cells")


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


def test_how_many_jobs_of_an_array_may_run_is_kept(tmp_path):
    rest = "2024-01-01T00:00:00|{}|gres/gpu=1|9"
    rows = [f"5_{i}|{rest.format('COMPLETED')}" for i in (1, 2, 3)]
    rows += [f"6_1|{rest.format('COMPLETED')}", f"5_[4-9%2]|{rest.format('PENDING')}"]
    _, jobs = imported(tmp_path, "JobID|Submit|State|AllocTRES|ElapsedRaw", *rows)
    assert [job["array_limit"] for job in jobs] == [2, 2, 2, None]


def test_pages_have_the_command_that_prints_such_a_log():
    for page in ("operators", "recipes"):
        text = " ".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", "").split())
        assert " ".join(SACCT.replace("\\\n", "").split()) in text


@pytest.mark.slow
def test_the_example_log_is_written_by_its_script():
    script = ROOT / "benchmarks" / "example_log.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "traces" / EXAMPLE).read_text(encoding="utf-8")


def test_the_help_names_what_prints_such_a_log(tmp_path, capsys):
    """And a log of just these columns is read, every one of them."""
    with pytest.raises(SystemExit):
        main(["import", "slurm", "--help"])
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
