"""Edits of a fork: how run.json stores them, and how they change a run in progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy, deepcopy
from dataclasses import asdict, fields, replace
from itertools import pairwise
from math import isfinite
from typing import Any

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, listed, short
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import for_cluster
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import JobId
from polluxsim.models.known_duration import BatchPlan
from polluxsim.models.stages import Stages
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.records.storage import RUN_FILE, Run
from polluxsim.run.building import build, check_classes
from polluxsim.run.claim import DESCENT
from polluxsim.run.spec import Edit, RunSpec
from polluxsim.run.spec import as_plain as plain
from polluxsim.workloads.job import Job
from polluxsim.workloads.past import Past

BEFORE = "before"  # part of a descent: the `config` of the parent, and the `descent` of a parent that is a fork itself


def recorded_descent(parent: Run, config: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """Return the `descent` of a fork for run.json, as plain values. `config` has the settings of the parent."""
    before = {"config": dict(config)}
    if DESCENT in parent.info:
        before[DESCENT] = parent.info[DESCENT]
    return {
        "run": parent.name,
        "key": parent.info.get("key"),
        "time": edit.time,
        "lost_nodes": list(edit.lost_nodes),
        "without": list(edit.without),
        "added": [job.job_id for job in edit.added],
        "added_jobs": {job.job_id: fields_of(job) for job in edit.added},
        "seed": edit.seed,
        "new_policy": edit.new_policy,
        "down_nodes": list(edit.down_nodes),
        "down_for": edit.down_for,
        BEFORE: before,
    }


def ancestry(run: Run) -> list[Mapping[str, Any]]:
    """Return the `config` and the `descent` of a run and of its ancestors, the run first.

    The entry of the run itself is the whole content of its run.json. Raise InvalidInputError if run.json lacks the
    settings before a fork, or its descent is damaged.
    """
    generations = [run.info]
    while (descent := generations[-1].get(DESCENT)) is not None:
        if not isinstance(descent, dict) or not isinstance(descent.get(BEFORE, {}), dict):
            raise InvalidInputError(f"{run.name}/{RUN_FILE}: descent is {short(descent)}; make the fork again")
        if BEFORE not in descent:
            raise InvalidInputError(
                f"{run.name}/{RUN_FILE}: the settings before the fork are missing, because an older polluxsim wrote "
                f"the file; make the fork again from its run {short(descent.get('run'))}"
            )
        generations.append(descent[BEFORE])
    return generations


def spec_of(run: Run) -> RunSpec:
    """Return the description of a finished run: that of its first ancestor, with an edit for each fork.

    A run folder is data: only classes that the run may load are imported, and functions like metrics are ignored.

    Raise InvalidInputError if the run cannot be simulated again.
    """
    source = f"{run.name}/{RUN_FILE}"
    infos = ancestry(run)[::-1]  # the first ancestor first
    configs = [_replayed_settings(run, source, info.get("config", {})) for info in infos]
    edits = []
    for info, (before, after) in zip(infos[1:], pairwise(configs), strict=True):
        edits.append(_edit(source, info[DESCENT], changed_settings(before, after)))
    if any(earlier.time > later.time for earlier, later in pairwise(edits)):
        raise InvalidInputError(f"{source}: the times of the forks are not in order; make the fork again")
    return RunSpec(configs[0], edits=tuple(edits))


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings after an edit of the groups in which they differ from those before. The seed is left out."""
    # An edit states its seed apart, because an equal seed starts the generator again too.
    return {group: part for group, part in after.items() if group != "seed" and part != before.get(group)}


def _replayed_settings(run: Run, source: str, config: Any) -> dict[str, Any]:
    """Return recorded settings for a replay, without metrics.

    Raise InvalidInputError if a part was an object in Python, a class may not be loaded, the policy or the cluster is
    missing, or the seed is invalid.
    """
    check_classes(config, source, run.allow_classes)
    for group, part in config.items():
        if isinstance(part, dict) and "object" in part:
            problem = f"its {group} was an object in Python"
            raise InvalidInputError(f"{run.name} cannot be simulated again: {problem}; choose the {group} by name")
    for group in ("policy", "cluster"):
        if group not in config:
            raise InvalidInputError(f"{source}: config.{group} is missing; make the run again")
    if not _is_int(config.get("seed")):
        problem = f"config.seed is {short(config.get('seed'))}, must be a whole number of at least 0"
        raise InvalidInputError(f"{source}: {problem}; make the run again")
    # Metrics name functions, which would run code that the user has not allowed, and they change no simulation.
    return {name: part for name, part in config.items() if name != "metrics"}


def _is_int(value: object) -> bool:
    """Return whether a value is a whole number of at least 0; in Python, true is an int too."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def _are(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_one, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "time": (_is_time, "a number of seconds of at least 0"),
    "lost_nodes": (_are(_is_int), "a list of node numbers"),
    "without": (_are(_is_text), "a list of names"),
    "added": (_are(_is_text), "a list of names"),
    "added_jobs": (lambda value: isinstance(value, dict), "a mapping of names to jobs"),
    "seed": (lambda value: value is None or _is_int(value), "null or a whole number of at least 0"),
    "new_policy": (lambda value: isinstance(value, bool), "true or false"),
    # Forks that an older version wrote have neither of these.
    "down_nodes": (lambda value: value is None or _are(_is_int)(value), "a list of node numbers"),
    "down_for": (lambda value: value is None or _is_time(value), "a number of seconds of at least 0"),
}
"""What the parts of a descent must be: a check, and the rule in words."""


def _edit(source: str, descent: Mapping[str, Any], settings: Mapping[str, Any]) -> Edit:
    """Return the edit that a descent stores, with the settings that it changes.

    Raise InvalidInputError if a part of the descent is invalid.
    """
    for name, (is_allowed, rule) in _RULES.items():
        value = descent.get(name)
        if not is_allowed(value):
            raise InvalidInputError(f"{source}: descent.{name} is {short(value)}, must be {rule}; make the fork again")
    added: list[Job] = []
    for name in descent["added"]:
        try:
            values = descent["added_jobs"].get(name)
            if not isinstance(values, dict):
                raise TypeError(f"must be a mapping, not {short(values)}")
            added.append(job_from(name, values))
        except (InvalidInputError, AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"descent.added_jobs.{name} is no job ({error})"
            raise InvalidInputError(f"{source}: {problem}; make the fork again") from None
    return Edit(
        descent["time"],
        settings,
        lost_nodes=tuple(descent["lost_nodes"]),
        without=tuple(descent["without"]),
        added=tuple(added),
        seed=descent["seed"],
        new_policy=descent["new_policy"],
        down_nodes=tuple(descent.get("down_nodes") or ()),
        down_for=descent.get("down_for") or 0.0,
    )


def fields_of(job: Job) -> dict[str, Any]:
    """Return the fields of a job that differ from their defaults, as plain values. Its name and line are left out.

    >>> fields_of(Job.rigid("a", 60.0, 2, 600.0, user="ada"))["user"]
    'ada'
    """
    values = {}
    for field in fields(Job):
        value = getattr(job, field.name)
        if field.name not in ("job_id", "line") and value != field.default:
            values[field.name] = _plain(value)
    return values


def job_from(name: JobId, values: Mapping[str, Any]) -> Job:
    """Return the job that `fields_of` describes. Values that describe no job raise various errors.

    >>> job = Job.rigid("a", 60.0, 2, 600.0, speeds=((1, 0.5), (2, 1.0)))
    >>> job_from("a", fields_of(job)) == job
    True
    """
    # Jobs are hashed and compared, so their fields are tuples; JSON has lists.
    arguments = _frozen_values(values)
    if "stages" in arguments:
        arguments["stages"] = Stages(*arguments["stages"])
    if "past" in arguments:
        arguments["past"] = Past(**_frozen_values(values["past"]))
    if "plan" in arguments:
        plan = _frozen_values(values["plan"])
        plan["speeds"] = {(gpu_type, size): speed for gpu_type, size, speed in plan["speeds"]}
        arguments["plan"] = BatchPlan(**plan)
    return Job(name, **arguments)


def _plain(value: Any) -> Any:
    """Return a value of a field as JSON can hold it."""
    if isinstance(value, Past):
        return plain(asdict(value))
    if isinstance(value, BatchPlan):
        plan = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.name != "speeds"}
        # JSON has no pairs as keys, so each speed is a list with its GPU type and batch size.
        plan["speeds"] = [[*key, speed] for key, speed in value.speeds.items()]
        return plan
    return plain(value)


def _frozen_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values by name, with tuples in place of lists."""
    return {name: _frozen(value) for name, value in values.items()}


def _frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


KEPT_SETTINGS = ("failures", "spot", "repairs", "startup_time", "node_price")
"""Settings of a cluster that a fork cannot change. The failures apply to added nodes too."""


def _cannot_change(setting: str) -> InvalidConfigError:
    problem = f"{setting} cannot be changed in the middle of a run"
    return InvalidConfigError(f"{problem}; change only the number of nodes, or make a new run")


class Branch:
    """A run in progress, with the settings, the policy and the scenario after its last edit.

    `run.scenario` is the scenario before the edit until the run comes to the time of the edit. `lost_nodes`, `left_out`
    and `added` are the nodes that went down for good, the names of the jobs left out, and the added jobs, of all edits
    so far.
    """

    def __init__(self, config: Mapping[str, Any], run: Simulation, policy: Policy) -> None:
        self.config = config
        self.run = run
        self.policy = policy
        self.scenario = run.scenario
        self.lost_nodes: frozenset[int] = frozenset()
        self.left_out: frozenset[JobId] = frozenset()
        self.added: tuple[Job, ...] = ()
        self._num_nodes = self.scenario.cluster.num_nodes  # as the settings state it, lost nodes included

    def copy(self) -> Branch:
        """Return an independent branch that continues like this one."""
        copied = copy(self)
        # Together, so that an object that the run and the policy share is one object in the copy too.
        copied.run, copied.policy = deepcopy((self.run, self.policy))
        return copied

    def advance(self, time: float) -> None:
        """Continue to just before a time [s]."""
        while (view := self.run.advance(before=time)) is not None:
            self.run.commit(self.run.ask(self.policy, view))

    def change(self, edit: Edit, given: Mapping[str, Any]) -> Edit:
        """Make an edit at the round of its time; return it with all nodes that go down for good.

        The branch must not have passed this time. The edit may change the settings of policy and cluster. `given`
        contains objects by config group. They replace the objects that the settings describe.

        Raise InvalidConfigError if a setting is invalid or must not change, or a node is not there.
        """
        config = edit.config_after(self.config)
        before = self.scenario
        cluster, lost = self._changed_cluster(edit, config, given)
        if edit.new_policy and "policy" in given:
            self.policy = deepcopy(given["policy"])  # the caller may use the object for other forks
        elif edit.new_policy:
            self.policy = build(config, "policy")
        if edit.new_policy or cluster != before.cluster:
            self.policy = for_cluster(self.policy, cluster)
            traits = traits_of(self.policy)
            self.scenario = replace(before, cluster=cluster, traits=traits, policy_name=self.policy.label)
        # Lost nodes with higher numbers would be new ones. They never come up, so the cluster does not have them.
        down = tuple(node for node in lost if node < cluster.num_nodes)
        self._check_down(edit, cluster.num_nodes, lost)
        fork = Fork(edit.time, self.scenario, edit.new_policy, down, edit.outage, edit.without, edit.added, edit.seed)
        # A fork without changes is not made, so that the run has the records of a run without a fork.
        if fork != Fork(edit.time, before):
            self.run.fork(fork)
        self.config = config
        self.lost_nodes |= frozenset(lost)
        self.left_out |= frozenset(edit.without)
        self.added += edit.added
        return replace(edit, lost_nodes=lost)

    def _changed_cluster(
        self, edit: Edit, config: Mapping[str, Any], given: Mapping[str, Any]
    ) -> tuple[Cluster, tuple[int, ...]]:
        """Return the cluster after the fork, and the numbers of the nodes that go down for good.

        The cluster includes nodes that go down, except for new nodes at its end: they never come up.
        """
        present = self.scenario.cluster
        wanted = present
        if "cluster" in given:
            wanted = given["cluster"]
        elif config["cluster"] != self.config["cluster"]:
            self._check_parts(config)
            wanted = build(config, "cluster")
        if "cluster" in given or config["cluster"] != self.config["cluster"]:
            self._check_growth(wanted.num_nodes)
            self._num_nodes = wanted.num_nodes
        if wanted == present and not edit.lost_nodes:
            return present, ()
        _check_nodes(present, wanted)
        self._check_kept(wanted, config)
        num_nodes = max(present.num_nodes, wanted.num_nodes)
        self._check_dropped(edit.lost_nodes, num_nodes)
        already_down = {node for node in self.lost_nodes if node < present.num_nodes}
        removed = range(wanted.num_nodes, present.num_nodes)
        lost = {*edit.lost_nodes, *removed} - already_down
        # Nodes that earlier forks lost, and that the cluster would now get again, stay down.
        lost |= {node for node in self.lost_nodes - already_down if node < num_nodes}
        while num_nodes > present.num_nodes and num_nodes - 1 in lost:
            num_nodes -= 1
        if num_nodes <= present.num_nodes:
            return present, tuple(sorted(lost))
        # Only the nodes come from the wanted cluster; all other settings stay.
        larger = replace(
            present,
            gpus_per_node=wanted.gpus_per_node[:num_nodes],
            node_types=NodeTypes(wanted.node_types[:num_nodes]),
            hosts=wanted.hosts[:num_nodes],
        )
        return larger, tuple(sorted(lost))

    def _check_down(self, edit: Edit, num_nodes: int, lost: Collection[int]) -> None:
        """Raise InvalidConfigError if a node that is to go down for a time is not there, or is down for good."""
        if edit.down_nodes:
            _check_nodes(self.scenario.cluster, self.scenario.cluster)
        for node in edit.down_nodes:
            if node not in range(num_nodes):
                raise InvalidConfigError(f"there is no node {node} to take down; name one from 0 to {num_nodes - 1}")
            if node in self.lost_nodes or node in lost:
                raise InvalidConfigError(f"node {node} is down for good, so it cannot go down; name another node")

    def _check_parts(self, config: Mapping[str, Any]) -> None:
        """Raise InvalidConfigError if a setting belongs to a part, like failures, that the cluster does not have."""
        for name in KEPT_SETTINGS:
            part = config["cluster"].get(name)
            # An override of a part that is null makes a mapping without a class.
            if isinstance(part, dict) and "_target_" not in part:
                raise _cannot_change(f"cluster.{name}")

    def _check_kept(self, new: Cluster, config: Mapping[str, Any]) -> None:
        """Raise InvalidConfigError if the new cluster changes one of the `KEPT_SETTINGS`."""
        old = self.scenario.cluster
        for name in KEPT_SETTINGS:
            present = getattr(old, name)
            wanted = getattr(new, name)
            # Classes of the user may not define equality, so equal settings suffice.
            if present == wanted or self.config["cluster"].get(name) == config["cluster"].get(name):
                continue
            if not isinstance(wanted, float):
                raise _cannot_change(f"cluster.{name}")
            raise InvalidConfigError(
                f"cluster.{name} is {short(wanted)}, but a fork keeps the value of the run, {short(present)}; "
                "change only the number of nodes"
            )

    def _check_growth(self, num_nodes: int) -> None:
        """Raise InvalidConfigError if a larger number of nodes adds none: nodes that a fork dropped stay down."""
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
            # A lost node beyond the cluster may be dropped again, because a larger cluster would get it back.
            if node in self.lost_nodes and node < self.scenario.cluster.num_nodes:
                raise InvalidConfigError(f"node {node} went down for good in an earlier fork; name another node")


def _check_nodes(old: Cluster, new: Cluster) -> None:
    """Raise InvalidConfigError if a policy chooses the number of nodes, or the first nodes of both clusters differ."""
    if None is not old.least_nodes or None is not new.least_nodes:
        raise InvalidConfigError(
            "cluster: the policy chooses the number of nodes on an elastic cluster, so that a fork cannot change or "
            "drop nodes; change the policy"
        )
    num_common = min(old.num_nodes, new.num_nodes)
    for part in ("gpus_per_node", "node_types", "hosts"):
        if getattr(new, part)[:num_common] != getattr(old, part)[:num_common]:
            raise InvalidConfigError(
                f"cluster has nodes {new.groups}, but the run has {old.groups}; a fork adds or removes nodes at the end"
            )
