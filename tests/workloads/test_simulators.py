"""Job lists of published simulators: what a row means, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.known_duration import ScalingProfile, speed_at
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.workloads.job import Job
from polluxsim.workloads.simulator_lists import ElasticFlowJobs, MuriJobs

MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,priority\n"
ELASTICFLOW = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
THROUGHPUTS = "global_batch_size,1,2,4\n64,0.5,0.8,nan\n128,0.25,,1.0\n"


def lists(folder: Path, muri: str = "", elasticflow: str = "", throughputs: str = THROUGHPUTS) -> Path:
    (folder / "muri.csv").write_text(MURI + muri)
    (folder / "elasticflow.csv").write_text(ELASTICFLOW + elasticflow)
    (folder / "speeds").mkdir()
    (folder / "speeds" / "bert.csv").write_text(throughputs)
    return folder


def read(folder: Path) -> tuple[Job, ...]:
    return ElasticFlowJobs(str(folder / "elasticflow.csv"), str(folder / "speeds")).load({}).jobs


def test_a_muri_job_lasts_its_iterations_in_milliseconds(tmp_path: Path) -> None:
    lists(tmp_path, muri="a,4,1500,1000,bert,4,99,200,0\nb,2,0,10,bert,4,99,0.5,1\n")
    second, first = MuriJobs(str(tmp_path / "muri.csv")).load({}).jobs
    assert first == Job.rigid("a", 1.5, 4, 203.0, line=2)
    assert (second.submit_time, second.num_replicas, second.priority) == (0.0, 2, -1.0)
    assert second.duration == pytest.approx(10 * 0.5 * 1.015 / 1000)


def test_an_elasticflow_job_lasts_its_iterations_at_its_measured_speed(tmp_path: Path) -> None:
    lists(tmp_path, elasticflow="a,10,100,bert,500,64,2,0\nb,20,50,bert,600,128,4,0\n")
    first, second = read(tmp_path)
    assert first == Job.rigid("a", 10.0, 2, 125.0, line=2, deadline=500.0, speeds=((1, 0.5), (2, 0.8)))
    assert (second.duration, second.speeds) == (50.0, ((1, 0.25), (4, 1.0)))
    # Under a policy that gives everybody what they ask for, that is how long they take.
    result = simulate(
        ElasticFlowJobs(str(tmp_path / "elasticflow.csv"), str(tmp_path / "speeds")).load({}),
        {}, Cluster.uniform(2, 4), Fifo(), settings=EngineSettings(restart_delay=0.0),
    )  # fmt: skip
    assert [job.completion_time for job in result.job_records] == [60.0 + 125.0, 60.0 + 50.0]
    assert all(job.finish_time_fairness is not None for job in result.job_records)


def test_columns_have_the_names_of_both_published_files(tmp_path: Path) -> None:
    lists(tmp_path, elasticflow="a,10,100,bert,500,64,2,0\n")
    path = tmp_path / "elasticflow.csv"
    once = read(tmp_path)
    path.write_text(
        path.read_text().replace("submit_", "submission_").replace(",iter", ",num_iter").replace("ddl", "deadline")
    )
    assert read(tmp_path) == once


def test_jobs_without_tables_train_as_applications_do(tmp_path: Path) -> None:
    lists(tmp_path, elasticflow="a,10,100,bert,500,64,2,0\n")
    (job,) = ElasticFlowJobs(str(tmp_path / "elasticflow.csv")).load({}).jobs
    assert (job.application, job.batch_size, job.duration, job.deadline) == ("bert", 64, None, 500.0)


def test_an_elastic_job_is_as_fast_as_its_table_says() -> None:
    profile = ScalingProfile(2, 100.0, ((1, 0.5), (2, 0.8), (4, 1.2)))
    assert [profile.step_time((gpus,), 1).step_time for gpus in (1, 2, 4)] == pytest.approx([1.6, 1.0, 0.8 / 1.2])
    assert speed_at(profile.speeds, 3) == pytest.approx(1.0)
    for gpus in (0, 5):
        with pytest.raises(ProfileRangeError, match=f"its speed is known on 1 to 4 GPUs, not on {gpus}"):
            profile.step_time((gpus,), 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,0,10,bert,4,9,5,0", "line 2: column 'num_gpu' is '0', must be a whole number ≥ 1"),
        ("a,1,-1,10,bert,4,9,5,0", "line 2: column 'submit_time' is '-1', must be a finite number ≥ 0"),
        ("a,1,0,0,bert,4,9,5,0", "line 2: column 'iterations' is '0', must be a whole number ≥ 1"),
        ("a,1,0,10,bert,4,9,0,0", "line 2: column 'iteration_time' is '0', must be a finite number > 0"),
        ("a,1,0,10,bert,4,9,1e16,0", "line 2: job 'a': duration is 101500000000000.0, must be a number of seconds"),
        ("a,1,0,10,bert,4,9,5,0\na,1,0,10,bert,4,9,5,0", "line 3: the name 'a' is also on line 2, must be unique"),
    ],
)  # fmt: skip
def test_what_a_muri_job_cannot_be_is_named(tmp_path: Path, row: str, message: str) -> None:
    lists(tmp_path, muri=f"{row}\n")
    with pytest.raises(PolluxSimError, match=re.escape(message)) as caught:
        MuriJobs(str(tmp_path / "muri.csv")).load({})
    assert "\n" not in str(caught.value)


def test_a_job_list_of_tiresias_is_not_taken_for_one_of_muri(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,1,0,9,x,9,9\n"
    )
    with pytest.raises(PolluxSimError, match="line 1: missing column 'iteration_time'"):
        MuriJobs(str(tmp_path / "t.csv")).load({})


@pytest.mark.parametrize(
    ("row", "speeds", "message"),
    [
        ("a,0,9,gpt,9,64,1,0", THROUGHPUTS, "line 2: column 'model_name' is 'gpt', must be bert"),
        ("a,0,9,bert,9,65,1,0", THROUGHPUTS, "line 2: column 'batch_size' is '65', must be 128, 64 for bert"),
        ("a,0,9,bert,9,64,4,0", THROUGHPUTS, "line 2: column 'num_gpu' is '4', must be 1 to 2, as measured for bert"),
        ("a,0,9,bert,-9,64,1,0", THROUGHPUTS, "line 2: job 'a': deadline is -9.0, must be a number of seconds"),
        ("a,0,9,bert,9,64,1,0", "global_batch_size,1,x\n64,1,2\n", "line 1: column 'x' must be global_batch_size"),
        ("a,0,9,bert,9,64,1,0", "global_batch_size,1,4,2\n64,1,2,3\n", "are 1, 4, 2, must be rising"),
        ("a,0,9,bert,9,64,1,0", "global_batch_size,1,2\n64,-1,2\n", "line 2: column '1' is '-1', must be a finite"),
        ("a,0,9,bert,9,64,1,0", "global_batch_size,1,2,4\n64,nan,,0\n", "line 2: the row must have at least one speed"),
    ],
)  # fmt: skip
def test_what_an_elasticflow_job_cannot_be_is_named(tmp_path: Path, row: str, speeds: str, message: str) -> None:
    lists(tmp_path, elasticflow=f"{row}\n", throughputs=speeds)
    with pytest.raises(PolluxSimError, match=re.escape(message)) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_columns_and_tables_are_named(tmp_path: Path) -> None:
    lists(tmp_path, elasticflow="a,0,9,bert,9,64,1,0\n")
    path = tmp_path / "elasticflow.csv"
    path.write_text(path.read_text().replace("ddl", "due"))
    with pytest.raises(PolluxSimError, match="line 1: missing column 'ddl' or 'deadline'"):
        read(tmp_path)
    with pytest.raises(PolluxSimError, match="no table of throughputs"):
        ElasticFlowJobs(str(path), str(tmp_path / "nowhere")).load({})


@pytest.mark.slow
def test_the_published_files_are_read(data_folder: Path) -> None:
    rigid = data_folder / "rigid"
    counts = [
        len(MuriJobs(str(rigid / "muri" / f"{name}.csv")).load({}).jobs) for name in ("trace3", "trace3_pr", "trace4")
    ]
    assert counts == [992, 992, 2638]
    for gpu, name in (("T4", "itp195_t4"), ("A100", "itp195_a100")):
        path, tables = rigid / "elasticflow" / f"{name}.csv", rigid / "elasticflow" / f"throughputs_{gpu}"
        jobs = ElasticFlowJobs(str(path), str(tables)).load({}).jobs
        assert len(jobs) == 195
