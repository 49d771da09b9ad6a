"""Traces replayed as rigid jobs: what is taken, what is left out and counted, what they cost on a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polluxsim.engine.simulation import simulate
from polluxsim.errors import InvalidConfigError, InvalidInputError, PolluxSimError
from polluxsim.logs.importing import import_trace
from polluxsim.logs.schema import TraceInfo
from polluxsim.logs.trace_table import write_trace
from polluxsim.policies.autoscaling import Autoscaler
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.optimus import Optimus
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.srtf import Srtf
from polluxsim.policies.tiresias import Tiresias
from polluxsim.types import Cluster
from polluxsim.workloads.trace import TraceReplay

INFO = TraceInfo("itp", "made up", "own", "", "0")


def trace(path: Path, *jobs: tuple[str, float, float | None, float]) -> str:
    """Write jobs given as name, submission [s], duration [s] and GPUs; return the file's name."""
    names = ("job", "submit_time", "duration", "num_gpus")
    write_trace(dict(zip(names, map(list, zip(*jobs, strict=True)), strict=True)), INFO, path)
    return str(path)


def test_jobs_that_held_no_gpu_for_a_known_time_are_left_out_and_counted(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "t.parquet",
        ("a", 0, 50, 1), ("cpu", 1, 50, 0), ("lost", 2, None, 1), ("none", 3, 0, 1), ("half", 4, 9, 0.5),
        ("big", 5, 9, 16), ("a", 6, 7.5, 2),
    )  # fmt: skip
    workload = TraceReplay(path, most_gpus=8).load({})
    assert [(job.job_id, job.num_replicas, job.duration, job.line) for job in workload.jobs] == [
        ("a", 1, 50, 1), ("half", 1, 9, 5), ("a#2", 2, 7.5, 7),
    ]  # fmt: skip
    assert workload.notes == (
        "1 jobs without a GPU left out",
        "2 jobs without a known time on GPUs left out",
        "1 jobs with a share of a GPU given a whole one",
        "1 jobs with more than 8 GPUs left out",
    )
    assert [job.job_id for job in TraceReplay(path, most_jobs=2).load({}).jobs] == ["a", "half"]


@pytest.mark.parametrize(
    ("names", "replayed"),
    [(("a", "a", "a#2"), ["a", "a#3", "a#2"]), (("a#2", "a", "a", "a", "a#2"), ["a#2", "a", "a#3", "a#4", "a#2#2"])],
)
def test_names_that_a_log_uses_again_are_told_apart(tmp_path: Path, names: list[str], replayed: list[str]) -> None:
    path = trace(tmp_path / "t.parquet", *((name, index, 50, 1) for index, name in enumerate(names)))
    assert [job.job_id for job in TraceReplay(path).load({}).jobs] == replayed


def test_whose_jobs_they_were_is_kept(tmp_path: Path) -> None:
    """Also what they promised, and where it is asked for, when their users gave up."""
    (tmp_path / "sacct.txt").write_text(
        "JobID|User|Account|State|Submit|Start|End|ElapsedRaw|Timelimit|AllocTRES\n"
        "1|ada|vision|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|60|1-00:00:00|gres/gpu=2\n"
        "2||nlp|CANCELLED by 7|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T00:01:30|30|UNLIMITED|gres/gpu=1\n"
    )
    path = tmp_path / "t.parquet"
    import_trace("slurm", tmp_path / "sacct.txt", path, time_zone="UTC")
    one, two = TraceReplay(str(path)).load({}).jobs
    assert (one.user, one.queue, one.time_limit, one.cancel_time) == ("ada", "vision", 86400.0, None)
    assert (two.user, two.queue, two.time_limit, two.cancel_time) == (None, "nlp", None, None)
    one, two = TraceReplay(str(path), cancel=True).load({}).jobs
    assert (one.cancel_time, two.submit_time, two.cancel_time) == (None, 10.0, 90.0)


@pytest.mark.parametrize("policy", [Fifo, Srtf, Tiresias])
def test_a_rigid_job_takes_its_duration_on_its_gpus(tmp_path: Path, policy: type[Fifo | Srtf | Tiresias]) -> None:
    """One after the other on GPUs that only one of them fits: delay, duration, and the wait for the next round."""
    path = trace(tmp_path / "t.parquet", ("first", 0, 100.25, 6), ("second", 0, 60, 5))
    result = simulate(TraceReplay(path).load({}), {}, Cluster.uniform(2, 4), policy())
    times = {job.job: (job.start_time, job.completion_time, job.gpu_seconds) for job in result.job_records}
    if policy is Srtf:
        assert times == {"second": (60.0, 150.0, 450.0), "first": (180.0, 310.25, 781.5)}
    else:
        assert times == {"first": (60.0, 190.25, 781.5), "second": (240.0, 330.0, 450.0)}
    assert all(job.finish_time_fairness for job in result.job_records)


@pytest.mark.parametrize("policy", [Pollux, Optimus, Autoscaler])
def test_policies_that_need_profiles_say_so(tmp_path: Path, policy: type[Pollux | Optimus | Autoscaler]) -> None:
    path = trace(tmp_path / "t.parquet", ("a", 0, 50, 1))
    message = re.escape(f"t.parquet, line 1: has no profile, and {policy.__name__} needs one of every job")
    with pytest.raises(InvalidInputError, match=message):
        simulate(TraceReplay(path).load({}), {}, Cluster.uniform(1, 4), policy())


def test_a_policy_that_gives_a_rigid_job_other_gpus_is_told(tmp_path: Path) -> None:
    class Stingy:
        def allocate(self, view, rng):
            return {job.job_id: ((0, 1),) for job in view.jobs}

    path = trace(tmp_path / "t.parquet", ("a", 0, 50, 2))
    with pytest.raises(PolluxSimError, match="a rigid job was given 1 GPUs, allowed are the 2 it asks for"):
        simulate(TraceReplay(path).load({}), {}, Cluster.uniform(1, 4), Stingy())


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file"):
        TraceReplay(str(tmp_path / "no.parquet")).load({})
    with pytest.raises(InvalidInputError, match="no job that held a GPU"):
        TraceReplay(trace(tmp_path / "t.parquet", ("cpu", 0, 10, 0))).load({})
    with pytest.raises(InvalidInputError, match="num_replicas is 9, allowed are the 8 GPUs there are"):
        path = trace(tmp_path / "t.parquet", ("a", 0, 50, 9))
        simulate(TraceReplay(path).load({}), {}, Cluster.uniform(2, 4), Fifo())
    with pytest.raises(InvalidConfigError, match="most_jobs is 0"):
        TraceReplay("t.parquet", most_jobs=0)


def test_the_philly_trace_is_replayed_whole(data_folder: Path, tmp_path: Path) -> None:
    """With so few jobs at a time that nobody waits for long: every JCT is wait, delay and duration."""
    import_trace(
        "philly", data_folder / "osdi21" / "traces" / "philly.csv", tmp_path / "philly.parquet", time_zone="UTC"
    )
    workload = TraceReplay(str(tmp_path / "philly.parquet")).load({})
    assert len(workload.jobs) == 82_247
    assert not workload.notes
    few = TraceReplay(str(tmp_path / "philly.parquet"), most_jobs=3000).load({})
    result = simulate(few, {}, Cluster.of_groups([[321, 2], [231, 8]]), Fifo())
    for job, record in zip(few.jobs, result.job_records, strict=True):
        assert record.completion_time == pytest.approx(record.start_time + 30 + job.duration)
        assert 0 <= record.queueing_delay <= 60
