"""What a policy may answer: every job known, every node existing, no GPU given twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import InvalidAllocationError

if TYPE_CHECKING:
    from collections.abc import Container

    from polluxsim.types import Allocation, Cluster, JobId, Placement


def check_allocation(allocation: Allocation, active: Container[JobId], cluster: Cluster) -> None:
    """Check a policy's answer.

    Raises
    ------
    InvalidAllocationError
        Naming the job, and the node where there is one, at the first thing that is wrong.
    """
    free = list(cluster.gpus_per_node)
    for job_id, placement in allocation.items():
        if job_id not in active:
            raise InvalidAllocationError(f"the policy gave GPUs to job {job_id!r}, which is not active")
        _take(free, job_id, placement, cluster)


def _take(free: list[int], job_id: JobId, placement: Placement, cluster: Cluster) -> None:
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
        free[node] -= gpus
        if free[node] < 0:
            size = cluster.gpus_per_node[node]
            raise InvalidAllocationError(
                f"the policy over-allocated node {node}: with job {job_id!r} it is asked for {size - free[node]} "
                f"GPUs, allowed are {size}"
            )
