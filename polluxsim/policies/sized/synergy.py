"""Synergy: jobs that become faster with more CPUs and memory get them from jobs that need less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce

import numpy as np

from polluxsim.common.errors import InvalidConfigError, check_choice
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import Host, least, shares_of, with_gpus
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.policies.contract.settings import without_effect
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobView,
    Policy,
    Reason,
    Traits,
    decision_of,
    traits_of,
)
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.workloads.job import Job

ALLOCATIONS = ("tuned", "proportional")


@dataclass
class Synergy:
    """Let a policy choose the jobs with GPUs, and give these jobs CPUs and memory by their gain.

    Each job is at least as fast as with the CPUs and memory in proportion to its GPUs. Spare CPUs and memory go to jobs
    that become faster with them, the largest demand first. A starting job on one GPU type goes to the node that fits
    its demand best. A running job stays. If the cluster states no CPUs and memory, Synergy equals the inner policy.

    Parameters
    ----------
    order
        Policy that decides which jobs have GPUs, and how many.
    allocation
        How CPUs and memory are given: `tuned`, or `proportional` to GPUs.

    Source: Mohan et al., "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters" (OSDI '22), §3 and §4. In
    the paper a job gets its whole demand, or its share if the demand does not fit; here also amounts in between.
    """

    order: Policy
    allocation: str = "tuned"

    def __post_init__(self) -> None:
        if not callable(getattr(self.order, "allocate", None)):
            raise InvalidConfigError(
                f"policy.order is {self.order!r}, must be a policy: choose one with policy@policy.order=NAME"
            )
        if self.traits.shares_gpus:
            raise InvalidConfigError(f"policy.order is {type(self.order).__name__}, must be a policy of whole GPUs")
        check_choice("policy.allocation", self.allocation, ALLOCATIONS)

    @property
    def traits(self) -> Traits:
        """Return the traits of the inner policy."""
        return traits_of(self.order)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return sentences about settings of the inner policy, or CPUs and memory, that have no effect."""
        sentences = without_effect(self.order, jobs, cluster)
        if not cluster.hosts:
            sentences.append("the cluster does not give the CPUs and memory of its nodes, so it only gives GPUs")
        return sentences

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the inner policy choose the running jobs, place new jobs, and give CPUs and memory to all of them."""
        decision = decision_of(self.order.allocate(view, rng))
        if not view.hosts or self.allocation == "proportional":
            return decision
        runs, changes = _placements_after(view, decision)
        new = {name for name, placement in changes.items() if _is_on_one_type(view, placement)}
        each = shares_of(view.hosts, view.gpus_per_node)
        jobs = {job.job_id: job for job in view.jobs if job.job_id in runs}
        shares = {name: with_gpus(each, runs[name]) for name in jobs}
        # The least CPUs and memory per GPU at which a job has its full speed, or its share if that is unknown.
        demands = {
            name: share if (known := jobs[name].sensitivity) is None else known.least(known.full, share)
            for name, share in shares.items()
        }
        total = reduce(Host.plus, view.hosts)
        largest = sorted(jobs.values(), key=lambda job: -demands[job.job_id].part_of(total) * job.num_replicas)
        free = FreeGpus(view.gpus_per_node, view.hosts)
        for name, held in runs.items():
            if name not in new:
                free.take(held, demands[name])
        for job in largest:
            if job.job_id in new:
                changes[job.job_id] = runs[job.job_id] = _place(free, view, runs[job.job_id], demands[job.job_id])
                shares[job.job_id] = with_gpus(each, runs[job.job_id])
        hosts = tuned(view.hosts, each, largest, runs)
        return replace(
            decision,
            allocation=changes,
            others_keep=True,
            hosts=hosts,
            outdated_by=decision.outdated_by | Change.JOBS_OR_NODES | Change.EVICTION,
            explain=decision.explain and partial(_explained, decision.explain, jobs, hosts, shares),
        )


def _placements_after(view: ClusterView, decision: Decision) -> tuple[dict[JobId, Placement], dict[JobId, Placement]]:
    """Return the placements of all jobs with GPUs, and the changed placements, empty for jobs that lose GPUs."""
    before = {job.job_id: job.placement for job in view.running}
    after = {name: placement for name, placement in decision.allocation.items() if placement}
    if decision.others_keep:
        after = {name: held for name, held in before.items() if name not in decision.allocation} | after
    changes = {name: placement for name, placement in after.items() if set(placement) != set(before.get(name, ()))}
    return after, changes | dict.fromkeys(before.keys() - after.keys(), ())


def _is_on_one_type(view: ClusterView, placement: Placement) -> bool:
    """Return whether a placement has GPUs, and all are of one type."""
    return bool(placement) and len(view.node_types.names_of(placement)) == 1


def _place(free: FreeGpus, view: ClusterView, placement: Placement, demand: Host) -> Placement:
    """Return a better placement for a job, on GPUs of the same type, and take these GPUs.

    It is the node with room for the whole demand that then has the least left; otherwise the node with the most CPUs
    left and enough GPUs; otherwise several nodes, those with the most free GPUs first.
    """
    wanted = num_replicas(placement)
    nodes = view.nodes_of(view.type_of(placement))
    enough = [node for node in nodes if free.gpus[node] >= wanted]
    whole = demand.times(wanted)
    if not enough:
        found = FreeGpus(free.gpus).pack(wanted, nodes) or placement
    elif good := [node for node in enough if free.hosts[node].holds(whole)]:
        found = ((min(good, key=lambda node: (free.hosts[node].cpus, free.gpus[node])), wanted),)
    else:
        found = ((max(enough, key=lambda node: (free.hosts[node].cpus, -free.gpus[node])), wanted),)
    free.take(found, demand)
    return found


def tuned(
    hosts: Sequence[Host], shares: Sequence[Host], jobs: Sequence[JobView], placements: Mapping[JobId, Placement]
) -> dict[JobId, Host]:
    """Return CPUs and memory per GPU for all jobs with GPUs, so that each is at least as fast as with its share.

    `hosts` and `shares` are the CPUs and memory of each node, in total and per GPU. The first jobs get the spare CPUs
    and memory first.
    """
    spare, found = list(hosts), dict[str, Host]()
    for job in jobs:
        placement = placements[job.job_id]
        share, known = with_gpus(shares, placement), job.sensitivity
        found[job.job_id] = share if known is None else _as_fast(known, share)
        for node, gpus in placement:
            spare[node] = spare[node].less(found[job.job_id].times(gpus))
    for job in jobs:
        if (known := job.sensitivity) is None:
            continue
        has, placement = found[job.job_id], placements[job.job_id]
        most = has.plus(least(spare[node].times(1 / gpus) for node, gpus in placement).but_not_negative())
        if (speed := known.speed(most)) > known.speed(has):
            found[job.job_id] = known.least(speed, has).at_most(most)
            for node, gpus in placement:
                spare[node] = spare[node].less(found[job.job_id].less(has).times(gpus))
    return found


@lru_cache(1 << 12)
def _as_fast(known: Sensitivity, share: Host) -> Host:
    """Return the least CPUs and memory for the speed that a job has with its share."""
    return known.least(known.speed(share), share).at_most(share)


def _explained(
    explain: Callable[[Sequence[JobId]], Mapping[JobId, Reason]],
    jobs: Mapping[JobId, JobView],
    hosts: Mapping[JobId, Host],
    shares: Mapping[JobId, Host],
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return the reasons of the inner policy with the CPUs and memory of each job."""
    reasons = dict(explain(asked))
    for name, reason in reasons.items():
        if (host := hosts.get(name)) is not None and (known := jobs[name].sensitivity) is not None:
            memory = host.memory / shares[name].memory
            figures = {"cpus": host.cpus, "memory_shares": memory, "host_speed": known.speed(host)}
            reasons[name] = reason._replace(numbers={**reason.numbers, **figures})
    return reasons
