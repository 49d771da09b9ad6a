"""The least change after which a job that waits would have run, found by trying changes in forks."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.engine.futures import Fork
from polluxsim.engine.policy_calls import guarded
from polluxsim.engine.scenario import Scenario
from polluxsim.gpu_types import NodeTypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.run.moment import Moment
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job

MOST_NODES = 64
"""More are not tried."""


class LeastChange(NamedTuple):
    """What would have let a job run, each by itself; None where nothing of the kind would."""

    nodes: int | None  # nodes more, like the last one
    fewer_gpus: int | None  # GPUs fewer than its user asked for
    places: int | None  # places further ahead in order of submission


class Trial:
    """Tries changes for one job that is submitted, in a run just before a round."""

    def __init__(self, moment: Moment[Any], job_id: JobId) -> None:
        self._moment, self._job_id = moment, job_id
        run, self._policy = moment.copied()
        self._scenario = run.scenario
        run.fork(Fork(moment.time, self._scenario))
        run.advance()  # what ends at the instant of the round has ended
        jobs = {job.job_id: job for job, _ in run.active(moment.time)}
        self._job: Job | None = jobs.get(job_id)
        self.ahead = [*jobs][: [*jobs, job_id].index(job_id)]

    @property
    def is_there(self) -> bool:
        """Return whether the job has not ended before the round."""
        return self._job is not None

    def least(self) -> LeastChange | None:
        """Return the least change of each kind; None if the job is not there, or runs without any."""
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
        """Return whether it runs with so many nodes more."""
        scenario, cluster = self._scenario, self._scenario.cluster
        more = replace(
            cluster,
            gpus_per_node=(*cluster.gpus_per_node, *cluster.gpus_per_node[-1:] * number),
            node_types=NodeTypes((*cluster.node_types, *cluster.node_types[-1:] * number)),
            hosts=(*cluster.hosts, *cluster.hosts[-1:] * number),
        )
        grown = Scenario.under(self._policy, scenario.workload, scenario.profiles, more, scenario.settings)
        return self._runs(Fork(self._moment.time, grown))

    def runs_with_fewer_gpus(self, number: int) -> bool:
        """Return whether it runs if its user asks for so many GPUs fewer."""
        assert self._job is not None
        gpus = self._job.num_replicas - number
        batch_size = gpus if self._job.is_rigid else self._job.batch_size
        smaller = replace(self._job, num_replicas=gpus, batch_size=batch_size)
        return self._runs(Fork(self._moment.time, self._scenario, altered=(smaller,)))

    def runs_with_places(self, number: int) -> bool:
        """Return whether it runs if it was submitted before so many jobs that were submitted before it."""
        overtaken = ((self._job_id, self.ahead[-number]),)
        return self._runs(Fork(self._moment.time, self._scenario, overtaken=overtaken))

    def _runs(self, diversion: Fork) -> bool:
        run, policy = self._moment.copied()
        run.fork(diversion)
        if (view := run.advance()) is None or view.time != diversion.time:
            return False
        with guarded(run.scenario.policy_name, view.time):
            decision = policy.allocate(view, run.rng)
        run.commit(decision)
        return self._job_id in run.allocation


def _least(most: int, works: Callable[[int], bool]) -> int | None:
    """Return a number that works where one less does not, the first that galloping and bisection find; None is none."""
    if most < 1:
        return None
    fails, tried = 0, 1
    while not works(tried):
        if tried == most:
            return None
        fails, tried = tried, min(2 * tried, most)
    return fails + 1 + bisect_left(range(fails + 1, tried), True, key=works)
