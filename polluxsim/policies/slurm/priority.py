"""The order of the queue, and the factor of the job size of priority/multifactor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polluxsim.policies.slurm.job_partitions import in_each_partition
from polluxsim.policies.slurm.values import Node, PendingJob, Request, SlurmPartition


def in_order(jobs: Iterable[PendingJob], partitions: Mapping[str, SlurmPartition]) -> list[PendingJob]:
    """Return jobs in the order of the queue: jobs in a reservation first, then by tier and by priority.

    Equal jobs keep their order, which is that of their ids. (Specification, "The queue"; slurm.conf(5),
    `PriorityTier`.)
    """

    def key(job: PendingJob) -> tuple[bool, int, float]:
        tier = partitions[job.partition].tier if partitions else 1
        # The sort is ascending, and false comes before true.
        return not job.reservation, -tier, -job.priority

    return sorted(in_each_partition(jobs), key=key)


def job_size(request: Request, nodes: Sequence[Node], *, favours_small: bool = False) -> float:
    """Return the factor of the size of a job: the mean of its parts of all nodes and of all CPUs [1].

    GPUs do not count. (Measured; source: priority_multifactor, `PriorityWeightJobSize` and `PriorityFavorSmall`.)

    >>> from polluxsim.policies.slurm.values import NodePart
    >>> size = job_size(Request((NodePart(2, 4, 1),)), [Node(4, 64)] * 4)
    >>> int(10_000 * size)
    2539
    """
    part_of_nodes = request.nodes / len(nodes)
    part_of_cpus = request.cpus / sum(node.cpus for node in nodes)
    if favours_small:
        return (1 - part_of_nodes + 1 - part_of_cpus) / 2
    return (part_of_nodes + part_of_cpus) / 2
