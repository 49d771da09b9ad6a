"""Whether GPUs that are given by number are there, and who is given the same ones fits together."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from polluxsim.engine.plain import plain_pairs
from polluxsim.engine.sharing import tenant_of
from polluxsim.errors import InvalidAllocationError, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.engine.sharing import Sharing, Tenant
    from polluxsim.engine.state import State
    from polluxsim.policies.view import Decision
    from polluxsim.types import Gpu, Gpus, JobId, Placement


def newly_shared(decision: Decision, state: State) -> dict[JobId, Gpus]:
    """Return the jobs that are given other GPUs by number than they hold, in whatever order these are named.

    Raises
    ------
    InvalidAllocationError
        If such a job is not active, has another placement as well, or is given what cannot be GPUs.
    """
    held, found = state.nodes.board.held, {}
    for job_id, gpus in decision.shared.items():
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise InvalidAllocationError(f"gave GPUs to job {short(job_id)}, which is not active")
        if job_id in decision.allocation:
            raise InvalidAllocationError(
                f"named job {job_id!r} in its allocation and in shared, allowed is one of them"
            )
        if gpus is held.get(job_id):
            continue
        plain = plain_pairs(job_id, gpus, "(node, number)")
        if not plain or len(set(plain)) < len(plain):
            raise InvalidAllocationError(f"gave job {job_id!r} {short(gpus)} in shared, allowed are GPUs, each once")
        if set(plain) != set(held.get(job_id, ())):
            found[job_id] = plain
    return found


def placement_of(gpus: Gpus) -> Placement:
    """Return the placement that GPUs by number make up.

    >>> placement_of(((0, 1), (2, 0), (0, 3)))
    ((0, 2), (2, 1))
    """
    return tuple(Counter(node for node, _ in gpus).items())


def check_together(
    new: Mapping[JobId, Placement], shared: Mapping[JobId, Gpus], up: Sequence[int], state: State
) -> None:
    """Check that all GPUs that jobs will hold are there (`up`, by node), and that those on one GPU fit together.

    What changes is all in `new` as placements, and what of it is by number, in `shared`.

    Raises
    ------
    InvalidAllocationError
        Naming the first node or GPU that is given too often.
    """
    tenants = list(_tenants(new, shared, state))
    users: defaultdict[Gpu, list[Tenant]] = defaultdict(list)
    used = Counter[int]()
    for tenant in tenants:
        for gpu in tenant.gpus:
            users[gpu].append(tenant)
        used.update({} if tenant.gpus else dict(tenant.placement))
    used.update(node for node, _ in users)
    for node, gpus in used.items():
        if gpus > up[node]:
            raise InvalidAllocationError(
                f"over-allocated node {node}: it is asked for {gpus} GPUs, allowed are {up[node]}"
            )
    for (node, number), there in users.items():
        if not 0 <= number < (size := state.scenario.cluster.gpus_per_node[node]):
            raise InvalidAllocationError(
                f"gave job {there[0].job.job_id!r} GPU {number} of node {node}, allowed are 0 to {size - 1}"
            )
    _check_fit(users, state.scenario.settings.sharing)


def _tenants(new: Mapping[JobId, Placement], shared: Mapping[JobId, Gpus], state: State) -> Iterable[Tenant]:
    """Yield the jobs that will hold GPUs, with these."""
    held, types = state.nodes.board.held, state.nodes.types
    for job in state.jobs.running:
        if job.job_id not in new:
            yield tenant_of(job, held.get(job.job_id, ()), types)
    for job_id, placement in new.items():
        if placement:
            tenant = tenant_of(state.jobs.active[job_id], shared.get(job_id, ()), types)
            yield tenant._replace(placement=placement)


def _check_fit(users: Mapping[Gpu, Sequence[Tenant]], sharing: Sharing | None) -> None:
    # Of each group, once, at its first GPU.
    crowded = [(gpu, there) for gpu, there in users.items() if len(there) > 1]
    groups = {tuple(each.job.job_id for each in there): (gpu, there) for gpu, there in reversed(crowded)}
    how = "whole GPUs, as engine.sharing is null" if sharing is None else f"what {type(sharing).__name__} can join"
    for names, ((node, number), there) in groups.items():
        if sharing is None or not sharing.fits(there):
            who = " and ".join(map(repr, names))
            raise InvalidAllocationError(f"put jobs {who} on GPU {number} of node {node}, allowed is {how}")
