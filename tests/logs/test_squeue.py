"""The queue of Slurm in its forms: what runs, what waits, and what cannot start."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.site.queue import Queue, QueuedJob
from polluxsim.logs.site.squeue import read_squeue

COLUMNS = (
    "JOBID|NAME|USER|ACCOUNT|PARTITION|QOS|PRIORITY|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|TRES_PER_NODE|"
    "NODELIST|REASON|DEPENDENCY"
)

TEXT = f"""\
{COLUMNS}
11|train a|ada|ml|gpu|normal|50|RUNNING|2026-03-04T10:00:00|2026-03-04T12:00:00|2:00:00|1-00:00:00|2|gres:gpu:a100:4|a[01-02]|None|(null)
12|b|bob|ml|gpu|normal|40|PENDING|2026-03-04T11:00:00|N/A|0:00|4:00:00|1|gres:gpu:8||Resources|(null)
13|c|bob|ml|gpu|normal|0|PENDING|2026-03-04T11:10:00|N/A|0:00|30:00|1|gres/gpu:1||JobHeldUser|(null)
14|d|eve|ml|gpu|low|30|PENDING|2026-03-04T11:20:00|N/A|0:00|UNLIMITED|1|gpu:1||QOSMaxGRESPerUser|(null)
15|e|eve|ml|gpu|low|30|PENDING|2026-03-04T11:30:00|N/A|0:00|1:00:00|1|gres:gpu:2||Dependency|afterok:11(unfulfilled)
16|f|eve|ml|gpu|low|30|PENDING|2026-03-04T11:30:00|2026-03-05T08:00:00|0:00|1:00:00|1|gres:gpu:2||BeginTime|(null)
17|cpu|eve|ml|cpu|low|30|PENDING|2026-03-04T11:30:00|N/A|0:00|1:00:00|1|N/A||Priority|(null)
18|g|eve|ml|gpu|low|30|COMPLETING|2026-03-04T09:30:00|2026-03-04T10:30:00|3:30:00|5:00:00|1|gres:gpu:2|a03|None|(null)
19_[3-5%2]|h|ada|ml|gpu|low|30|PENDING|2026-03-04T11:40:00|N/A|0:00|1:00:00|1|gres:gpu:2||JobArrayTaskLimit|(null)
19_2|h|ada|ml|gpu|low|30|RUNNING|2026-03-04T11:40:00|2026-03-04T13:00:00|1:00:00|1:30:00|1|gres:gpu:2|a03|None|(null)
20|i|ada|ml|gpu|low|30|PENDING|2026-03-04T11:50:00|N/A|0:00|9-00:00:00|1|gres:gpu:2||PartitionTimeLimit|(null)
"""  # noqa: E501  (lines of squeue)

NOW = datetime(2026, 3, 4, 14, tzinfo=UTC).timestamp()


def read(tmp_path: Path, text: str, **options: float) -> Queue:
    path = tmp_path / "squeue"
    path.write_text(text, encoding="utf-8")
    return read_squeue(path, UTC, **options)


def by_name(queue: Queue) -> dict[str, QueuedJob]:
    return {job.name: job for job in queue.jobs}


def test_text(tmp_path: Path) -> None:
    queue = read(tmp_path, TEXT)
    assert queue.time == NOW  # 11 started at 12:00 and has run for 2 h
    jobs = by_name(queue)
    assert list(jobs) == ["11", "12", "13", "14", "15", "16", "19_3", "19_4", "19_5", "19_2", "20"]
    assert queue.left_out == {"jobs without GPUs": 1, "jobs that have ended or are ending": 1}
    running = jobs["11"]
    assert running.started == NOW - 7200
    assert running.placement == (("a01", 4), ("a02", 4))
    assert (running.num_gpus, running.num_nodes, running.gpu_type, running.time_limit) == (8, 2, "a100", 86400)
    assert (running.job_name, running.user, running.tenant, running.partitions) == ("train a", "ada", "ml", ("gpu",))
    waiting = jobs["12"]
    assert (waiting.started, waiting.num_gpus, waiting.num_nodes, waiting.time_limit) == (None, 8, 1, 14400)
    assert (waiting.reason, waiting.priority, waiting.kept_out, waiting.after) == ("Resources", 40, "", ())
    assert jobs["14"].time_limit is None


def test_jobs_that_cannot_start_say_why(tmp_path: Path) -> None:
    jobs = by_name(read(tmp_path, TEXT))
    assert {name: job.kept_out for name, job in jobs.items() if job.kept_out} == {
        "13": "are held",
        "14": "wait because of a limit (QOSMaxGRESPerUser)",
        "20": "cannot start (PartitionTimeLimit)",
    }
    assert jobs["15"].after == ("11",)
    assert jobs["16"].begin == datetime(2026, 3, 5, 8, tzinfo=UTC).timestamp()


def test_the_tasks_of_an_array_with_a_limit_of_two(tmp_path: Path) -> None:
    jobs = by_name(read(tmp_path, TEXT))
    # 19_2 runs, so 19_3 may start; 19_4 waits for 19_2, and 19_5 for 19_3.
    assert [jobs[f"19_{task}"].after for task in (3, 4, 5)] == [(), ("19_2",), ("19_3",)]


def test_a_step_of_zero_in_an_array_counts_as_one(tmp_path: Path) -> None:
    jobs = by_name(read(tmp_path, TEXT.replace("19_[3-5%2]", "19_[3-5:0]")))
    assert [name for name in jobs if name.startswith("19_") and name != "19_2"] == ["19_3", "19_4", "19_5"]


def test_the_usual_columns_with_gpus(tmp_path: Path) -> None:
    header = "  JOBID PARTITION NAME ST SUBMIT_TIME START_TIME TIME TRES_PER_NODE NODES NODELIST(REASON)"
    running = "      1      main    a1  R 2026-03-04T10:00:00 2026-03-04T12:00:00 1:00:00 gres:gpu:4    2     n[1-2]"
    waiting = (
        "      2      main    a2 PD 2026-03-04T10:30:00 N/A 0:00 gres:gpu:4 1 (ReqNodeNotAvail, UnavailableNodes:n3)"
    )
    text = f"{header}\n{running}\n{waiting}\n"
    jobs = by_name(read(tmp_path, text))
    assert jobs["1"].placement == (("n1", 4), ("n2", 4))
    assert jobs["2"].reason == "ReqNodeNotAvail, UnavailableNodes:n3"
    assert (jobs["2"].num_gpus, jobs["2"].kept_out) == (4, "")


@pytest.mark.parametrize(
    ("resources", "gpus", "num_nodes", "gpus_per_task"),
    [
        ({"TRES_PER_NODE": "gres:gpu:4", "NODES": "3"}, 12, 3, None),
        ({"TRES_PER_JOB": "gres:gpu:10", "NODES": "2"}, 10, None, 1),
        ({"TRES_PER_TASK": "gres:gpu:2", "NODES": "2", "TASKS": "6"}, 12, None, 2),
        ({"TRES_ALLOC": "cpu=8,mem=4G,gres/gpu:a100=12,node=3", "NODES": "3"}, 12, 3, None),
        ({"TRES_ALLOC": "cpu=8,gres/gpu=10,node=3", "NODES": "3"}, 10, None, 1),
        ({"TRES_PER_NODE": "gres:gpu", "NODES": "2-4"}, 2, 2, None),
    ],
)
def test_what_a_job_requests_about_nodes(
    tmp_path: Path, resources: dict[str, str], gpus: int, num_nodes: int | None, gpus_per_task: int | None
) -> None:
    values = {"JOBID": "1", "STATE": "PENDING", "SUBMIT_TIME": "2026-03-04T10:30:00"} | resources
    (job,) = read(tmp_path, "|".join(values) + "\n" + "|".join(values.values()) + "\n").jobs
    assert (job.num_gpus, job.num_nodes, job.gpus_per_task) == (gpus, num_nodes, gpus_per_task)


def json_job(job_id: int, *, new: bool, **values: object) -> dict[str, object]:
    """Return a job of `squeue --json`, in the form of Slurm 22.05 or of 23.11."""

    def number(value: int) -> object:
        return {"set": True, "infinite": False, "number": value} if new else value

    state = str(values.pop("state"))
    job = {"job_id": job_id, "name": f"j{job_id}", "user_name": "ada", "account": "ml", "partition": "gpu",
           "job_state": [state] if new else state, "submit_time": number(int(NOW) - 9000), "start_time": number(0),
           "time_limit": number(240), "node_count": number(2), "tres_per_node": "gres:gpu:4", "nodes": "",
           "array_job_id": number(0), "array_task_id": {"set": False, "number": 0} if new else None,
           "array_task_string": "", "state_reason": "None", "dependency": "", "gres_detail": [],
           "last_sched_evaluation": number(int(NOW) - 30), "priority": number(1000)}  # fmt: skip
    return job | {key: number(value) if type(value) is int else value for key, value in values.items()}


@pytest.mark.parametrize("new", [False, True], ids=["22.05", "23.11"])
def test_json(tmp_path: Path, new: bool) -> None:
    jobs = [
        json_job(1, new=new, state="RUNNING", start_time=int(NOW) - 3600, nodes="a[01-02]",
                 tres_per_node="", tres_per_job="gres:gpu:5", gres_detail=["gpu:a100:4(IDX:0-3)", "gpu:a100:1(IDX:0)"]),
        json_job(2, new=new, state="PENDING", state_reason="Priority"),
        json_job(3, new=new, state="PENDING", array_job_id=3, array_task_string="1-2", state_reason="JobHeldAdmin"),
        json_job(4, new=new, state="COMPLETED"),
    ]  # fmt: skip
    document: dict[str, object] = {"meta": {}, "jobs": jobs}
    queue = read(tmp_path, json.dumps(document))
    assert queue.time == NOW - 30
    read_jobs = by_name(queue)
    assert list(read_jobs) == ["1", "2", "3_1", "3_2"]
    assert read_jobs["1"].placement == (("a01", 4), ("a02", 1))
    assert (read_jobs["1"].num_gpus, read_jobs["1"].gpus_per_task) == (5, 1)
    assert (read_jobs["2"].num_gpus, read_jobs["2"].num_nodes, read_jobs["2"].time_limit) == (8, 2, 14400)
    assert read_jobs["3_2"].kept_out == "are held"
    assert read(tmp_path, json.dumps(document), time=NOW).time == NOW


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n",
            "no column SUBMIT_TIME; give the output of squeue",
        ),
        ("JOBID|STATE|SUBMIT_TIME\n1|R|2026-03-04T10:00:00\n", "no column with the GPUs of a job"),
        (f"{COLUMNS}\n", "the queue is empty"),
        (TEXT.replace("2026-03-04T11:00:00", "yesterday"), "line 3: column 'SUBMIT_TIME' is not"),
        (TEXT.replace("|30:00|", "|soon|"), "line 4: column 'TIME_LIMIT' is not a time like 1-02:03:04"),
        (TEXT.replace("a[01-02]", "a[01"), "line 2: column 'NODELIST' is not a list of nodes"),
        (TEXT.replace("12|b|bob|ml", "12|b"), "line 3: 15 cells below 17 names of columns"),
        (TEXT.replace("|30:00|", "|1-02|"), "line 4: column 'TIME_LIMIT' is not a time like 1-02:03:04"),
        ("JOBID|STATE|SUBMIT_TIME|TRES_PER_NODE\n1|PENDING|N/A|gpu:2\n", "no job states a time; give"),
    ],
)
def test_wrong_queues(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
