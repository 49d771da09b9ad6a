"""One job alone on GPUs that never change: what finish-time fairness compares a shared cluster with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.engine.job import ActiveJob
from polluxsim.engine.rounds import first_round
from polluxsim.metrics.fairness import time_on_share
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.packing import pack
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent
    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.settings import EngineSettings
    from polluxsim.engine.truth import Truth
    from polluxsim.types import Placement
    from polluxsim.workloads.workload import Job


def run_alone(
    job: Job, truth: Truth, agent: Agent, placement: Placement, gpu_type: str, settings: EngineSettings
) -> float:
    """Return the time from the first start to completion of a job that keeps its GPUs [s].

    Its start costs the restart delay, and its fresh agent, which learns, may change the batch size at every epoch and
    at every round interval, as on a shared cluster. Intervals in which that cannot happen are passed over.
    """
    alone, rule, shape = ActiveJob(job, truth, agent), settings.time_rule, gpus_by_node(placement)
    pace = truth.pace(shape, agent.choose(len(placement), sum(shape), gpu_type))
    alone.place(placement, pace, 0.0, settings.delays.of(job.application, gpu_type), rule)
    alone.begin_segment(0.0, rule)
    next_round = 1
    while True:
        end, after_round = alone.segment.milestone
        now = next_round * settings.round_interval
        if not alone.agent_is_steady and (end > now or (end == now and after_round)):
            if alone.is_training(now) and alone.end_interval():
                alone.begin_segment(now, rule)
            next_round += 1
            continue
        if alone.end_epoch(rule):
            return end
        alone.begin_segment(end, rule)
        next_round = int(end // settings.round_interval) + 1


class TimesAlone:
    """Completion times alone; what follows the start is computed once for all like jobs.

    At a constant batch size that is a sum over epochs; a job whose agent learns is simulated with one of its own.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._run_times: dict[tuple[object, ...], float] = {}

    def time(self, job: Job, share: float, submit_time: float) -> float | None:
        """Return the completion time of a job on a share of GPUs, whole or not, as much of it as it can use [s].

        None where the profile says nothing about so many GPUs, which the job need not have had in the run.
        It starts at the first round after its submission, as it can on the shared cluster. A gang needs
        its GPUs all at once, and has them so much of the time where its share is smaller. Of several GPU types it has
        its share of each in turn: what that does to ρ is the mean over types, by their GPUs.

        Source: several types, Sia (SOSP '23), §5.
        """
        cluster = self._scenario.cluster
        if len(cluster.types) == 1:
            return self._time_on(job, share, submit_time, next(iter(cluster.types)))
        gpus = {name: sum(cluster.by_type[name]) for name in self._scenario.speeds_of(job)}
        shares = {name: share * there / cluster.num_gpus for name, there in gpus.items()}
        times = {name: self._time_on(job, part, submit_time, name) for name, part in shares.items()}
        known = {name: time for name, time in times.items() if time is not None}
        rate = sum(gpus[name] / time for name, time in known.items())
        return sum(gpus[name] for name in known) / rate if known else None

    def _time_on(self, job: Job, share: float, submit_time: float, gpu_type: str) -> float | None:
        """Return the completion time on GPUs of one type."""
        settings = self._scenario.settings
        wait = first_round(submit_time, settings.round_interval) * settings.round_interval - submit_time
        if (duration := job.fixed_duration) is not None:
            run_time = settings.delays.of(job.application, gpu_type) + duration
            return (wait + run_time) * max(job.num_replicas / share, 1.0)
        truth = self._scenario.truth_of(job)
        if (gang := truth.application.gang_size) is not None:
            there = truth.on(gpu_type)
            run_time = self._from_start(job, there, self._scenario.agents.new(job, there), ((0, gang),), gpu_type)
            return (wait + run_time) * max(gang / share, 1.0)
        try:
            return time_on_share(share, lambda gpus: wait + self._run_time(job, truth, gpus, gpu_type))
        except ProfileRangeError:
            return None

    def _run_time(self, job: Job, truth: Truth, gpus: int, gpu_type: str) -> float:
        scenario, application = self._scenario, truth.profile.application
        nodes, agent = scenario.cluster.by_type[gpu_type], scenario.agents.new(job, truth)
        batch_size = application.max_batch_size if agent.learns else job.batch_size
        gpus = min(gpus, application.most_replicas(batch_size), sum(nodes))
        start = job.batch_size if scenario.agent else None
        key = (job.application, job.duration, job.speeds, batch_size, start, gpus, gpu_type)
        if (known := self._run_times.get(key)) is None:
            placement = pack(nodes, gpus) or ()
            known = self._run_times[key] = self._from_start(job, truth.on(gpu_type), agent, placement, gpu_type)
        return known

    def _from_start(self, job: Job, truth: Truth, agent: Agent, placement: Placement, gpu_type: str) -> float:
        """Return the time from the first start to completion on GPUs of one type [s]."""
        settings, shape = self._scenario.settings, gpus_by_node(placement)
        if agent.learns or agent.plans:
            return run_alone(job, truth, agent, placement, gpu_type, settings)
        choice = agent.choose(len(shape), sum(shape), gpu_type)
        return settings.delays.of(job.application, gpu_type) + truth.time_left(shape, choice, 0, 0.0)
