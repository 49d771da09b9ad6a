"""Jobs that run or wait at the start of a run: they hold or want GPUs as ever, and no metric counts them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import draws, ended
from hypothesis import given
from hypothesis import strategies as st
from run_check import inconsistencies
from toy import ToyProfile

from polluxsim.checks.checking import made
from polluxsim.checks.driving import run_policy, start_run
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import EARLIER, EARLIER_OF, Allowed, random_world
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import ClusterView, Decision, NodeCounts
from polluxsim.policies.elastic.cluster_size import Forecast, Scaled
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import BeforeRun, Result
from polluxsim.records.storage import read_run, write_run
from polluxsim.run.forks import fields_of, job_from
from polluxsim.run.named_policies import named_policy
from polluxsim.statistics.metric_lines import metric_lines
from polluxsim.workloads.job import InvalidJobError
from polluxsim.workloads.past import Past
from polluxsim.workloads.workload import Job, Workload, read_workload, workload_from_frame, write_workload

INTERVAL = 10.0
EXACT = EngineSettings(round_interval=INTERVAL, restart_delay=0.0)
NODES = (4, 4, 2)


def run(*jobs: Job, nodes: Sequence[int] = (8,), settings: EngineSettings = EXACT) -> Result:
    return simulate(Workload(jobs), {}, Cluster(tuple(nodes)), Fifo(), settings=settings)


def starts(result: Result, *, since: float = 0.0) -> dict[str, float | None]:
    """Return the starts of the jobs that were submitted at a time or later."""
    return {job.job: job.start_time for job in result.job_records if job.submit_time >= since}


def logged_jobs(seed: int) -> list[Job]:
    """Return jobs of a drawn log, in order of submission, with limits that are their durations."""
    rng = np.random.default_rng([5, seed])
    jobs, time = [], 0
    for index in range(int(rng.integers(10, 40))):
        time += int(rng.integers(0, 12)) * 7
        gpus, duration = int(rng.choice([1, 1, 2, 3, 4, 6, 8])), float(rng.integers(1, 60) * 9)
        jobs.append(Job.rigid(f"j{index}", float(time), gpus, duration, time_limit=duration))
    return jobs


def cut(jobs: Iterable[Job], result: Result, time: float) -> list[Job]:
    """Return the jobs of a window that begins at a time of a replay of the whole log, with their states then."""
    records, found = {job.job: job for job in result.job_records}, []
    for job in jobs:
        record = records[job.job_id]
        assert record.start_time is not None
        assert record.end_time is not None
        past = None
        if job.submit_time < time:
            past = Past.running(record.start_time - time, job.num_replicas)
            if record.start_time > time:
                past = Past.pending()
        if past is None or record.end_time > time:
            found.append(replace(job, submit_time=job.submit_time - time, past=past))
    return found


def cut_times(jobs: Sequence[Job]) -> list[float]:
    """Return the rounds of a log at whose instant no job is submitted: in the window, no job starts at this instant."""
    last, submitted = jobs[-1].submit_time, {job.submit_time for job in jobs}
    rounds = [INTERVAL * number for number in range(1, int(last // INTERVAL))]
    return [time for time in rounds if time not in submitted]


WITHOUT_MEMORY = ("fifo", "fifo(backfill=true)", "easy", "conservative", "sjf")
"""Policies that never preempt, and whose decisions depend on the present jobs only; `conservative` if limits hold."""


@pytest.mark.parametrize("policy", WITHOUT_MEMORY)
@given(st.integers(0, 2**20), st.floats(0, 1))
@draws(5)
def test_a_window_of_a_replay_has_the_starts_of_the_replay(policy: str, seed: int, part: float) -> None:
    jobs = logged_jobs(seed)
    times = cut_times(jobs)
    time = times[int(part * (len(times) - 1))]

    def replay(them: Sequence[Job]) -> Result:
        return simulate(Workload(tuple(them)), {}, Cluster(NODES), named_policy(policy).make(), settings=EXACT)

    whole = replay(jobs)
    window = replay(cut(jobs, whole, time))
    of_whole = {name: start - time for name, start in starts(whole, since=time).items() if start is not None}
    assert starts(window) == of_whole
    assert not inconsistencies(window, NODES)


def independent_starts(jobs: Sequence[Job], num_gpus: int, *, backfill: bool) -> dict[str, float]:
    """Return the starts of jobs that begin in a run of rigid jobs in order of submission, round by round."""
    free, found, queue = num_gpus, {}, []
    ends: list[tuple[float, int]] = []
    coming = sorted(jobs, key=lambda job: job.submit_time)
    for job in coming:
        if job.past is not None and job.past.is_running:
            free -= job.num_replicas
            ends.append((job.duration - job.past.progress, job.num_replicas))
        else:
            queue.append(job)
    number = 1
    while queue:
        now = INTERVAL * number
        number += 1
        free += sum(gpus for end, gpus in ends if end <= now)
        ends = [(end, gpus) for end, gpus in ends if end > now]
        for job in [job for job in queue if job.submit_time <= now]:
            if job.num_replicas <= free:
                free -= job.num_replicas
                ends.append((now + job.duration, job.num_replicas))
                found[job.job_id] = now
                queue.remove(job)
            elif not backfill:
                break
    return found


@given(st.integers(0, 2**20), st.floats(0, 1), st.booleans())
@draws(15)
def test_a_window_agrees_with_an_independent_simulation(seed: int, part: float, backfill: bool) -> None:
    """The states at the cut come from another policy, as in a log, so a later job may run before an earlier one."""
    jobs = logged_jobs(seed)
    times = cut_times(jobs)
    time = times[int(part * (len(times) - 1))]
    log = simulate(Workload(tuple(jobs)), {}, Cluster(NODES), named_policy("sjf").make(), settings=EXACT)
    window = cut(jobs, log, time)
    result = simulate(Workload(tuple(window)), {}, Cluster(NODES), Fifo(backfill), settings=EXACT)
    begun = {name: start for name, start in starts(result, since=-1e9).items() if start is not None and start > 0}
    assert begun == independent_starts(window, sum(NODES), backfill=backfill)


NEVER_PREEMPT = ("fifo", "easy", "conservative", "multifactor", "sjf", "qssf", "drf", "fair-queues")


@pytest.mark.parametrize("policy", NEVER_PREEMPT)
def test_a_policy_that_does_not_preempt_never_moves_a_job_that_runs_at_the_start(policy: str) -> None:
    guest = named_policy(policy)
    allowed, num_running = Allowed.under(traits_of(guest.make())), 0
    for number in range(EARLIER, 30 * EARLIER_OF, EARLIER_OF):
        world = random_world(number, allowed)
        world = replace(world, outages=(), reclaims=())  # a failure takes the GPUs of a job
        result = run_policy(world, made(guest, world))
        at_start = {record.job: record for record in result.allocation_records if record.time == 0 and record.nodes}
        num_running += len(at_start)
        for record in result.allocation_records:
            if record.job in at_start and record.nodes:  # also a record of another batch size
                first = at_start[record.job]
                assert (record.nodes, record.gpus) == (first.nodes, first.gpus), number
        assert not any(job.num_restarts for job in result.job_records if job.job in at_start)
    assert num_running > 20


def test_jobs_of_the_run_wait_for_the_jobs_that_run_at_the_start() -> None:
    """As in ../shared/cases/window-cold-start.sh: a job holds all GPUs for 24 hours more."""
    big = Job.rigid("big", -3610.0, 8, 90_000.0, past=Past.running(-3600.0, 8))
    one, two = Job.rigid("one", 3600.0, 8, 3600.0), Job.rigid("two", 7200.0, 8, 3600.0)
    result = run(big, one, two)
    assert starts(result, since=-1e9) == {"big": -3600.0, "one": 86_400.0, "two": 90_000.0}
    first, *_ = result.job_records
    assert (first.completion_time, first.jct, first.queueing_delay) == (86_400.0, 90_010.0, 10.0)
    # What the job held in the run; what it held before is not GPU time of the run.
    assert (first.run_time, first.gpu_seconds, first.work) == (86_400.0, 8 * 86_400.0, 90_000.0)
    assert result.before_run == BeforeRun(running=1, running_gpus=8)
    summary = summarise(result)
    assert summary is not None
    assert (summary.num_jobs, summary.avg_queueing_delay) == (2, 82_800.0)
    assert summary.makespan == 90_000.0  # from the first submission in the run
    assert summary.gpu_hours == 16.0
    assert summary.earlier_gpu_hours == 8 * 82_800 / 3600  # of `big`, since the first submission in the run
    (use,) = next(line.values for line in metric_lines([summary], [8]) if line.field == "utilisation")
    assert use == pytest.approx(1.0)  # all GPUs are in use from the first submission to the last completion
    assert summary.gpu_time["useful"] == pytest.approx(1.0)
    assert summary.gpu_time["idle"] == pytest.approx(0.0)


def test_pending_jobs_are_ahead_of_the_jobs_of_the_run() -> None:
    jobs = [
        Job.rigid("later", 5.0, 8, 100.0),
        Job.rigid("second", -20.0, 8, 100.0, past=Past.pending()),
        # It ran for 50 s before, was preempted, and has half of its work left.
        Job.rigid("first", -500.0, 8, 100.0, past=Past("pending", -400.0, 50.0, 400.0)),
    ]
    result = run(*jobs)
    ends = {job.job: job.end_time for job in result.job_records}
    assert ends == {"first": 60.0, "second": 160.0, "later": 260.0}
    assert [(job.job, job.num_restarts) for job in result.job_records] == [("first", 1), ("second", 0), ("later", 0)]
    assert result.before_run == BeforeRun(pending=2, pending_gpus=16)


def test_a_job_on_unknown_nodes_gets_one_node_if_it_fits_on_one() -> None:
    def running(name: str, gpus: int, started: float, **past: tuple[tuple[int, int], ...]) -> Job:
        return Job.rigid(name, -900.0, gpus, 1000.0, past=replace(Past.running(started, gpus), **past))

    result = run(
        running("small", 2, -800.0), running("known", 3, -1.0, placement=((1, 3),)), running("wide", 6, -600.0),
        running("four", 4, -500.0), running("gone", 1, -400.0, placement=((7, 1),)),
        nodes=(4, 4, 4, 4),
    )  # fmt: skip
    placed = {record.job: record for record in result.allocation_records if record.time == 0}
    assert (placed["known"].nodes, placed["known"].gpus) == ((1,), (3,))
    assert placed["gone"].nodes == (1,)  # its node is not in the cluster; one GPU is left beside `known`
    assert placed["four"].gpus == (4,)
    assert placed["small"].gpus == (2,)
    assert sum(placed["wide"].gpus) == 6
    assert result.before_run == BeforeRun(running=5, running_gpus=16)


def test_the_widest_job_gets_the_fullest_node_so_that_others_fit_on_one_node_too() -> None:
    """Were the job of three GPUs on the node of four, one of the others would span both nodes."""
    jobs = [
        Job.rigid(name, -90.0, gpus, 200.0, past=Past.running(-60.0 + number, gpus))
        for number, (name, gpus) in enumerate((("two", 2), ("other", 2), ("three", 3)))
    ]
    result = run(*jobs, nodes=(4, 3))
    placed = {record.job: record.nodes for record in result.allocation_records if record.time == 0}
    assert placed == {"three": (1,), "two": (0,), "other": (0,)}


def test_jobs_without_room_wait_in_order_of_their_submission_and_keep_their_work() -> None:
    """On a smaller cluster, or if records overlap, the jobs that started last have no room."""
    old = Job.rigid("old", -300.0, 4, 400.0, past=Past.running(-100.0, 4))
    older = Job.rigid("older", -200.0, 4, 500.0, past=Past.running(-200.0, 4))
    result = run(old, older, Job.rigid("new", 0.0, 4, 10.0), nodes=(4,))
    assert result.before_run == BeforeRun(running=1, running_gpus=4, without_room=1, without_room_gpus=4)
    ends = {job.job: job.end_time for job in result.job_records}
    assert ends == {"older": 300.0, "old": 600.0, "new": 610.0}


def test_running_jobs_get_gpus_of_a_type_that_they_can_use() -> None:
    jobs = [
        Job.rigid(name, -20.0, 2, 100.0, gpu_types=types, past=Past.running(-10.0, 2))
        for name, types in (("any", ()), ("v", ("v100",)), ("t", ("t4",)))
    ]
    cluster = Cluster((2, 4), node_types=NodeTypes(GPU_TYPES[name] for name in ("v100", "t4")))
    result = simulate(Workload(tuple(jobs)), {}, cluster, Fifo(), settings=EXACT)
    placed = {record.job: record.nodes for record in result.allocation_records if record.time == 0}
    assert placed["t"] == (1,)
    assert "v" in placed or placed["any"] == (0,)
    assert not inconsistencies(result, (2, 4))


def test_a_view_shows_the_past_of_a_job() -> None:
    seen = []

    class Watching(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            if not seen:
                job = view.jobs[0]
                seen.append((view.time, job.submit_time, job.placement, job.attained_service, job.num_restarts))
                seen.append((job.oracle.progress, job.oracle.time_left(2)))
                seen.append((len(view.running), len(view.changes.arrived)))
            return super().allocate(view, rng)

    job = Job.rigid("a", -100.0, 2, 500.0, past=Past.running(-40.0, 2))
    simulate(Workload((job,)), {}, Cluster((4,)), Watching(), settings=EXACT)
    assert seen == [(10.0, -100.0, ((0, 2),), 100.0, 0), (50.0, 450.0), (1, 1)]


@pytest.mark.parametrize("whole_seconds", [False, True])
def test_a_job_with_a_profile_continues_in_its_epoch(whole_seconds: bool) -> None:
    """600 M0-steps at 2 steps/s: 260 are done, in the third epoch, so 340 take 170 s."""
    profiles = {"toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0))}
    job = Job("a", -100.0, "toy", 1, 10, past=Past.running(-90.0, 1, progress=260.0))
    settings = EngineSettings(whole_seconds=whole_seconds)
    result = simulate(Workload((job,)), profiles, Cluster((1,)), Fifo(), settings=settings)
    assert result.job_records[0].completion_time == 170.0
    learning = simulate(Workload((job,)), profiles, Cluster((1,)), Pollux(), settings=settings)
    # In the first round its agent learns; larger batches, which are as efficient, then make it faster.
    assert 60.0 < (learning.job_records[0].completion_time or 0.0) < 170.0
    assert learning.job_records[0].num_restarts == 0
    with pytest.raises(InvalidInputError, match="past_progress is 600, must be below its work, 600"):
        done = replace(job, past=Past.running(-90.0, 1, progress=600.0))
        simulate(Workload((done,)), profiles, Cluster((1,)), Fifo())


def test_jobs_after_others_and_cancelled_jobs_from_before_the_run() -> None:
    result = run(
        Job.rigid("a", -50.0, 8, 100.0, past=Past.running(-50.0, 8)),
        Job.rigid("b", -40.0, 8, 100.0, after=("a",), past=Past.pending()),
        Job.rigid("c", -30.0, 8, 100.0, cancel_time=20.0, past=Past.pending()),
        Job.rigid("d", -20.0, 8, 100.0, after=("c",), past=Past.pending()),
        Job.rigid("e", 0.0, 8, 100.0),
    )
    records = {job.job: job for job in result.job_records}
    assert {name: job.submit_time for name, job in records.items()} == {
        "a": -50.0, "b": -40.0, "c": -30.0, "d": -20.0, "e": 0.0
    }  # fmt: skip
    assert {name: str(job.status) for name, job in records.items()} == {
        "a": "completed", "b": "completed", "c": "cancelled", "d": "cancelled", "e": "completed"
    }  # fmt: skip
    summary = summarise(result)
    assert summary is not None
    assert (summary.num_jobs, summary.cancelled, summary.not_submitted) == (1, (), ())


def test_a_copy_and_a_stored_run_keep_these_jobs(tmp_path: Path) -> None:
    guest = named_policy("easy")
    world = with_parameters(random_world(EARLIER + EARLIER_OF, Allowed()), guest, 0)
    assert any(job.past is not None and job.past.is_running for job in world.jobs)
    policy = made(guest, world)
    simulation = start_run(world, policy)
    for _ in range(2):
        if (view := simulation.advance()) is not None:
            simulation.commit(policy.allocate(view, simulation.rng))
    other, other_policy = deepcopy((simulation, policy))
    result = ended(simulation, policy)
    assert ended(other, other_policy) == result
    write_run(tmp_path / "run", result, {"config": {}})
    read = read_run(tmp_path / "run").result
    assert (read, read.before_run) == (result, result.before_run)
    assert [job for job in read.job_records if not job.is_counted]
    text = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(json.dumps(json.loads(text) | {"before_run": {"running": -1}}))
    with pytest.raises(InvalidInputError, match="before_run is"):
        read_run(tmp_path / "run")


def test_a_run_without_such_jobs_says_nothing_about_them(tmp_path: Path) -> None:
    result = run(Job.rigid("a", 0.0, 1, 10.0))
    write_run(tmp_path / "run", result, {})
    assert result.before_run is None
    summary = summarise(result)
    assert summary is not None
    assert "earlier_gpu_hours" not in summary.values()
    assert "before_run" not in json.loads((tmp_path / "run" / "run.json").read_text())


JOBS = (
    Job.rigid("runs", -90.0, 6, 200.0, past=Past.running(-60.0, 6, placement=((0, 4), (2, 2)))),
    Job("trains", -80.0, "toy", 2, 20, past=Past.running(-70.0, 2, progress=12.5)),
    Job.rigid("waits", -70.5, 1, 30.0, past=Past.pending()),
    Job.rigid("again", -70.0, 1, 30.0, past=Past("pending", -60.0, 5.0, 20.0)),
    Job.rigid("new", 3.0, 1, 30.0),
)


def test_files_frames_and_forks_keep_the_past_of_a_job(tmp_path: Path) -> None:
    write_workload(Workload(JOBS), tmp_path / "w.csv")
    assert [replace(job, line=0) for job in read_workload(tmp_path / "w.csv").jobs] == list(JOBS)
    assert [job_from(job.job_id, json.loads(json.dumps(fields_of(job)))) for job in JOBS] == list(JOBS)
    (tmp_path / "s.csv").write_text(
        "name,time,num_replicas,duration,past_state,past_started\na,-9,2,30,running,-5\nb,1,2,30,,\n"
    )
    assert [job.past for job in read_workload(tmp_path / "s.csv").jobs] == [Past.running(-5.0, 2), None]
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tmp_path / "s.csv")
    assert [job.past for job in workload_from_frame(frame).jobs] == [Past.running(-5.0, 2), None]
    write_workload(Workload(JOBS[-1:]), tmp_path / "plain.csv")
    assert "past" not in (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("-9,2,30,,,", "column 'time' is '-9', must be a number of seconds from 0"),
        ("9,2,30,running,-5,", "column 'time' is '9', must be below 0 s"),
        ("-9,2,30,RUN,-5,", "column 'past_state' is 'RUN', must be running or pending"),
        ("-9,2,30,running,,", "column 'past_started' is '', must be the time at which the running job started"),
        ("-9,2,30,running,-10,", "column 'past_started' is '-10', must be a time from the submission, -9 s, to 0 s"),
        ("-40,2,30,running,-30,", "job 'a': past_progress is 30.0, must be less than the duration, 30 s"),
        ("-9,2,30,running,-5,0:x", "column 'past_nodes' is '0:x', must be pairs NODE:GPUs"),
        ("-9,2,30,running,-5,0:1 0:1", "column 'past_nodes' is '0:1 0:1', must be pairs of a node"),
        ("-9,2,30,pending,,0:2", "column 'past_nodes' is '0:2', must be empty for a job that is pending"),
        ("9,2,30,,-5,", "column 'past_started' is '-5', must be empty in a row without past_state"),
    ],
)
def test_what_a_file_may_not_say_about_the_past(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"name,time,num_replicas,duration,past_state,past_started,past_nodes\na,{row}\n")
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read_workload(path)


def test_what_a_past_may_not_be() -> None:
    with pytest.raises(InvalidInputError, match="is 'ran'; give running or pending"):
        Past("ran")
    with pytest.raises(InvalidJobError, match="submit_time is -1"):
        Job.rigid("a", -1.0, 1, 5.0)
    with pytest.raises(InvalidJobError, match="after is"):
        Job.rigid("a", -1.0, 1, 5.0, after=("b",), past=Past.running(-1.0, 1))
    job = Job.rigid("a", -1.0, 2, 5.0, past=Past.running(-1.0, 2, placement=((0, 3),)))
    with pytest.raises(InvalidInputError, match="job 'a': it cannot run on its GPUs at the start of the run"):
        run(job)


@pytest.mark.parametrize("hours", [3, 400])
def test_submissions_before_the_run_are_no_hours_of_a_forecast_of_arrivals(hours: int) -> None:
    """The forecast keeps a list of hours, in which a negative number would be one of the last hours, or none."""
    job = Job.rigid("a", -hours * 3600.0, 1, 4e6, past=Past.running(-60.0, 1))
    wanted = []

    class Watching(Forecast):
        def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
            wanted.append(super().wanted(view, nodes))
            return wanted[-1]

    policy = Scaled(Fifo(), Watching())
    cluster = Cluster.elastic(8, 1, 1, 90.0, 1.0)
    settings = EngineSettings(horizon=100 * 3600.0)
    simulate(Workload((job,)), {}, cluster, policy, settings=settings)
    assert set(wanted) == {1}
