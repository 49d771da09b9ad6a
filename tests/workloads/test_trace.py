"""Traces replayed as rigid jobs: what is taken, what is left out and counted, what they cost on a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.cli.main import main
from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, PolluxSimError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation
from polluxsim.logs.formats.base import RowReason
from polluxsim.logs.import_report import as_text
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import TraceInfo, write_trace
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.elastic.cluster_size import Autoscaler
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, ShortestJobFirst, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.workloads.past import Past
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import Job, Workload

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


def test_names_priorities_and_qos_reach_the_view_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(
        "JobID|JobName|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|QOS|Priority\n"
        "1|train|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:05|2024-01-01T00:01:00|2024-01-01T00:02:00|60|"
        "gres/gpu=2|high|100\n"
        "2| |COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:25|2024-01-01T00:01:00|2024-01-01T00:02:00|60|"
        "gres/gpu=2||\n"
    )
    path = tmp_path / "t.parquet"
    import_trace("slurm", tmp_path / "sacct.txt", path)
    seen = dict[str, tuple[object, ...]]()

    class Watching(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
            for job in view.jobs:
                seen[job.job_id] = job.submit_time, job.job_name, job.priority, job.qos
            return super().allocate(view, rng)

    simulate(TraceReplay(str(path)).load({}), {}, Cluster.uniform(1, 4), Watching())
    assert seen == {"1": (0.0, "train", 100.0, "high"), "2": (20.0, None, 0.0, None)}
    by_qos = TraceReplay(str(path), priorities={"high": 7}).load({}).jobs
    assert [job.priority for job in by_qos] == [7.0, 0.0]
    for priorities, message in (
        ({"hgih": 1}, "names QOS 'hgih', which is not in the log: its QOS are high; did you mean high?"),
        ({"high": "x"}, "priorities.high is 'x', must be a finite number"),
    ):
        with pytest.raises(InvalidConfigError, match=re.escape(message)):
            TraceReplay(str(path), priorities=priorities).load({})  # type: ignore[arg-type]


SACCT = """\
JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES
1|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu=4,gres/gpu:a100=4|gres/gpu=4
2|COMPLETED|2024-01-01T00:00:01|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu:nvidia_a100-sxm4-80gb=2|
3|COMPLETED|2024-01-01T00:00:02|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu=1|gres/gpu:tesla_t4=1
4|COMPLETED|2024-01-01T00:00:03|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu=1|gres/gpu=1
5|COMPLETED|2024-01-01T00:00:04|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu:a100=1,gres/gpu:t4=1|
6+0|COMPLETED|2024-01-01T00:00:05|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu:a100=1|
6+1|COMPLETED|2024-01-01T00:00:05|2024-01-01T00:01:00|2024-01-01T00:02:00|60|gres/gpu:t4=1|
"""
PAI = "\n".join(
    f"job{row},task,1,Terminated,{row}.0,{row + 60}.0,600,29.3,100,{name}"
    for row, name in enumerate(("T4", "V100M32", "MISC", "P100", ""))
)
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,1,1,1,1000,T4,LS,Succeeded,0,60,0
b,1,1,2,1000,V100M16|V100M32,LS,Succeeded,1,60,1
c,1,1,1,1000,,LS,Succeeded,2,60,2
d,1,1,1,1000,G2,LS,Succeeded,3,60,3
"""
LOGS = {
    "slurm": (SACCT, ["a100-40", "a100-80", "t4", "", "", ""], [[1, 8, "t4"], [1, 4, "a100-40"], [1, 4, "a100-80"]]),
    "pai2020": (PAI, ["t4", "v100-32", "", "p100", ""], [[1, 2, "p100"], [1, 2, "v100-32"], [1, 2, "t4"]]),
    "openb2023": (
        OPENB, ["t4", "v100 v100-32", "", "g2"], [[1, 1, "t4"], [1, 2, "v100-32"], [1, 1, {"name": "g2"}]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("policy", [Fifo, Srtf, Easy])
def test_jobs_run_on_the_gpu_types_that_their_log_names(
    tmp_path: Path, name: str, policy: type[Fifo | Srtf | Easy]
) -> None:
    text, types, groups = LOGS[name]
    (tmp_path / "log.csv").write_text(text)
    import_trace(name, tmp_path / "log.csv", tmp_path / "t.parquet")
    workload, cluster = TraceReplay(str(tmp_path / "t.parquet")).load({}), Cluster.of_groups(groups)
    assert [" ".join(job.gpu_types) for job in workload.jobs] == types
    result = simulate(workload, {}, cluster, policy())
    allowed = {job.job_id: job.gpu_types for job in workload.jobs}
    for record in result.allocation_records:
        used = {cluster.node_types[node].name for node in record.nodes}
        assert not allowed[record.job] or used <= set(allowed[record.job])
    assert all(job.jct for job in result.job_records)


def test_what_types_of_a_log_stand_for_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(SACCT)
    report = import_trace("slurm", tmp_path / "log.csv", tmp_path / "t.parquet")
    assert [tally.count for tally in report.suspicious if tally.reason == RowReason.SEVERAL_TYPES] == [2]
    said = {item.said: (item.jobs, item.known_as) for item in report.gpu_types}
    assert said["a100"] == (1, ("a100-40",))
    assert "1  tesla_t4: t4" in as_text(report)
    path = str(tmp_path / "t.parquet")
    own = TraceReplay(path, gpu_types={"A100": "a100-80", "tesla_t4": ""}).load({}).jobs
    assert [job.gpu_types for job in own[:3]] == [("a100-80",), ("a100-80",), ()]
    assert not any(job.gpu_types for job in TraceReplay(path, gpu_types=None).load({}).jobs)
    with pytest.raises(InvalidConfigError, match=r"workload\.gpu_types\.a100 is 8\.5, must be the name"):
        TraceReplay(path, gpu_types={"a100": 8.5}).load({})
    with pytest.raises(InvalidConfigError, match=r"workload\.gpu_types names GPU type 'a1000', which is not"):
        TraceReplay(path, gpu_types={"a1000": "a100-80"}).load({})


def test_a_type_that_the_cluster_lacks_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(PAI)
    import_trace("pai2020", tmp_path / "log.csv", tmp_path / "t.parquet")
    workload = TraceReplay(str(tmp_path / "t.parquet")).load({})
    words = "fits no GPU type of the cluster: t4: gpu_types are v100-32; p100: gpu_types are v100-32"
    with pytest.raises(InvalidInputError, match=words):
        simulate(workload, {}, Cluster.of_groups([[1, 2, "t4"], [1, 2, "p100"]]), Fifo())


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
    with pytest.raises(PolluxSimError, match="a rigid job has 1 GPUs, must have 2, as requested"):
        simulate(TraceReplay(path).load({}), {}, Cluster.uniform(1, 4), Stingy())


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file"):
        TraceReplay(str(tmp_path / "no.parquet")).load({})
    with pytest.raises(InvalidInputError, match="no job with GPUs and a known duration"):
        TraceReplay(trace(tmp_path / "t.parquet", ("cpu", 0, 10, 0))).load({})
    with pytest.raises(InvalidInputError, match="num_replicas is 9, must be at most 8, the number of GPUs"):
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


times = st.lists(st.floats(0, 10 * HOUR), min_size=1, max_size=20).map(sorted)


@given(times, st.floats(0, 3), st.floats(0.5, 8), st.floats(0.25, 4))
@settings(max_examples=30)
def test_a_window_at_another_load_is_the_same_jobs_at_other_times(
    tmp_path_factory: pytest.TempPathFactory, submissions: list[float], start: float, hours: float, factor: float
) -> None:
    first = submissions[0]
    jobs = [(f"j{i}", time - first, 60.0 + i, 1.0) for i, time in enumerate(submissions)]
    path = trace(tmp_path_factory.mktemp("t") / "t.parquet", *jobs)
    inside = [job for job in jobs if start * HOUR <= job[1] < (start + hours) * HOUR]
    replay = TraceReplay(path, start=start, hours=hours, load_factor=factor)
    if not inside:
        with pytest.raises(InvalidInputError, match="no job with GPUs and a known duration"):
            replay.load({})
        return
    workload = replay.load({})
    of_window = [job for job in workload.jobs if job.past is None]
    assert [(job.job_id, job.duration) for job in of_window] == [(job[0], job[2]) for job in inside]
    assert [job.submit_time * factor + start * HOUR for job in of_window] == pytest.approx([job[1] for job in inside])
    assert sum(int(note.split()[0]) for note in workload.notes) == len(jobs) - len(workload.jobs)


def test_a_share_is_drawn_by_its_seed(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.parquet", *((f"j{i}", float(i), 60.0, 1.0) for i in range(1000)))
    draws = [{job.job_id for job in TraceReplay(path, share=0.25, seed=seed).load({}).jobs} for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert all(200 < len(draw) < 300 for draw in draws)
    assert len(TraceReplay(path, share=1.0).load({}).jobs) == 1000


def slurm_log(path: Path, *rows: str) -> Path:
    """Write rows of sacct as a trace."""
    header = "JobID|User|Partition|State|Submit|Start|ElapsedRaw|AllocTRES"
    path.with_suffix(".txt").write_text("\n".join([header, *rows]) + "\n")
    import_trace("slurm", path.with_suffix(".txt"), path, time_zone="UTC")
    return path


def test_the_queue_of_a_job_is_the_field_that_the_setting_names(tmp_path: Path) -> None:
    header = "JobID|User|Account|Partition|QOS|State|Submit|Start|ElapsedRaw|AllocTRES"
    at = "2024-01-01T00:00:00"
    rows = [f"{number}|{user}|vision|gpu|high|COMPLETED|{at}|{at}|600|gres/gpu=1" for number, user in enumerate("abba")]
    text = tmp_path / "log.txt"
    text.write_text("\n".join([header, *rows]) + "\n")
    path = tmp_path / "log.parquet"
    import_trace("slurm", text, path, time_zone="UTC")
    for field, queues in (
        ("tenant", ["vision"] * 4), ("partition", ["gpu"] * 4), ("qos", ["high"] * 4), ("user", list("abba")),
    ):  # fmt: skip
        jobs = TraceReplay(str(path), queue=field).load({}).jobs
        assert [job.queue for job in jobs] == queues
    with pytest.raises(InvalidConfigError, match=r"workload\.queue is 'account', must be one of tenant, partition"):
        TraceReplay(str(path), queue="account")
    without = trace(tmp_path / "none.parquet", ("a", 0, 50, 1))
    with pytest.raises(InvalidConfigError, match=r"workload\.queue is 'user', but no job of the log .* has a user"):
        TraceReplay(without, queue="user").load({})


def test_quotas_by_user_limit_the_gpus_of_each_user(tmp_path: Path) -> None:
    """Each user owns two of four GPUs and borrows none: the first user's third job waits for the first one to end."""
    at = "2024-01-01T00:00:00"
    rows = [f"{number}|{'ann' if number < 3 else 'bob'}|gpu|COMPLETED|{at}|{at}|600|gres/gpu=1" for number in range(4)]
    path = slurm_log(tmp_path / "t.parquet", *rows)
    workload = TraceReplay(str(path), queue="user").load({})
    policy = Quotas(gpus={"ann": 2, "bob": 2}, borrowing=False)
    records = simulate(workload, {}, Cluster.uniform(1, 4), policy).job_records
    starts = {job.job: job.start_time for job in records}
    assert starts["0"] == starts["1"] == starts["3"]
    assert starts["2"] is not None
    assert starts["0"] is not None
    assert starts["2"] >= starts["0"] + 600


def test_no_more_jobs_of_an_array_run_than_may(tmp_path: Path) -> None:
    at = "2024-01-01T00:00:00"
    rows = [f"5_{i}|u|gpu|COMPLETED|{at}|{at}|{600 + 7 * i}|gres/gpu=1" for i in range(8)]
    path = slurm_log(tmp_path / "t.parquet", *rows, f"5_[8-9%3]|u|gpu|PENDING|{at}||0|gres/gpu=1")
    result = simulate(TraceReplay(str(path), queue="partition").load({}), {}, Cluster.uniform(2, 8), Fifo())
    spans = [(job.start_time, job.completion_time) for job in result.job_records]
    at_once = [
        sum(a <= start < b for a, b in spans if a is not None and b is not None)
        for start, _ in spans
        if start is not None
    ]
    assert max(at_once) == 3
    assert len(at_once) == 8
    assert {job.queue for job in result.job_records} == {"gpu"}


def test_the_queue_that_made_a_log_explains_it_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that shortest job first made on 16 GPUs."""
    rng = np.random.default_rng(1)
    jobs = tuple(
        Job.rigid(f"{i}", 60.0 * i, int(rng.choice([1, 2, 8])), float(rng.integers(300, 6000))) for i in range(80)
    )
    free = EngineSettings(restart_delay=0.0, round_interval=10.0, placement="consolidated")
    result = simulate(Workload(jobs), {}, Cluster.uniform(2, 8), ShortestJobFirst(), settings=free)

    def clock(seconds: float | None) -> str:
        return str(np.datetime64("2024-01-01T00:00:00") + np.timedelta64(int(seconds or 0), "s"))

    rows = [
        f"{job.job}|u|gpu|COMPLETED|{clock(job.submit_time)}|{clock(job.start_time)}|{jobs[int(job.job)].duration}|gres/gpu={job.num_replicas}"
        for job in result.job_records
    ]
    log = slurm_log(tmp_path / "log.parquet", *rows)
    arguments = ("--policies", "fifo,sjf", "--gpus", "16,24", "--workers", "1", "-o", str(tmp_path / "runs"))
    assert main(["log", "calibrate", str(log), *arguments]) == 0
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines() if "│" in line]
    lines = [line for line in lines if line[0] in ("fifo", "sjf")]
    assert len(lines) == 4
    assert lines[0][:5] == ["sjf", "16", "100", "%", "0.00"]
    assert float(lines[0][-1]) == 1.0
    (calibrated,) = (path for path in (tmp_path / "runs").iterdir() if "policy=sjf,cluster.num_nodes=2" in path.name)
    _every_command_has_the_same_waits(log, (calibrated / "jobs.parquet").read_bytes(), tmp_path, capsys)
    assert main(["log", "calibrate", trace(tmp_path / "no.parquet", ("a", 0, 9, 1)), "--gpus", "8"]) == 2
    assert "no job has a queueing delay" in capsys.readouterr().err
    assert main(["log", "calibrate", str(log), "--gpus", "12"]) == 2
    assert "a cluster of 12 GPUs does not consist of whole nodes of 8 GPUs" in capsys.readouterr().err


def _every_command_has_the_same_waits(
    log: Path, jobs: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replay a log with three other commands under SJF on two nodes of 8 GPUs."""
    line = "the engine adds up to 10 s until the next round and 30 s at each restart"
    same = ("policy=sjf", "cluster.gpus_per_node=8")
    source = ("workload=trace", f"workload.path={log}")
    assert main(["run", *source, *same, "cluster.num_nodes=2", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert line in capsys.readouterr().out
    assert (tmp_path / "run" / "jobs.parquet").read_bytes() == jobs
    where = ("--limit", "2", "-o", str(tmp_path / "sized"))
    assert main(["size", "--log", str(log), "--target", "mean wait < 10d", *same, *where]) == 0
    assert line in capsys.readouterr().out
    assert jobs in [path.read_bytes() for path in (tmp_path / "sized").rglob("jobs.parquet")]
    what = ("--nodes", "2", "--policies", "sjf", "-o", str(tmp_path / "whatif"))
    assert main(["log", "whatif", str(log), *what]) == 0
    assert line in capsys.readouterr().out
    assert {path.read_bytes() for path in (tmp_path / "whatif").rglob("jobs.parquet")} == {jobs}
    assert (
        main(["run", *source, *same, "cluster.num_nodes=2", "engine=exact", f"hydra.run.dir={tmp_path / 'own'}"]) == 0
    )
    assert "the engine adds up to 60 s until the next round and 30 s at each start" in capsys.readouterr().out


def test_a_resampled_log_consists_of_its_pieces(tmp_path: Path) -> None:
    """A log of six hours with one job in the first hour, two in the second, and so on."""
    rows = [(f"{hour}.{n}", 3600 * hour + 10 * n, 60, 1) for hour in range(6) for n in range(hour + 1)]
    path = trace(tmp_path / "t.parquet", *rows)
    orders = set()
    for seed in range(4):
        jobs = TraceReplay(path, hours=6.0, resample_hours=1.0, load_factor=2.0, seed=seed).load({}).jobs
        pieces = [[job for job in jobs if job.submit_time // 1800 == place] for place in range(6)]
        drawn = [int(piece[0].job_id.partition(".")[0]) for piece in pieces]
        assert [len(piece) for piece in pieces] == [hour + 1 for hour in drawn]
        for place, piece in enumerate(pieces):
            assert [job.submit_time for job in piece] == [1800 * place + 5 * n for n in range(drawn[place] + 1)]
        orders.add(tuple(drawn))
    assert len(orders) == 4
    assert any(len(set(drawn)) < 6 for drawn in orders)
    for hours in (8.0, 1000.0, float("inf")):  # nothing is known about the time after the log
        jobs = TraceReplay(path, hours=hours, resample_hours=2.0, seed=1).load({}).jobs
        assert {int(job.submit_time // 7200) for job in jobs} == {0, 1, 2}
    with pytest.raises(InvalidConfigError, match=r"too short for workload\.resample_hours=4: .* give at most 2\.5"):
        TraceReplay(path, resample_hours=4.0).load({})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"resample_hours": 0.0}, "workload.resample_hours is 0, must be a finite number > 0, or null"),
        ({"start": -1.0}, "workload.start is -1, must be a finite number ≥ 0"),
        ({"hours": 0.0}, "workload.hours is 0, must be a number > 0, or null"),
        ({"load_factor": 0.0}, "workload.load_factor is 0, must be a finite number > 0"),
        ({"priorities": 3}, "workload.priorities is 3, must be a mapping, like {LS: 2, BE: 0}"),
        ({"share": 1.5}, "workload.share is 1.5, must be a number > 0 and ≤ 1"),
        ({"seed": -1}, "workload.seed is -1, must be a whole number ≥ 0"),
    ],
)
def test_settings_are_checked_before_anything_is_read(settings: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        TraceReplay("no-such.parquet", **settings)  # type: ignore[arg-type]
    assert str(error.value) == words


WAITING_LOG = """\
job,submit,start,end,gpus,user
ended,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T01:00:00Z,8,ada
runs,2026-03-02T01:00:00Z,2026-03-02T01:00:20Z,2026-03-02T10:00:20Z,6,ada
waits,2026-03-02T01:30:00Z,2026-03-02T10:00:20Z,2026-03-02T10:30:20Z,8,bob
runs,2026-03-02T01:40:00Z,2026-03-02T01:40:00Z,2026-03-02T03:40:00Z,1,bob
runs,2026-03-02T02:30:00Z,2026-03-02T10:30:20Z,2026-03-02T10:40:20Z,8,bob
"""


def waiting_log(folder: Path) -> str:
    (folder / "log.csv").write_text(WAITING_LOG)
    import_trace("table", folder / "log.csv", folder / "log.parquet")
    return str(folder / "log.parquet")


def test_jobs_at_the_start_of_a_window_that_are_left_out_have_their_own_reason(tmp_path: Path) -> None:
    """`waits` holds 8 GPUs later in the window, and `ended` is over before it."""
    log = (
        WAITING_LOG.rsplit("\n", 2)[0] + "\nnew,2026-03-02T02:30:00Z,2026-03-02T10:30:20Z,2026-03-02T10:40:20Z,1,bob\n"
    )
    (tmp_path / "log.csv").write_text(log)
    import_trace("table", tmp_path / "log.csv", tmp_path / "log.parquet")
    assert sorted(TraceReplay(str(tmp_path / "log.parquet"), start=2.0, most_gpus=7).load({}).notes) == [
        "1 jobs submitted outside the window left out",
        "1 jobs with more than 7 GPUs left out, running or waiting at the start of the window",
    ]


def test_a_window_begins_with_the_jobs_that_run_and_wait_then(tmp_path: Path) -> None:
    path = waiting_log(tmp_path)
    workload = TraceReplay(path, start=2.0).load({})
    assert [(job.job_id, job.submit_time, job.duration, job.past) for job in workload.jobs] == [
        ("runs", -3600.0, 32_400.0, Past.running(-3580.0, 6)),
        ("waits", -1800.0, 1800.0, Past.pending()),
        ("runs#2", -1200.0, 7200.0, Past.running(-1200.0, 1)),
        ("runs#3", 1800.0, 600.0, None),
    ]
    assert workload.notes == ("1 jobs submitted outside the window left out",)
    names = {job.line: job.job_id for job in TraceReplay(path).load({}).jobs}
    assert all(names[job.line] == job.job_id for job in workload.jobs)  # a window does not change names
    # Each job of the window starts when it started in the log, as the log is from FIFO with backfill.
    result = simulate(workload, {}, Cluster((8,)), Fifo(), settings=EngineSettings(restart_delay=0, round_interval=10))
    assert [job.start_time for job in result.job_records] == [-3580.0, 28_820.0, -1200.0, 30_620.0]


def test_settings_apply_to_the_jobs_from_before_a_window(tmp_path: Path) -> None:
    path = waiting_log(tmp_path)

    def before(**settings: object) -> list[str]:
        replay = TraceReplay(path, start=2.0, **settings)  # type: ignore[arg-type]
        return [job.job_id for job in replay.load({}).jobs if job.past is not None]

    assert before() == ["runs", "waits", "runs#2"]
    assert before(most_jobs=1, hours=1.0) == ["runs", "waits", "runs#2"]
    notes = TraceReplay(path, start=2.0, most_gpus=6).load
    with pytest.raises(InvalidInputError, match="no job with GPUs and a known duration in this window"):
        notes({})
    # The past is as it was recorded at any load.
    faster = TraceReplay(path, start=2.0, load_factor=2.0).load({}).jobs
    assert [job.submit_time for job in faster] == [-3600.0, -1800.0, -1200.0, 900.0]
    assert faster[0].past == Past.running(-3580.0, 6)


def test_a_resampled_log_begins_with_the_jobs_that_run_at_the_start_of_its_first_piece(tmp_path: Path) -> None:
    names = ("job", "submit_time", "duration", "num_gpus")
    columns = [[f"j{i}" for i in range(40)], [float(i) * HOUR for i in range(40)], [3.5 * HOUR] * 40, [1.0] * 40]
    write_trace(dict(zip(names, columns, strict=True)), INFO, tmp_path / "t.parquet")
    found = set()
    for seed in range(8):
        workload = TraceReplay(str(tmp_path / "t.parquet"), resample_hours=10.0, seed=seed).load({})
        first = next(job for job in workload.jobs if job.past is None)
        number = int(first.job_id[1:].partition("~")[0])  # the jobs of a piece begin at its start
        earlier = [(job.job_id, job.submit_time) for job in workload.jobs if job.past is not None]
        at_once = [number - hours for hours in (3, 2, 1) if number >= hours]
        assert earlier == [(f"j{each}~1", (each - number) * HOUR) for each in at_once]
        found.add(number)
    assert len(found) > 1


def test_array_jobs_of_a_window_wait_for_members_that_still_run(tmp_path: Path) -> None:
    """Two of the array may run at once: of the members before the window, one has ended and one still runs."""
    path = tmp_path / "a.parquet"
    (tmp_path / "sacct.txt").write_text(
        "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES\n"
        "7_1|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T00:30:00|1800|gres/gpu=1\n"
        "7_2|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T03:00:00|10800|gres/gpu=1\n"
        "7_3|COMPLETED|2024-01-01T01:30:00|2024-01-01T01:30:00|2024-01-01T03:00:00|5400|gres/gpu=1\n"
        "7_4|COMPLETED|2024-01-01T01:30:00|2024-01-01T03:00:00|2024-01-01T03:10:00|600|gres/gpu=1\n"
    )
    import_trace("slurm", tmp_path / "sacct.txt", path)
    table = pq.read_table(path)
    limited = table.set_column(
        table.schema.get_field_index("array_limit"), table.schema.field("array_limit"), pa.array([2] * 4, pa.int64())
    )
    pq.write_table(limited, path)
    jobs = TraceReplay(str(path), start=1.0).load({}).jobs
    assert [(job.job_id, job.after) for job in jobs] == [("7_2", ()), ("7_3", ()), ("7_4", ("7_2",))]


def test_a_window_says_which_jobs_it_begins_with_and_counts_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    waiting_log(tmp_path)
    counts = "2 jobs with 7 GPUs still running, 1 job with 8 GPUs waiting"
    said = f"polluxsim: no metric counts the jobs from before the start of the run: {counts}\n"
    window = ["workload=trace", "workload.path=log.parquet", "workload.start=2"]
    cluster = ["cluster.num_nodes=1", "cluster.gpus_per_node=8"]
    assert main(["run", *window, *cluster, "policy=fifo", "-o", "run"]) == 0
    assert said in (out := capsys.readouterr()).err
    assert re.search(r"average time to the first GPU \[h\] +│ +8\.00", out.out)  # of the one job of the window
    assert main(["log", "calibrate", "log.parquet", "--gpus", "8", "--policies", "fifo", "workload.start=2"]) == 0
    out = capsys.readouterr()
    assert "1 jobs waited 8.01 h on average in the log" in out.out
    assert said in out.err
    assert main(["why", "run", "runs"]) == 0
    story = " ".join(capsys.readouterr().out.split())
    assert "runs since before" in story
    assert "in no metric, because it was submitted before the start of the run" in story


@pytest.mark.slow
def test_sweeps_tables_reports_and_what_ifs_say_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    waiting_log(tmp_path)
    counts = "2 jobs with 7 GPUs still running, 1 job with 8 GPUs waiting"
    said = f"polluxsim: no metric counts the jobs from before the start of the run: {counts}\n"
    window = ["workload=trace", "workload.path=log.parquet", "workload.start=2"]
    cluster = ["cluster.num_nodes=1", "cluster.gpus_per_node=8"]
    assert main(["run", *window, *cluster, "policy=fifo", "-o", "run"]) == 0
    capsys.readouterr()
    assert (
        main(["run", "-m", *window, "cluster.gpus_per_node=8", "cluster.num_nodes=1,2", "policy=fifo", "-o", "s"]) == 0
    )
    assert said in capsys.readouterr().err
    for command in (["table", "run"], ["compare", "s"]):
        assert main(command) == 0
        assert said in capsys.readouterr().err
    assert main(["report", "run", "-o", "run.html"]) == 0
    assert counts in Path("run.html").read_text()
    assert main(["log", "whatif", "log.parquet", "--nodes", "1,+1", "workload.start=2"]) == 0
    assert f"{counts}\n" in capsys.readouterr().out
    assert main(["whatif", "run", "--at", "1h", "cluster.num_nodes=2", "-o", "more"]) == 0
    assert said in capsys.readouterr().err


def test_a_job_keeps_its_name_whatever_jobs_are_left_out(tmp_path: Path) -> None:
    """Replays on clusters of other sizes are compared by the names of jobs, also if the log repeats a name."""
    path = trace(tmp_path / "t.parquet", ("a", 0, 60, 8), ("a", 10, 70, 1), ("b", 20, 80, 1), ("a", 30, 90, 2))
    everything = {job.line: job.job_id for job in TraceReplay(path).load({}).jobs}
    for most_gpus in (1, 2, 8):
        replay = TraceReplay(path, most_gpus=most_gpus).load({})
        assert {job.line: job.job_id for job in replay.jobs}.items() <= everything.items()


def test_jobs_after_the_first_ones_are_counted(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.parquet", *((f"j{i}", float(i), 60.0, 1.0) for i in range(10)))
    assert TraceReplay(path, most_jobs=4).load({}).notes == ("6 jobs after the first 4 left out",)
