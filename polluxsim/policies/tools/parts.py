"""Policies that ask other policies about parts of a view: the split of the view, and the merge of the decisions.

A part is a group of nodes with its jobs: a pool of one GPU type, a partition or a queue. `PerPart` has a copy of a
policy for each part. At each decision its partition splits the view into views of the parts, each copy decides about
one of them, and the partition merges the decisions.

Invariants: each job and each node is in one part (`DisjointParts`); a node has the same number in a part as in the
whole view, so that placements need no translation; a job that moves ends in one part and arrives in the other.

The trap: the engine gives a job the same view at all decisions, and policies compare views by identity. The views of
jobs in a part are therefore kept, and made anew only if the view of the engine is another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.node_shapes import ShapeRule
from polluxsim.hardware.placements import Allocation, Gpus, JobId, Placement
from polluxsim.models.batch_size import BatchSize
from polluxsim.policies.contract.policy import Allocates, Policy, PolicyAround, as_policy
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobProxy,
    JobView,
    Oracle,
    Reason,
    Report,
    decision_of,
)

if TYPE_CHECKING:
    from polluxsim.models.goodput import GoodputModel


class JobInPart(JobProxy):
    """A job as the policy of a part sees it.

    Parameters
    ----------
    job
        The view of the job, which supplies all other values.
    part
        Name of the part.
    types
        GPU types of the part, or None if the job can use the same types as outside.
    on_type
        The only GPU type of the part, or None. The oracle and the goodput of the job are then those on this type.
    must_move
        Whether the job must leave its nodes. The policy then sees it without GPUs.
    """

    __slots__ = ("_oracle", "_oracle_on_type")
    part: str
    types: Sequence[str] | None
    on_type: str | None
    must_move: bool
    _oracle: Oracle | None
    _oracle_on_type: Oracle

    def __init__(
        self,
        job: JobView,
        part: str,
        types: Sequence[str] | None = None,
        on_type: str | None = None,
        *,
        must_move: bool = False,
    ) -> None:
        super().__init__(job, part=part, types=types, on_type=on_type, must_move=must_move)
        # A view of a job is frozen, so that no policy can change the job.
        object.__setattr__(self, "_oracle", None)

    @property
    def placement(self) -> Placement:
        """Return the GPUs of the job; none if it must leave its nodes."""
        return () if self.values["must_move"] else self.job.placement

    @property
    def report(self) -> Report | None:
        """Return the log of the job. A job that must leave its nodes shows no present step time."""
        report = self.job.report
        if report is not None and self.values["must_move"]:
            return report._replace(step_time=None)
        return report

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return the speed on each type of the part that the job can use."""
        types = self.values["types"]
        if types is None:
            return self.job.speeds
        return {name: speed for name, speed in self.job.speeds.items() if name in types}

    @property
    def goodput(self) -> GoodputModel | None:
        """Return the goodput on the only type of the part, or on the type on which the job ran last."""
        on_type = self.values["on_type"]
        if on_type is None:
            return self.job.goodput
        return cast("GoodputModel | None", self.job.goodputs[on_type])

    @property
    def oracle(self) -> Oracle:
        """Return the oracle on the only type of the part, which is made when it is first read."""
        on_type = self.values["on_type"]
        if on_type is None:
            return self.job.oracle
        # The job may have another oracle than when the one on the type was made.
        if self._oracle is not self.job.oracle:
            object.__setattr__(self, "_oracle", self.job.oracle)
            object.__setattr__(self, "_oracle_on_type", self.job.oracle.on(on_type))
        return self._oracle_on_type

    def __repr__(self) -> str:
        return f"{self.job!r} in {self.values['part']}"


class Partition(ABC):
    """Splits a view into views of disjoint jobs and nodes, and merges the decisions about them.

    A partition has a state, and each run has its own. `parts` is called once for each decision, before `merge`.
    """

    @abstractmethod
    def parts(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return the view of each part, by its name."""

    @abstractmethod
    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return the decision about the whole view from those about its parts, by their names."""


class _NodeRules(NamedTuple):
    """What is known of the nodes of a part, and that from which it was computed."""

    nodes: Sequence[int]
    all_types: NodeTypes
    whole_rule: ShapeRule
    # Type of each node. Nodes outside have the type of the first node of the part, so that it has no further types.
    node_types: NodeTypes
    shape_rule: ShapeRule  # how the GPUs of a job must be spread over the nodes of the part

    def is_for(self, view: ClusterView, nodes: Sequence[int]) -> bool:
        """Return whether this is known of nodes in a view."""
        is_same_cluster = self.all_types is view.node_types and self.whole_rule is view.shape_rule
        return is_same_cluster and (self.nodes is nodes or self.nodes == nodes)


class DisjointParts(Partition):
    """A partition in which each job, and each node, is in one part.

    A class states the nodes of the parts, and the part of a new job. In the view of a part, other nodes have no GPUs.
    The events in it are those of its jobs; a job that moves to another part ends in one, and arrives in the other.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobId, JobInPart] = {}  # each job as the policy of its part sees it
        self._rules: dict[str, _NodeRules] = {}  # by part

    @abstractmethod
    def nodes(self, view: ClusterView) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes of each part, by its name."""

    @abstractmethod
    def placed(self, view: ClusterView, new: Sequence[JobView]) -> Mapping[JobId, str]:
        """Return the part of each new job, by the name of the job."""

    def shown(self, view: ClusterView, job: JobView, part: str) -> JobInPart:
        """Return a job as the policy of a part sees it: it can use only the GPU types of the part."""
        if not view.node_types:
            return JobInPart(job, part)
        types = dict.fromkeys(view.node_types[node].name for node in self.nodes(view)[part])
        return JobInPart(job, part, tuple(types))

    def moved(self, view: ClusterView) -> Sequence[tuple[JobId, str, str]]:
        """Return the jobs that move to another part now, each with its parts before and after. By default, none."""
        return ()

    def of(self, job_id: JobId) -> str:
        """Return the part that contains a job."""
        part: str = self._jobs[job_id].values["part"]
        return part

    def parts(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return the view of each part. In it, the nodes of other parts have no GPUs."""
        nodes = self.nodes(view)
        jobs: dict[str, dict[JobId, JobView]] = {part: {} for part in nodes}
        ended: dict[str, dict[JobId, float]] = {part: {} for part in nodes}
        arrived: dict[str, list[JobId]] = {part: [] for part in nodes}
        # Before `_take_note`, which forgets the parts of the jobs that have ended.
        for job_id, end in view.changes.ended.items():
            if job_id in self._jobs:
                ended[self.of(job_id)][job_id] = end
        self._take_note(view)
        for job in view.changes.arrived:
            arrived[self.of(job.job_id)].append(job.job_id)
        for job_id, before, after in self.moved(view):
            # If the job arrives now, the policy of the part before has not seen it, and is not told of its end.
            if job_id in arrived[before]:
                arrived[before].remove(job_id)
            else:
                ended[before][job_id] = view.time
            arrived[after].append(job_id)
            self._jobs[job_id] = self.shown(view, self._jobs[job_id].job, after)
        for job in view.jobs:
            jobs[self.of(job.job_id)][job.job_id] = self._jobs[job.job_id]
        views: dict[str, ClusterView] = {}
        for part in nodes:
            views[part] = self._view(view, part, nodes[part], jobs[part], arrived[part], ended[part])
        return views

    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return one decision for the cluster from the decisions for its parts, by their names."""
        allocation: dict[JobId, Placement] = {}
        shared: dict[JobId, Gpus] = {}
        hosts: dict[JobId, Host] = {}
        batch_sizes: dict[JobId, BatchSize] = {}
        rejected: list[JobId] = []
        delays: dict[JobId, float] = {}
        outdated_by = Change(0)
        for part, decision in decisions.items():
            allocation |= decision.allocation
            if not decision.others_keep:
                # The whole decision says `others_keep`, so it must name the jobs of this part that lose their GPUs.
                for job_id in self._losers(view, part, decision):
                    allocation[job_id] = ()
            shared |= decision.shared
            hosts |= decision.hosts
            batch_sizes |= decision.batch_sizes
            rejected += decision.rejected
            delays |= decision.delays
            outdated_by |= decision.outdated_by

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            reasons: dict[JobId, Reason] = {}
            for part, decision in decisions.items():
                asked_of_part = [job_id for job_id in asked if self.of(job_id) == part]
                if asked_of_part and decision.explain is not None:
                    reasons |= decision.explain(asked_of_part)
            return reasons

        return Decision(
            allocation,
            others_keep=True,
            shared=shared,
            hosts=hosts,
            batch_sizes=batch_sizes,
            rejected=rejected,
            valid_until=min(decision.valid_until for decision in decisions.values()),
            outdated_by=outdated_by,
            explain=explain,
            delays=delays,
        )

    def _losers(self, view: ClusterView, part: str, decision: Decision) -> list[JobId]:
        """Return the running jobs of a part that a decision about the part leaves out."""
        placed = decision.allocation.keys() | decision.shared.keys()
        losers = []
        for job in view.running:
            if self.of(job.job_id) == part and job.job_id not in placed:
                losers.append(job.job_id)
        return losers

    def _take_note(self, view: ClusterView) -> None:
        """Take note of new jobs, and forget jobs that have ended."""
        new: list[JobView] = []
        for job in view.jobs:
            before = self._jobs.get(job.job_id)
            if before is None:
                new.append(job)
            elif before.job is not job:
                self._jobs[job.job_id] = self.shown(view, job, before.values["part"])
        if new:
            parts = self.placed(view, new)
            for job in new:
                self._jobs[job.job_id] = self.shown(view, job, parts[job.job_id])
        # All jobs of the view are known now, so any other job has ended.
        if len(self._jobs) > len(view.jobs):
            self._jobs = {job.job_id: self._jobs[job.job_id] for job in view.jobs}

    def _view(
        self,
        view: ClusterView,
        part: str,
        nodes: Sequence[int],
        jobs: Mapping[JobId, JobView],
        arrived: Iterable[JobId],
        ended: Mapping[JobId, float],
    ) -> ClusterView:
        """Return the view of a part with its nodes and jobs, and its jobs that arrived and ended [s]."""
        inside = set(nodes)
        arrived_jobs = [jobs[job_id] for job_id in arrived]
        rules = self._node_rules(view, part, nodes)
        return view.part(
            _only_inside(view.gpus_per_node, inside),
            jobs,
            view.changes.among(jobs, arrived=arrived_jobs, ended=ended),
            nodes=inside,
            node_types=rules.node_types,
            free=_only_inside(view.free, inside),
            shape_rule=rules.shape_rule,
        )

    def _node_rules(self, view: ClusterView, part: str, nodes: Sequence[int]) -> _NodeRules:
        """Return what is known of the nodes of a part. A fork may have changed them."""
        before = self._rules.get(part)
        if before is not None and before.is_for(view, nodes):
            return before
        node_types = view.node_types
        if node_types and nodes:
            # Otherwise the policy would see the types of nodes that it cannot use.
            types_in_part = [node_types[nodes[0]]] * len(node_types)
            for node in nodes:
                types_in_part[node] = node_types[node]
            node_types = NodeTypes(types_in_part)
        shape_rule = view.shape_rule.within(nodes)
        rules = _NodeRules(nodes, view.node_types, view.shape_rule, node_types, shape_rule)
        self._rules[part] = rules
        return rules


def _only_inside(gpus_per_node: Sequence[int], inside: Container[int]) -> list[int]:
    """Return the GPUs of each node, 0 for a node outside a part."""
    return [gpus if node in inside else 0 for node, gpus in enumerate(gpus_per_node)]


class PerPart(PolicyAround):
    """A policy that has a copy of another policy for each part of a partition.

    Parameters
    ----------
    policy
        A policy that has not decided before. It is copied for each part.
    partition
        A new partition.

    >>> from polluxsim.policies.reserving.easy import Easy
    >>> class Halves(DisjointParts):
    ...     def nodes(self, view):
    ...         half = len(view.gpus_per_node) // 2
    ...         return {"left": range(half), "right": range(half, len(view.gpus_per_node))}
    ...     def placed(self, view, new):
    ...         return {job.job_id: "left" if job.num_replicas < 4 else "right" for job in new}
    >>> PerPart(Easy(), Halves()).label
    'Easy'
    """

    def __init__(self, policy: Allocates, partition: Partition) -> None:
        self._prototype = as_policy(policy)
        self._partition = partition
        self._policies: dict[str, Policy] = {}

    @property
    def wrapped(self) -> Policy:
        """Return the policy that is copied."""
        return self._prototype

    @property
    def label(self) -> str:
        """Return the name of the policy that is copied."""
        return self._prototype.label

    def copy_for(self, part: str, view: ClusterView) -> Policy:
        """Return the policy for a part, when the part is first seen. By default, a copy."""
        return deepcopy(self._prototype)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Let each copy decide about its part."""
        decisions: dict[str, Decision] = {}
        for part, view_of_part in self._partition.parts(view).items():
            if part not in self._policies:
                self._policies[part] = self.copy_for(part, view)
            decisions[part] = decision_of(self._policies[part].allocate(view_of_part, rng))
        return self._partition.merge(view, decisions)
