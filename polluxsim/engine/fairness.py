"""Finish-time fairness: the completion time of a job, relative to that alone on an equal share of the GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from math import ceil, floor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polluxsim.agent.agent import Agent
from polluxsim.common.instants import coincide, first_round, has_come, last_round
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.state import State
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.placements import JobId, Placement, gpus_by_node
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.tools.free_gpus import pack
from polluxsim.records.columns import Records
from polluxsim.records.results import JobRecord
from polluxsim.workloads.workload import Job


def finish_time_fairness(
    state: State, jobs: Mapping[JobId, Job], records: Records[JobRecord]
) -> Iterator[float | None]:
    """Yield ρ of each job, in the order of the records.

    It is None if the job is not complete, if it was submitted before the start of the run, or if its time alone is
    unknown.

    The equal share is the mean number of GPUs over the mean number of unfinished jobs, both over the life of the job.
    The time alone is the time in the scenario in which the job ended.

    Source: Mahajan et al., Themis (NSDI '20).
    """
    now = state.clock.now
    submit_times = np.asarray(records.column("submit_time"))
    ends = np.array([now if time is None else time for time in records.column("end_time")], dtype=float)
    # A job that is submitted after the end of the run has no life, and would disturb the sums of the others.
    contention = np.ones(len(records))
    submitted = submit_times <= now
    contention[submitted] = mean_contention(submit_times[submitted], ends[submitted])
    alone = [TimesAlone(scenario) for _, scenario in state.past_scenarios] + [TimesAlone(state.scenario)]
    changes = [time for time, _ in state.past_scenarios]
    columns = (records.column(name) for name in ("job", "submit_time", "jct"))
    for name, submit_time, jct, number in zip(*columns, contention.tolist(), strict=True):
        if jct is None or submit_time < 0:  # no metric counts jobs from before the start of the run
            yield None
            continue
        end = submit_time + jct
        share = state.nodes.mean_gpus(submit_time, end) / number
        time = alone[bisect_left(changes, end)].time(jobs[name], share, submit_time)
        if time is None:
            yield None
        else:
            yield jct / time


def mean_contention(starts: ArrayLike, ends: ArrayLike) -> NDArray[np.float64]:
    """Return n̄ of each job: the mean number of unfinished jobs during its life, including the job itself.

    A life is from the submission to the completion, or to the end of the run [s]; n̄ is 1 for a life without length. The
    number of unfinished jobs is integrated over time, so that n jobs cost O(n log n).

    >>> mean_contention([0.0, 0.0, 30.0], [10.0, 20.0, 40.0]).tolist()
    [2.0, 1.5, 1.0]
    """
    begin = np.asarray(starts, dtype=float)
    end = np.asarray(ends, dtype=float)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    unfinished = np.cumsum(np.repeat([1.0, -1.0], [len(begin), len(end)])[order])
    # The number of unfinished jobs, integrated from the first time to each time.
    areas = np.concatenate([[0.0], np.cumsum(unfinished[:-1] * np.diff(times[order]))])[: len(times)]
    area = np.empty(len(times))
    area[order] = areas
    lives = end - begin
    contention: NDArray[np.float64] = np.divide(
        area[len(begin) :] - area[: len(begin)], lives, out=np.ones(len(begin)), where=lives > 0
    )
    return contention.clip(min=1.0)  # rounding can give a little less


def time_on_share(share: float, time_alone: Callable[[int], float]) -> float:
    """Return the completion time alone on `share` > 0 GPUs [s]. `time_alone` gives this time for whole numbers of GPUs.

    Between two whole numbers of GPUs the time is interpolated linearly. Below one GPU, it is the time on one GPU over
    the share.

    >>> time_on_share(1.5, lambda gpus: 60.0 / gpus), time_on_share(0.25, lambda gpus: 60.0 / gpus)
    (45.0, 240.0)
    """
    if share < 1:
        return time_alone(1) / share
    low = floor(share)
    high = ceil(share)
    time_on_low = time_alone(low)
    if low == high:
        return time_on_low
    return time_on_low + (share - low) * (time_alone(high) - time_on_low)


def run_alone(
    job: Job, truth: GroundTruth, agent: Agent, placement: Placement, gpu_type: str, settings: EngineSettings
) -> float:
    """Return the time from the first start to completion of a job that keeps its GPUs [s].

    Its start costs the delay of a first start. Its agent can change the batch size after each epoch and at each round,
    as on a shared cluster.
    """
    # Without a simulation: one job on constant GPUs needs no queue of events.
    alone = ActiveJob(job, truth, agent, settings.time_rule)
    shape = gpus_by_node(placement)
    speed = truth.speed_at(shape, agent.choose(len(placement), sum(shape), gpu_type))
    alone.place(placement, speed, 0.0, settings.first_delay(job.application, gpu_type))
    alone.begin_segment(0.0)
    next_round = 1
    while True:
        end, after_round = alone.segment.milestone
        now = next_round * settings.round_interval
        round_is_first = not has_come(end, now) or (after_round and coincide(end, now))
        # Rounds in which the agent would choose the same again are skipped.
        if round_is_first and not alone.agent_is_steady:
            if alone.is_training(now) and alone.end_interval():
                alone.begin_segment(now)
            next_round += 1
            continue
        if alone.end_epoch():
            return end
        alone.begin_segment(end)
        next_round = last_round(end, settings.round_interval) + 1


class TimesAlone:
    """Completion times alone. The time after the start is computed once for equal jobs, other than gangs.

    With a constant batch size the time is a sum over epochs. A job whose agent learns, or follows the plan of the job,
    is simulated with a new agent.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._only_type: str | None = None
        if len(scenario.cluster.types) == 1:
            (self._only_type,) = scenario.cluster.types
        self._run_times: dict[tuple[object, ...], float] = {}

    def time(self, job: Job, share: float, submit_time: float) -> float | None:
        """Return the completion time of a job on a share of GPUs, or on its largest number of GPUs if lower [s].

        None if its profile does not cover these GPUs. The job starts at the first round after its submission. A gang
        that needs more GPUs than its share has them for a part of the time. On several GPU types, the result is the
        harmonic mean over the types that the job can use, weighted by their GPUs.

        Source: for several types, Sia (SOSP '23), §5.
        """
        if self._only_type is not None:
            return self._time_on(job, share, submit_time, self._only_type)
        cluster = self._scenario.cluster
        gpus = {name: sum(cluster.by_type[name]) for name in self._scenario.speeds_of(job)}
        shares = {name: share * num_gpus / cluster.num_gpus for name, num_gpus in gpus.items()}
        times = {name: self._time_on(job, part, submit_time, name) for name, part in shares.items()}
        finite_times = {name: time for name, time in times.items() if time is not None}
        if not finite_times:
            return None
        # The harmonic mean, because rates of progress add up and times do not.
        rate = sum(gpus[name] / time for name, time in finite_times.items())
        return sum(gpus[name] for name in finite_times) / rate

    def _time_on(self, job: Job, share: float, submit_time: float, gpu_type: str) -> float | None:
        """Return the completion time of a job on a share of GPUs of one type [s]; None if it is unknown."""
        settings = self._scenario.settings
        start = first_round(submit_time, settings.round_interval) * settings.round_interval
        wait = max(start - submit_time, 0.0)  # the round can be earlier by rounding
        duration = job.fixed_duration
        if duration is not None:
            run_time = settings.first_delay(job.application, gpu_type) + duration
            return (wait + run_time) * max(job.num_replicas / share, 1.0)
        truth = self._scenario.truth_of(job)
        gang = truth.application.gang_size
        if gang is not None:
            truth_on_type = truth.for_gpu_type(gpu_type)
            run_time = self._from_start(
                job, truth_on_type, self._scenario.agents.new(job, truth_on_type), ((0, gang),), gpu_type
            )
            return (wait + run_time) * max(gang / share, 1.0)
        try:
            return time_on_share(share, lambda gpus: wait + self._run_time(job, truth, gpus, gpu_type))
        except ProfileRangeError:
            return None

    def _run_time(self, job: Job, truth: GroundTruth, gpus: int, gpu_type: str) -> float:
        """Return the time from the first start to completion on a whole number of GPUs of one type [s]."""
        scenario = self._scenario
        application = truth.profile.application
        nodes = scenario.cluster.by_type[gpu_type]
        agent = scenario.agents.new(job, truth)
        batch_size = job.batch_size
        if agent.learns:
            batch_size = application.largest_batch
        gpus = min(gpus, application.most_replicas(batch_size), sum(nodes))
        first_batch_size = None
        if scenario.batch_rule:
            first_batch_size = job.batch_size  # the rule may begin with the user's batch size
        # Everything about a job and its agent that the time depends on.
        key = (job.application, job.duration, job.speeds, batch_size, first_batch_size, gpus, gpu_type)
        run_time = self._run_times.get(key)
        if run_time is None:
            placement = pack(nodes, gpus) or ()
            run_time = self._from_start(job, truth.for_gpu_type(gpu_type), agent, placement, gpu_type)
            self._run_times[key] = run_time
        return run_time

    def _from_start(self, job: Job, truth: GroundTruth, agent: Agent, placement: Placement, gpu_type: str) -> float:
        """Return the time from the first start to completion on GPUs of one type [s]."""
        settings = self._scenario.settings
        shape = gpus_by_node(placement)
        if agent.learns or agent.plans:
            return run_alone(job, truth, agent, placement, gpu_type, settings)
        choice = agent.choose(len(shape), sum(shape), gpu_type)
        return settings.first_delay(job.application, gpu_type) + truth.time_left(shape, choice, 0, 0.0)
