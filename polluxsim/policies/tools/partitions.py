"""Policies per partition of a cluster, or per queue.

Each group of nodes has its own copy of a policy, see `parts`. A partition is a group of nodes that the cluster states;
a queue has the nodes that the user of `PerQueue` gives to it. In both cases the queue of a job says where it is.

Invariants: the groups have no common nodes. Partitions that have some form one group, and queues that have some are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polluxsim.common.errors import InvalidConfigError, allowed_among
from polluxsim.hardware.placements import JobId, partitions_of_queue
from polluxsim.policies.contract.policy import Allocates
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.ledger import queue_of
from polluxsim.policies.tools.parts import DisjointParts, PerPart
from polluxsim.policies.tools.pools import prepared_for_types


class ByPartition(DisjointParts):
    """Splits a cluster by its partitions. Partitions that have common nodes form one part.

    The queue of a job names its partition.
    """

    def __init__(self) -> None:
        super().__init__()
        self._part_of_queue: dict[str, str] = {}

    def nodes(self, view: ClusterView) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes of each group of partitions.

        Raise InvalidConfigError if other partitions have common nodes than before, after a fork.
        """
        part_of_queue: dict[str, str] = {}
        nodes: dict[str, Sequence[int]] = {}
        for group in view.partition_groups:
            part = "+".join(group.names)
            nodes[part] = group.nodes
            part_of_queue |= dict.fromkeys(group.names, part)
        # The empty mapping is that of the first decision.
        if self._part_of_queue not in ({}, part_of_queue):
            raise InvalidConfigError(
                "the partitions of the cluster cannot be changed in the middle of a run; change only their nodes, or "
                "make a new run"
            )
        self._part_of_queue = part_of_queue
        return nodes

    def placed(self, view: ClusterView, new: Sequence[JobView]) -> Mapping[JobId, str]:
        """Return the part of each new job."""
        # The engine has refused jobs whose queue names no partition.
        # The engine has refused jobs whose partitions have no common nodes.
        return {job.job_id: self._part_of_queue[partitions_of_queue(job.queue)[0]] for job in new}


class ByQueue(DisjointParts):
    """Splits a cluster by the queues of jobs.

    Parameters
    ----------
    nodes
        Numbers of the nodes of each queue, by its name; jobs without a queue are in `none`. The queues must have no
        common nodes.
    """

    def __init__(self, nodes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self._nodes = {queue: tuple(numbers) for queue, numbers in nodes.items()}
        owners: dict[int, str] = {}
        for queue, numbers in self._nodes.items():
            for node in numbers:
                if node in owners:
                    raise InvalidConfigError(f"node {node} is of queue {owners[node]!r} and of queue {queue!r}")
                owners[node] = queue

    def nodes(self, view: ClusterView) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes of each queue."""
        return self._nodes

    def placed(self, view: ClusterView, new: Sequence[JobView]) -> Mapping[JobId, str]:
        """Return the queue of each new job. Raise InvalidConfigError if the queue has no nodes."""
        queues: dict[JobId, str] = {}
        for job in new:
            queue = queue_of(job)
            if queue not in self._nodes:
                raise InvalidConfigError(
                    f"job {job.job_id!r} is in queue {queue!r}, which has no nodes, {allowed_among(queue, self._nodes)}"
                )
            queues[job.job_id] = queue
        return queues


class PerPartition(PerPart):
    """A policy that has a copy of a policy for each group of partitions of a cluster that have common nodes.

    The decision about one group of partitions does not depend on the others. A run on a cluster with partitions wraps
    its policy by itself.

    Parameters
    ----------
    policy
        A policy that has not decided before.
    """

    def __init__(self, policy: Allocates) -> None:
        super().__init__(prepared_for_types(policy), ByPartition())


class PerQueue(PerPart):
    """A policy that has a copy of a policy for each queue, on nodes of its own.

    Parameters
    ----------
    policy
        A policy that has not decided before.
    nodes
        Numbers of the nodes of each queue, by its name, as of `ByQueue`.

    >>> from polluxsim.policies.reserving.easy import Easy
    >>> policy = PerQueue(Easy(), {"vision": range(4), "speech": range(4, 16)})
    """

    def __init__(self, policy: Allocates, nodes: Mapping[str, Sequence[int]]) -> None:
        super().__init__(prepared_for_types(policy), ByQueue(nodes))
