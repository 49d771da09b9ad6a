"""The least change that would have let a waiting job run, found by trying changes in forks."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.engine.futures import Fork
from polluxsim.engine.policy_calls import guarded
from polluxsim.gpu_types import NodeTypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.run.moment import Moment
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job

MOST_NODES = 64
"""Largest number of additional nodes that is tried."""


class LeastChange(NamedTuple):
    """Changes that would each have let a job run; None if no change of the kind would."""

    nodes: int | None  # additional nodes, equal to the last node
    fewer_gpus: int | None  # reduction of the GPUs that the user requested
    places: int | None  # places further ahead in the order of submission


class Trial:
    """Tries changes for one submitted job, in a run just before a round.

    Attributes
    ----------
    ahead
        Names of the active jobs that were submitted before the job, in order of submission.
    """

    def __init__(self, moment: Moment[Any], job_id: JobId) -> None:
        self._moment, self._job_id = moment, job_id
        run, _ = moment.copied()
        self._scenario = moment.scenario
        run.advance(before=nextafter(moment.time, inf))  # jobs that end at the time of the round have ended
        jobs = {job.job_id: job for job, _ in run.active(moment.time)}
        self._job: Job | None = jobs.get(job_id)
        self.ahead = [*jobs][: [*jobs, job_id].index(job_id)]

    @property
    def is_there(self) -> bool:
        """Return whether the job is active at the round."""
        return self._job is not None

    def least(self) -> LeastChange | None:
        """Return the least change of each kind; None if the job has ended, or runs without a change."""
        job = self._job
        if job is None or self._runs(Fork(self._moment.time, self._scenario)):
            return None
        most = 0 if job.speeds else job.num_replicas - (job.min_replicas or 1)
        nodes = MOST_NODES if self._scenario.cluster.least_nodes is None else 0
        return LeastChange(
            _least(nodes, self.runs_with_nodes),
            _least(most, self.runs_with_fewer_gpus),
            _least(len(self.ahead), self.runs_with_places),
        )

    def runs_with_nodes(self, number: int) -> bool:
        """Return whether the job runs with a number of additional nodes."""
        cluster = self._scenario.cluster
        more = replace(
            cluster,
            gpus_per_node=(*cluster.gpus_per_node, *cluster.gpus_per_node[-1:] * number),
            node_types=NodeTypes((*cluster.node_types, *cluster.node_types[-1:] * number)),
            hosts=(*cluster.hosts, *cluster.hosts[-1:] * number),
        )
        return self._runs(Fork(self._moment.time, replace(self._scenario, cluster=more)))

    def runs_with_fewer_gpus(self, number: int) -> bool:
        """Return whether the job runs if its user requests fewer GPUs, by a number."""
        assert self._job is not None
        gpus = self._job.num_replicas - number
        batch_size = gpus if self._job.is_rigid else self._job.batch_size
        smaller = replace(self._job, num_replicas=gpus, batch_size=batch_size)
        return self._runs(Fork(self._moment.time, self._scenario, altered=(smaller,)))

    def runs_with_places(self, number: int) -> bool:
        """Return whether the job runs if it is a number of places further ahead in the order of submission."""
        overtaken = ((self._job_id, self.ahead[-number]),)
        return self._runs(Fork(self._moment.time, self._scenario, overtaken=overtaken))

    def _runs(self, fork: Fork) -> bool:
        run, policy = self._moment.copied()
        run.fork(fork)
        if (view := run.advance()) is None or view.time != fork.time:
            return False
        with guarded(run.scenario.policy_name, view.time):
            decision = policy.allocate(view, run.rng)
        run.commit(decision)
        return self._job_id in run.allocation


def _least(most: int, works: Callable[[int], bool]) -> int | None:
    """Return a number from 1 to `most` that works while the number before it does not; None if none is found.

    Galloping and bisection find the number, so that it need not be the smallest one if `works` is not monotone.
    """
    if most < 1:
        return None
    fails, tried = 0, 1
    while not works(tried):
        if tried == most:
            return None
        fails, tried = tried, min(2 * tried, most)
    return fails + 1 + bisect_left(range(fails + 1, tried), True, key=works)
