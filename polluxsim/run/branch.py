"""A run in progress that forks change: it continues to a time, and takes the edits of a fork."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polluxsim.engine.futures import Fork
from polluxsim.engine.policy_calls import guarded
from polluxsim.errors import InvalidConfigError, listed, short
from polluxsim.gpu_types import NodeTypes
from polluxsim.policies.view import traits_of
from polluxsim.run.building import build

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from omegaconf import DictConfig

    from polluxsim.engine.simulation import Simulation
    from polluxsim.policies.view import Policy
    from polluxsim.run.descent import Edits
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job

KEPT_SETTINGS = ("failures", "spot", "repairs", "startup_time", "node_price")
"""Settings of a cluster that a fork cannot change. They apply to added nodes too."""


class Branch:
    """A run in progress, with its policy and its settings.

    Parameters
    ----------
    config
        The settings of the run.
    run, policy
        The run, and the policy that decides in it.

    Attributes
    ----------
    config, policy, scenario
        The present settings, policy and scenario. `run.scenario` follows at the round of the last edits.
    lost_nodes, left_out, added
        Nodes that went down for good, names of the jobs left out, and the added jobs, of all edits so far.
    """

    def __init__(self, config: DictConfig, run: Simulation, policy: Policy) -> None:
        self.config, self.run, self.policy = config, run, policy
        self.scenario = run.scenario
        self.lost_nodes: frozenset[int] = frozenset()
        self.left_out: frozenset[JobId] = frozenset()
        self.added: tuple[Job, ...] = ()
        self._num_nodes = self.scenario.cluster.num_nodes  # as the settings state it, lost nodes included

    def copy(self) -> Branch:
        """Return a branch that continues like this one, and independently of it."""
        copied = copy(self)
        copied.run, copied.policy = deepcopy((self.run, self.policy))
        return copied

    def advance(self, time: float) -> None:
        """Continue to just before a time [s]."""
        while (view := self.run.advance(before=time)) is not None:
            with guarded(self.run.scenario.policy_name, view.time):
                decision = self.policy.allocate(view, self.run.rng)
            self.run.commit(decision)

    def change(self, edits: Edits, config: DictConfig, given: Mapping[str, Any]) -> Edits:
        """Make the edits of a fork at the round of their time; return them with all nodes that go down.

        Parameters
        ----------
        edits
            The edits. The branch must not be past their time.
        config
            The settings from then on. Policy, cluster and seed may differ from the present settings.
        given
            Objects by config group, in place of the objects that `config` describes.

        Raises
        ------
        PolluxSimError
            If an edit is impossible.
        """
        before, (cluster, lost) = self.scenario, self._changed_cluster(edits, config, given)
        if edits.new_policy:
            self.policy = deepcopy(given["policy"]) if "policy" in given else build(config, "policy")
        if edits.new_policy or cluster != before.cluster:
            traits, name = traits_of(self.policy), type(self.policy).__name__
            self.scenario = replace(before, cluster=cluster, traits=traits, policy_name=name)
        there = tuple(node for node in lost if node < cluster.num_nodes)
        parts = edits.new_policy, there, edits.without, edits.added, edits.seed
        if (fork := Fork(edits.time, self.scenario, *parts)) != Fork(edits.time, before):
            self.run.fork(fork)
        self.config = config
        self.lost_nodes |= frozenset(lost)
        self.left_out |= frozenset(edits.without)
        self.added += edits.added
        return edits._replace(lost_nodes=lost)

    def _changed_cluster(
        self, edits: Edits, config: DictConfig, given: Mapping[str, Any]
    ) -> tuple[Cluster, tuple[int, ...]]:
        """Return the cluster from then on, and the numbers of the nodes that go down.

        The cluster includes nodes that go down, except for new nodes at its end: they never come up.
        """
        old = new = self.scenario.cluster
        if "cluster" in given or config.cluster != self.config.cluster:
            new = given["cluster"] if "cluster" in given else build(config, "cluster")
            self._check_growth(new.num_nodes)
            self._num_nodes = new.num_nodes
        if new == old and not edits.lost_nodes:
            return old, ()
        _check_nodes(old, new)
        self._check_kept(new, config)
        num_nodes = max(old.num_nodes, new.num_nodes)
        self._check_dropped(edits.lost_nodes, num_nodes)
        down = {node for node in self.lost_nodes if node < old.num_nodes}
        lost = {*edits.lost_nodes, *range(new.num_nodes, old.num_nodes)} - down
        lost |= {node for node in self.lost_nodes - down if node < num_nodes}
        while num_nodes > old.num_nodes and num_nodes - 1 in lost:
            num_nodes -= 1
        return _with_nodes(old, new, num_nodes), tuple(sorted(lost))

    def _check_kept(self, new: Cluster, config: DictConfig) -> None:
        """Check that the wanted cluster has the failures and prices of the present one.

        Classes of the user may not define equality, so that equal settings are enough.
        """
        old = self.scenario.cluster
        for name in KEPT_SETTINGS:
            there, wanted = getattr(old, name), getattr(new, name)
            if there != wanted and self.config.cluster.get(name) != config.cluster.get(name):
                raise InvalidConfigError(
                    f"cluster.{name} is {short(wanted)}, but a fork keeps the value of the run, {short(there)}; "
                    "change only the number of nodes"
                )

    def _check_growth(self, num_nodes: int) -> None:
        """Check that a larger number of nodes adds one: nodes that earlier forks dropped stay down."""
        more = range(self._num_nodes, num_nodes)
        if more and self.lost_nodes.issuperset(more) and num_nodes <= self.scenario.cluster.num_nodes:
            raise InvalidConfigError(
                f"cluster has {num_nodes} nodes, but node {listed(map(str, more), 3)} went down for good in an earlier "
                f"fork; ask for at least {self.scenario.cluster.num_nodes + 1} nodes"
            )

    def _check_dropped(self, dropped: Collection[int], num_nodes: int) -> None:
        for node in dropped:
            if node not in range(num_nodes):
                raise InvalidConfigError(f"there is no node {node} to drop; name one from 0 to {num_nodes - 1}")
            if node in self.lost_nodes and node < self.scenario.cluster.num_nodes:
                raise InvalidConfigError(f"node {node} went down for good in an earlier fork; name another node")


def _check_nodes(old: Cluster, new: Cluster) -> None:
    """Check that the numbers of nodes are fixed, and that the nodes of both clusters are equal as far as both go."""
    if None is not old.least_nodes or None is not new.least_nodes:
        what = "the policy chooses the number of nodes on an elastic cluster"
        raise InvalidConfigError(f"cluster: {what}, so that a fork cannot change or drop nodes; change the policy")
    both = min(old.num_nodes, new.num_nodes)
    parts = ("gpus_per_node", "node_types", "hosts")
    if any(getattr(new, part)[:both] != getattr(old, part)[:both] for part in parts):
        raise InvalidConfigError(
            f"cluster has nodes {new.groups}, but the run has {old.groups}; a fork adds or removes nodes at the end"
        )


def _with_nodes(old: Cluster, new: Cluster, num_nodes: int) -> Cluster:
    """Return a cluster with more nodes, the first ones of a larger cluster; its other settings stay."""
    if num_nodes == old.num_nodes:
        return old
    types, hosts = NodeTypes(new.node_types[:num_nodes]), new.hosts[:num_nodes]
    return replace(old, gpus_per_node=new.gpus_per_node[:num_nodes], node_types=types, hosts=hosts)
