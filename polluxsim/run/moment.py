"""A finished run, simulated again up to a time, and its forks from there."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hydra.errors import HydraException
from omegaconf import OmegaConf

from polluxsim.durations import first_round
from polluxsim.engine.futures import Fork
from polluxsim.engine.policy_calls import guarded
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import driven
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.gpu_types import NodeTypes
from polluxsim.metrics.summary import summarise
from polluxsim.run.building import build, check_classes
from polluxsim.run.composing import composed
from polluxsim.run.digests import digest_of
from polluxsim.run.effects import settings_without_effect, unused_in
from polluxsim.run.execution import Execution
from polluxsim.run.hydra_words import hydra_in_words
from polluxsim.storage import RUN_FILE, Run
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from omegaconf import DictConfig

    from polluxsim.engine.simulation import Simulation
    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy
    from polluxsim.workloads.workload import Job

RunT = TypeVar("RunT", bound=Run)


class Moment(Generic[RunT]):
    """A finished run at one of its scheduling rounds, from which it can go on in other ways.

    The run is simulated again from its recorded settings, up to the first round at `time` [s] or later.

    Raises
    ------
    InvalidInputError
        If the run ends before `time`, or if the simulation does not reproduce the recorded run.

    Attributes
    ----------
    origin
        The original run.
    config
        The settings of the run.
    time
        Time of the round [s].
    """

    def __init__(self, run: RunT, time: float) -> None:
        config = run.info.get("config", {})
        check_classes(config, f"{run.name}/{RUN_FILE}", run.allow_classes)
        if given := [group for group, part in config.items() if isinstance(part, dict) and "object" in part]:
            what = f"its {given[0]} was an object in Python, allowed are choices by name"
            raise InvalidInputError(f"{run.name} cannot be made again: {what}")
        # A run folder is data: no function that it names is loaded.
        self.origin = run
        self.config = OmegaConf.create({name: part for name, part in config.items() if name != "metrics"})
        self._execution = Execution(self.config)
        self._run, self._policy = self._execution.start()
        interval = self._run.scenario.settings.round_interval
        self.time = first_round(time, interval) * interval
        if run.result.end_time <= self.time:
            raise InvalidInputError(f"{run.name} ends at {run.result.end_time:g} s, allowed are times before")
        while (view := self._run.advance(before=self.time)) is not None:
            with guarded(self._run.scenario.policy_name, view.time):
                decision = self._policy.allocate(view, self._run.rng)
            self._run.commit(decision)
        self._check_past()

    def _check_past(self) -> None:
        again = self._run.result().allocation_records
        before = [record for record in self.origin.result.allocation_records if record.time < self.time]
        if before != list(again):
            what = "made again, it is another run: files, polluxsim or its libraries have changed since"
            raise InvalidInputError(f"{self.origin.name}: {what}")

    def copied(self) -> tuple[Simulation, Policy]:
        """Return a copy of the run just before the round, and of its policy."""
        return deepcopy((self._run, self._policy))

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Return the profiles of the run."""
        return self._run.scenario.profiles

    def fork(
        self,
        config: DictConfig,
        given: Mapping[str, Any],
        *,
        drop_nodes: Collection[int] = (),
        without: Iterable[str] = (),
        added: Sequence[Job] = (),
        seed: int | None = None,
    ) -> RunT:
        """Return the run as it goes on with changes from this round on.

        Parameters
        ----------
        config
            The settings of the fork. They may differ from those of the run in policy and cluster.
        given
            Objects by config group, in place of the objects that `config` describes.
        drop_nodes
            Nodes that go down and stay down.
        without
            Jobs that are cancelled, or never submitted.
        added
            Additional jobs, at their times since the start of the run [s].
        seed
            Seed of the policy's random generator from this round on.

        Raises
        ------
        PolluxSimError
            If a change is impossible.
        """
        run, policy = self.copied()
        new_policy, new_cluster = (self._changed(group, config, given) for group in ("policy", "cluster"))
        scenario, policy = run.scenario, policy if new_policy is None else deepcopy(new_policy)
        nodes, lost = _nodes(scenario.cluster, new_cluster or scenario.cluster, drop_nodes)
        if new_policy is not None or nodes != scenario.cluster:
            parts = policy, scenario.workload, scenario.profiles, nodes, scenario.settings
            scenario = Scenario.under(*parts, scenario.agent)
        left_out = tuple(dict.fromkeys(without))
        self._check_jobs(left_out)
        diversion = Fork(self.time, scenario, new_policy is not None, lost, left_out, tuple(added), seed)
        if diversion != Fork(self.time, run.scenario):
            run.fork(diversion)
        unused = settings_without_effect(policy, scenario)
        result = driven(run, policy)
        unused += unused_in(scenario, result)
        settings = OmegaConf.merge(config, {} if seed is None else {"seed": seed})
        descent = {"run": self.origin.name, "key": self.origin.info.get("key"), "time": self.time}
        descent |= {"lost_nodes": list(lost), "without": list(left_out), "added": [job.job_id for job in added]}
        if added:
            descent["added_digest"] = digest_of({job.job_id: repr(replace(job, line=0)) for job in added})
        info = self._execution.info(summarise(result))
        info |= {"config": OmegaConf.to_container(settings), "seed": settings.seed, "nodes": nodes.groups, "key": None}
        info.pop("without_effect", None)  # of the original run
        info |= {"descent": descent} | ({"without_effect": unused} if unused else {})
        return replace(self.origin, info=info, result=result)

    def _changed(self, group: str, config: DictConfig, given: Mapping[str, Any]) -> Any:
        """Return the object of a group whose settings changed; None if they did not."""
        if group in given:
            return given[group]
        return None if config[group] == self.config[group] else build(config, group)

    def _check_jobs(self, names: Sequence[str]) -> None:
        ends = {job.job: job.end_time for job in self.origin.result.job_records}
        for name in names:
            if name not in ends:
                raise InvalidInputError(f"{self.origin.name} has no job {name!r}")
            if (end := ends[name]) is not None and end < self.time:
                raise InvalidInputError(
                    f"job {name!r} ended at {end:g} s, allowed are jobs that end at {self.time:g} s or later"
                )


def replaced(config: DictConfig, group: str, part: Any) -> DictConfig:
    """Return a configuration in which one group is replaced."""
    return OmegaConf.create({**config, group: part})


def with_entry(config: DictConfig, group: str, name: str | None, settings: Mapping[str, object]) -> DictConfig:
    """Return a configuration with another entry of a group, or, without a name, with other settings of its entry."""
    if name is None:
        return replaced(config, group, OmegaConf.merge(config[group], dict(settings)))
    try:
        return replaced(config, group, composed({group: name}, {group: settings}, 0)[group])
    except HydraException as error:
        raise InvalidConfigError(hydra_in_words(error)) from None


def _nodes(old: Cluster, new: Cluster, dropped: Collection[int]) -> tuple[Cluster, tuple[int, ...]]:
    """Return the cluster with all old and new nodes, and the removed ones. A new node that is removed is left out."""
    if new == old and not dropped:
        return old, ()
    if None is not old.least_nodes or None is not new.least_nodes:
        raise InvalidConfigError("nodes that are rented as a policy asks for them cannot be changed, nor dropped")
    both = min(old.num_nodes, new.num_nodes)
    parts = ("gpus_per_node", "node_types", "hosts")
    if any(getattr(new, part)[:both] != getattr(old, part)[:both] for part in parts):
        what = f"cluster has nodes {new.groups}, allowed are those there are, {old.groups}, and more or fewer"
        raise InvalidConfigError(f"{what} at the end")
    nodes = max(old, new, key=lambda cluster: cluster.num_nodes)
    if strange := [node for node in dropped if node not in range(nodes.num_nodes)]:
        raise InvalidConfigError(f"node {strange[0]} is not there, allowed are 0 to {nodes.num_nodes - 1}")
    lost = {*dropped, *range(new.num_nodes, old.num_nodes)}
    gpus = nodes.gpus_per_node
    while len(gpus) > old.num_nodes and len(gpus) - 1 in lost:
        lost.remove(len(gpus) - 1)
        gpus = gpus[:-1]
    if gpus == old.gpus_per_node:
        return old, tuple(sorted(lost))
    types, hosts = NodeTypes(nodes.node_types[: len(gpus)]), nodes.hosts[: len(gpus)]
    return Cluster(gpus, failures=old.failures, node_types=types, hosts=hosts), tuple(sorted(lost))
