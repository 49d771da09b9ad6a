"""CPUs and memory of nodes: whether what jobs are granted is there, and how fast they are with it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidAllocationError, short
from polluxsim.hosts import ROUNDING, Host, Hosted, with_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.moves import Move
    from polluxsim.engine.state import State
    from polluxsim.policies.view import Decision
    from polluxsim.types import JobId, Placement


def checked_hosts(decision: Decision, moves: Mapping[JobId, Move], state: State) -> Mapping[JobId, Host]:
    """Return the CPUs and memory that jobs are granted, as plain values; jobs on one GPU count for it each.

    Raises
    ------
    InvalidAllocationError
        If the cluster does not say what nodes have, a job holds no GPUs, or a node has less than all are granted.
    """
    if not isinstance(decision.hosts, Mapping):
        raise InvalidAllocationError(f"decided with hosts {short(decision.hosts)}, allowed is a mapping of jobs")
    cluster = state.scenario.cluster
    if not cluster.hosts:
        raise InvalidAllocationError("granted CPUs and memory, but the cluster does not say what its nodes have")
    placements = {job_id: job.placement for job_id, job in state.jobs.placed.items()}
    placements |= {job_id: move.placement for job_id, move in moves.items()}
    granted = {job_id: _plain(job_id, host, placements) for job_id, host in decision.hosts.items()}
    shares, left = cluster.host_shares, [list(host) for host in cluster.hosts]
    for job_id, placement in placements.items():
        if placement:
            cpus, memory = granted.get(job_id) or with_gpus(shares, placement)
            for node, gpus in placement:
                left[node][0] -= cpus * gpus
                left[node][1] -= memory * gpus
    for node, (there, rest) in enumerate(zip(cluster.hosts, left, strict=True)):
        if any(part < -ROUNDING * all_ for part, all_ in zip(rest, there, strict=True)):
            cpus, memory = there.cpus - rest[0], there.memory - rest[1]
            raise InvalidAllocationError(
                f"over-allocated node {node}: it is asked for {cpus:g} CPUs and {memory:g} GB, allowed are "
                f"{there.cpus:g} and {there.memory:g}"
            )
    return granted


def _plain(job_id: object, host: object, placements: Mapping[JobId, Placement]) -> Host:
    if not isinstance(job_id, str) or not placements.get(job_id):
        raise InvalidAllocationError(f"granted CPUs and memory to job {short(job_id)}, which holds no GPUs")
    plain = tuple(host) if isinstance(host, tuple | list) else ()
    if len(plain) != 2 or not all(type(part) in (int, float) and isfinite(part) and part > 0 for part in plain):
        raise InvalidAllocationError(
            f"granted job {job_id!r} {short(host)}, allowed are numbers > 0 of CPUs and GB for each GPU"
        )
    return Host(*map(float, plain))


def hosted(state: State, jobs: Iterable[ActiveJob]) -> dict[JobId, Hosted]:
    """Return what jobs that hold GPUs have of their nodes' CPUs and memory; of GPUs with n jobs, each has its part."""
    shares, nodes, found = state.scenario.cluster.host_shares, state.nodes, dict[str, Hosted]()
    for job in jobs:
        if (host := nodes.granted.get(job.job_id)) is None:
            host = with_gpus(shares, job.placement)
            if job.job_id in nodes.board.held:
                host = host.times(1 - nodes.board.ceded(job.job_id) / job.tenure.num_replicas)
        if (before := state.records.hosted_now.get(job.job_id)) is None or before.host != host:
            sensitivity = state.scenario.sensitivity_of(job.job)
            before = Hosted(host, 1.0 if sensitivity is None else sensitivity.speed(host))
        found[job.job_id] = before
    return found
