"""The tables of PAI: tasks alone, and joined with their jobs."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest
from log_samples import FIXTURES, SAMPLES

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.importing import import_trace

COLUMNS = ("job", "submit_time", "duration", "num_gpus", "user", "status", "queueing_delay", "num_instances")


@pytest.fixture
def tables(tmp_path):
    return shutil.copytree(FIXTURES / "pai", tmp_path / "pai")


def imported(folder, **options):
    report = import_trace("pai2020", folder, folder / "trace.parquet", **options)
    return report, pq.read_table(folder / "trace.parquet").to_pylist()


def test_tasks_of_a_job_are_one_gang_with_its_user_and_submission(tables):
    report, rows = imported(tables)
    assert [tuple(row[name] for name in COLUMNS) for row in rows] == [
        ("job02", 0, 900, 4.5, "user2", "failed", 10, 5),
        ("job01", 110, 38, 0.5, "user1", "completed", 62, 1),
        ("job03", 300, 110, 3, "user1", "completed", 0, 3),
        ("job05", 510, 10, 0.25, None, "completed", None, 1),
    ]
    assert [row["gpu_type"] for row in rows] == ["V100", "MISC", None, "P100"]
    assert (rows[0]["cpus"], rows[0]["memory"]) == (28, pytest.approx(4 * 29.296875))
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "no GPU (CPU-only)": 1, "never ran (no start)": 1, "task of a job, one gang with its first": 2,
    }  # fmt: skip
    assert {tally.reason: tally.count for tally in report.suspicious} == {
        "a fraction of a GPU": 3, "a job that is not in pai_job_table.csv": 1,
        "GPUs of several types, which can be replayed on any one": 1,
    }  # fmt: skip
    assert report.rows_read == 8


def test_a_task_with_too_many_gpus_is_a_bad_row(tables):
    (tables / "pai_job_table.csv").unlink()
    with (tables / "pai_task_table.csv").open("a") as file:
        file.write("job09,worker,2000.0,Terminated,1739000.0,1739600.0,600.0,29.3,100000.0,V100\n")
    with pytest.raises(InvalidInputError, match=r"instances that need at most 1e\+06 GPUs; found '2000.0'"):
        imported(tables)
    report, rows = imported(tables, skip_bad=True)
    assert [tally.count for tally in report.bad] == [1]
    assert max(row["num_gpus"] for row in rows) < 100


def test_gpu_time_is_at_least_that_of_the_tasks(tables):
    """A gang holds the GPUs of all tasks from the first start to the last end."""
    _, jobs = imported(tables)
    (tables / "pai_job_table.csv").unlink()
    _, tasks = imported(tables)
    for job in jobs:
        own = [task for task in tasks if task["job"].split("/")[0] == job["job"]]
        assert job["num_gpus"] == sum(task["num_gpus"] for task in own)
        assert job["duration"] * job["num_gpus"] >= sum(task["duration"] * task["num_gpus"] for task in own)


def test_without_the_job_table_each_task_is_a_job(tmp_path):
    import_trace("pai2020", SAMPLES["pai2020"].source, tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert {(row["user"], row["queueing_delay"]) for row in rows} == {(None, None)}


def test_bad_rows_of_the_job_table_are_named_and_counted(tables):
    with (tables / "pai_job_table.csv").open("a") as file:
        file.write("job05,x,user3,Lost,1739495.0,1739510.0\njob05,x\n")
    with pytest.raises(InvalidInputError, match=r"pai_job_table.csv, line 5: column 'status' is not one of Terminated"):
        imported(tables)
    report, rows = imported(tables, skip_bad=True)
    assert sum(tally.count for tally in report.bad) == 2
    assert report.rows_read == 10
    assert rows[-1]["user"] is None
