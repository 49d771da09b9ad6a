"""What a policy may answer: every job known, every node existing, no GPU given twice."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidAllocationError, short

if TYPE_CHECKING:
    from polluxsim.policies.view import JobView, NodeCounts
    from polluxsim.types import Cluster, JobId, Placement


def checked_allocation(answer: object, active: Mapping[JobId, JobView], cluster: Cluster) -> dict[JobId, Placement]:
    """Return a policy's answer as plain tuples of whole numbers, which nobody can change any more.

    Raises
    ------
    InvalidAllocationError
        Naming the job, and the node where there is one, at the first thing that is wrong.
    """
    if not isinstance(answer, Mapping):
        raise InvalidAllocationError(f"the policy answered {short(answer)}, allowed is a mapping of jobs to placements")
    free = list(cluster.gpus_per_node)
    allocation = {}
    for job_id, placement in answer.items():
        if not isinstance(job_id, str) or job_id not in active:
            raise InvalidAllocationError(f"the policy gave GPUs to job {short(job_id)}, which is not active")
        if placement is active[job_id].placement:  # kept, and looked at when it was new
            plain = active[job_id].placement
        else:
            plain = _plain(job_id, placement)
            _check_nodes(job_id, plain, cluster)
        allocation[job_id] = plain
        for node, gpus in plain:
            if node >= len(free):
                _check_nodes(job_id, plain, cluster)  # kept, but its node is released
            free[node] -= gpus
            if free[node] < 0:
                raise _over_allocated(job_id, node, free[node], cluster)
    return allocation


def checked_node_count(wanted: object, counts: NodeCounts | None) -> int:
    """Return the number of nodes a policy asks for as a plain whole number.

    Raises
    ------
    InvalidAllocationError
        If it is no whole number, or not allowed.
    """
    if counts is None:
        raise InvalidAllocationError(f"the policy asked for {short(wanted)} nodes, but their number cannot change")
    allowed = f"allowed are {counts.least} to {counts.most}"
    try:
        number = index(wanted)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidAllocationError(f"the policy asked for {short(wanted)} nodes, {allowed}") from None
    if isinstance(wanted, bool) or not counts.least <= number <= counts.most:
        raise InvalidAllocationError(f"the policy asked for {short(wanted)} nodes, {allowed}")
    return number


def _plain(job_id: JobId, placement: object) -> Placement:
    try:
        # Whole numbers of any library are taken, 1.5 and True are not.
        pairs = tuple((index(node), index(gpus)) for node, gpus in placement)  # type: ignore[attr-defined]
        if any(isinstance(number, bool) for pair in placement for number in pair):  # type: ignore[attr-defined]
            raise TypeError
    except (TypeError, ValueError):
        raise InvalidAllocationError(
            f"the policy gave job {job_id!r} {short(placement)}, allowed are pairs (node, GPUs) of whole numbers"
        ) from None
    return pairs


def _check_nodes(job_id: JobId, placement: Placement, cluster: Cluster) -> None:
    if len({node for node, _ in placement}) != len(placement):
        raise InvalidAllocationError(f"the policy named a node twice for job {job_id!r}: {placement}")
    for node, gpus in placement:
        if not 0 <= node < cluster.num_nodes:
            raise InvalidAllocationError(
                f"the policy gave job {job_id!r} node {node}, allowed are 0 to {cluster.num_nodes - 1}"
            )
        if gpus < 1:
            raise InvalidAllocationError(
                f"the policy gave job {job_id!r} {gpus} GPUs of node {node}, allowed are 1 or more"
            )


def _over_allocated(job_id: JobId, node: int, missing: int, cluster: Cluster) -> InvalidAllocationError:
    size = cluster.gpus_per_node[node]
    return InvalidAllocationError(
        f"the policy over-allocated node {node}: with job {job_id!r} it is asked for {size - missing} GPUs, "
        f"allowed are {size}"
    )
