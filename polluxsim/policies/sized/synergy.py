"""Synergy: jobs that become faster with more CPUs and memory get them from jobs that need less.

Another policy decides which jobs have GPUs. This one decides how many CPUs and how much memory each of them gets, and
on which nodes starting jobs run.

Invariants: no job is slower than with the CPUs and memory in proportion to its GPUs. What the jobs of a node get never
exceeds the node.

Trap: all GPUs of a job get the same amount, so the node with the least to spare limits a job on several nodes.

Source: Mohan et al., "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters" (OSDI '22), §3 and §4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from typing import Annotated

import numpy as np

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.values import OneOf
from polluxsim.common.written import takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import Host, least, shares_of, with_gpus
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.policies.contract.policy import Policy, PolicyAround, inner_policy, traits_of
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobView,
    Reason,
    ReasonKind,
    Traits,
    decision_of,
)
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.pools import prepared_for_types
from polluxsim.workloads.job import Job

ALLOCATIONS = ("tuned", "proportional")

WITH_HOST = (
    "[ With {cpus:CPU} for each GPU and {memory_shares:.3g} times its GPUs' part of the memory, the job is "
    "{host_speed:.3g} times as fast as its profile says.]"
)
"""Sentence on the CPUs and memory of a job, if its sensitivity to them is known.

It is a template, as `polluxsim.policies.contract.reasons` explains.
"""


@takes_settings("policy")
@dataclass
class Synergy(PolicyAround):
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
    allocation: Annotated[str, OneOf(*ALLOCATIONS)] = "tuned"
    _order: Policy = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._order = prepared_for_types(inner_policy("policy.order", self.order))
        if self.traits.shares_gpus:
            raise InvalidConfigError(f"policy.order is {self._order.label}, must be a policy of whole GPUs")

    @property
    def wrapped(self) -> Policy:
        """Return the policy that chooses the jobs."""
        return self._order

    @property
    def traits(self) -> Traits:
        """Return the traits of the inner policy, whose choice of nodes this policy changes."""
        return replace(traits_of(self._order), keeps_shapes=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return sentences about settings of the inner policy, or CPUs and memory, that have no effect."""
        sentences = list(super().without_effect(jobs, cluster))
        if not cluster.hosts:
            sentences.append("the cluster does not give the CPUs and memory of its nodes, so it only gives GPUs")
        return sentences

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the inner policy choose the running jobs, place new jobs, and give CPUs and memory to all of them."""
        decision = decision_of(self._order.allocate(view, rng))
        if not view.hosts or self.allocation == "proportional":
            return decision
        placements, changes = _placements_after(view, decision)
        jobs = {job.job_id: job for job in view.jobs if job.job_id in placements}
        per_gpu = shares_of(view.hosts, view.gpus_per_node)
        # The demands follow from the nodes that the inner policy chose, although starting jobs get other nodes below.
        demands = {name: _demand(job, with_gpus(per_gpu, placements[name])) for name, job in jobs.items()}
        largest_first = _by_demand(view, jobs.values(), demands)
        _move_starting_jobs(view, largest_first, demands, placements, changes)
        hosts = tuned(view.hosts, per_gpu, largest_first, placements)
        explain = None
        if decision.explain:
            shares = {name: with_gpus(per_gpu, placements[name]) for name in jobs}
            explain = partial(_explained, decision.explain, jobs, hosts, shares)
        return replace(
            decision,
            allocation=changes,
            others_keep=True,
            hosts=hosts,
            outdated_by=decision.outdated_by | Change.JOBS_OR_NODES | Change.EVICTION,
            explain=explain,
        )


def _placements_after(view: ClusterView, decision: Decision) -> tuple[dict[JobId, Placement], dict[JobId, Placement]]:
    """Return the placements of all jobs with GPUs, and the changed placements, empty for jobs that lose GPUs."""
    before = {job.job_id: job.placement for job in view.running}
    after: dict[JobId, Placement] = {}
    if decision.others_keep:
        after = before.copy()
        for name in decision.allocation:
            after.pop(name, None)  # an empty placement takes the GPUs from the job
    for name, placement in decision.allocation.items():
        if placement:
            after[name] = placement
    changes: dict[JobId, Placement] = {}
    for name, placement in after.items():
        # The order of the nodes in a placement does not matter.
        if set(placement) != set(before.get(name, ())):
            changes[name] = placement
    for name in before.keys() - after.keys():
        changes[name] = ()
    return after, changes


def _demand(job: JobView, share: Host) -> Host:
    """Return the least CPUs and memory per GPU for the full speed of a job; its share if its sensitivity is unknown."""
    if job.sensitivity is None:
        return share
    return job.sensitivity.least(job.sensitivity.full, share)


def _by_demand(view: ClusterView, jobs: Iterable[JobView], demands: Mapping[JobId, Host]) -> list[JobView]:
    """Return jobs in order of the part of all CPUs and memory that they demand, the largest first."""
    total = reduce(Host.plus, view.hosts)
    return sorted(jobs, key=lambda job: -demands[job.job_id].part_of(total) * job.num_replicas)


def _move_starting_jobs(
    view: ClusterView,
    jobs: Sequence[JobView],
    demands: Mapping[JobId, Host],
    placements: dict[JobId, Placement],
    changes: dict[JobId, Placement],
) -> None:
    """Replace the placements of jobs that change their nodes by better ones, in the order of `jobs`.

    Jobs on several GPU types keep what the inner policy chose.
    """
    movable = {name for name, placement in changes.items() if _is_on_one_type(view, placement)}
    free = FreeGpus(view.gpus_per_node, view.hosts)
    # All jobs that stay take their GPUs before any job is moved.
    for name, placement in placements.items():
        if name not in movable:
            free.take(placement, demands[name])
    for job in jobs:
        name = job.job_id
        if name in movable:
            placement = _place(free, view, placements[name], demands[name])
            placements[name] = placement
            changes[name] = placement


def _is_on_one_type(view: ClusterView, placement: Placement) -> bool:
    """Return whether a placement has GPUs, and all are of one type."""
    return bool(placement) and len(view.node_types.names_of(placement)) == 1


def _place(free: FreeGpus, view: ClusterView, placement: Placement, demand: Host) -> Placement:
    """Return a better placement for a job, on GPUs of the same type, and take these GPUs.

    It is the node with the fewest CPUs left that has room for the whole demand; otherwise the node with the most CPUs
    left and enough GPUs; otherwise several nodes, those with the most free GPUs first. `demand` is per GPU.
    """
    wanted = num_replicas(placement)
    nodes = view.nodes_of(view.type_of(placement))
    with_gpus_free = [node for node in nodes if free.gpus[node] >= wanted]
    whole_demand = demand.times(wanted)
    better: Placement
    with_room = [node for node in with_gpus_free if free.hosts[node].holds(whole_demand)]
    if with_room:
        best_node = min(with_room, key=lambda node: (free.hosts[node].cpus, free.gpus[node]))
        better = ((best_node, wanted),)
    elif with_gpus_free:
        best_node = max(with_gpus_free, key=lambda node: (free.hosts[node].cpus, -free.gpus[node]))
        better = ((best_node, wanted),)
    else:
        # Without CPUs and memory, so that only the GPUs count.
        better = FreeGpus(free.gpus).pack(wanted, nodes) or placement
    free.take(better, demand)
    return better


def tuned(
    hosts: Sequence[Host], shares: Sequence[Host], jobs: Sequence[JobView], placements: Mapping[JobId, Placement]
) -> dict[JobId, Host]:
    """Return CPUs and memory per GPU for all jobs with GPUs, so that each is at least as fast as with its share.

    `hosts` and `shares` are the CPUs and memory of each node, in total and per GPU. The first jobs get the spare CPUs
    and memory first. The results of all jobs on a node never exceed the node.
    """
    spare = list(hosts)
    per_gpu = dict[str, Host]()
    # First, every job gets the least CPUs and memory with which it is as fast as with its share.
    for job in jobs:
        placement = placements[job.job_id]
        share = with_gpus(shares, placement)
        if job.sensitivity is None:
            per_gpu[job.job_id] = share
        else:
            per_gpu[job.job_id] = _as_fast(job.sensitivity, share)
        for node, gpus in placement:
            spare[node] = spare[node].less(per_gpu[job.job_id].times(gpus))
    # Then each job in turn takes what makes it faster from the spare CPUs and memory. Each of its GPUs gets the same
    # amount, so the node with the least to spare limits the job. Rounding may have made a spare amount negative.
    for job in jobs:
        sensitivity = job.sensitivity
        if sensitivity is None:
            continue
        placement = placements[job.job_id]
        before = per_gpu[job.job_id]
        spare_for_each_gpu = least(spare[node].times(1 / gpus) for node, gpus in placement)
        upper = before.plus(spare_for_each_gpu.but_not_negative())
        speed = sensitivity.speed(upper)
        if speed > sensitivity.speed(before):
            # The least that makes it so fast, because later jobs can use the rest.
            after = sensitivity.least(speed, before).at_most(upper)
            per_gpu[job.job_id] = after
            for node, gpus in placement:
                spare[node] = spare[node].less(after.less(before).times(gpus))
    return per_gpu


@lru_cache(1 << 12)
def _as_fast(sensitivity: Sensitivity, share: Host) -> Host:
    """Return the least CPUs and memory for the speed that a job has with its share."""
    return sensitivity.least(sensitivity.speed(share), share).at_most(share)


@lru_cache(1 << 10)
def _with_host(kind: ReasonKind) -> ReasonKind:
    """Return a kind of the inner policy with a further sentence on CPUs and memory."""
    if not kind.sentence:  # all numbers are printed, these as well
        return kind
    return replace(kind, sentence=kind.sentence + WITH_HOST, units={**kind.units, "cpus": "CPUs"})


def _explained(
    explain: Callable[[Sequence[JobId]], Mapping[JobId, Reason]],
    jobs: Mapping[JobId, JobView],
    hosts: Mapping[JobId, Host],
    shares: Mapping[JobId, Host],
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return the reasons of the inner policy with the CPUs and memory of each job."""
    reasons: dict[JobId, Reason] = {}
    for name, reason in explain(asked).items():
        # Also for a job without these numbers, because two kinds of a run must not have one name. The further sentence
        # is then empty.
        kind = _with_host(reason.kind)
        numbers = reason.numbers
        sensitivity = jobs[name].sensitivity if name in hosts else None
        if sensitivity is not None:
            figures = {
                "cpus": hosts[name].cpus,
                "memory_shares": hosts[name].memory / shares[name].memory,
                "host_speed": sensitivity.speed(hosts[name]),
            }
            numbers = {**numbers, **figures}
        reasons[name] = reason._replace(kind=kind, numbers=numbers)
    return reasons
