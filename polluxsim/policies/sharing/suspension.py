"""Suspension: a job that loses its turn stays in the memory of its nodes, and resumes there quickly, as in Gandiva.

The home of a job are the GPUs where it runs, or where it was suspended. `Suspension.chosen` gives GPUs to packs in an
order, and leaves them at home where no earlier pack has taken the home.

Invariants: a home has exactly the requested GPUs of its job; a home on a node that went down is forgotten, because the
memory is lost.

The trap: `chosen` returns a view in which only the packs at home hold GPUs. The functions that place packs then leave
these packs at home, and all other packs get GPUs that no home needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobProxy, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gangs import Budget

# One job, or two jobs that share their GPUs.
Pack = tuple[JobView, ...]


class Home(NamedTuple):
    """GPUs where a job runs, or where it was suspended."""

    job_id: JobId
    placement: Placement
    gpus: Gpus  # numbered GPUs; empty if jobs share no GPUs


@dataclass
class Suspension:
    """The GPUs on which jobs were suspended. The memory of these nodes holds the state of the jobs.

    Source: Xiao et al., Gandiva (OSDI '18), §3.1: suspension and resumption take less than a second.
    """

    resume_time: float  # time of a suspension and a resumption on the same nodes [s]
    _homes: dict[JobId, Home] = field(default_factory=dict)
    _failures: tuple[int, ...] = ()  # failures of each node until the last decision

    def take_note(self, view: ClusterView, jobs: Mapping[JobId, JobView], grown: Collection[JobId]) -> None:
        """Record the GPUs of running jobs, and forget states that are lost.

        Jobs that ended, were evicted or were altered have lost their states, and so have jobs on nodes that went down.
        `grown` contains the jobs with more GPUs than they request. Only the requested GPUs of these jobs are recorded.
        """
        for job_id in (*view.changes.ended, *view.changes.evicted, *view.changes.altered):
            self._homes.pop(job_id, None)
        failures = view.health.num_failures
        num_nodes = len(view.gpus_per_node)
        for node, (before, now) in enumerate(zip_longest(self._failures, failures, fillvalue=0)):
            has_lost_memory = now != before or node >= num_nodes or node in view.health.down
            if has_lost_memory:
                self._homes = {name: home for name, home in self._homes.items() if node not in dict(home.placement)}
        self._failures = failures
        for name, job in jobs.items():
            placement = job.placement
            if not placement:
                continue
            gpus = view.sharing.held.get(name, ())
            if name in grown:
                # A job grows on its only node, by GPUs after those that it requests.
                node = placement[0][0]
                placement = ((node, job.num_replicas),)
                gpus = gpus[: job.num_replicas]
            self._homes[name] = Home(name, placement, gpus)

    def chosen(
        self, view: ClusterView, order: Sequence[Pack], jobs: Mapping[JobId, JobView]
    ) -> tuple[dict[Pack, str], ClusterView, Mapping[JobId, JobView]]:
        """Choose packs in an order. If an earlier pack takes the home of a pack, the pack gets GPUs that are left.

        Return the GPU type of each chosen pack, and a view, with its jobs, in which only the packs at home hold GPUs.
        """
        free = FreeGpus(view.gpus_per_node)
        taken = set[Gpu]()
        budget = Budget(view)
        types: dict[Pack, str] = {}
        homes: dict[JobId, Home] = {}
        homeless: list[Pack] = []
        for pack in order:
            home = self._home_of(pack, jobs)
            if home is None:
                crew = budget.take(jobs[pack[0].job_id])
            elif free.has(home.placement) and taken.isdisjoint(home.gpus):
                # As if the job held its home, so that the budget prefers the type of the home.
                crew = budget.take(_with_placement(jobs[home.job_id], home.placement))
            else:
                homeless.append(pack)
                continue
            if not crew:
                continue
            gpu_type = crew[0][0]
            types[pack] = gpu_type
            if home is not None and gpu_type == view.type_of(home.placement):
                homes[home.job_id] = home
                free.take(home.placement)
                taken.update(home.gpus)
        # After all others, so that they take no GPUs of a pack that can stay at home.
        for pack in homeless:
            crew = budget.take(pack[0])
            if crew:
                types[pack] = crew[0][0]
        jobs_at_home: dict[JobId, JobView] = {}
        for name, job in jobs.items():
            placement = homes[name].placement if name in homes else ()
            jobs_at_home[name] = _with_placement(job, placement)
        shared = {name: home.gpus for name, home in homes.items() if home.gpus}
        view_at_home = view.part(
            view.gpus_per_node,
            jobs_at_home,
            view.changes,
            nodes=range(len(view.gpus_per_node)),
            sharing=view.sharing._replace(held=shared),
        )
        return types, view_at_home, jobs_at_home

    def delays(
        self, view: ClusterView, shared: Mapping[JobId, Gpus], placed: Mapping[JobId, Placement]
    ) -> dict[JobId, float]:
        """Return the delays of the jobs that resume on the nodes on which they were suspended [s]."""
        gpus_on_nodes: dict[JobId, Counter[int]] = {}
        for name, gpus in shared.items():
            gpus_on_nodes[name] = Counter(node for node, _ in gpus)
        for name, placement in placed.items():
            gpus_on_nodes[name] = Counter(dict(placement))
        delays: dict[JobId, float] = {}
        for job in view.waiting:
            home = self._homes.get(job.job_id)
            if home is None:
                continue
            resumes_at_home = gpus_on_nodes.get(job.job_id) == Counter(dict(home.placement))
            if resumes_at_home:
                delays[job.job_id] = min(self.resume_time, view.delay_of(job))
        return delays

    def _home_of(self, pack: Pack, jobs: Mapping[JobId, JobView]) -> Home | None:
        """Return the home of the first job of a pack that runs or, if no job runs, that was suspended."""
        homes = [self._homes[job.job_id] for job in pack if job.job_id in self._homes]
        for home in homes:
            runs = bool(jobs[home.job_id].placement)
            if runs:
                return home
        return homes[0] if homes else None


def _with_placement(job: JobView, placement: Placement) -> JobView:
    """Return a job as if it had a placement; the view itself if it has, because other views take longer to read."""
    if job.placement == placement:
        return job
    return JobProxy(job, placement=placement)
