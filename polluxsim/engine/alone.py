"""One job alone on GPUs that never change: what finish-time fairness compares a shared cluster with."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from polluxsim.engine.running import RunningJob
from polluxsim.metrics.fairness import time_on_share
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.packing import pack
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.agent.agent import Agent
    from polluxsim.engine.oracle import Truth
    from polluxsim.engine.settings import EngineSettings
    from polluxsim.types import Cluster, Placement
    from polluxsim.workloads.workload import Job


def run_alone(job: Job, truth: Truth, agent: Agent, placement: Placement, settings: EngineSettings) -> float:
    """Return the time from the first start to completion of a job that keeps its GPUs [s].

    Its start costs the restart delay, and its agent may change the batch size at every epoch and at every round
    interval, as on a shared cluster. Intervals in which that cannot happen are passed over.

    Parameters
    ----------
    job, truth, agent
        The job, the truth about its application, and a fresh agent.
    placement
        GPUs, within what the application can use.
    settings
        Interval, delay and rule of time; interference and horizon do not matter to a job alone.
    """
    running = RunningJob(job, truth, agent, settings.time_rule)
    running.place(placement, 0.0, settings.restart_delay)
    running.begin_segment(0.0)
    next_round = 1
    while True:
        end, after_round = running.milestone
        now = next_round * settings.round_interval
        if not running.is_settled and (end > now or (end == now and after_round)):
            if running.end_interval(now):
                running.begin_segment(now)
            next_round += 1
            continue
        if running.end_epoch():
            return end
        running.begin_segment(end)
        next_round = int(end // settings.round_interval) + 1


def first_round(submit_time: float, interval: float) -> int:
    """Return the number of the first round at which a job can start; rounds are at multiples of the interval [s].

    >>> first_round(0.0, 60.0), first_round(60.0, 60.0), first_round(60.1, 60.0)
    (1, 1, 2)
    """
    index = max(ceil(submit_time / interval), 1)
    # The quotient may have been rounded down to a whole number.
    return index if index * interval >= submit_time else index + 1


class TimesAlone:
    """Completion times alone; what follows the start is computed once for all like jobs.

    At a constant batch size that is a sum over epochs; a job whose agent learns is simulated with one of its own.

    Parameters
    ----------
    truths
        The truth about every application, by name.
    cluster
        Its nodes say how GPUs are packed.
    settings
        Interval, delay and rule of time.
    agent
        Gives a job a fresh agent.
    """

    def __init__(
        self,
        truths: Mapping[str, Truth],
        cluster: Cluster,
        settings: EngineSettings,
        agent: Callable[[Job, Truth], Agent],
    ) -> None:
        self._truths = truths
        self._cluster = cluster
        self._settings = settings
        self._agent = agent
        self._run_times: dict[tuple[str, int, int], float] = {}

    def time(self, job: Job, share: float) -> float | None:
        """Return the completion time of a job on a share of the cluster, as much of it as it can use [s].

        It starts at the first round after its submission, as it can on the shared cluster. A job without a profile
        needs its GPUs all at once, and has them so much of the time where its share is smaller.

        Parameters
        ----------
        job
            The job.
        share
            GPUs, whole or not.

        Returns
        -------
        float or None
            None where the profile says nothing about so many GPUs, which the job need not have had in the run.
        """
        interval = self._settings.round_interval
        wait = first_round(job.submit_time, interval) * interval - job.submit_time
        if job.duration is not None:
            return (wait + self._settings.restart_delay + job.duration) * max(job.num_replicas / share, 1.0)
        try:
            return time_on_share(share, lambda gpus: wait + self._run_time(job, gpus))
        except ProfileRangeError:
            return None

    def _run_time(self, job: Job, gpus: int) -> float:
        truth = self._truths[job.application]
        application = truth.profile.application
        agent = self._agent(job, truth)
        batch_size = application.max_batch_size if agent.learns else job.batch_size
        gpus = min(gpus, application.most_replicas(batch_size), self._cluster.num_gpus)
        key = (job.application, batch_size, gpus)
        if (known := self._run_times.get(key)) is not None:
            return known
        placement = pack(self._cluster.gpus_per_node, gpus) or ()
        if agent.learns:
            time = run_alone(job, truth, agent, placement, self._settings)
        else:
            choice = agent.choose(len(placement), gpus)
            time = self._settings.restart_delay + truth.time_left(gpus_by_node(placement), choice, 0, 0.0)
        self._run_times[key] = time
        return time
