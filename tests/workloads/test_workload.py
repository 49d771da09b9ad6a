from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, write_jobs

from polluxsim.checks import worlds
from polluxsim.common.errors import InvalidInputError, PolluxSimError
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.stages import Stages
from polluxsim.workloads.feasibility import why_not
from polluxsim.workloads.workload import Job, OneJob, Workload, read_workload, workload_from_frame, write_workload

PROFILES = {"toy": ToyProfile()}
CLUSTER = Cluster.uniform(2, 4)


def test_jobs_come_in_order_of_submission(tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "w.csv", "late,20.5,toy,1,10", "early,3,toy,2,20", "also,20.5,toy,1,10")
    jobs = read_workload(path).jobs
    assert [job.job_id for job in jobs] == ["early", "late", "also"]
    assert jobs[0] == Job("early", 3.0, "toy", 2, 20, line=3)


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "w.csv", "a,1,toy,1,10", "b,2.5,toy,2,20")
    pd.read_csv(path).to_parquet(tmp_path / "w.parquet")
    strip = [(j.job_id, j.submit_time, j.application, j.num_replicas, j.batch_size) for j in read_workload(path).jobs]
    again = read_workload(tmp_path / "w.parquet").jobs
    assert [(j.job_id, j.submit_time, j.application, j.num_replicas, j.batch_size) for j in again] == strip


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 8)), min_size=1, max_size=10))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[float, int]]) -> None:
    path = tmp_path_factory.mktemp("w") / "w.csv"
    jobs = Workload(tuple(toy_job(f"job-{i}", time, gpus) for i, (time, gpus) in enumerate(drawn)))
    write_workload(jobs, path)
    assert [j.submit_time for j in read_workload(path).jobs] == [j.submit_time for j in jobs.jobs]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,1,nope,1,10"], "line 2: application 'nope' has no profile, must be one of toy"),
        (["a,-1,toy,1,10"], "line 2: column 'time' is '-1', must be a number of seconds from 0 to 1e+11"),
        (["a,nan,toy,1,10"], "line 2: column 'time' is 'nan'"),
        (["a,1,toy,1,10", "a,2,toy,1,10"], "line 3: the name 'a' is also on line 2, must be unique"),
        (["b,9,toy,1,10", "a,1,toy,9,90"], "line 3: num_replicas is 9, must be at most 8, the number of GPUs"),
        (["a,1,toy,0,10"], "line 2: column 'num_replicas' is '0', must be a whole number from 1 to 1e+09"),
        (["a,1,toy,1.5,10"], "line 2: column 'num_replicas' is '1.5'"),
        (["a,1,toy,1,641"], "line 2: batch_size is 641, must be 10 to 640 for toy"),
        (["a,1,toy,1,9"], "line 2: batch_size is 9, must be 10 to 640 for toy"),
        (["a,1,toy,1"], "line 2: 4 fields, the header has 5 columns"),
        ([",1,toy,1,10"], "line 2: column 'name' is ''"),
        ([], "the file has no rows; it must have the columns name, time, num_replicas"),
    ],
)
def test_a_bad_workload_is_named(tmp_path: Path, rows: list[str], message: str) -> None:
    path = write_jobs(tmp_path / "w.csv", *rows)
    with pytest.raises(PolluxSimError) as caught:
        read_workload(path).check(PROFILES, CLUSTER)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no rows"),
        (b"name,time,application,num_replicas\na,1,toy,1\n", "line 1: missing column 'batch_size'"),
        (b"name,name,time\na,a,1\n", "line 1: the header has a column name twice"),
        (b"\xff\xfe\x00name", "not a UTF-8 text file"),
        (b'name,time,application,num_replicas,batch_size\n"a,1,toy,1,10\n', "not CSV"),
    ],
)
def test_a_file_that_is_no_workload_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes(content)
    with pytest.raises(PolluxSimError) as caught:
        read_workload(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_clear_error_or_a_workload(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    for name, start in (("w.csv", b"name,time,application,num_replicas,batch_size\n"), ("w.parquet", b"PAR1")):
        path = tmp_path_factory.mktemp("w") / name
        path.write_bytes(start + content)
        try:
            read_workload(path)
        except PolluxSimError as error:
            assert str(path) in str(error)


def test_a_row_with_a_duration_is_a_job_without_a_profile(tmp_path: Path) -> None:
    only = tmp_path / "rigid.csv"
    only.write_text("name,time,num_replicas,duration\na,0,2,90.5\n")
    assert read_workload(only).jobs == (Job.rigid("a", 0.0, 2, 90.5, line=2),)
    mixed = Workload((toy_job("b", 1.0), Job.rigid("c", 2.0, 3, 7.25)))
    write_workload(mixed, tmp_path / "mixed.csv")
    for again in (
        read_workload(tmp_path / "mixed.csv"),
        workload_from_frame(pd.read_csv(tmp_path / "mixed.csv")),
    ):
        assert [replace(job, line=0) for job in again.jobs] == list(mixed.jobs)
    pd.read_csv(tmp_path / "mixed.csv").to_parquet(tmp_path / "mixed.parquet")
    assert read_workload(tmp_path / "mixed.parquet").jobs[1].duration == 7.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name,time,num_replicas,duration\na,0,1,0\n",
            "line 2: column 'duration' is '0', must be a number of seconds above 0",
        ),
        ("name,time,num_replicas,duration\na,0,1,long\n", "line 2: column 'duration' is 'long', must be a finite"),
        (
            "name,time,num_replicas,duration\na,0,1,\n",
            "line 2: missing column 'application', 'batch_size'; the row must have",
        ),
        ("name,time,num_replicas\na,0,1\n", "line 1: missing column 'application', 'batch_size'; the row must have"),
    ],
)
def test_a_row_without_duration_and_profile_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "w.csv"
    path.write_text(text)
    with pytest.raises(PolluxSimError, match=re.escape(message)):
        read_workload(path)


OPTIONS = {
    "user": "ada",
    "queue": "vision",
    "priority": -2.5,
    "deadline": 900.0,
    "time_limit": 3600.0,
    "after": ("first job",),
    "gpu_types": ("a100", "h100"),
    "min_replicas": 1,
    "max_replicas": 8,
    "cancel_time": 7200.0,
    "job_name": "train",
    "qos": "high",
}


def test_what_a_job_carries_besides_is_written_and_read(tmp_path: Path) -> None:
    """As CSV, as Parquet with lists, and as a table: one and the same workload."""
    first = toy_job("first job")
    jobs = (
        first,
        replace(toy_job("b", 1.0, gpus=2), **OPTIONS),
        Job.rigid("c", 2.0, 2, 7.25, after=("b", "first job"), speeds=((1, 0.7), (2, 1.2), (8, 3.0))),
    )
    workload = Workload(jobs)
    write_workload(workload, tmp_path / "w.csv")
    frame = pd.read_csv(tmp_path / "w.csv")
    lists = frame.assign(after=[list(job.after) for job in jobs], gpu_types=[list(job.gpu_types) for job in jobs])
    lists.to_parquet(tmp_path / "w.parquet")
    for again in (
        read_workload(tmp_path / "w.csv"),
        read_workload(tmp_path / "w.parquet"),
        workload_from_frame(frame),
        workload_from_frame(frame.convert_dtypes()),
        workload_from_frame(lists),
        workload_from_frame(pd.read_parquet(tmp_path / "w.parquet")),
    ):
        assert tuple(replace(job, line=0) for job in again.jobs) == jobs
        assert not again.notes


@pytest.mark.parametrize(
    "fields",
    [
        {"type_speeds": (("NVIDIA A100", 1.0),)},
        {"speeds": ((1, np.float64(1.0)), (2, np.float64(1.5)))},
        {"stages": Stages(*np.array([1.0, 0.5, 0.25, 0.0]))},
    ],
)
def test_names_with_spaces_and_numbers_of_numpy_are_written_and_read(fields: dict[str, Any], tmp_path: Path) -> None:
    job = Job.rigid("a", 0.0, 1, 5.0, **fields)
    write_workload(Workload((job,)), tmp_path / "w.csv")
    assert [replace(again, line=0) for again in read_workload(tmp_path / "w.csv").jobs] == [job]


def test_a_type_with_a_semicolon_is_not_written(tmp_path: Path) -> None:
    workload = Workload((Job.rigid("a", 0.0, 1, 5.0, type_speeds=(("A;B", 1.0),)),))
    with pytest.raises(InvalidInputError, match=r"type_speeds has 'A;B:1\.0', must have names without a semicolon"):
        write_workload(workload, tmp_path / "w.csv")


def test_a_table_with_two_columns_of_a_name_is_refused() -> None:
    frame = pd.DataFrame([["a", 0, 1, 5, 6]], columns=["name", "time", "num_replicas", "duration", "duration"])
    with pytest.raises(InvalidInputError, match="DataFrame: two columns have the same name"):
        workload_from_frame(frame)


def test_columns_that_are_not_used_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("name,time,num_replicas,duration,ddl,user,x\na,0,1,5,9,ada,\nb,1,1,5,9,,\n")
    workload = read_workload(tmp_path / "w.csv")
    assert workload.notes == ("columns that are not used: 'ddl', 'x'",)
    assert [job.user for job in workload.jobs] == ["ada", None]
    assert workload_from_frame(pd.read_csv(tmp_path / "w.csv")).notes == workload.notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,0,1,5,,x,"], "line 2: after has 'x', must have names of jobs in this workload"),
        (["a,0,1,5,,,0.5", "b,2,1,5,,,1"], "line 3: column 'cancel_time' is '1', must be 2 s or later"),
        (["a,0,2,5,3,,"], "line 2: column 'min_replicas' is '3', must be at most num_replicas, 2"),
        (["a,0,1,1e18,,,"], "line 2: column 'duration' is '1e18', must be a number of seconds above 0, up to 1e+11"),
        (["a,1_000,1,5,,,"], "line 2: column 'time' is '1_000', must be a finite number"),
        (["a,0,1,١٢,,,"], "line 2: column 'duration' is '١٢', must be a finite number"),
        (["a,0,1,5,1.5,,"], "line 2: column 'min_replicas' is '1.5', must be a whole number"),
        (["a,0,1,5,,b,", "b,0,1,5,,c;a,", "c,0,1,5,,,"], "line 2: waits for itself: a after b after a"),
        (["a,0,1,5,,c,", "b,0,1,5,,a,", "c,0,1,5,,b,"], "waits for itself: "),
        (["a,0,1,5,,a,"], "line 2: waits for itself: a after a"),
        (
            ["a,0,2,5,,,,1:1"],
            "line 2: column 'speeds' is '1:1', must be empty for a job without a duration, and",
        ),
        (["a,0,2,5,,,,1:1 2"], "line 2: column 'speeds' is '1:1 2', must be GPUs:speed pairs with spaces"),
        (["a,0,2,5,,,,2:1 1:2"], "line 2: column 'speeds' is '2:1 1:2', must be pairs of a GPU count, rising"),
    ],
)
def test_what_a_job_cannot_carry_is_named(tmp_path: Path, rows: list[str], message: str) -> None:
    path = tmp_path / "w.csv"
    rows = [row if row.count(",") == 7 else f"{row}," for row in rows]
    path.write_text("\n".join(("name,time,num_replicas,duration,min_replicas,after,cancel_time,speeds", *rows)) + "\n")
    with pytest.raises(InvalidInputError, match=re.escape(message)) as caught:
        read_workload(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("row", ["a,0,toy,1,10,5", "a,0,toy,1,,5", "a,0,,1,10,5"])
def test_a_row_is_either_profiled_or_rigid(tmp_path: Path, row: str) -> None:
    """What it says of both is not read as one of them."""
    path = tmp_path / "w.csv"
    path.write_text(f"name,time,application,num_replicas,batch_size,duration\n{row}\n")
    with pytest.raises(InvalidInputError, match=r"line 2: column '\w+' is '\w+', must be empty in a row with a dur"):
        read_workload(path)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("name", pa.array([b"\xff\xfe"]).view(pa.string()), "not a Parquet file"),
        ("duration", pa.array([2**62], pa.duration("s")), "not a Parquet file"),
        ("duration", pa.array([5], pa.duration("s")), "line 1: column 'duration' is datetime.timedelta"),
        ("time", pa.array([2**45], pa.timestamp("s")), "not a Parquet file"),
        ("time", pa.array([b"12"]), "line 1: column 'time' is b'12'"),
        ("num_replicas", pa.array([True]), "line 1: column 'num_replicas' is True"),
        ("after", pa.array([[1.5, 2.5]]), "line 1: column 'after' is [1.5, 2.5], must be names"),
        ("gpu_types", pa.array([7.5]), "line 1: column 'gpu_types' is 7.5, must be names"),
    ],
)
def test_a_parquet_file_of_odd_values_is_one_clear_line(
    tmp_path: Path, column: str, values: pa.Array, message: str
) -> None:
    columns = {
        "name": pa.array(["a"]),
        "time": pa.array([0.0]),
        "num_replicas": pa.array([1]),
        "duration": pa.array([5]),
    }
    pq.write_table(pa.table(columns | {column: values}), tmp_path / "w.parquet")
    with pytest.raises(InvalidInputError, match=re.escape(message)) as caught:
        read_workload(tmp_path / "w.parquet")
    assert str(tmp_path / "w.parquet") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_job_begins_at_once_on_one_gpu() -> None:
    profiles = {"toy": ToyProfile()}
    assert OneJob("toy").load(profiles).jobs == (
        Job("toy-1", 0.0, "toy", 1, profiles["toy"].application.init_batch_size),
    )


def test_one_job_with_a_duration_needs_no_profile() -> None:
    (job,) = OneJob("toy", num_replicas=2, duration=60.0).load({"toy": ToyProfile()}).jobs
    assert (job.duration, job.batch_size) == (60.0, 2)


def test_jobs_without_a_line_that_share_a_name_are_named() -> None:
    with pytest.raises(InvalidInputError, match=r"job 'a': the name 'a' is the name of another job, must be unique"):
        Workload((toy_job("a"), toy_job("a", 1.0)))


def test_a_type_with_fewer_gpus_than_the_minimum_of_a_job_is_not_usable() -> None:
    cluster = Cluster.of_groups([[1, 2, "t4"], [1, 4, "v100"]])
    profile = worlds.ToyProfile(type_speeds=(("t4", 1.0), ("v100", 2.0)))
    job = Job("a", 0.0, "toy", 4, 40, min_replicas=4)
    why = why_not(job, profile, cluster, "t4", shrinks=True)
    assert why == "num_replicas is 4, must be at most 2, the number of GPUs"
    assert why_not(replace(job, min_replicas=2), profile, cluster, "t4", shrinks=True) is None
