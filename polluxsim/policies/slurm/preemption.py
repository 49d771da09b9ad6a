"""Preemption by partition or QOS: which running jobs a pending job may preempt, and which of them it does.

A job that finds no room may take nodes from jobs of a partition with a lower `PriorityTier` (preempt/partition_prio),
or of a QOS in the list of its own QOS (preempt/qos). Slurm removes the candidates one by one until the job fits, those
of the lowest tier and the fewest nodes first. Then it sorts the candidates by the number of nodes that they share with
the job, most first, and repeats this `reorder_count` times. Only removed jobs on nodes of the job are preempted.

The backfill first chooses nodes as if all candidates were gone, and then preempts as few jobs as above on these nodes.

(Specification, "Preemption, reservations, QOS"; slurm.conf(5), `PreemptType` and `PreemptParameters`;
plugins/select/cons_tres/job_test.c, `_run_now` and `_will_run_test`. Measured on slurmctld 22.05.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import (
    Allocated,
    FreeNodes,
    Node,
    NodeSet,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    node_set,
)

BY_PARTITION = "preempt/partition_prio"
BY_QOS = "preempt/qos"


class Preempting(NamedTuple):
    """What a job gets, and the jobs that lose their nodes for it."""

    held: Allocated
    victims: tuple[RunningJob, ...]


def candidates(job: PendingJob, state: SchedulerState, parameters: Parameters) -> list[RunningJob]:
    """Return the running jobs that a job may preempt, in the order in which they are removed.

    There are none under preempt/none.
    """
    if parameters.preempt_type == BY_PARTITION:
        tier = state.tier_of(job.partition)
        preemptable = [running for running in state.running if state.tier_of(running.partition) < tier]
        preemptable.sort(key=lambda running: (state.tier_of(running.partition), running.nodes.bit_count()))
    elif parameters.preempt_type == BY_QOS:
        lower = state.preempts.get(job.qos, frozenset())
        preemptable = [running for running in state.running if running.qos in lower]
        preemptable.sort(key=lambda running: running.priority)
    else:
        return []
    if parameters.preempt_exempt_time:
        latest = state.now - parameters.preempt_exempt_time
        preemptable = [running for running in preemptable if running.start <= latest]
    # The sort is stable, so that jobs with equal starts keep their order.
    if parameters.youngest_first:
        preemptable.sort(key=lambda running: -running.start)
    return preemptable


def preempting(
    request: Request,
    allowed: NodeSet,
    free: FreeNodes,
    nodes: Sequence[Node],
    in_order: Sequence[RunningJob],
    parameters: Parameters,
) -> Preempting | None:
    """Return what a job gets if candidates are removed one by one; None if it fits not even without all of them."""
    order = list(in_order)
    removed = _removed(request, allowed, free, nodes, order)
    if removed is None:
        return None
    # Slurm sorts the candidates again as often as there are candidates, and not more often than stated.
    for _ in range(min(parameters.reorder_count + 1, len(order) - 1)):
        order = _reordered(order, removed)
        again = _removed(request, allowed, free, nodes, order)
        if again is None:
            break
        removed = again
    # A removed job on other nodes stays, because the job does not need what it holds.
    used = node_set(on_node.node for on_node in removed.held)
    return removed._replace(victims=tuple(victim for victim in removed.victims if victim.nodes & used))


def preempting_in_backfill(
    request: Request,
    allowed: NodeSet,
    free: FreeNodes,
    nodes: Sequence[Node],
    in_order: Sequence[RunningJob],
    parameters: Parameters,
) -> Preempting | None:
    """Return what a job gets on the nodes that would be chosen without all candidates; None if it does not fit."""
    without = free.copy()
    for running in in_order:
        without.give_back(running.held)
    held = chosen_nodes(request, allowed, without, nodes)
    if held is None:
        return None
    on_these = node_set(on_node.node for on_node in held)
    return preempting(request, on_these, free, nodes, in_order, parameters)


def _removed(
    request: Request, allowed: NodeSet, free: FreeNodes, nodes: Sequence[Node], order: Sequence[RunningJob]
) -> Preempting | None:
    """Return what the job gets when the first candidates are removed, as few as suffice; None if all are too few."""
    left = free.copy()
    for number, running in enumerate(order, start=1):
        left.give_back(running.held)
        held = chosen_nodes(request, allowed, left, nodes)
        if held is not None:
            return Preempting(held, tuple(order[:number]))
    return None


def _reordered(order: Sequence[RunningJob], removed: Preempting) -> list[RunningJob]:
    """Return the candidates by the number of nodes that they share with the job, the last one removed first."""
    used = node_set(on_node.node for on_node in removed.held)
    last = len(removed.victims) - 1

    def shared(entry: tuple[int, RunningJob]) -> int:
        number, running = entry
        # More than any job shares, so that the last one removed comes first.
        if number == last:
            return len(order) + used.bit_count() + 1
        return (running.nodes & used).bit_count() if number < last else 0

    return [running for _, running in sorted(enumerate(order), key=lambda entry: -shared(entry))]
