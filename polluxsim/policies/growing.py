"""Growing and shrinking: jobs that may have more GPUs take idle ones of their node, and give them back at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.view import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Gpus, JobId, Placement


@dataclass
class Growth:
    """What jobs have beyond the GPUs that they asked for, on the node where they have these.

    Parameters
    ----------
    after
        How long GPUs of a node have to be idle before jobs there have them as well [s].

    Attributes
    ----------
    extra
        GPUs of each job beyond its own.
    due
        When jobs grow next, if nothing else happens [s].

    Source: Xiao et al., Gandiva (OSDI '18): jobs whose users say so, on idle GPUs of their node, after some time, so
    that they do not do so for moments; they shrink at once as others need the GPUs.
    """

    after: float
    extra: dict[JobId, int] = field(default_factory=dict)
    due: float = inf
    # Of each node, how many GPUs are idle, and since when [s].
    _idle: dict[int, tuple[int, float]] = field(default_factory=dict)

    def without(self, view: ClusterView, jobs: Mapping[JobId, JobView]) -> tuple[ClusterView, Mapping[JobId, JobView]]:
        """Return a view, and its jobs, in which nobody has more GPUs than it asked for."""
        large = {name: jobs[name] for name in self.extra if name in jobs and jobs[name].placement}
        shared = {name: view.shared[name][: job.num_replicas] for name, job in large.items() if name in view.shared}
        placed = {
            name: JobSnapshot.of(job)._replace(placement=((job.placement[0][0], job.num_replicas),))
            for name, job in large.items()
        }
        return replace(view, shared={**view.shared, **shared}), {**jobs, **placed}

    def grown(
        self,
        view: ClusterView,
        alone: Sequence[JobView],
        shared: Mapping[JobId, Gpus],
        placed: Mapping[JobId, Placement],
        *,
        waits: bool,
    ) -> tuple[dict[JobId, Gpus], dict[JobId, Placement]]:
        """Return GPUs by number and placements with what jobs have beyond them.

        Parameters
        ----------
        view
            The cluster.
        alone
            Jobs that share no GPU, those first that grow first.
        shared, placed
            What jobs have that have no more than they asked for.
        waits
            Whether somebody waits, so that nobody has more.
        """
        used = Counter(node for node, _ in set(chain.from_iterable(shared.values())))
        for placement in placed.values():
            used.update(dict(placement))
        idle = {node: 0 if waits else gpus - used[node] for node, gpus in enumerate(view.gpus_per_node)}
        nodes = {job.job_id: _nodes(shared.get(job.job_id, ()), placed.get(job.job_id, ())) for job in alone}
        where = {name: there[0] for name, there in nodes.items() if len(there) == 1}
        self._share(view.time, [(job, where[job.job_id]) for job in alone if job.job_id in where], idle)
        taken = set(chain.from_iterable(shared.values()))
        numbered, counted = dict(shared), dict(placed)
        for name, more in self.extra.items():
            node = where[name]
            if name in placed:
                counted[name] = ((node, placed[name][0][1] + more),)
            else:
                free = [(node, number) for number in range(view.gpus_per_node[node]) if (node, number) not in taken]
                numbered[name] = (*shared[name], *free[:more])
                taken.update(free[:more])
        return numbered, counted

    def _share(self, now: float, jobs: Iterable[tuple[JobView, int]], idle: Mapping[int, int]) -> None:
        """Give idle GPUs to who had them, then, where they were idle for long enough, to who may have more."""
        before, self.extra, left, jobs = self.extra, {}, dict(idle), list(jobs)
        wanted = {job.job_id: most_more(job) for job, _ in jobs}
        for job, node in jobs:
            self._give(job, min(wanted[job.job_id], before.get(job.job_id, 0)), left, node)
        known = self._idle
        self._idle = {
            node: known[node] if node in known and known[node][0] == gpus else (gpus, now)
            for node, gpus in left.items()
        }
        self.due = inf
        for job, node in jobs:
            more = min(wanted[job.job_id] - self.extra.get(job.job_id, 0), left[node])
            ripe = self._idle[node][1] + self.after
            if more > 0 and now >= ripe:
                self._give(job, more, left, node)
            elif more > 0:
                self.due = min(self.due, ripe)

    def _give(self, job: JobView, wanted: int, left: dict[int, int], node: int) -> None:
        if gpus := min(wanted, left[node]):
            self.extra[job.job_id] = self.extra.get(job.job_id, 0) + gpus
            left[node] -= gpus


def most_more(job: JobView) -> int:
    """Return how many GPUs a job may have beyond those it asks for; none unless its user says so."""
    return max(job.max_replicas - job.num_replicas, 0) if job.may_grow else 0


def _nodes(gpus: Gpus, placement: Placement) -> tuple[int, ...]:
    """Return the nodes that GPUs are on, each once."""
    return tuple(dict.fromkeys(node for node, _ in gpus or placement))
