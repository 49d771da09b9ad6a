"""Any table of jobs by a map of columns: what is read, what the map may say, and what it may not."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from log_samples import FIXTURES, SAMPLES

from polluxsim.cli.log import TABLE_KEYS
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs.formats.table import KEYS, SLURM_NUMBERS
from polluxsim.logs.importing import import_trace

ROOT = Path(__file__).parents[2]

SUPERCLOUD = (
    "job=id_job,submit=time_submit,eligible=time_eligible,start=time_start,end=time_end,user=id_user,status=state,"
    "gpus=tres_alloc:1001:1002,cpus=tres_alloc:1,nodes=nodes_alloc,time_limit=timelimit*60"
)
"""Columns of the log of MIT Supercloud, as its introductory notebook lists them."""


def imported(tmp_path, text, columns="", **options):
    path = tmp_path / "log"
    path.write_text(text)
    report = import_trace("table", path, tmp_path / "trace.parquet", columns=columns, **options)
    return report, pq.read_table(tmp_path / "trace.parquet").to_pylist()


def test_the_log_of_mit_supercloud(tmp_path):
    report = import_trace("table", FIXTURES / "supercloud.csv", tmp_path / "trace.parquet", columns=SUPERCLOUD)
    one, two = pq.read_table(tmp_path / "trace.parquet").to_pylist()
    assert (one["job"], one["submit_time"], one["num_gpus"], one["duration"]) == ("11000000000002", 0, 4, 7200)
    assert (one["status"], one["time_limit"], one["num_nodes"], one["priority"]) == ("timeout", None, 2, 100001)
    assert (two["submit_time"], two["eligibility_delay"], two["queueing_delay"]) == (1600, 600, 5)
    assert (two["cpus"], two["time_limit"], two["status"], two["user"]) == (40, 86400, "completed", "21915")
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "no GPU (CPU-only)": 1, "never ran (no start)": 1,
    }  # fmt: skip
    assert (report.origin_time, report.time_zone_assumed) == ("2021-02-28T23:46:40+00:00", False)


def test_submissions_that_a_trace_cannot_hold_are_refused(tmp_path):
    text = "job,submit,duration,gpus\na,-1e11,60,1\nb,1e11,60,1\n"
    with pytest.raises(InvalidInputError, match=r"/log, line 3: column 'submit_time' is 200000000000"):
        imported(tmp_path, text)
    assert not (tmp_path / "trace.parquet").exists()


def test_the_recipe_imports_the_log_of_mit_supercloud():
    recipes = (ROOT / "docs" / "log-recipes.md").read_text(encoding="utf-8").replace("\\\n", "")
    (command,) = re.findall("polluxsim log import table scheduler-log.csv.*", recipes)
    assert ",".join(re.findall(r"--columns '?([^' ]+)", command)) == SUPERCLOUD


def test_csv_and_json_give_the_same_trace(tmp_path):
    with SAMPLES["table"].log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts = {
        "csv": SAMPLES["table"].log.read_text(),
        "semicolons": "\n".join(";".join(row) for row in [list(rows[0]), *(row.values() for row in rows)]),
        "list": json.dumps(rows, indent=1),
        "lines": "\n".join(map(json.dumps, rows)),
        "sparse": "\n".join(json.dumps({key: value for key, value in row.items() if value}) for row in rows),
    }
    tables = {name: imported(tmp_path, text)[1] for name, text in texts.items()}
    assert len(tables["csv"]) == 2
    assert all(table == tables["csv"] for table in tables.values())


def test_values_in_inner_objects_have_paths(tmp_path):
    text = json.dumps([{"at": 5, "spec": {"gpus": 2, "owner": {"name": "ann"}}, "took": None, "tags": [1]}])
    _, (job,) = imported(tmp_path, text, "submit=at,gpus=spec.gpus,user=spec.owner.name,duration=took")
    assert (job["job"], job["num_gpus"], job["user"], job["duration"]) == ("row-1", 2, "ann", None)


@pytest.mark.parametrize(
    ("submit", "origin", "zone"),
    [
        ("1709280000", "2024-03-01T08:00:00+00:00", "UTC"),
        ("2024-03-01T08:00:00Z", "2024-03-01T08:00:00+00:00", "UTC"),
        ("2024-03-01 08:00:00", "2024-03-01T08:00:00+00:00", "UTC"),
        ("12.5", "12.5", ""),
        ("0", "0.0", ""),
    ],
)
def test_the_first_row_tells_the_clock(submit, origin, zone, tmp_path):
    report, _ = imported(tmp_path, f"submit,gpus\n{submit},1\n")
    assert (report.origin_time, report.time_zone) == (origin, zone)
    with pytest.raises(InvalidInputError, match="line 3: column 'submit' is not "):
        imported(tmp_path, f"submit,gpus\n{submit},1\nyesterday,1\n")


def test_the_first_row_with_a_submission_tells_the_clock(tmp_path):
    report, jobs = imported(tmp_path, "submit,gpus,duration\n,1,5\n100,1,5\n", skip_bad=True)
    assert (report.origin_time, report.time_zone, len(jobs)) == ("100.0", "", 1)


def test_a_wait_counts_from_the_submission(tmp_path):
    _, (job,) = imported(tmp_path, "submit,eligible,wait,gpus,end\n100,130,50,1,200\n")
    assert (job["queueing_delay"], job["eligibility_delay"], job["duration"]) == (20, 30, 50)


def test_units_are_converted(tmp_path):
    header = "created_ms,minutes,memory_mb,list"
    _, (job,) = imported(
        tmp_path,
        f'{header}\n1709280000500,90,2000,"cpu=4,gpu=2,gpu:big=1"\n',
        "submit=created_ms*0.001,duration=minutes*60,memory=memory_mb*0.001,gpus=list:gpu:gpu:big",
    )
    assert (job["duration"], job["memory"], job["num_gpus"]) == (5400, 2, 2)
    report, _ = imported(tmp_path, "created_ms,gpus\n1709280000500,1\n", "submit=created_ms*0.001")
    assert report.origin_time == "2024-03-01T08:00:00.500000+00:00"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("submit", "--columns has 'submit', which is not KEY=COLUMN"),
        ("submit=", "--columns has 'submit=', which is not KEY=COLUMN"),
        ("when=a", "--columns has the unknown key 'when'; must be one of job, submit"),
        ("gpu=a", "did you mean gpus?"),
        ("submit=a,submit=b", "--columns has the key 'submit' twice; give it once"),
        ("submit=a*0", "--columns has the factor '0' in 'submit=a\\*0'; give a number above 0"),
        ("submit=b", "--columns maps submit to 'b', which is not a column of .*; must be one of a, gpus"),
    ],
)
def test_a_map_that_is_none_is_named(columns, message, tmp_path):
    with pytest.raises(InvalidConfigError, match=message):
        imported(tmp_path, "a,gpus\n1,1\n", columns)


def test_what_every_job_needs_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no column is mapped to gpus, .* add gpus=COLUMN to --columns with"):
        imported(tmp_path, "a,b\n1,1\n", "submit=a")
    with pytest.raises(InvalidInputError, match="no row with values in the first 100"):
        imported(tmp_path, "submit,gpus\n")
    with pytest.raises(InvalidConfigError, match="--columns needs the format table, because itp has fixed columns"):
        import_trace("itp", SAMPLES["itp"].source, tmp_path / "trace.parquet", columns="submit=a")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,-1,x,,", "column 'gpus' is not a number from 0 to 1e.06"),
        ("x,1,x,,", "column 'submit' is not a number from -1e.11 to 1e.11"),
        (",1,x,,", "column 'submit' is not a time"),
        ("1,1,x,lost,", "column 'status' is not one of completed, .*; rename the column if it has another meaning"),
        ("1,1,x,,1.5", "column 'nodes' is not a whole number"),
    ],
)
def test_bad_cells_are_named(row, reason, tmp_path):
    with pytest.raises(InvalidInputError, match=f"log, line 3: {reason}"):
        imported(tmp_path, f"submit,gpus,job,status,nodes\n5,1,a,,\n{row}\n")


def test_slurms_word_for_cancelled_jobs_names_their_user(tmp_path):
    _, (job,) = imported(tmp_path, "submit,gpus,status\n1,1,CANCELLED by 1000\n")
    assert job["status"] == "cancelled"


def test_slurms_numbers_of_states(tmp_path):
    rows = [f"{number},1,{number}" for number in range(len(SLURM_NUMBERS))]
    _, jobs = imported(tmp_path, "\n".join(["submit,gpus,status", *rows]), "status=status:slurm")
    statuses = {int(job["submit_time"]) + 1: job["status"] for job in jobs}
    assert (statuses[3], statuses[5], statuses[7], statuses[11]) == (
        "completed", "failed", "node_fail", "out_of_memory",
    )  # fmt: skip


def test_the_command_takes_columns_in_parts(tmp_path, capsys):
    (tmp_path / "jobs.csv").write_text("created_at,n,seconds\n10,2,60\n")
    parts = ["--columns", "submit=created_at,gpus=n", "--columns", "duration=seconds"]
    command = ["log", "import", "table", str(tmp_path / "jobs.csv"), "-o", str(tmp_path / "t.parquet")]
    assert main([*command, *parts]) == 0
    assert pq.read_table(tmp_path / "t.parquet")["duration"].to_pylist() == [60]
    assert main([*command, *parts[:2], "--columns", "x=y"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_lists_the_keys():
    assert list(KEYS) == list(TABLE_KEYS)
