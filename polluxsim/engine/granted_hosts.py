"""Check the CPUs and memory that a policy grants to jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import isfinite

from polluxsim.common.errors import InvalidAllocationError, short
from polluxsim.engine.job import Move
from polluxsim.engine.plain_values import not_active, over_allocated, real_number
from polluxsim.engine.sharing import ceded_gpus
from polluxsim.engine.state import State
from polluxsim.hardware.hosts import ROUNDING, Host, with_gpus
from polluxsim.hardware.placements import Gpu, JobId, Placement
from polluxsim.policies.contract.view import Decision


def granted_hosts(decision: Decision, moves: Mapping[JobId, Move], state: State) -> Mapping[JobId, Host]:
    """Return the granted CPUs and memory for each GPU.

    Raise InvalidAllocationError, or a class based on it, if a grant is invalid, or if a node does not have the granted
    CPUs and memory beside the parts of all other jobs.
    """
    cluster = state.scenario.cluster
    if not cluster.hosts:
        raise InvalidAllocationError("granted CPUs and memory, but the cluster does not say what its nodes have")
    placements = {job_id: job.placement for job_id, job in state.jobs.placed.items()}
    placements |= {job_id: move.placement for job_id, move in moves.items()}
    # A grant is checked against the GPUs that the job will hold.
    granted = {job_id: _host(job_id, host, placements) for job_id, host in decision.hosts.items()}
    part = _parts(moves, state)
    free_cpus = [host.cpus for host in cluster.hosts]
    free_memory = [host.memory for host in cluster.hosts]
    for job_id, placement in placements.items():
        if placement:
            cpus, memory = granted.get(job_id) or part(job_id, with_gpus(cluster.host_shares, placement))
            for node, gpus in placement:
                free_cpus[node] -= cpus * gpus
                free_memory[node] -= memory * gpus
    for node, host in enumerate(cluster.hosts):
        # Sums of parts of GPUs may exceed the node by rounding.
        has_cpus = free_cpus[node] >= -ROUNDING * host.cpus
        has_memory = free_memory[node] >= -ROUNDING * host.memory
        if not has_cpus or not has_memory:
            cpus = host.cpus - free_cpus[node]
            memory = host.memory - free_memory[node]
            raise over_allocated(node, f"{cpus:g} CPUs and {memory:g} GB", f"{host.cpus:g} and {host.memory:g}")
    return granted


def _parts(moves: Mapping[JobId, Move], state: State) -> Callable[[JobId, Host], Host]:
    """Return a function from a job and the CPUs and memory of a whole GPU to its part on GPUs that it shares."""
    gpus_by_job = dict(state.nodes.shared.held)
    for job_id, move in moves.items():
        gpus_by_job.pop(job_id, None)
        if move.gpus:
            gpus_by_job[job_id] = move.gpus
    users = Counter[Gpu]()
    for gpus in gpus_by_job.values():
        users.update(gpus)

    def part(job_id: JobId, host: Host) -> Host:
        gpus = gpus_by_job.get(job_id)
        if not gpus:
            return host
        return host.times(1 - ceded_gpus(gpus, users) / len(gpus))

    return part


def _host(job_id: object, host: object, placements: Mapping[JobId, Placement]) -> Host:
    if not isinstance(job_id, str):
        raise not_active("granted CPUs and memory to", job_id)
    if not placements.get(job_id):
        raise InvalidAllocationError(f"granted CPUs and memory to job {short(job_id)}, which holds no GPUs")
    plain: tuple[float | None, ...] = ()
    if isinstance(host, tuple | list):
        plain = tuple(map(real_number, host))
    are_positive = all(part is not None and isfinite(part) and part > 0 for part in plain)
    if len(plain) != 2 or not are_positive:
        must_be = "numbers > 0 of CPUs and GB for each GPU"
        raise InvalidAllocationError(f"granted job {job_id!r} {short(host)}, must be {must_be}")
    return Host(*plain)  # type: ignore[arg-type]
