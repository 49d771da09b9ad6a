"""The effect of a change of a live cluster on its waiting jobs, over paired futures.

Each future of the changed cluster has the draws of a future of the present one: the same run times and the same later
jobs. So the difference of a pair is the effect of the change, and not of chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError, did_you_mean
from polluxsim.logs.live.state import SlurmState
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.studies.twin.estimates import TimeDistribution, times_of
from polluxsim.studies.twin.futures import FutureSource, FutureTimes, outcomes
from polluxsim.studies.twin.world import TwinWorld


class Effect(NamedTuple):
    """The effect of a change on the start of a job."""

    name: str
    before: TimeDistribution
    after: TimeDistribution
    # Start after the change, less the start before it, in each pair of futures [s]. ∞ if only the changed cluster never
    # starts the job within the future.
    difference: TimeDistribution


def drained(state: SlurmState, names: Sequence[str]) -> SlurmState:
    """Return the state with nodes that take no further jobs. Raise InvalidInputError if there is no such node."""
    known = [node.name for node in state.nodes]
    for name in names:
        if name not in known:
            raise InvalidInputError(
                f"--drain is {name}, must be a node of the cluster, like {known[0]}{did_you_mean(name, known)}"
            )
    nodes = []
    for node in state.nodes:
        # Running jobs stay on a node that is drained.
        nodes.append(node._replace(out="drained") if node.name in names else node)
    return replace(state, nodes=nodes)


def with_nodes(state: SlurmState, number: int) -> SlurmState:
    """Return the state with further nodes, which are like the most frequent nodes and in their partitions."""
    # Nodes that differ only in their name or their present state are of one kind.
    kinds = Counter(node._replace(name="", out="", is_completing=False) for node in state.nodes)
    kind = kinds.most_common(1)[0][0]
    new = [kind._replace(name=f"new{place + 1}") for place in range(number)]
    partitions = []
    for partition in state.partitions:
        names = partition.nodes
        # A partition without a list has all nodes that name it, so also the new ones.
        if names and partition.name in kind.partitions:
            names = (*names, *(node.name for node in new))
        partitions.append(partition._replace(nodes=names))
    return replace(state, nodes=[*state.nodes, *new], partitions=partitions)


def effects(
    world: TwinWorld,
    changed: TwinWorld,
    source: FutureSource,
    names: Sequence[str],
    num_futures: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[Effect]:
    """Return the effects of a change on jobs that wait, over pairs of futures with equal draws.

    `names` are pending jobs of `world`. `report` is called with the number of futures so far, of both clusters.
    """
    before = outcomes(world, source, names, num_futures, report=lambda done, first: report(done))
    # A job that no longer fits on the nodes in use is not pending in the changed world, and never starts there.
    possible = {job.name for job in changed.pending}
    still = [name for name in names if name in possible]
    after = outcomes(changed, source, still, num_futures, report=lambda done, first: report(num_futures + done))
    never = [inf] * num_futures
    result = []
    for name in names:
        new = after.get(name, FutureTimes(never, never))
        differences = []
        for old_start, new_start in zip(before[name].starts, new.starts, strict=True):
            # A job that never starts in both futures has no difference.
            differences.append(0.0 if old_start == new_start else new_start - old_start)
        result.append(Effect(name, times_of(before[name].starts), times_of(new.starts), times_of(differences)))
    return result


def changed_world(world: TwinWorld, *, drain: Sequence[str], nodes: int, parameters: Parameters | None) -> TwinWorld:
    """Return the world after a change: nodes to drain, a number of new nodes, and other parameters if they are given.

    Raise InvalidInputError if a node to drain does not exist.
    """
    state = with_nodes(drained(world.state, drain), nodes)
    return TwinWorld(state, parameters or world.parameters)
