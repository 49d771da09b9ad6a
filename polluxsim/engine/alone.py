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


def run_alone(job: Job, truth: Truth, agent: Agent, placement: Placement, settings: EngineSettings) -> float:
    """Return the time from the first start to completion of a job that keeps its GPUs [s].

    Its start costs the restart delay, and its agent, which learns, may change the batch size at every epoch and at
    every round interval, as on a shared cluster. Intervals in which that cannot happen are passed over.

    Parameters
    ----------
    job, truth, agent
        The job, the truth about its application, and a fresh agent.
    placement
        GPUs, within what the application can use.
    settings
        Interval, delay and rule of time; interference and horizon do not matter to a job alone.
    """
    alone, rule, shape = ActiveJob(job, truth, agent), settings.time_rule, gpus_by_node(placement)
    pace = truth.pace(shape, agent.choose(len(placement), sum(shape)))
    alone.place(placement, pace, 0.0, settings.restart_delay, rule)
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

    Parameters
    ----------
    scenario
        Profiles, nodes, interval, delay and rule of time.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._run_times: dict[tuple[object, ...], float] = {}

    def time(self, job: Job, share: float, submit_time: float) -> float | None:
        """Return the completion time of a job on a share of the cluster, as much of it as it can use [s].

        It starts at the first round after its submission, as it can on the shared cluster. A gang needs
        its GPUs all at once, and has them so much of the time where its share is smaller.

        Parameters
        ----------
        job
            The job.
        share
            GPUs, whole or not.
        submit_time
            When it was submitted [s].

        Returns
        -------
        float or None
            None where the profile says nothing about so many GPUs, which the job need not have had in the run.
        """
        settings = self._scenario.settings
        wait = first_round(submit_time, settings.round_interval) * settings.round_interval - submit_time
        truth = self._scenario.truth_of(job)
        if (gang := truth.application.gang_size) is not None:
            return (wait + self._gang_time(job, truth, gang)) * max(gang / share, 1.0)
        try:
            return time_on_share(share, lambda gpus: wait + self._run_time(job, truth, gpus))
        except ProfileRangeError:
            return None

    def _gang_time(self, job: Job, truth: Truth, gang: int) -> float:
        agent, settings = self._scenario.agents.new(job, truth), self._scenario.settings
        if agent.plans:
            return run_alone(job, truth, agent, ((0, gang),), settings)
        return settings.restart_delay + truth.time_left((gang,), agent.choose(1, gang), 0, 0.0)

    def _run_time(self, job: Job, truth: Truth, gpus: int) -> float:
        scenario, application = self._scenario, truth.profile.application
        agent = scenario.agents.new(job, truth)
        batch_size = application.max_batch_size if agent.learns else job.batch_size
        gpus = min(gpus, application.most_replicas(batch_size), scenario.cluster.num_gpus)
        key = (job.application, job.duration, job.speeds, batch_size, gpus)
        if (known := self._run_times.get(key)) is not None:
            return known
        placement = pack(scenario.cluster.gpus_per_node, gpus) or ()
        if agent.learns:
            time = run_alone(job, truth, agent, placement, scenario.settings)
        else:
            choice = agent.choose(len(placement), gpus)
            time = scenario.settings.restart_delay + truth.time_left(gpus_by_node(placement), choice, 0, 0.0)
        self._run_times[key] = time
        return time
