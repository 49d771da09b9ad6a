"""priority/multifactor: the priority of a job is the sum of weights times factors from 0 to 1.

The sum is cut to an integer, and is 1 at least. (Specification, "priority/multifactor"; Slurm's "Multifactor Priority
Plugin".)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polluxsim.policies.slurm.accounts import TRES
from polluxsim.policies.slurm.fair_share import associations, classic, fair_tree
from polluxsim.policies.slurm.priority import job_size
from polluxsim.policies.slurm.priority_parameters import NO_FAIR_TREE, PriorityParameters
from polluxsim.policies.slurm.values import Allocated, Node, PendingJob


def with_priorities(
    jobs: Sequence[PendingJob],
    nodes: Sequence[Node],
    computed_at: int,
    fair_share: Mapping[str, float],
    parameters: PriorityParameters,
) -> list[PendingJob]:
    """Return jobs with their priorities, in the same order.

    Parameters
    ----------
    computed_at
        Time of the last computation of priorities [s].
    fair_share
        Fair-share factor by user.
    """
    largest_partition = max(parameters.priority_job_factor.values(), default=1)
    largest_qos = max((qos.priority for qos in parameters.qualities.values()), default=0)
    prioritised = []
    for job in jobs:
        # A job that became eligible after the computation has the age 0 until the next one.
        age = min(max(computed_at - job.eligible, 0) / (60 * parameters.priority_max_age), 1.0)
        size = job_size(job.request, nodes, favours_small=parameters.priority_favor_small)
        partition = parameters.priority_job_factor.get(job.partition, 1)
        qos = parameters.qualities[job.qos].priority if job.qos in parameters.qualities else 0
        # Slurm divides the factors of partitions and of QOS by the largest one, so that they are at most 1.
        part_of_partition = partition / largest_partition if largest_partition else 0.0
        part_of_qos = qos / largest_qos if largest_qos else 0.0
        priority = (
            parameters.priority_weight_age * age
            + parameters.priority_weight_fairshare * fair_share.get(job.user, 0.0)
            + parameters.priority_weight_job_size * size
            + parameters.priority_weight_partition * part_of_partition
            + parameters.priority_weight_qos * part_of_qos
        )
        prioritised.append(job._replace(priority=float(max(int(priority), 1))))
    return prioritised


def fair_shares(usage: Mapping[str, float], parameters: PriorityParameters) -> dict[str, float]:
    """Return the fair-share factor of each user, from the usage of users."""
    below_root = associations(parameters.tree, usage)
    if parameters.priority_flags == NO_FAIR_TREE:
        return classic(below_root, parameters.fair_share_dampening_factor)
    return fair_tree(below_root)


def billing(held: Allocated, parameters: PriorityParameters) -> float:
    """Return the billing weight of what a job holds: its CPUs, unless `TRESBillingWeights` says otherwise.

    >>> from polluxsim.policies.slurm.values import Held
    >>> on_two_nodes = (Held(0, 4, 16), Held(1, 4, 16))
    >>> billing(on_two_nodes, PriorityParameters())
    32.0
    >>> billing(on_two_nodes, PriorityParameters(tres_billing_weights={"gpu": 10, "cpu": 0.5}))
    96.0
    """
    weights = parameters.tres_billing_weights or {"cpu": 1.0}
    amounts = {
        "gpu": sum(on_node.gpus for on_node in held),
        "cpu": sum(on_node.cpus for on_node in held),
        "mem": sum(on_node.memory for on_node in held),
        "node": len(held),
    }
    return float(sum(weights.get(resource, 0.0) * amounts[resource] for resource in TRES))
